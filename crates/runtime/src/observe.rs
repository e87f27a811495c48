//! Observes the allocations of a program, for `freehold run --leak-check`.
//!
//! The exports of allocating and freeing functions pass through [`alloc`] and [`free`]. Unless it is asked for, that is one branch
//! on a flag that never changes after the library is loaded. What is observed goes to `leaks`.
//!
//! The flag is set by a constructor of the library, and the report is written by a destructor: it runs after the handlers of
//! `atexit` and the destructors of the program, which may still free.

mod leaks;
mod sites;

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::code::{CudaError, cudaError_t};
use leaks::Leaks;

/// Whether leaks and wrong frees are reported.
const LEAK_CHECK: &str = "FREEHOLD_LEAK_CHECK";

static IS_ON: AtomicBool = AtomicBool::new(false);
static LEAKS: Mutex<Option<Leaks>> = Mutex::new(None);
/// The process that is observed. A fork reports nothing.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    if env::var_os(LEAK_CHECK).is_some_and(|value| !value.is_empty()) {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        *leaks() = Some(Leaks::default());
        IS_ON.store(true, Ordering::Relaxed);
    }
}

extern "C" fn end() {
    if IS_ON.swap(false, Ordering::Relaxed)
        && PROCESS.load(Ordering::Relaxed) == std::process::id()
        && let Some(leaks) = leaks().take()
    {
        eprint!("{}", leaks.report());
    }
}

fn leaks() -> MutexGuard<'static, Option<Leaks>> {
    LEAKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is allocated. Handles of different kinds may have the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Device and managed memory.
    Memory,
    /// Pinned memory of the host.
    Host,
    Array,
    Mipmap,
    Stream,
    Event,
}

/// Makes a call of an allocating function. `made` tells the address or handle, and the size, after it has succeeded.
#[inline]
pub(crate) fn alloc(
    function: &'static str,
    kind: Kind,
    call: impl FnOnce() -> cudaError_t,
    made: impl FnOnce() -> (usize, u64),
) -> cudaError_t {
    if !IS_ON.load(Ordering::Relaxed) {
        return call();
    }
    let result = call();
    if result.is_ok() {
        note_alloc(function, kind, made());
    }
    result
}

/// Makes a call of a freeing function.
#[inline]
pub(crate) fn free(
    function: &'static str,
    kind: Kind,
    address: usize,
    call: impl FnOnce() -> cudaError_t,
) -> cudaError_t {
    if !IS_ON.load(Ordering::Relaxed) {
        return call();
    }
    // Another thread may get the address as soon as it is free.
    let taken = leaks().as_mut().and_then(|leaks| leaks.take(kind, address));
    let result = call();
    note_free(function, (kind, address), taken, result);
    result
}

/// Makes a call that frees everything of the device.
#[inline]
pub(crate) fn reset(call: impl FnOnce() -> cudaError_t) -> cudaError_t {
    let result = call();
    if IS_ON.load(Ordering::Relaxed)
        && result.is_ok()
        && let Some(leaks) = leaks().as_mut()
    {
        leaks.clear();
    }
    result
}

#[cold]
#[inline(never)]
fn note_alloc(function: &'static str, kind: Kind, (address, bytes): (usize, u64)) {
    if address == 0 {
        return;
    }
    let site = sites::capture();
    if let Some(leaks) = leaks().as_mut() {
        leaks.add(kind, address, bytes, function, site);
    }
}

#[cold]
#[inline(never)]
fn note_free(function: &'static str, (kind, address): (Kind, usize), taken: Option<leaks::Block>, result: cudaError_t) {
    if address == 0 {
        return;
    }
    let site = sites::capture();
    let mut leaks = leaks();
    let Some(leaks) = leaks.as_mut() else { return };
    match (taken, result) {
        (Some(block), Ok(())) => leaks.freed(kind, address, block, site),
        (Some(block), Err(_)) => leaks.put_back(kind, address, block),
        (None, Ok(())) => {}
        // A device that has failed returns its error from every call.
        (None, Err(CudaError::INVALID_VALUE | CudaError::INVALID_RESOURCE_HANDLE)) => {
            eprint!("{}", leaks.wrong_free(function, kind, address, site));
        }
        (None, Err(_)) => {}
    }
}
