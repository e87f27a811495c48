//! Items that all parts of the backend use: the result of a call, and locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::CallError;

pub(super) type Result<T> = std::result::Result<T, CallError>;

/// Locks a mutex. Nothing panics while one of these is held.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
