//! Sticky faults on the software driver: registered memory that the program unmaps before the work that reads it has
//! run.

use crate::common;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use common::thread_state::WatchedThread;
use common::{Context, Gate, Refused, api_calls, child, pages, until};
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUresult, CUstream, Function, context, copy, event, fill, host, memory, stream,
};

const BYTES: usize = 1 << 16;

/// Registered memory that the program will unmap.
struct Doomed {
    start: *mut c_void,
}

impl Doomed {
    fn new(own: &Context) -> Self {
        let start = pages(BYTES);
        // SAFETY: that the memory is unmapped while it is registered is what these tests are about: the software driver
        // reaches such memory through the kernel, which answers for what is not there.
        unsafe { host::register(&own.api, start, BYTES, 0) }.unwrap();
        Self { start }
    }

    /// Unmaps the memory. Its addresses stay reserved, so that no later mapping, such as a thread's stack, is placed
    /// there.
    fn unmap(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the mapping that is replaced is this value's own, and nothing but the driver refers to it.
        let nothing = unsafe { libc::mmap(self.start, BYTES, libc::PROT_NONE, flags, -1, 0) };
        assert_eq!(nothing, self.start);
    }
}

/// Submits a copy from memory that is unmapped before the gate opens.
fn doom(own: &Context, gate: &Gate, stream: CUstream) {
    let (doomed, block) = (Doomed::new(own), own.block(BYTES));
    gate.hold(&own.api, stream);
    // SAFETY: the driver reaches the memory through the kernel, which answers for what is not there.
    unsafe { copy::host_to_device_async(&own.api, block, doomed.start, BYTES, stream) }.unwrap();
    doomed.unmap();
}

/// Exits the process without clean-up: a failed context cannot be destroyed.
fn leave(own: Context, gates: impl IntoIterator<Item = Gate>) {
    drop(Vec::from_iter(gates));
    std::mem::forget(own);
}

#[test]
fn a_copy_from_memory_that_is_gone_is_an_illegal_address() {
    child::run_in_child("a_copy_from_memory_that_is_gone_is_an_illegal_address", || {
        let own = Context::create();
        let (stream, gate) = (own.stream(), Gate::closed(&own));
        doom(&own, &gate, stream);
        gate.open();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
        leave(own, [gate]);
    });
}

#[test]
fn a_copy_to_memory_that_is_gone_is_an_illegal_address() {
    child::run_in_child("a_copy_to_memory_that_is_gone_is_an_illegal_address", || {
        let own = Context::create();
        let (stream, gate) = (own.stream(), Gate::closed(&own));
        let (doomed, block) = (Doomed::new(&own), own.block(BYTES));
        gate.hold(&own.api, stream);
        // SAFETY: the driver reaches the memory through the kernel, which answers for what is not there.
        unsafe { copy::device_to_host_async(&own.api, doomed.start, block, BYTES, stream) }.unwrap();
        doomed.unmap();
        gate.open();
        assert_eq!(context::synchronize(&own.api).code(), CUerror::ILLEGAL_ADDRESS);
        leave(own, [gate]);
    });
}

#[test]
fn fills_and_words_in_memory_that_is_gone_are_illegal_addresses() {
    const NAME: &str = "fills_and_words_in_memory_that_is_gone_are_illegal_addresses";
    let Ok(work) = std::env::var("FREEHOLD_TEST_WORK") else {
        for work in ["fill", "write", "wait"] {
            let outcome = child::run(NAME, &[("FREEHOLD_TEST_WORK", work)]);
            assert!(outcome.status.success(), "{work}:\n{}", outcome.output);
        }
        return;
    };
    let own = Context::create();
    let (stream, gate) = (own.stream(), Gate::closed(&own));
    let doomed = Doomed::new(&own);
    let there = CUdeviceptr(doomed.start as u64);
    gate.hold(&own.api, stream);
    match work.as_str() {
        "fill" => fill::d8_async(&own.api, there, 1, BYTES, stream),
        "write" => stream::write_value_32(&own.api, stream, there, 1, 0),
        _ => stream::wait_value_32(&own.api, stream, there, 1, 0),
    }
    .unwrap();
    doomed.unmap();
    gate.open();
    assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
    leave(own, [gate]);
}

#[test]
fn memory_that_stays_mapped_is_copied() {
    child::run_in_child("memory_that_stays_mapped_is_copied", || {
        let own = Context::create();
        let (stream, gate) = (own.stream(), Gate::closed(&own));
        let (kept, block) = (Doomed::new(&own), own.block(BYTES));
        gate.hold(&own.api, stream);
        // SAFETY: the memory stays mapped.
        unsafe { copy::host_to_device_async(&own.api, block, kept.start, BYTES, stream) }.unwrap();
        gate.open();
        own.finish(stream);
        assert_eq!(own.byte(block, BYTES), 0);
    });
}

#[test]
fn after_a_fault_calls_that_need_the_device_answer_with_it_in_every_context() {
    child::run_in_child("after_a_fault_calls_that_need_the_device_answer_with_it_in_every_context", || {
        let own = Context::create();
        let other = own.another();
        own.enter();
        let (stream, gate) = (own.stream(), Gate::closed(&own));
        doom(&own, &gate, stream);
        gate.open();
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
        assert_eq!(memory::alloc(&own.api, 512).code(), CUerror::ILLEGAL_ADDRESS);
        assert_eq!(context::create(&own.api, own.device, 0).code(), CUerror::ILLEGAL_ADDRESS);
        assert_eq!(context::set_current(&own.api, other.handle), Ok(()));
        assert_eq!(memory::alloc(&own.api, 512).code(), CUerror::ILLEGAL_ADDRESS);
        let spared = [
            Function::cuDeviceGet,
            Function::cuDeviceGetCount,
            Function::cuDeviceGetName,
            Function::cuDeviceGetUuid,
            Function::cuDeviceGetUuid_v2,
            Function::cuDeviceGetProperties,
            Function::cuDeviceTotalMem_v2,
            Function::cuDeviceGetAttribute,
            Function::cuDeviceGetByPCIBusId,
            Function::cuDeviceGetPCIBusId,
            Function::cuDeviceCanAccessPeer,
            Function::cuDeviceGetP2PAttribute,
            Function::cuDeviceComputeCapability,
            Function::cuDevicePrimaryCtxRelease_v2,
            Function::cuDevicePrimaryCtxReset_v2,
            Function::cuDevicePrimaryCtxGetState,
            Function::cuCtxDestroy_v2,
            Function::cuCtxPushCurrent_v2,
            Function::cuCtxPopCurrent_v2,
            Function::cuCtxSetCurrent,
            Function::cuCtxGetCurrent,
            Function::cuCtxGetDevice,
            Function::cuCtxGetFlags,
            Function::cuCtxGetId,
            Function::cuCtxGetApiVersion,
            Function::cuPointerGetAttribute,
            Function::cuPointerGetAttributes,
            Function::cuInit,
            Function::cuDriverGetVersion,
            Function::cuGetErrorName,
            Function::cuGetErrorString,
            Function::cuGetProcAddress_v2,
            // Libraries need no context.
            Function::cuLibraryLoadData,
            Function::cuLibraryLoadFromFile,
            Function::cuLibraryGetKernel,
            // The log of the fault.
            Function::cuLogsRegisterCallback,
            Function::cuLogsUnregisterCallback,
            Function::cuLogsCurrent,
            Function::cuLogsDumpToFile,
            Function::cuLogsDumpToMemory,
        ];
        // One of the calls removes the current context, after which the missing context takes precedence.
        let codes = [Err(CUerror::ILLEGAL_ADDRESS), Err(CUerror::INVALID_CONTEXT)];
        let calls = || {
            let answers = api_calls::call_all(&own.api, &mut api_calls::Zeros).into_iter();
            let others = answers.filter(|(function, code)| !spared.contains(function) && !codes.contains(code));
            others.collect::<Vec<_>>()
        };
        assert_eq!(calls(), []);
        assert_eq!(thread::scope(|scope| scope.spawn(calls).join().unwrap()), []);
        std::mem::forget(other);
        leave(own, [gate]);
    });
}

#[test]
fn after_a_fault_calls_that_name_a_stream_answer_with_it_where_no_context_is_current() {
    child::run_in_child("after_a_fault_calls_that_name_a_stream_answer_with_it_where_no_context_is_current", || {
        let own = Context::create();
        let (stream, gate, block) = (own.stream(), Gate::closed(&own), own.block(4096));
        let event = event::create(&own.api, 0).unwrap();
        doom(&own, &gate, stream);
        gate.open();
        assert_eq!(context::synchronize(&own.api).code(), CUerror::ILLEGAL_ADDRESS);
        context::pop_current(&own.api).unwrap();
        let answers = [
            stream::synchronize(&own.api, stream),
            stream::query(&own.api, stream).map(drop),
            event::record(&own.api, event, stream),
            event::synchronize(&own.api, event),
            stream::wait_event(&own.api, stream, event, 0),
            fill::d8_async(&own.api, block, 1, 4096, stream),
            copy::device_to_device_async(&own.api, block, block, 4096, stream),
        ];
        assert_eq!(answers.map(Refused::code), [CUerror::ILLEGAL_ADDRESS; 7]);
        assert_eq!(memory::alloc(&own.api, 512).code(), CUerror::INVALID_CONTEXT);
        own.enter();
        leave(own, [gate]);
    });
}

#[test]
fn a_fault_releases_all_waiters() {
    child::run_in_child("a_fault_releases_all_waiters", || {
        let own = Context::create();
        let (doomed, held) = (own.stream(), own.stream());
        let (early, never) = (Gate::closed(&own), Gate::closed(&own));
        let event = event::create(&own.api, 0).unwrap();
        never.hold(&own.api, held);
        event::record(&own.api, event, held).unwrap();
        doom(&own, &early, doomed);
        let (come, callers) = mpsc::channel();
        let wait = |which| {
            own.enter();
            come.send(WatchedThread::this()).unwrap();
            match which {
                0 => stream::synchronize(&own.api, held),
                1 => event::synchronize(&own.api, event),
                _ => context::synchronize(&own.api),
            }
        };
        let all = || {
            thread::scope(|scope| {
                let waiting = [0, 1, 2].map(|which| scope.spawn(move || wait(which)));
                waiting.map(|waiting| waiting.join().unwrap().code())
            })
        };
        let codes = never.shut_during(|| early.opened_once(callers.into_iter().take(3), all));
        assert_eq!(codes, [CUerror::ILLEGAL_ADDRESS; 3]);
        leave(own, [early, never]);
    });
}

#[test]
fn after_a_fault_callbacks_get_the_error_and_host_functions_are_not_called() {
    static TOLD: Mutex<Vec<CUresult>> = Mutex::new(Vec::new());
    static CALLED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" fn note(_: CUstream, status: CUresult, _: *mut c_void) {
        TOLD.lock().unwrap().push(status);
    }
    child::run_in_child("after_a_fault_callbacks_get_the_error_and_host_functions_are_not_called", || {
        let own = Context::create();
        let (stream, gate) = (own.stream(), Gate::closed(&own));
        doom(&own, &gate, stream);
        own.launch(stream, || CALLED.store(true, Ordering::SeqCst));
        // SAFETY: `note` takes no data, and is good in any thread.
        unsafe { stream::add_callback(&own.api, stream, note, std::ptr::null_mut(), 0) }.unwrap();
        gate.open();
        until(|| !TOLD.lock().unwrap().is_empty());
        assert_eq!(*TOLD.lock().unwrap(), [Err(CUerror::ILLEGAL_ADDRESS)]);
        assert!(!CALLED.load(Ordering::SeqCst), "the function is not called");
        leave(own, [gate]);
    });
}

#[test]
fn a_refused_address_is_not_a_fault() {
    child::run_in_child("a_refused_address_is_not_a_fault", || {
        let own = Context::create();
        let (block, gone) = (own.block(BYTES), Doomed::new(&own));
        // SAFETY: no work uses the memory.
        unsafe { host::unregister(&own.api, gone.start) }.unwrap();
        gone.unmap();
        let stream = own.stream();
        // SAFETY: the driver reaches memory that it does not know through the kernel, which answers for what is gone.
        let refused = unsafe { copy::host_to_device_async(&own.api, block, gone.start, BYTES, stream) };
        assert_eq!(refused.code(), CUerror::INVALID_VALUE);
        assert_eq!(context::synchronize(&own.api), Ok(()));
    });
}
