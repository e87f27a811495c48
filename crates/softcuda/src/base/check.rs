//! The checker of the process, if `FREEHOLD_CHECK` names a file for its findings (`freehold check` does).

use std::cell::{Cell, RefCell};
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Once, OnceLock};

use freehold_check::{BlockKind, Checker, Epoch, Kind, LEAKS_UNKNOWN, QueueId, STARTED};

/// The file to which findings are appended, one in a line.
pub(super) const VARIABLE: &str = "FREEHOLD_CHECK";
/// Whether memory that is not freed at the end is a finding.
const LEAKS: &str = "FREEHOLD_CHECK_LEAKS";

static CHECKER: OnceLock<Option<Checker>> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The file for the findings.
static FILE: OnceLock<File> = OnceLock::new();

/// The process that is checked.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The function of the driver API that this thread is in.
    static FUNCTION: Cell<&'static str> = const { Cell::new("") };
    /// Where the next work that this thread submits is, if not at the end of its stream. Never dropped, so that it works in the
    /// destructors of other thread-locals; the submission empties it.
    static PLACE: ManuallyDrop<RefCell<Option<Place>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Where work is in the order that the program can rely on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// Of work of a graph. `None` for a place in the stream.
    pub(crate) epoch: Option<Epoch>,
    pub(crate) after: Vec<Epoch>,
    /// How many of its first dependencies are the driver's own: they order nothing for the program.
    pub(crate) internal: usize,
    /// Of work of a graph: the captures that made it.
    pub(crate) captures: Option<Arc<CaptureIds>>,
}

/// A capture, for the graphs that it has added nodes to and their launches. The checker forgets it when there are none of these.
#[derive(Debug)]
pub(crate) struct CaptureId(u64);

impl CaptureId {
    pub(crate) fn new(id: u64) -> Arc<Self> {
        Arc::new(Self(id))
    }
}

impl Drop for CaptureId {
    fn drop(&mut self) {
        if let Some(checker) = checker().filter(|_| is_own_process()) {
            checker.forget_capture(self.0);
        }
    }
}

/// Captures.
#[derive(Debug)]
pub(crate) struct CaptureIds {
    ids: Box<[u64]>,
    _captures: Vec<Arc<CaptureId>>,
}

impl CaptureIds {
    pub(crate) fn new(captures: Vec<Arc<CaptureId>>) -> Arc<Self> {
        Arc::new(Self { ids: captures.iter().map(|capture| capture.0).collect(), _captures: captures })
    }

    pub(crate) fn all(&self) -> &[u64] {
        &self.ids
    }
}

/// Sets where the next work is that this thread submits.
pub(crate) fn place(place: Place) {
    PLACE.with(|next| next.replace(Some(place)));
}

pub(crate) fn take_place() -> Option<Place> {
    PLACE.with(|next| next.take())
}

/// Reads the setting. Called when the driver is initialized.
pub(crate) fn start() {
    CHECKER.get_or_init(|| {
        let path = env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let file = match OpenOptions::new().append(true).create(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("freehold: nothing is checked: failed to open {}: {error}", path.display());
                return None;
            }
        };
        let file = FILE.get_or_init(|| file);
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        IS_ON.store(true, Ordering::Release);
        Some(Checker::new(move |finding| append(file, &finding.to_line())))
    });
}

/// Notes that the process creates a context. One without a context has done nothing that could be checked.
pub(crate) fn note_context() {
    static NOTED: Once = Once::new();
    if let Some(file) = FILE.get().filter(|_| is_own_process()) {
        NOTED.call_once(|| append(file, STARTED));
    }
}

/// Appends a line in one call, because several processes append to the file.
fn append(mut file: &File, line: &str) {
    if let Err(error) = file.write_all(line.as_bytes()) {
        eprintln!("freehold: a finding cannot be written: {error}");
    }
}

/// Returns whether the process is checked.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Returns the checker of the process.
#[inline]
pub(crate) fn checker() -> Option<&'static Checker> {
    if is_on() { CHECKER.get().and_then(Option::as_ref) } else { None }
}

/// Notes the function that this thread calls.
pub(crate) fn enter(function: &'static str) {
    if is_on() {
        FUNCTION.set(function);
    }
}

/// Returns the function that this thread is in.
pub(crate) fn function() -> &'static str {
    FUNCTION.get()
}

/// The unused bytes behind each block: an access beyond its end does not hit the next one.
const GUARD_BYTES: u64 = 512;

/// Returns the size of a block with the bytes behind it.
pub(crate) fn guarded(bytes: u64) -> u64 {
    if is_on() { bytes.saturating_add(GUARD_BYTES) } else { bytes }
}

/// Notes that the program uses a handle of an object that may be destroyed.
pub(crate) fn stale(kind: Kind, object: &'static str) {
    if let Some(checker) = checker() {
        checker.report_call(kind, function(), &format!("uses {object} that is destroyed"), None);
    }
}

/// Notes that the program unloads a module.
pub(crate) fn unload_module(module: usize) {
    if let Some(checker) = checker() {
        checker.unload_module(module, function());
    }
}

/// Notes that a capture begins or ends in a stream.
pub(crate) fn capture(queue: QueueId, is_begun: bool) {
    if let Some(checker) = checker() {
        if is_begun { checker.begin_capture(queue, function()) } else { checker.end_capture(queue) }
    }
}

/// Returns whether this is the process that is checked. A fork of it ends what it inherits, with locks as other threads had them.
fn is_own_process() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// Notes that no work comes after `last` in its queue.
pub(crate) fn end_queue(last: Epoch) {
    if let Some(checker) = checker().filter(|_| is_own_process()) {
        checker.end_queue(last);
    }
}

/// Notes an allocation by the host.
pub(crate) fn allocate(address: u64, bytes: u64, kind: BlockKind) {
    if let Some(checker) = checker() {
        checker.allocate(&checker.begin_on_host(function()), address, bytes, kind);
    }
}

/// Notes a free by the host.
pub(crate) fn free(address: u64, bytes: u64) {
    if let Some(checker) = checker() {
        checker.free(&checker.begin_on_host(function()), address, bytes);
    }
}

/// Notes that the driver uses memory of a device itself.
pub(crate) fn forget(address: u64, bytes: u64) {
    if let Some(checker) = checker() {
        checker.forget(address, bytes);
    }
}

/// Notes that freed memory of the host is unmapped.
pub(crate) fn unmap_host(address: u64) {
    if let Some(checker) = checker() {
        checker.unmap_host(address);
    }
}

/// Notes a free that is refused.
pub(crate) fn wrong_free(address: u64, is_host: bool) {
    if let Some(checker) = checker() {
        checker.report_wrong_free(function(), address, is_host);
    }
}

/// Notes that the driver refuses a call whose last byte is beyond the end of the block that it starts in.
#[cold]
pub(crate) fn beyond(last: u64, end: u64) {
    if let Some(checker) = checker() {
        let beyond = last - end + 1;
        let plural = if beyond == 1 { "" } else { "s" };
        let what = format!("accesses {beyond} byte{plural} beyond the end of a block, so the driver refuses the call");
        checker.report_call(Kind::OutOfBounds, function(), &what, Some(end));
    }
}

/// Notes that a capture ends without all of its streams.
#[cold]
pub(crate) fn unjoined_capture() {
    if let Some(checker) = checker() {
        let what = "ends a capture, and a stream that joined it does not lead back to its first stream";
        checker.report_call(Kind::UnjoinedCapture, function(), what, None);
    }
}

/// Reports captures that were not ended, memory that is not freed if that is asked for, and how often each finding occurred. Called when
/// the process ends.
pub(super) fn finish() {
    let Some(checker) = checker() else { return };
    checker.report_captures();
    let is_asked = env::var_os(LEAKS).is_some_and(|value| value == "1");
    if is_asked
        && !checker.report_leaks()
        && let Some(file) = FILE.get()
    {
        append(file, LEAKS_UNKNOWN);
    }
    checker.report_repeats();
}
