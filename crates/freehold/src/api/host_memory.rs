//! Host memory that processes share, used by this process's streams without a copy, and by its host through atomics.
//! Does not order or even see what other processes do there.

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

/// A handle to host memory that a descriptor names, mapped in this process and registered with its device: kernels
/// access it in place. Mapping and registration end when the last handle and the last [`ImportedSlice`] are dropped and
/// all work with them is complete; nothing waits for that.
///
/// ```
/// use std::os::fd::AsFd;
/// use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let memory = memfd_create("words", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("host memory");
/// ftruncate(&memory, 4096).expect("a page");
/// fcntl_add_seals(&memory, SealFlags::SHRINK).expect("it cannot shrink");
/// let shared = device.host_memory(memory.as_fd(), 4096)?; // other processes do the same
/// shared.write(0, &[1u32, 2, 3])?; // the host
/// let mut part = shared.slice::<u32>(&stream, 4, 2)?;
/// stream.fill_bytes(&mut part, 0)?; // the device, in place
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
    /// Maps the first `bytes` of the host memory that a descriptor names. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`Error::OtherLength`] if the descriptor has fewer bytes, [`Error::NotSealed`] if it could shrink later,
    /// [`Error::CannotRegister`] on a device that cannot register host memory.
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
    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.pinned.bytes() as u64
    }

    /// Returns `len` elements from `offset_bytes` on, for work in streams. Uses of one slice are ordered across
    /// streams; accesses through other slices, by the host or by other processes are not.
    ///
    /// # Errors
    /// [`Error::OutsideOfImport`], [`Error::Misaligned`] if the offset is not aligned for the elements,
    /// [`Error::NothingAsked`] for zero bytes.
    pub fn slice<T: Pod>(&self, stream: &Stream, offset_bytes: u64, len: usize) -> Result<ImportedSlice<T>> {
        Inner::slice(&self.inner, stream, offset_bytes, len)
    }

    /// Returns all whole words. They have one size, because in Rust atomic accesses of different sizes to one location
    /// are undefined.
    pub fn words(&self) -> &[AtomicU32] {
        &self.begun_words()[..self.pinned.bytes() / WORD_BYTES]
    }

    /// Returns all words, including a last one that may lie only partly in the memory.
    fn begun_words(&self) -> &[AtomicU32] {
        let len = self.pinned.bytes().div_ceil(WORD_BYTES);
        // SAFETY: the mapping holds that many from its first byte on: it is page-aligned, and has whole pages. Its file
        // cannot shrink, and it is unmapped when `inner` is dropped, which `self` holds. Any bytes are a valid atomic.
        unsafe { std::slice::from_raw_parts(self.pinned.start().as_ptr().cast(), len) }
    }

    /// Copies elements out, 32 bits at a time. Concurrent writes may be seen in part.
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

    /// Copies elements in, 32 bits at a time.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
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

    /// Returns the index of the elements' first byte, or `None` if there are no elements.
    fn first<T>(&self, offset_bytes: u64, len: usize) -> Result<Option<usize>> {
        self.inner.device().check()?;
        if len == 0 || size_of::<T>() == 0 {
            return Ok(None);
        }
        Ok(Some(self.inner.range_of::<T>(offset_bytes, len)?.start as usize))
    }
}

/// Returns how many of the bytes lie before their first whole word.
fn head_bytes(first: usize, bytes: usize) -> usize {
    (first.next_multiple_of(WORD_BYTES) - first).min(bytes)
}

fn loaded(word: &AtomicU32) -> [u8; WORD_BYTES] {
    word.load(Ordering::Relaxed).to_ne_bytes()
}

/// Changes some bytes of a word without affecting the others, even if they change concurrently.
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
