//! The checker of the process, and its report when the process ends.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use freehold_check::calls::CallChecker;
use freehold_check::{LEAKS_UNKNOWN, STARTED};
use freehold_driver::cuda::{self, Api, CUlibrary, CUresult};

use super::driver_functions::{Default, Unlisted};
use super::functions::Functions;
use super::handles::Handles;
use super::lock::lock;
use crate::limit;

/// The file to which findings are appended, one in a line.
const VARIABLE: &str = "FREEHOLD_CHECK_CALLS";
/// Whether memory that is not freed at the end is a finding.
const LEAKS: &str = "FREEHOLD_CHECK_LEAKS";

static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
/// The file for the findings.
static FILE: OnceLock<File> = OnceLock::new();

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs after the handlers of `atexit` and the destructors of the program, which may still free.
extern "C" fn end() {
    let Some(Some(calls)) = CALLS.get() else { return };
    if calls.process != std::process::id() {
        return;
    }
    calls.checker.report_captures();
    if env::var_os(LEAKS).is_some_and(|value| value == "1") {
        report_leaks(&calls.checker);
    }
    calls.checker.report_repeats();
}

fn report_leaks(checker: &CallChecker) {
    if !checker.report_leaks()
        && let Some(mut file) = FILE.get()
    {
        // As for findings: there is nobody to tell that it failed.
        let _ = file.write_all(LEAKS_UNKNOWN.as_bytes());
    }
}

/// The checker of the process, and the driver without the wrappers.
pub(super) struct Calls {
    pub(super) checker: CallChecker,
    /// The process that is checked: a fork of it is not.
    pub(super) process: u32,
    pub(super) api: Api,
    /// With per-thread default streams.
    pub(super) per_thread_api: Api,
    pub(super) unlisted: Unlisted,
    pub(super) per_thread_unlisted: Unlisted,
    /// How many captures may be active.
    pub(super) captures: AtomicUsize,
    pub(super) functions: Functions,
    /// Whether a stream or an event was destroyed.
    pub(super) has_destroyed: AtomicBool,
    pub(super) handles: Mutex<Handles>,
}

/// Unloads the kernels of an object of the program, without a `module-in-use` finding: many programs exit before their kernels end.
///
/// # Safety
/// The library was loaded by the driver of the table, and nothing uses it.
pub(crate) unsafe fn unload_object(api: &Api, library: CUlibrary) -> CUresult {
    let Some(calls) = get() else {
        // SAFETY: the conditions are the same.
        return unsafe { (api.cuLibraryUnload)(library) };
    };
    calls.functions.forget_library(library);
    // SAFETY: the conditions are the same.
    unsafe { (calls.api.cuLibraryUnload)(library) }
}

#[inline]
pub(super) fn get() -> Option<&'static Calls> {
    CALLS.get_or_init(Calls::open).as_ref()
}

impl Calls {
    fn open() -> Option<Self> {
        let path = env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let file = match OpenOptions::new().append(true).create(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("freehold: nothing is checked: failed to open {}: {error}", Path::new(&path).display());
                return None;
            }
        };
        let library = Path::new(cuda::load::LIBRARY);
        let failed = |error: &dyn std::fmt::Display| {
            eprintln!("freehold: nothing is checked: failed to load {}: {error}", library.display());
        };
        // SAFETY: as for the table of the process, which is loaded from the same library.
        let api = unsafe { cuda::load::load(library) }.inspect_err(|error| failed(error)).ok()?;
        // SAFETY: as above.
        let per_thread_api = unsafe { cuda::load::load_per_thread(library) }.inspect_err(|error| failed(error)).ok()?;
        let mut file: &File = FILE.get_or_init(|| file);
        if let Err(error) = file.write_all(STARTED.as_bytes()) {
            eprintln!("freehold: nothing is checked: failed to write {}: {error}", Path::new(&path).display());
            return None;
        }
        // One call for each line: several processes append to the file.
        let checker = CallChecker::new(move |finding| {
            let _ = { file }.write_all(finding.to_line().as_bytes());
        });
        Some(Self::new(checker, limit::counted(api), limit::counted(per_thread_api)))
    }

    pub(super) fn new(checker: CallChecker, api: Api, per_thread_api: Api) -> Self {
        Self {
            checker,
            process: std::process::id(),
            unlisted: Unlisted::find(&api, Default::Legacy),
            per_thread_unlisted: Unlisted::find(&per_thread_api, Default::PerThread),
            api,
            per_thread_api,
            captures: AtomicUsize::new(0),
            functions: Functions::default(),
            has_destroyed: AtomicBool::new(false),
            handles: Mutex::default(),
        }
    }

    /// Changes what is known of handles that are destroyed.
    pub(super) fn destroyed<R>(&self, change: impl FnOnce(&mut Handles) -> R) -> R {
        self.has_destroyed.store(true, Ordering::Relaxed);
        change(&mut lock(&self.handles))
    }

    /// Whether a stream may be captured.
    #[inline]
    pub(super) fn has_captures(&self) -> bool {
        self.captures.load(Ordering::Relaxed) > 0
    }
}
