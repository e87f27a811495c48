//! Observes the allocations of a program, for `freehold run --leak-check` and `--record`.
//!
//! The exports of the functions that are observed pass through [`alloc`], [`free`] and [`call`] if [`is_on`]: one branch on a
//! flag that never changes after the library is loaded. Events go to `leaks` and `recorder`.
//!
//! The flag is set by a constructor of the library, and the report is written by a destructor: it runs after the handlers of
//! `atexit` and the destructors of the program, which may still free.

mod leaks;
mod recorder;

use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::code::{CudaError, cudaError_t};
use freehold_check::sites;
pub(crate) use leaks::Kind;
use leaks::Leaks;
use recorder::{Call, Recorder};

/// Whether leaks and wrong frees are reported.
const LEAK_CHECK: &str = "FREEHOLD_LEAK_CHECK";
/// The file of a timeline.
const RECORD: &str = "FREEHOLD_RECORD";

static IS_ON: AtomicBool = AtomicBool::new(false);
static OBSERVED: Mutex<Option<Observed>> = Mutex::new(None);

/// What is observed of a process. A fork of it is not observed.
struct Observed {
    process: u32,
    /// When the library was loaded.
    start: Instant,
    leaks: Option<Leaks>,
    recording: Recording,
}

/// A timeline. It begins with the first event, so that a shell that only starts the program has none.
enum Recording {
    Off,
    Asked,
    On(Box<Recorder>),
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let (is_checked, is_recorded) = (is_set(LEAK_CHECK), is_set(RECORD));
    if is_checked || is_recorded {
        let recording = if is_recorded { Recording::Asked } else { Recording::Off };
        let leaks = is_checked.then(Leaks::default);
        *observed() = Some(Observed { process: std::process::id(), start: Instant::now(), leaks, recording });
        IS_ON.store(true, Ordering::Relaxed);
    }
}

extern "C" fn end() {
    if !IS_ON.swap(false, Ordering::Relaxed) {
        return;
    }
    let Some(Observed { process, leaks, recording, .. }) = observed().take() else { return };
    if process != std::process::id() {
        // What is buffered is the other process's.
        std::mem::forget(recording);
        return;
    }
    if let Recording::On(recorder) = recording
        && let Err(error) = recorder.finish()
    {
        eprintln!("freehold: the recording is not complete: {error}");
    }
    if let Some(leaks) = leaks {
        eprint!("{}", leaks.report());
    }
}

fn observed() -> MutexGuard<'static, Option<Observed>> {
    OBSERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observed {
    /// Returns the timeline, if one is asked for.
    fn recorder(&mut self) -> Option<&mut Recorder> {
        if matches!(self.recording, Recording::Asked) {
            let path = env::var_os(RECORD).unwrap_or_default();
            self.recording = match Recorder::open(Path::new(&path), self.start) {
                Ok(recorder) => Recording::On(Box::new(recorder)),
                Err(error) => {
                    eprintln!("freehold: failed to write {}: {error}", Path::new(&path).display());
                    Recording::Off
                }
            };
        }
        match &mut self.recording {
            Recording::On(recorder) => Some(recorder),
            Recording::Off | Recording::Asked => None,
        }
    }
}

/// Runs a part with what is observed, unless this process is a fork.
fn with_observed<R>(part: impl FnOnce(&mut Observed) -> R) -> Option<R> {
    observed().as_mut().filter(|observed| observed.process == std::process::id()).map(part)
}

/// Whether calls are observed.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// A function that is observed, what it allocates or frees, and the handle of its stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) stream: usize,
}

/// Makes a call of an allocating function. `made` tells the address or handle, and the size, after it has succeeded.
#[cold]
pub(crate) fn alloc(
    function: Function,
    call: impl FnOnce() -> cudaError_t,
    made: impl FnOnce() -> (usize, u64),
) -> cudaError_t {
    let began = Instant::now();
    let result = call();
    if result.is_ok() {
        note_alloc(function, began, made());
    }
    result
}

/// Makes a call of a freeing function.
#[cold]
pub(crate) fn free(function: Function, address: usize, call: impl FnOnce() -> cudaError_t) -> cudaError_t {
    let taken = take(function.kind, address);
    let began = Instant::now();
    let result = call();
    note_free(function, address, began, taken, result);
    result
}

/// Makes a call that neither allocates nor frees.
#[cold]
pub(crate) fn call(
    name: &'static str,
    stream: usize,
    bytes: Option<usize>,
    call: impl FnOnce() -> cudaError_t,
) -> cudaError_t {
    let began = Instant::now();
    let result = call();
    note_call(name, stream, bytes, began);
    result
}

/// Makes a call that frees everything of the device.
#[inline]
pub(crate) fn reset(call: impl FnOnce() -> cudaError_t) -> cudaError_t {
    let result = call();
    if IS_ON.load(Ordering::Relaxed) && result.is_ok() {
        with_observed(|observed| {
            if let Some(leaks) = &mut observed.leaks {
                leaks.clear();
            }
            if let Some(recorder) = observed.recorder() {
                recorder.reset(Instant::now());
            }
        });
    }
    result
}

/// A block that is being freed.
#[derive(Default)]
struct Taken {
    leak: Option<leaks::Block>,
    recorded: Option<recorder::Block>,
}

/// Takes a block before it is freed: another thread may get the address as soon as it is free.
fn take(kind: Kind, address: usize) -> Taken {
    let take = |observed: &mut Observed| Taken {
        leak: observed.leaks.as_mut().and_then(|leaks| leaks.take(kind, address)),
        recorded: if kind == Kind::Memory { observed.recorder().and_then(|to| to.take(address)) } else { None },
    };
    with_observed(take).unwrap_or_default()
}

fn note_alloc(function: Function, began: Instant, (address, bytes): (usize, u64)) {
    let ended = Instant::now();
    if address == 0 {
        return;
    }
    let Function { name, kind, stream } = function;
    with_observed(|observed| {
        if let Some(leaks) = &mut observed.leaks {
            leaks.add(kind, address, bytes, name, sites::capture());
        }
        if kind == Kind::Memory
            && let Some(recorder) = observed.recorder()
        {
            recorder.allocated(Call { function: name, began, ended, stream }, address, bytes);
        }
    });
}

fn note_free(function: Function, address: usize, began: Instant, taken: Taken, result: cudaError_t) {
    let ended = Instant::now();
    if address == 0 {
        return;
    }
    let Function { name, kind, stream } = function;
    with_observed(|observed| {
        if let Some(leaks) = &mut observed.leaks {
            match (taken.leak, result) {
                (Some(block), Ok(())) => leaks.freed(kind, address, block, sites::capture()),
                (Some(block), Err(_)) => leaks.put_back(kind, address, block),
                (None, Ok(())) => {}
                // A device that has failed returns its error from every call.
                (None, Err(CudaError::INVALID_VALUE | CudaError::INVALID_RESOURCE_HANDLE)) => {
                    eprint!("{}", leaks.wrong_free(name, kind, address, sites::capture()));
                }
                (None, Err(_)) => {}
            }
        }
        if let Some(block) = taken.recorded
            && let Some(recorder) = observed.recorder()
        {
            match result {
                Ok(()) => recorder.freed(Call { function: name, began, ended, stream }, block),
                Err(_) => recorder.put_back(block),
            }
        }
    });
}

fn note_call(name: &'static str, stream: usize, bytes: Option<usize>, began: Instant) {
    let ended = Instant::now();
    with_observed(|observed| {
        if let Some(recorder) = observed.recorder() {
            recorder.called(Call { function: name, began, ended, stream }, bytes.map(|bytes| bytes as u64));
        }
    });
}
