//! Names whose blocks sleep together: the pool of each, whether it sleeps, and what was saved of its memory.
//!
//! A use of a block is checked and submitted while the gate is held shared, and a name falls asleep with the gate held
//! exclusively. So no use begins after the name has begun to fall asleep, and those before can be waited for.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use freehold_driver::handle::Stream;
use freehold_driver::{Backend, CallError};

use crate::base::pool_stats::PoolStats;
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolIndex};

/// How many names can sleep.
const NAMES_MAX: u32 = 64;
const _: () = assert!(PoolIndex::SLEEPERS.0 + NAMES_MAX <= PoolIndex::END);

const AWAKE: u8 = 0;
const KEPT: u8 = 1;
const DROPPED: u8 = 2;

/// What happens to the contents of blocks that fall asleep.
///
/// ```
/// use freehold::Contents;
///
/// # let device = freehold::open()?;
/// device.set_sleepable("weights")?;
/// device.set_sleepable("cache")?;
/// device.sleep("weights", Contents::Keep)?; // copied to the host, and back by `wake`
/// device.sleep("cache", Contents::Drop)?; // unspecified after `wake`
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They are copied to pinned host memory, and back when the blocks wake.
    Keep,
    /// They are unspecified when the blocks wake.
    Drop,
}

#[derive(Debug)]
pub(crate) struct Sleepers {
    /// In the order in which they were added, without gaps.
    names: [OnceLock<Box<Sleeper>>; NAMES_MAX as usize],
    /// Held while a name is added.
    adding: Mutex<()>,
    gate: RwLock<()>,
}

/// A name whose blocks sleep together.
#[derive(Debug)]
pub(crate) struct Sleeper {
    pub(crate) tag: Arc<str>,
    pub(crate) pool: Pool,
    /// `AWAKE`, or what happened to the contents. Blocks are refused from before the memory goes until it is back.
    state: AtomicU8,
    /// External accesses that have not ended.
    lent: AtomicU32,
    /// The length of what is saved.
    saved_bytes: AtomicU64,
    saved: Mutex<Saved>,
}

/// Host memory with the contents of a pool. Whoever has it may change whether the name sleeps.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    ranges: Vec<SavedRange>,
    /// Whether the driver refused twice to wait for copies: they may be pending forever, so nothing is freed.
    pub(crate) has_lost_copies: bool,
}

#[derive(Debug)]
struct SavedRange {
    from: Range<u64>,
    start: NonNull<u8>,
}

// SAFETY: `start` is not `Send` as a pointer; the memory belongs to this value alone.
unsafe impl Send for SavedRange {}

impl Default for Sleepers {
    fn default() -> Self {
        Self {
            names: [const { OnceLock::new() }; NAMES_MAX as usize],
            adding: Mutex::default(),
            gate: RwLock::default(),
        }
    }
}

impl Sleepers {
    fn all(&self) -> impl Iterator<Item = &Sleeper> {
        self.names.iter().map_while(OnceLock::get).map(|sleeper| &**sleeper)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.all().map(|sleeper| &sleeper.pool)
    }

    fn at(&self, index: PoolIndex) -> Option<&Sleeper> {
        let name = index.0.checked_sub(PoolIndex::SLEEPERS.0)?;
        self.names.get(name as usize)?.get().map(|sleeper| &**sleeper)
    }

    pub(crate) fn pool(&self, index: PoolIndex) -> Option<&Pool> {
        self.at(index).map(|sleeper| &sleeper.pool)
    }

    pub(crate) fn is_asleep(&self, index: PoolIndex) -> bool {
        self.at(index).is_some_and(Sleeper::is_asleep)
    }

    /// Returns the pool for blocks of a name: that of the longest name which contains it.
    pub(crate) fn pool_of_tag(&self, tag: &str) -> Option<PoolIndex> {
        let contains =
            |outer: &str| tag.strip_prefix(outer).is_some_and(|inner| inner.is_empty() || inner.starts_with('/'));
        let containing = self.all().filter(|sleeper| contains(&sleeper.tag));
        containing.max_by_key(|sleeper| sleeper.tag.len()).map(|sleeper| sleeper.pool.index)
    }

    /// Returns a name that can sleep.
    pub(crate) fn named(&self, tag: &str) -> Result<&Sleeper> {
        self.all().find(|sleeper| &*sleeper.tag == tag).ok_or_else(|| Error::NotSleepable { tag: tag.into() })
    }

    /// Adds a name, with the pool that `make` returns, unless it is there already.
    pub(crate) fn add(&self, tag: &str, make: impl FnOnce(PoolIndex) -> Result<Pool>) -> Result<()> {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.named(tag).is_ok() {
            return Ok(());
        }
        let count = self.all().count() as u32;
        if count == NAMES_MAX {
            return Err(Error::TooManySleepable { tag: tag.into(), names_max: NAMES_MAX });
        }
        let pool = make(PoolIndex(PoolIndex::SLEEPERS.0 + count))?;
        let sleeper = Sleeper {
            tag: tag.into(),
            pool,
            state: AtomicU8::new(AWAKE),
            lent: AtomicU32::new(0),
            saved_bytes: AtomicU64::new(0),
            saved: Mutex::default(),
        };
        let added = self.names[count as usize].set(Box::new(sleeper));
        assert!(added.is_ok(), "names are added under a lock");
        Ok(())
    }

    /// Returns the name whose pool has an address.
    #[inline]
    fn around(&self, address: u64) -> Option<&Sleeper> {
        self.all().find(|sleeper| sleeper.pool.chunks.covers(address))
    }

    /// Whether an address belongs to a block that may fall asleep.
    #[inline]
    pub(crate) fn has(&self, address: u64) -> bool {
        self.around(address).is_some()
    }

    /// Returns an error for an address whose block is asleep.
    #[inline]
    pub(crate) fn check_awake(&self, address: u64) -> Result<()> {
        match self.around(address) {
            Some(sleeper) if sleeper.is_asleep() => Err(Error::Asleep { address, tag: sleeper.tag.clone() }),
            _ => Ok(()),
        }
    }

    /// Keeps the blocks at some addresses awake until the guard is dropped, if any of them can sleep. Fails if one is
    /// asleep. One guard for all of them: a thread must not hold the gate twice.
    #[inline]
    pub(crate) fn keep_awake(
        &self,
        addresses: impl Iterator<Item = u64> + Clone,
    ) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        if !addresses.clone().any(|address| self.has(address)) {
            return Ok(None);
        }
        let shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            self.check_awake(address)?;
        }
        Ok(Some(shared))
    }

    /// Notes that the block at an address is lent. The caller keeps it awake.
    pub(crate) fn begin_access(&self, address: u64) {
        if let Some(sleeper) = self.around(address) {
            sleeper.lent.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn end_access(&self, address: u64) {
        if let Some(sleeper) = self.around(address) {
            sleeper.lent.fetch_sub(1, Ordering::Release);
        }
    }

    /// Refuses uses of a name's blocks from now on.
    pub(crate) fn close(&self, sleeper: &Sleeper, contents: Contents) -> Result<()> {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        match sleeper.lent.load(Ordering::Acquire) {
            0 => {}
            accesses => return Err(Error::LentOut { tag: sleeper.tag.clone(), accesses }),
        }
        let state = if contents == Contents::Keep { KEPT } else { DROPPED };
        sleeper.state.store(state, Ordering::Release);
        Ok(())
    }

    pub(crate) fn add_stats(&self, stats: &mut PoolStats) {
        for sleeper in self.all() {
            let state = sleeper.state.load(Ordering::Acquire);
            stats.asleep_host_bytes += sleeper.saved_bytes.load(Ordering::Relaxed);
            let mut of_pool = PoolStats::default();
            sleeper.pool.add_stats(&mut of_pool);
            match state {
                KEPT => stats.asleep_kept_bytes += of_pool.owned_bytes,
                DROPPED => stats.asleep_dropped_bytes += of_pool.owned_bytes,
                _ => {}
            }
        }
    }

    /// Frees what is saved of blocks that have all ended.
    pub(crate) fn free_unneeded(&self, backend: &dyn Backend) -> std::result::Result<(), CallError> {
        for sleeper in self.all() {
            // A thread that has the lock frees it, or needs it.
            let Ok(saved) = &mut sleeper.saved.try_lock() else { continue };
            // Only now: what is saved does not change any more.
            let mut of_pool = PoolStats::default();
            sleeper.pool.add_stats(&mut of_pool);
            if of_pool.owned_blocks == 0 || !sleeper.is_asleep() {
                sleeper.free(saved, backend)?;
            }
        }
        Ok(())
    }

    /// Frees everything that is saved: the device ends.
    pub(crate) fn free_saved(&self, backend: &dyn Backend) -> std::result::Result<(), CallError> {
        self.all().try_for_each(|sleeper| sleeper.free(&mut sleeper.lock(), backend))
    }
}

impl Saved {
    /// Waits for the copies that `self` is the source or the target of.
    fn wait(&mut self, (backend, stream): (&dyn Backend, Stream)) -> std::result::Result<(), CallError> {
        // SAFETY: the caller's stream is valid.
        let wait = || unsafe { backend.wait_until_idle(stream) };
        // If a wait fails once, copies may still be pending.
        wait().or_else(|_| wait()).inspect_err(|_| self.has_lost_copies = true)
    }
}

impl Sleeper {
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Acquire) != AWAKE
    }

    /// Permits uses of the blocks again.
    pub(crate) fn open(&self) {
        self.state.store(AWAKE, Ordering::Release);
    }

    /// Held while the name falls asleep or wakes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies ranges of the pool's memory to the host, and waits for the copies. After an error nothing is saved.
    pub(crate) fn save(
        &self,
        saved: &mut Saved,
        (backend, stream): (&dyn Backend, Stream),
        ranges: &[Range<u64>],
    ) -> std::result::Result<(), CallError> {
        let copied = ranges.iter().try_for_each(|range| {
            let bytes = (range.end - range.start) as usize;
            let start = backend.alloc_host(bytes)?;
            saved.ranges.push(SavedRange { from: range.clone(), start });
            self.saved_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            // SAFETY: both have that many bytes; the host memory stays until the copy is complete, as awaited below,
            // and nothing else uses either.
            unsafe { backend.download(start.as_ptr(), range.start, bytes, stream) }
        });
        saved.wait((backend, stream)).and(copied)
    }

    /// Copies what was saved back to the ranges that are in use now, sorted by address, and waits for the copies.
    pub(crate) fn restore(
        &self,
        saved: &mut Saved,
        (backend, stream): (&dyn Backend, Stream),
        used: &[Range<u64>],
    ) -> std::result::Result<(), CallError> {
        let copied = saved.ranges.iter().try_for_each(|of| {
            let first = used.partition_point(|range| range.end <= of.from.start);
            used[first..].iter().take_while(|range| range.start < of.from.end).try_for_each(|range| {
                let (start, end) = (range.start.max(of.from.start), range.end.min(of.from.end));
                let offset = (start - of.from.start) as usize;
                let from = of.start.as_ptr().wrapping_add(offset);
                // SAFETY: the part lies in both ranges; the host memory stays until the copy is complete, as awaited
                // below, and nothing else uses either.
                unsafe { backend.upload(start, from, (end - start) as usize, stream) }
            })
        });
        saved.wait((backend, stream)).and(copied)
    }

    /// Frees what is saved. What the driver refuses to free stays for the next call.
    pub(crate) fn free(&self, saved: &mut Saved, backend: &dyn Backend) -> std::result::Result<(), CallError> {
        while let Some(SavedRange { from, start }) = saved.ranges.last().filter(|_| !saved.has_lost_copies) {
            // SAFETY: the memory is this value's, and the copies from and to it are complete.
            unsafe { backend.free_host(*start) }?;
            self.saved_bytes.fetch_sub(from.end - from.start, Ordering::Relaxed);
            saved.ranges.pop();
        }
        Ok(())
    }
}
