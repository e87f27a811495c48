//! Shared by the tests: the driver under test, a context per test, a gate that blocks a stream, memory that host and
//! device share, and child processes.
//!
//! `FREEHOLD_DEVICE` selects the driver: `cuda` or `cuda:N` is NVIDIA's, anything else the software driver. The binary
//! `soft` always tests the software driver.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub(crate) mod api_calls;
pub(crate) mod kernels;
pub(crate) mod managed_variable;
pub(crate) mod random;
pub(crate) mod schedules;
pub(crate) mod thread_state;

use std::env;
use std::ffi::c_void;
use std::fmt::Debug;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUerror, CUstream, DriverError, Function, attach_flags, context, copy,
    driver, fill, host, host_register_flags, load, memory, stream, stream_flags, wait_value_flags,
};

use freehold_testing::HANG_TIMEOUT;
pub(crate) use freehold_testing::child;
use thread_state::WatchedThread;

// SAFETY: the tests name what they made, and what a driver is known to refuse.
const SOFT: Api = unsafe { freehold_softcuda::api() };

/// Returns the driver under test, initialized, and the device that the tests use.
pub(crate) fn driver() -> (Api, CUdevice) {
    let (api, device) = untouched();
    driver::init(&api, 0).expect("the driver initializes");
    (api, device)
}

/// Gives this process its own machine, unless its parent has named one, so that no other process changes the free
/// memory. A name that another process gave itself this way does not apply to this one.
fn use_own_machine() {
    const VARIABLE: &str = "FREEHOLD_SOFT_MACHINE";
    static MOVED: Once = Once::new();
    MOVED.call_once(|| {
        if env::var(VARIABLE).is_ok_and(|name| !name.starts_with("own-")) {
            return;
        }
        // SAFETY: nothing in this process reads its environment but the standard library, which guards it by a lock.
        unsafe { env::set_var(VARIABLE, format!("own-{}", process::id())) };
    });
}

/// Returns the driver under test before `cuInit`.
pub(crate) fn untouched() -> (Api, CUdevice) {
    use_own_machine();
    let wanted = env::var("FREEHOLD_DEVICE").unwrap_or_else(|_| "soft".to_owned());
    let ordinal = match wanted.as_str() {
        _ if env!("CARGO_CRATE_NAME") == "soft" => return (SOFT, CUdevice(0)),
        "soft" => return (SOFT, CUdevice(0)),
        "cuda" => Some(0),
        other => other.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()),
    };
    let ordinal =
        ordinal.unwrap_or_else(|| panic!("FREEHOLD_DEVICE is '{wanted}', but should be soft, cuda or cuda:N"));
    // SAFETY: the tests name what they made, and what a driver is known to refuse.
    let api = unsafe { load::load(Path::new(load::LIBRARY)) }.unwrap_or_else(|error| panic!("{error}"));
    (api, CUdevice(ordinal))
}

/// The error code of a refused call.
pub(crate) trait Refused {
    fn code(self) -> CUerror;
}

impl<T: Debug> Refused for Result<T, DriverError> {
    #[track_caller]
    fn code(self) -> CUerror {
        self.expect_err("the call is refused").code
    }
}

/// Returns `start` plus `bytes`.
pub(crate) fn at(start: CUdeviceptr, bytes: u64) -> CUdeviceptr {
    CUdeviceptr(start.0 + bytes)
}

/// Serializes the tests on NVIDIA's driver. There the first work of a context waits for that of other contexts and
/// blocks all calls of the process, so a test that blocks a stream must be alone.
static TURN: Mutex<()> = Mutex::new(());

/// A context of one test, current in the thread that created it and destroyed at the end.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) api: Api,
    pub(crate) device: CUdevice,
    pub(crate) handle: CUcontext,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Context {
    pub(crate) fn create() -> Self {
        let (api, device) = driver();
        let is_soft = api.address(Function::cuInit) == SOFT.address(Function::cuInit);
        let turn = (!is_soft).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        Self::on(api, device, turn)
    }

    fn on(api: Api, device: CUdevice, turn: Option<MutexGuard<'static, ()>>) -> Self {
        let handle = context::create(&api, device, 0).expect("a context is created");
        let context = Self { api, device, handle, _turn: turn };
        context.warm();
        context
    }

    /// Creates a second context on the same device, which becomes current.
    pub(crate) fn another(&self) -> Self {
        Self::on(self.api, self.device, None)
    }

    /// Creates a context on another device, which becomes current.
    pub(crate) fn on_device(&self, device: CUdevice) -> Self {
        Self::on(self.api, device, None)
    }

    /// Makes this the current context of the calling thread.
    pub(crate) fn enter(&self) {
        context::set_current(&self.api, self.handle).expect("a live context becomes current");
    }

    /// Destroys the context early.
    pub(crate) fn destroy(mut self) {
        context::destroy(&self.api, self.handle).expect("a live context is destroyed");
        self.handle = CUcontext::NULL;
    }

    /// Does some work of each kind: the first of a kind may wait for the whole device, later work does not.
    fn warm(&self) {
        let api = &self.api;
        let block = self.block(8192);
        fill::d8(api, block, 0, 4096).expect("a block is filled");
        fill::d16(api, block, 0, 2048).expect("a block is filled");
        fill::d32(api, block, 0, 1024).expect("a block is filled");
        fill::rectangle_d8(api, block, 64, 0, 8, 8).expect("a block is filled");
        copy::device_to_device(api, at(block, 4096), block, 4096).expect("a block is copied");
        self.write(block, &[0; 4096]);
        self.read(block, 4096);
        context::synchronize(api).expect("the work is done");
        memory::free(api, block).expect("a block is freed");
    }

    /// Returns the driver, for calls that need this context to be current.
    fn current(&self) -> &Api {
        assert_eq!(context::current(&self.api), Ok(self.handle), "the context is current");
        &self.api
    }

    pub(crate) fn block(&self, bytes: usize) -> CUdeviceptr {
        memory::alloc(self.current(), bytes).expect("a block is allocated")
    }

    /// Creates a stream that synchronizes with the legacy default stream.
    pub(crate) fn blocking(&self) -> CUstream {
        stream::create(self.current(), stream_flags::DEFAULT).expect("a stream is created")
    }

    /// Creates a stream that does not synchronize with the legacy default stream.
    pub(crate) fn stream(&self) -> CUstream {
        stream::create(self.current(), stream_flags::NON_BLOCKING).expect("a stream is created")
    }

    /// Copies bytes to the device and waits: a copy from pageable memory may return before it is done.
    pub(crate) fn write(&self, to: CUdeviceptr, bytes: &[u8]) {
        copy::host_to_device(&self.api, to, bytes).expect("bytes are copied to the device");
        self.finish(CUstream::LEGACY);
    }

    pub(crate) fn read(&self, from: CUdeviceptr, bytes: usize) -> Vec<u8> {
        let mut host = vec![0; bytes];
        copy::device_to_host(&self.api, &mut host, from).expect("bytes are copied from the device");
        host
    }

    /// Returns the value that all bytes there have.
    #[track_caller]
    pub(crate) fn byte(&self, from: CUdeviceptr, bytes: usize) -> u8 {
        same(&self.read(from, bytes))
    }

    pub(crate) fn finish(&self, stream: CUstream) {
        stream::synchronize(&self.api, stream).expect("the work of a stream is done");
    }

    pub(crate) fn pinned(&self, bytes: usize) -> Shared<'_> {
        let start = host::alloc_with_flags(self.current(), bytes, 0).expect("pinned memory is allocated");
        Shared { _context: self, start, bytes }
    }

    /// Allocates and registers whole pages, which stay mapped until the process exits.
    pub(crate) fn registered(&self, bytes: usize) -> Shared<'_> {
        let start = pages(bytes);
        // SAFETY: the pages are never unmapped, and only the atomics of a `Shared` refer to them.
        unsafe { host::register(self.current(), start, bytes, host_register_flags::PORTABLE) }
            .expect("pages are registered");
        Shared { _context: self, start, bytes }
    }

    /// Returns 1024 zero words, registered with this context.
    pub(crate) fn words(&self) -> &'static [AtomicU32] {
        let shared = self.registered(4096);
        // SAFETY: the pages are zeroed, aligned and never unmapped, and nothing but these atomics refers to them.
        unsafe { std::slice::from_raw_parts(shared.pointer().cast::<AtomicU32>(), 1024) }
    }

    /// Submits a call of `work` to a stream. It must not unwind.
    pub(crate) fn launch(&self, stream: CUstream, work: impl FnOnce() + Send + 'static) {
        let work: Work = Box::new(work);
        let data = Box::into_raw(Box::new(work)).cast();
        // SAFETY: `run` takes back what was just given away, once, whenever that is; the closure is good in any thread.
        unsafe { stream::launch_host(&self.api, stream, run, data) }.expect("a function is put into a stream");
    }

    pub(crate) fn managed(&self, bytes: usize) -> Shared<'_> {
        let start =
            memory::alloc_managed(self.current(), bytes, attach_flags::GLOBAL).expect("managed memory is allocated");
        Shared { _context: self, start: start.0 as *mut c_void, bytes }
    }
}

type Work = Box<dyn FnOnce() + Send>;

unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: `launch` made the box and gave it to this one call.
    let work = unsafe { Box::from_raw(data.cast::<Work>()) };
    work();
}

/// Returns the device address of a word of [`Context::words`].
pub(crate) fn address(word: &'static AtomicU32) -> CUdeviceptr {
    CUdeviceptr(std::ptr::from_ref(word) as u64)
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.handle == CUcontext::NULL {
            return;
        }
        let destroyed = context::destroy(&self.api, self.handle);
        assert!(thread::panicking() || destroyed == Ok(()), "a live context is destroyed: {destroyed:?}");
    }
}

/// Returns the value that all elements have.
#[track_caller]
pub(crate) fn same<T: Copy + PartialEq + Debug>(values: &[T]) -> T {
    let first = *values.first().expect("there is at least one value");
    let odd = values.iter().position(|value| *value != first);
    assert_eq!(odd, None, "not all are {first:?}: {:?} is among them", odd.map(|odd| values[odd]));
    first
}

/// Maps zeroed pages, which stay mapped until the process exits.
pub(crate) fn pages(bytes: usize) -> *mut c_void {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "the system maps {bytes} bytes");
    start
}

/// Memory that the host accesses while a device may write it: the host uses atomics.
#[derive(Debug)]
pub(crate) struct Shared<'c> {
    /// The context that owns the memory.
    _context: &'c Context,
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: `start` is the field that is not `Send`; the memory belongs to no thread and is used through atomics only.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.start
    }

    /// Returns the device address, which equals the host address on every device that these tests run on.
    pub(crate) fn address(&self) -> CUdeviceptr {
        CUdeviceptr(self.start as u64)
    }

    pub(crate) fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: the memory is mapped for this many bytes while the context lives, which `self` borrows, and the tests
        // that release it early do not come back here.
        unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU8>(), self.bytes) }
    }

    pub(crate) fn words(&self) -> &[AtomicU32] {
        // SAFETY: as in `bytes`; the memory starts on a page, so that it is aligned.
        unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU32>(), self.bytes / 4) }
    }

    pub(crate) fn longs(&self) -> &[AtomicU64] {
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.start.cast::<AtomicU64>(), self.bytes / 8) }
    }

    /// Returns the current word at `index`.
    pub(crate) fn word(&self, index: usize) -> u32 {
        self.words()[index].load(Ordering::SeqCst)
    }

    pub(crate) fn fill(&self, value: u8) {
        self.bytes().iter().for_each(|byte| byte.store(value, Ordering::SeqCst));
    }

    pub(crate) fn set(&self, values: &[u8]) {
        self.bytes().iter().zip(values).for_each(|(byte, value)| byte.store(*value, Ordering::SeqCst));
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.bytes().iter().map(|byte| byte.load(Ordering::SeqCst)).collect()
    }
}

/// Polls until `so` returns true.
#[track_caller]
pub(crate) fn until(so: impl Fn() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < HANG_TIMEOUT, "timed out waiting for a condition");
        thread::yield_now();
    }
}

/// A host word that streams wait for: their later work is pending until the gate opens.
///
/// It opens when it is dropped at the latest. A gate that stays closed for too long, because a call blocks that should
/// not, opens too and fails the test.
#[derive(Debug)]
pub(crate) struct Gate {
    state: &'static State,
    /// The values of the word before and after the gate opens.
    closed: u64,
    open: u64,
    watch: Option<(Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug)]
#[repr(C)]
struct State {
    word: AtomicU64,
    expired: AtomicBool,
}

impl Gate {
    /// Creates a closed gate. Its word belongs to the process and outlives every context.
    pub(crate) fn closed(context: &Context) -> Self {
        Self::of(context, 0, 1)
    }

    /// Creates a gate whose word is `closed` until it opens and `open` afterwards.
    pub(crate) fn of(context: &Context, closed: u64, open: u64) -> Self {
        let shared = context.registered(4096);
        // SAFETY: the pages are zeroed, aligned, never unmapped, and the gate's alone.
        let state = unsafe { &*shared.pointer().cast::<State>() };
        state.word.store(closed, Ordering::SeqCst);
        let (end, ended) = mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            let stuck = ended.recv_timeout(HANG_TIMEOUT / 2) == Err(RecvTimeoutError::Timeout);
            if stuck && state.word.compare_exchange(closed, open, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                state.expired.store(true, Ordering::SeqCst);
            }
        });
        Self { state, closed, open, watch: Some((end, watch)) }
    }

    /// Returns the device address of the word.
    pub(crate) fn address(&self) -> CUdeviceptr {
        CUdeviceptr(std::ptr::from_ref(&self.state.word) as u64)
    }

    /// Blocks later work of `stream` until the gate opens.
    pub(crate) fn hold(&self, api: &Api, stream: CUstream) {
        let held = stream::wait_value_32(api, stream, self.address(), self.open as u32, wait_value_flags::GEQ);
        held.expect("a stream waits for a word");
    }

    pub(crate) fn open(&self) {
        self.state.word.store(self.open, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.state.word.load(Ordering::SeqCst) == self.closed
    }

    /// Makes a call that must return while the gate is closed.
    #[track_caller]
    pub(crate) fn shut_during<T>(&self, call: impl FnOnce() -> T) -> T {
        assert!(self.is_closed(), "the gate is closed before the call");
        let answer = call();
        assert!(self.is_closed(), "the call waited for the gate");
        answer
    }

    /// Makes a call that must not return until the gate opens, which it does when this thread blocks.
    #[track_caller]
    pub(crate) fn opened_during<T>(&self, call: impl FnOnce() -> T) -> T {
        self.opened_once([WatchedThread::this()], call)
    }

    /// Makes a call that must not return until the gate opens, which it does when each of these threads blocks or has
    /// ended.
    #[track_caller]
    pub(crate) fn opened_once<T>(
        &self,
        callers: impl IntoIterator<Item = WatchedThread> + Send,
        call: impl FnOnce() -> T,
    ) -> T {
        assert!(self.is_closed(), "the gate is closed before the call");
        let returned = AtomicBool::new(false);
        let (answer, waited) = thread::scope(|scope| {
            let opener = scope.spawn(|| {
                let is_over = || returned.load(Ordering::SeqCst);
                callers.into_iter().for_each(|caller| caller.wait(is_over));
                let waited = !is_over();
                self.open();
                waited
            });
            let answer = call();
            returned.store(true, Ordering::SeqCst);
            (answer, opener.join().expect("the opener does not panic"))
        });
        assert!(waited, "the call did not wait for the gate");
        answer
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        if let Some((end, watch)) = self.watch.take() {
            drop(end);
            watch.join().expect("the watch does not panic");
        }
        let expired = self.state.expired.load(Ordering::SeqCst);
        assert!(thread::panicking() || !expired, "the gate stayed closed for too long");
    }
}
