//! Finds the PTX in an arbitrary image, or rejects it: as bytes, and at an address of the program with nothing behind its last
//! byte. Both find the same, and memory stays proportional to the image, but for a fixed amount.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::fuzz_target;

/// The most that is allocated for any image, and for each of its bytes.
const FIXED_BYTES_MAX: usize = 512 << 20;
const RATIO_MAX: usize = 8 * 1024;

/// The longest image, as libFuzzer's `-max_len` says.
const IMAGE_BYTES_MAX: usize = 8192;

fuzz_target!(|image: &[u8]| {
    let before = ALLOCATOR.start();
    let found = freehold_softcuda::ptx_in(image);
    let peak = ALLOCATOR.peak_bytes() - before;
    assert!(peak <= FIXED_BYTES_MAX + RATIO_MAX * image.len(), "{peak} bytes for an image of {}", image.len());
    let image = &image[..image.len().min(IMAGE_BYTES_MAX)];
    let there = freehold_softcuda::ptx_at(at_the_end_of_a_page(image));
    // A fat binary is as long as its header says: an address leads to no more and no less.
    if image.starts_with(&0xba55_ed50_u32.to_le_bytes()) {
        assert_eq!(there, found);
    }
});

/// Copies an image to pages that end with it, followed by one that cannot be read, and returns its address.
fn at_the_end_of_a_page(image: &[u8]) -> u64 {
    static END: OnceLock<usize> = OnceLock::new();
    let end = *END.get_or_init(|| {
        let (flags, bytes) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, IMAGE_BYTES_MAX + 4096);
        // SAFETY: the kernel chooses the address.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "mmap");
        let end = start.wrapping_byte_add(IMAGE_BYTES_MAX);
        // SAFETY: the page is the last one of the mapping, and nothing uses it.
        assert_eq!(unsafe { libc::mprotect(end, 4096, libc::PROT_NONE) }, 0, "mprotect");
        end.expose_provenance()
    });
    let start = std::ptr::with_exposed_provenance_mut::<u8>(end - image.len());
    // SAFETY: the image is not longer than the pages before `end`, which are writable and belong to this function.
    unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), start, image.len()) };
    start.addr() as u64
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator { live: AtomicUsize::new(0), peak: AtomicUsize::new(0) };

/// The system's allocator, with the number of bytes that are allocated and the greatest one so far.
struct CountingAllocator {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl CountingAllocator {
    /// Forgets the peak, and returns the number of bytes that are allocated.
    fn start(&self) -> usize {
        let live = self.live.load(Ordering::Relaxed);
        self.peak.store(live, Ordering::Relaxed);
        live
    }

    fn peak_bytes(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = self.live.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        self.peak.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller vouches for the block and its layout, with which this allocator called the system's.
        unsafe { System.dealloc(block, layout) }
    }
}
