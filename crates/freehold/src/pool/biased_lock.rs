//! A lock biased towards one thread. The owner enters with two plain stores; other threads revoke it and pay for the
//! barrier that makes each side see the other's store.
//!
//! A revoker sets `wanted`, then waits until the owner has left. It has exclusive access until it clears `wanted`.

use std::sync::PoisonError;

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, UnsafeCell, barrier, yield_now};

#[repr(C)]
pub(crate) struct BiasedLock<T> {
    /// Whether the owner is inside.
    busy: AtomicBool,
    /// Whether a revoker waits or is inside, or the lock is closed.
    wanted: AtomicBool,
    barrier: barrier::Kind,
    /// Held by the revoker. Whether the lock is closed for good.
    revoker: Mutex<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is not `Sync`. The owner touches it between `enter` and the drop of its guard. Others touch it with
// `revoker` held, after they saw that the owner has left: see `try_enter` and `revoke_locked`.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The owner's exclusive access.
pub(crate) struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
}

/// The lock is closed for good.
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

    /// Enters, unless a revoker is waiting. Only for the owner, which must not be inside already.
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

    /// Enters, after any revoker has left. Only for the owner, which must not be inside already.
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

    /// Revokes the owner while `act` runs. For any thread that is not inside.
    pub(crate) fn revoke<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        self.revoke_locked(&mut self.revoker(), act)
    }

    /// Revokes for good: no thread enters afterwards.
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
        // SAFETY: the owner was just seen outside, and finds `wanted` set when it enters: either its store to `busy`
        // was before the barrier, and then seen, or its load of `wanted` is after it. Other revokers wait for
        // `revoker`.
        act(unsafe { &mut *self.value.get() })
    }

    fn revoker(&self) -> MutexGuard<'_, bool> {
        self.revoker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the owner in again, unless the lock is closed. Also runs if `act` panics, or the owner would retry forever.
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
        // SAFETY: this is the only `BiasedGuard`, because the owner does not enter twice, and no revoker is inside
        // while it lives; it is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.busy.store(false, Ordering::Release);
    }
}
