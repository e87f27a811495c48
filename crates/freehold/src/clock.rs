//! Clocks: words of shared memory that streams of several processes write and await (fact 1.5). Knows nothing of what a word
//! stands for, nor of who else has the memory.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use freehold_driver::cuda::{
    Api, CUdeviceptr, CUstream, CallError, host, host_register_flags, stream, wait_value_flags,
};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;

use crate::context::Context;
use crate::core::{Core, Hall};
use crate::current::calmly;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::later::Later;
use crate::ledger::Mark;
use crate::stream::Stream;
use crate::uses::note_in;

const WORD_BYTES: usize = size_of::<AtomicU64>();

/// Words of 64 bits in memory that processes share. Dropped, it stays where it is until all work with it has passed; nothing
/// waits for that.
#[derive(Debug)]
pub struct Clock {
    context: Context,
    words: Words,
    /// Where the device sees the first word.
    address: CUdeviceptr,
    /// The last use in each stream.
    uses: Mutex<Vec<Mark>>,
}

/// A mapping of shared memory. It is not unmapped by a drop: the device may still write there.
#[derive(Clone, Copy, Debug)]
struct Words {
    start: NonNull<c_void>,
    /// How many words.
    len: usize,
    /// What is mapped, in whole pages of the system's.
    mapped_bytes: usize,
}

// SAFETY: `start` is not `Send` as a pointer; the words are read and written through atomics only.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// Words that are registered with the driver, and that nobody here has any more.
#[derive(Debug)]
pub(crate) struct Stopped {
    words: Words,
    hall: Arc<Hall>,
    marks: Vec<Mark>,
}

impl Device {
    /// Maps the first `words` words of a descriptor, which may be closed afterwards, for this process and its streams.
    ///
    /// # Errors
    /// [`Error::ClockShort`] where the descriptor has fewer, [`Error::ClockNotSealed`] where that could become so later: the
    /// host would die of a read then. [`Error::NoWords`] on a device without them.
    pub fn clock(&self, descriptor: BorrowedFd<'_>, words: usize) -> Result<Clock> {
        let (context, core) = (&self.primary, &self.primary.inner.core);
        core.tidy()?;
        if !core.writes_words() {
            return Err(Error::NoWords);
        }
        let words = Words::map(descriptor, words)?;
        match words.register(core, &context.inner.hall) {
            Ok(address) => Ok(Clock { context: context.clone(), words, address, uses: Mutex::default() }),
            Err(error) => Err(core.failed(error)),
        }
    }
}

impl Clock {
    /// How many words there are.
    pub fn len(&self) -> usize {
        self.words.len
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// What a word is now. All that was done before it was written is seen afterwards.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn read(&self, word: usize) -> u64 {
        self.words.as_slice()[word].load(Ordering::Acquire)
    }

    /// Writes a word, from the host and at once. Whoever awaits it sees all that was done before.
    ///
    /// # Panics
    /// If there is no such word.
    pub fn write(&self, word: usize, value: u64) {
        self.words.as_slice()[word].store(value, Ordering::Release);
    }

    fn address_of(&self, word: usize) -> Result<CUdeviceptr> {
        let words = self.len();
        if word >= words {
            return Err(Error::NoSuchWord { word, words });
        }
        Ok(CUdeviceptr(self.address.0 + (word * WORD_BYTES) as u64))
    }
}

impl Stream {
    /// Writes a word of a clock when all work that was put in so far is done.
    ///
    /// # Errors
    /// [`Error::NoSuchWord`].
    pub fn write_word(&self, clock: &Clock, word: usize, value: u64) -> Result<()> {
        let address = clock.address_of(word)?;
        self.put_at(clock, "write word", |api, raw| stream::write_value_64(api, raw, address, value, 0))
    }

    /// Lets the work that is put in from now on wait, on the device, until a word of a clock has come to `value`. Words count
    /// round: up to 2^63 behind `value` is before it. A word that nobody writes holds the stream up for ever, and with it what
    /// waits until nothing is pending; [`Clock::write`] lets it go.
    ///
    /// # Errors
    /// [`Error::NoSuchWord`].
    pub fn wait_word(&self, clock: &Clock, word: usize, value: u64) -> Result<()> {
        let address = clock.address_of(word)?;
        let flags = wait_value_flags::GEQ;
        self.put_at(clock, "wait for word", |api, raw| stream::wait_value_64(api, raw, address, value, flags))
    }

    /// Puts work in that uses a clock, in no order with that of other streams.
    fn put_at(
        &self,
        clock: &Clock,
        name: &str,
        work: impl FnOnce(&Api, CUstream) -> std::result::Result<(), CallError>,
    ) -> Result<()> {
        self.context.inner.check()?;
        if !Arc::ptr_eq(&self.context.inner.core, &clock.context.inner.core) {
            return Err(Error::OtherDevice { what: "a clock" });
        }
        let mark = self.put_ordered(name, &[], work)?;
        note_in(&mut clock.uses.lock().unwrap_or_else(PoisonError::into_inner), mark);
        Ok(())
    }
}

impl Words {
    /// Maps words whose memory nobody can take away.
    fn map(descriptor: BorrowedFd<'_>, words: usize) -> Result<Self> {
        let bytes = words.checked_mul(WORD_BYTES).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or(Error::TooManyElements { elements: words, element_bytes: WORD_BYTES })?;
        if bytes == 0 {
            return Err(Error::NothingAsked);
        }
        // Asked before the length: it cannot become less from then on. What has no seals is no file in memory.
        if !fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(Error::ClockNotSealed);
        }
        let found = fstat(descriptor).map_err(of_system)?;
        let had_bytes = u64::try_from(found.st_size).unwrap_or(0);
        if had_bytes < bytes as u64 {
            return Err(Error::ClockShort { words, wanted_bytes: bytes as u64, bytes: had_bytes });
        }
        // A file of huge pages is mapped, and unmapped, in those.
        let mapped_bytes = bytes.next_multiple_of(page_size().max(usize::try_from(found.st_blksize).unwrap_or(0)));
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: the kernel chooses the address, so that no mapping of anybody's is replaced.
        let start = unsafe { mmap(null_mut(), mapped_bytes, protection, flags, descriptor, 0) }.map_err(of_system)?;
        let start = NonNull::new(start).expect("the kernel maps nothing at null unless it is asked to");
        Ok(Self { start, len: words, mapped_bytes })
    }

    fn as_slice(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds so many words from its first byte on, aligned to a page, and its file cannot be cut
        // short. It goes when its clock has, which hands out no reference that lasts longer. Any bytes are a good
        // `AtomicU64`, and whoever shares the words writes each in one piece.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<AtomicU64>(), self.len) }
    }

    /// Lets streams of all contexts use the words: where the device sees them. After an error they are unmapped, or will be.
    fn register(self, core: &Core, hall: &Arc<Hall>) -> std::result::Result<CUdeviceptr, CallError> {
        let (api, mut is_registered) = (&core.api, false);
        let flags = host_register_flags::PORTABLE | host_register_flags::DEVICEMAP;
        let registered = calmly(api, core.primary, || {
            // SAFETY: the mapping stays until the words are unregistered; only atomics refer to it.
            unsafe { host::register(api, self.start.as_ptr(), self.mapped_bytes, flags) }?;
            is_registered = true;
            host::device_address(api, self.start.as_ptr(), 0)
        });
        if registered.is_err() && is_registered {
            core.later(Later::Unregister { stopped: Stopped { words: self, hall: hall.clone(), marks: Vec::new() } });
        } else if registered.is_err() {
            // SAFETY: the driver has not taken the words, and nobody else knows of them.
            unsafe { self.unmap() };
        }
        registered
    }

    /// # Safety
    /// Nothing uses the words any more: no reference, no work, no registration.
    unsafe fn unmap(self) {
        // SAFETY: the mapping is of this start and length, and the caller vouches that nothing uses it.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.mapped_bytes) };
        unmapped.expect("the whole of a mapping can be unmapped");
    }
}

impl Stopped {
    /// Unregisters the words where all work with them has passed, and nothing else is pending that the driver would wait for.
    pub(crate) fn attempt(&self, core: &Core) -> Result<bool> {
        for &mark in &self.marks {
            if !core.has_passed_by_now(mark)? {
                return Ok(false);
            }
        }
        let unregister = || {
            calmly(&core.api, core.primary, || {
                // SAFETY: all work with the words has passed, and no more comes: their clock is gone.
                unsafe { host::unregister(&core.api, self.words.start.as_ptr()) }
            })
        };
        let is_done = core.alone(&self.hall, unregister).map_err(|error| core.failed(error))?;
        if is_done {
            // SAFETY: the clock, and the registration, are gone; work has passed.
            unsafe { self.words.unmap() };
        }
        Ok(is_done)
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let core = &self.context.inner.core;
        if core.is_child() {
            return;
        }
        let marks = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner));
        if core.is_good()
            && let Err(error) = core.mark(&marks)
        {
            // Without them it is heard of when their streams have nothing left to do.
            core.trouble(error);
        }
        let stopped = Stopped { words: self.words, hall: self.context.inner.hall.clone(), marks };
        core.later(Later::Unregister { stopped });
        if core.is_good()
            && let Err(error) = core.tidy()
        {
            core.trouble(error);
        }
    }
}

fn of_system(error: Errno) -> Error {
    Error::System { kind: error.kind() }
}
