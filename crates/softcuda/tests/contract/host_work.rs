//! Host functions in stream order: when they run, on which thread, and with which arguments.

use crate::common;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Context, Gate, Refused, address, until};
use freehold_driver::cuda::{CUerror, CUresult, CUstream, DriverError, context, copy, fill, memory, stream};

/// The values that host functions have recorded, in order.
#[derive(Debug)]
struct Notes<T>(Arc<Mutex<Vec<T>>>);

impl<T: Clone + Send + 'static> Notes<T> {
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Returns a function that appends `note`.
    fn add(&self, note: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() + Send + 'static {
        let notes = Arc::clone(&self.0);
        move || notes.lock().unwrap().push(note())
    }

    fn taken(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn functions_of_a_stream_run_in_its_order_with_their_own_data() {
    let (own, notes) = (Context::create(), Notes::new());
    let stream = own.stream();
    for number in 0..100 {
        own.launch(stream, notes.add(move || number));
    }
    own.finish(stream);
    assert_eq!(notes.taken(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_function_runs_after_the_work_before_it_and_does_not_keep_the_host() {
    let (own, notes) = (Context::create(), Notes::new());
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| own.launch(stream, notes.add(|| 1)));
    assert!(notes.taken().is_empty());
    gate.opened_during(|| own.finish(stream));
    assert_eq!(notes.taken(), [1]);
}

#[test]
fn functions_in_the_default_stream_wait_for_blocking_streams() {
    let (own, notes) = (Context::create(), Notes::new());
    let blocking = own.blocking();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, blocking);
    own.launch(CUstream::LEGACY, notes.add(|| 1));
    assert!(notes.taken().is_empty());
    gate.opened_during(|| own.finish(CUstream::LEGACY));
    assert_eq!(notes.taken(), [1]);
}

#[test]
fn a_function_runs_in_a_thread_of_the_drivers() {
    let (own, notes) = (Context::create(), Notes::new());
    let stream = own.stream();
    own.launch(stream, notes.add(|| thread::current().id()));
    own.finish(stream);
    let threads = notes.taken();
    assert_eq!(threads.len(), 1);
    assert_ne!(threads[0], thread::current().id());
}

#[test]
fn a_host_function_blocks_its_own_stream_only() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static GO: AtomicBool = AtomicBool::new(false);
    let own = Context::create();
    let (busy, idle, words) = (own.stream(), own.stream(), own.words());
    let write = |stream, word| stream::write_value_32(&own.api, stream, address(word), 1, 0).unwrap();
    own.launch(busy, || {
        BEGUN.store(true, Ordering::SeqCst);
        until(|| GO.load(Ordering::SeqCst));
    });
    write(busy, &words[0]);
    until(|| BEGUN.load(Ordering::SeqCst));
    write(idle, &words[1]);
    own.finish(idle);
    assert_eq!((words[0].load(Ordering::SeqCst), words[1].load(Ordering::SeqCst)), (0, 1));
    assert_eq!(stream::query(&own.api, busy), Ok(false));
    GO.store(true, Ordering::SeqCst);
    own.finish(busy);
    assert_eq!(words[0].load(Ordering::SeqCst), 1);
}

#[test]
fn a_function_sees_what_the_stream_did_before_and_is_seen_by_what_it_does_after() {
    let (own, notes) = (Context::create(), Notes::new());
    let (stream, block, word): (_, _, &AtomicU32) = (own.stream(), own.block(4), &own.words()[0]);
    fill::d32_async(&own.api, address(word), 1, 1, stream).unwrap();
    own.launch(stream, notes.add(|| word.swap(2, Ordering::SeqCst)));
    copy::device_to_device_async(&own.api, block, address(word), 4, stream).unwrap();
    own.finish(stream);
    assert_eq!(notes.taken(), [1]);
    assert_eq!(own.read(block, 4), [2, 0, 0, 0]);
}

#[test]
fn the_functions_of_a_destroyed_stream_run() {
    let (own, notes) = (Context::create(), Notes::new());
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    own.launch(stream, notes.add(|| 1));
    stream::destroy(&own.api, stream).unwrap();
    gate.opened_during(|| context::synchronize(&own.api)).unwrap();
    assert_eq!(notes.taken(), [1]);
}

#[test]
fn a_function_may_not_call_the_driver() {
    let (own, notes) = (Context::create(), Notes::new());
    let (api, stream) = (own.api, own.stream());
    own.launch(stream, notes.add(move || memory::alloc(&api, 512).code()));
    own.launch(stream, notes.add(move || context::synchronize(&api).code()));
    own.finish(stream);
    assert_eq!(notes.taken(), [CUerror::NOT_PERMITTED; 2]);
}

/// Appends a callback's arguments to a list that is never dropped.
unsafe extern "C" fn note_call(stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: `add_callback` gave a list that is never dropped.
    let told = unsafe { &*data.cast::<Mutex<Vec<(CUstream, CUresult)>>>() };
    told.lock().unwrap().push((stream, status));
}

fn add_callback(
    own: &Context,
    stream: CUstream,
    told: &'static Mutex<Vec<(CUstream, CUresult)>>,
    flags: u32,
) -> Result<(), DriverError> {
    let data = std::ptr::from_ref(told).cast_mut().cast();
    // SAFETY: the list is never dropped, and its lock is good in any thread.
    unsafe { stream::add_callback(&own.api, stream, note_call, data, flags) }
}

#[test]
fn a_callback_gets_its_stream_and_success() {
    static TOLD: Mutex<Vec<(CUstream, CUresult)>> = Mutex::new(Vec::new());
    let own = Context::create();
    let stream = own.stream();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    gate.shut_during(|| add_callback(&own, stream, &TOLD, 0)).unwrap();
    assert_eq!(*TOLD.lock().unwrap(), []);
    gate.opened_during(|| own.finish(stream));
    assert_eq!(*TOLD.lock().unwrap(), [(stream, Ok(()))]);
}

#[test]
fn a_callback_takes_no_flags() {
    static TOLD: Mutex<Vec<(CUstream, CUresult)>> = Mutex::new(Vec::new());
    let own = Context::create();
    assert_eq!(add_callback(&own, own.stream(), &TOLD, 1).code(), CUerror::INVALID_VALUE);
    context::synchronize(&own.api).unwrap();
    assert_eq!(*TOLD.lock().unwrap(), []);
}

#[test]
fn there_is_a_function_to_call() {
    let own = Context::create();
    let (stream, nothing) = (own.stream(), std::ptr::null_mut());
    // SAFETY: without a function nothing is called.
    let launched = unsafe { (own.api.cuLaunchHostFunc)(stream, None, nothing) };
    // SAFETY: without a function nothing is called.
    let added = unsafe { (own.api.cuStreamAddCallback)(stream, None, nothing, 0) };
    assert_eq!((launched, added), (Err(CUerror::INVALID_VALUE), Err(CUerror::INVALID_VALUE)));
}
