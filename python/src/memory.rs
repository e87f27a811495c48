//! What arrays refer to: memory that knows its stream, and whom it was lent to.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::error::check;
use crate::ffi;
use crate::stream::Stream;

/// Device memory that arrays refer to. It is released when its object and all of these arrays are gone.
pub(crate) trait Memory: Send + Sync + fmt::Debug {
    /// The number of its device.
    fn device(&self) -> i32;

    /// The stream whose work so far a user has to wait for.
    fn stream(&self) -> Option<Stream>;

    /// Makes work of `consumer` wait, on the device, for the memory's own stream, and keeps the memory until that work is
    /// done.
    fn lend(&self, consumer: Stream) -> PyResult<()>;

    /// Keeps the memory until all work is done that is submitted to the device before its release: somebody uses it
    /// without saying in which stream.
    fn lend_to_any(&self);

    /// Whether work must not write it: the device refuses that.
    fn is_read_only(&self) -> bool {
        false
    }

    /// What it is, for people.
    fn name(&self) -> String;
}

/// Makes work that is submitted to `later` from now on wait, on the device, for earlier work of another stream.
pub(crate) fn order_after(device: i32, later: Stream, earlier: Stream) -> PyResult<()> {
    if later == earlier {
        return Ok(());
    }
    // SAFETY: the streams are valid, as the caller guarantees.
    check(unsafe { ffi::freehold_order_after(device, later.pointer(), earlier.pointer()) })
}

/// Something to release after all work of a device, once `stream` waits for it.
pub(crate) struct Release {
    pub(crate) device: i32,
    pub(crate) stream: Stream,
    pub(crate) release: Box<dyn FnOnce() + Send>,
}

/// Releases that a capture delays: waiting for all work would invalidate it.
static DELAYED: Mutex<Vec<Release>> = Mutex::new(Vec::new());

impl Release {
    /// Runs it after all work of the device. While a stream is being captured, a later call does that.
    pub(crate) fn run(self) {
        DELAYED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        run_delayed();
    }
}

fn run_delayed() {
    // Not under the lock: a release may drop other arrays.
    let delayed = std::mem::take(&mut *DELAYED.lock().unwrap_or_else(PoisonError::into_inner));
    for one in delayed {
        // SAFETY: the stream is that of the memory, whose owner guarantees that it is valid.
        let code = unsafe { ffi::freehold_order_after_all(one.device, one.stream.pointer()) };
        if code == ffi::STREAM_CAPTURED {
            DELAYED.lock().unwrap_or_else(PoisonError::into_inner).push(one);
        } else {
            // A device that has failed runs no more work.
            (one.release)();
        }
    }
}
