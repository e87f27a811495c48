//! Memory of the host that processes share, used by the streams of this one without a copy, and by its host through atomics.
//! Knows nothing of what other processes do there meanwhile, nor of who may when.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::IntoBytes;

use crate::api::device::Device;
use crate::api::imported::{ImportedSlice, Inner};
use crate::api::memory::Pod;
use crate::api::stream::Stream;
use crate::device::pinned::{Pinned, sealed_bytes};
use crate::error::{Error, Result};

const WORD_BYTES: usize = size_of::<AtomicU32>();

/// Memory of the host that a descriptor names, mapped in this process and registered with its device: kernels read and write it
/// where it lies. A handle: mapping and registration end when the last handle and the last [`ImportedSlice`] are gone and all work with
/// them has passed, and nothing waits for that.
///
/// ```
/// use std::os::fd::AsFd;
/// use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let memory = memfd_create("words", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("memory of the host");
/// ftruncate(&memory, 4096).expect("a page");
/// fcntl_add_seals(&memory, SealFlags::SHRINK).expect("nobody makes it shorter");
/// let shared = device.host_memory(memory.as_fd(), 4096)?; // other processes do the same
/// shared.write(0, &[1u32, 2, 3])?; // the host
/// let mut part = shared.part::<u32>(&stream, 4, 2)?;
/// stream.fill_bytes(&mut part, 0)?; // the device, where it lies
/// stream.synchronize()?;
/// let mut seen = [0u32; 3];
/// shared.read(0, &mut seen)?;
/// assert_eq!(seen, [1, 0, 0]);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct HostMemory {
    inner: Arc<Inner>,
    pinned: Pinned,
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Device {
    /// Maps the memory of the host that a descriptor names, which may be closed afterwards: its first `bytes`.
    ///
    /// # Errors
    /// [`Error::OtherLength`] where the descriptor has fewer, [`Error::NotSealed`] where that could become so later,
    /// [`Error::CannotRegister`] on a device that cannot.
    pub fn host_memory(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<HostMemory> {
        let (context, device) = (&self.primary, &self.primary.inner.device);
        device.run_deferred()?;
        let by = device.backend.host_registration().ok_or(Error::CannotRegister)?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let had_bytes = sealed_bytes(descriptor)?;
        let length = usize::try_from(bytes).ok().filter(|&length| length <= isize::MAX as usize);
        let Some(length) = length.filter(|_| bytes <= had_bytes) else {
            return Err(Error::OtherLength { bytes });
        };
        let pinned = Pinned::map(descriptor, length)?;
        let address = pinned.register(by, device, &context.inner.state)?;
        Ok(HostMemory { inner: Inner::of_host(context, pinned, address), pinned })
    }
}

impl HostMemory {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.pinned.bytes() as u64
    }

    /// `len` elements from `offset_bytes` on, for work in streams. Uses of one part are ordered across streams; what other parts,
    /// the host or other processes do there is not.
    ///
    /// # Errors
    /// [`Error::OutsideOfImport`], [`Error::Misaligned`] where elements cannot lie there, [`Error::NothingAsked`] for no bytes.
    pub fn part<T: Pod>(&self, stream: &Stream, offset_bytes: u64, len: usize) -> Result<ImportedSlice<T>> {
        Inner::part(&self.inner, stream, offset_bytes, len)
    }

    /// All whole words. They have one size, because Rust leaves undefined what atomics of two sizes do to one place at the same time.
    pub fn words(&self) -> &[AtomicU32] {
        &self.begun_words()[..self.pinned.bytes() / WORD_BYTES]
    }

    /// All words, the last one whole although the memory may end within it.
    fn begun_words(&self) -> &[AtomicU32] {
        let len = self.pinned.bytes().div_ceil(WORD_BYTES);
        // SAFETY: the mapping holds so many from its first byte on: it is aligned to a page, and has whole pages. Its file cannot be cut
        // short, and it is unmapped when `inner` has gone, which `self` holds. Any bytes are a good atomic.
        unsafe { std::slice::from_raw_parts(self.pinned.start().as_ptr().cast(), len) }
    }

    /// Copies elements out, each word of 32 bits at once. Whoever writes meanwhile is seen in part.
    ///
    /// # Errors
    /// [`Error::OutsideOfImport`], [`Error::Misaligned`], [`Error::ForkedChild`].
    pub fn read<T: Pod>(&self, offset_bytes: u64, to: &mut [T]) -> Result<()> {
        let Some(first) = self.first::<T>(offset_bytes, to.len())? else { return Ok(()) };
        let bytes = to.as_mut_bytes();
        let (head, rest) = bytes.split_at_mut(head_bytes(first, bytes.len()));
        let (whole, tail) = rest.as_chunks_mut::<WORD_BYTES>();
        let words = self.begun_words();
        if !head.is_empty() {
            head.copy_from_slice(&loaded(&words[first / WORD_BYTES])[first % WORD_BYTES..][..head.len()]);
        }
        let words = &words[first.div_ceil(WORD_BYTES)..];
        whole.iter_mut().zip(words).for_each(|(to, word)| *to = loaded(word));
        if !tail.is_empty() {
            tail.copy_from_slice(&loaded(&words[whole.len()])[..tail.len()]);
        }
        Ok(())
    }

    /// Copies elements in, each word of 32 bits at once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write<T: Pod>(&self, offset_bytes: u64, from: &[T]) -> Result<()> {
        let Some(first) = self.first::<T>(offset_bytes, from.len())? else { return Ok(()) };
        let bytes = from.as_bytes();
        let (head, rest) = bytes.split_at(head_bytes(first, bytes.len()));
        let (whole, tail) = rest.as_chunks::<WORD_BYTES>();
        let words = self.begun_words();
        if !head.is_empty() {
            store_part(&words[first / WORD_BYTES], first % WORD_BYTES, head);
        }
        let words = &words[first.div_ceil(WORD_BYTES)..];
        whole.iter().zip(words).for_each(|(&from, word)| word.store(u32::from_ne_bytes(from), Ordering::Relaxed));
        if !tail.is_empty() {
            store_part(&words[whole.len()], 0, tail);
        }
        Ok(())
    }

    /// The first byte of elements, unless there are none.
    fn first<T>(&self, offset_bytes: u64, len: usize) -> Result<Option<usize>> {
        self.inner.device().check()?;
        if len == 0 || size_of::<T>() == 0 {
            return Ok(None);
        }
        Ok(Some(self.inner.range_of::<T>(offset_bytes, len)?.start as usize))
    }
}

/// How many of so many bytes lie before the first whole word of them.
fn head_bytes(first: usize, bytes: usize) -> usize {
    (first.next_multiple_of(WORD_BYTES) - first).min(bytes)
}

fn loaded(word: &AtomicU32) -> [u8; WORD_BYTES] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Changes some bytes of a word, and leaves the others as they are or become meanwhile.
fn store_part(word: &AtomicU32, start: usize, part: &[u8]) {
    let mut known = word.load(Ordering::Relaxed);
    loop {
        let mut bytes = known.to_ne_bytes();
        bytes[start..start + part.len()].copy_from_slice(part);
        match word.compare_exchange_weak(known, u32::from_ne_bytes(bytes), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => known = now,
        }
    }
}
