//! Something that is one thread's, and that others take over for a while. The thread pays for this with two plain stores: that
//! each side sees what the other wrote is the doing of the barrier, whose cost is with who takes over.
//!
//! Who wants in says so, waits until the thread is outside, and has it alone until it says that it wants nothing any more. Knows
//! nothing of what it keeps.

use std::sync::PoisonError;

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, UnsafeCell, barrier, yield_now};

#[repr(C)]
pub(crate) struct BiasedLock<T> {
    /// Whether the thread is locked.
    busy: AtomicBool,
    /// Whether somebody else wants in, or it is closed.
    wanted: AtomicBool,
    barrier: barrier::Kind,
    /// Held by who wants in. Whether it is closed for good.
    revoker: Mutex<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `locked` is not `Sync`. It is touched by the thread between `enter` and the drop of its guard, and by others with
// the door held after they saw that the thread is outside: see `enter_at_once` and `take`.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The right to be locked, of the thread.
pub(crate) struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
}

/// It is closed for good.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl<T> BiasedLock<T> {
    pub(crate) fn new(locked: T) -> Self {
        Self {
            busy: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            barrier: barrier::kind(),
            revoker: Mutex::new(false),
            value: UnsafeCell::new(locked),
        }
    }

    /// Goes locked, if nobody else wants in. For the thread alone, which is not locked already.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<BiasedGuard<'_, T>> {
        self.busy.store(true, Ordering::Relaxed);
        barrier::light(self.barrier);
        if self.wanted.load(Ordering::Acquire) {
            self.busy.store(false, Ordering::Release);
            return None;
        }
        Some(BiasedGuard { lock: self })
    }

    /// Goes locked, behind who is there. For the thread alone, which is not locked already.
    pub(crate) fn enter(&self) -> Result<BiasedGuard<'_, T>, Closed> {
        loop {
            if let Some(entered) = self.try_enter() {
                return Ok(entered);
            }
            let is_closed = *self.revoker();
            if is_closed {
                return Err(Closed);
            }
        }
    }

    /// Takes over from the thread while `act` runs, from any thread but locked.
    pub(crate) fn revoke<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        self.revoke_locked(&mut self.revoker(), act)
    }

    /// Takes over for good: nobody enters any more.
    pub(crate) fn close<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        let mut is_closed = self.revoker();
        *is_closed = true;
        self.revoke_locked(&mut is_closed, act)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wanted.load(Ordering::Acquire) && *self.revoker()
    }

    fn revoke_locked<R>(&self, is_closed: &mut MutexGuard<'_, bool>, act: impl FnOnce(&mut T) -> R) -> R {
        self.wanted.store(true, Ordering::Relaxed);
        barrier::heavy(self.barrier);
        while self.busy.load(Ordering::Acquire) {
            yield_now();
        }
        let _leave = Unrevoke { wanted: &self.wanted, is_closed: **is_closed };
        // SAFETY: the thread is outside, as was just seen, and finds `wanted` set when it enters: either its store to
        // `busy` was before the barrier, and then seen, or its load of `wanted` is behind it. Others wait at the door.
        act(unsafe { &mut *self.value.get() })
    }

    fn revoker(&self) -> MutexGuard<'_, bool> {
        self.revoker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the thread in again, unless it is closed: also where what was done meanwhile panics, or the thread would try for ever.
struct Unrevoke<'a> {
    wanted: &'a AtomicBool,
    is_closed: bool,
}

impl Drop for Unrevoke<'_> {
    fn drop(&mut self) {
        self.wanted.store(self.is_closed, Ordering::Release);
    }
}

impl<T> BiasedGuard<'_, T> {
    #[inline]
    pub(crate) fn value(&mut self) -> &mut T {
        // SAFETY: this is the only `Entered`, because the thread does not enter twice, and nobody else is locked while it
        // lives; it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.busy.store(false, Ordering::Release);
    }
}
