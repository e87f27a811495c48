//! An observed table: what its observer receives, and when. All tests of the process share its one observer.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::time::Instant;

use freehold_driver::cuda::watch::{Argument, CallEvent, Value, watch};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUerror, CUresult, CUstream, DriverError, Function, context, host, memory, stream, stream_flags,
};

/// What this thread has recorded, one line per event, and when its calls began and ended.
#[derive(Default)]
struct Recorded {
    lines: Vec<String>,
    times: Vec<Instant>,
}

thread_local! {
    static HEARD: RefCell<Recorded> = RefCell::default();
}

fn line(words: &str, function: Function, arguments: &[Argument]) -> String {
    let arguments = arguments.iter().map(|argument| match argument.value {
        Value::Address(address) => format!(" {}=@{address:x}", argument.name),
        Value::Handle(handle) => format!(" {}=#{handle:x}", argument.name),
        Value::Count(count) => format!(" {}={count}", argument.name),
        Value::Signed(number) => format!(" {}={number:+}", argument.name),
        Value::Opaque => format!(" {}", argument.name),
    });
    format!("{words} {function}{}", arguments.collect::<String>())
}

fn observe(event: CallEvent<'_>) {
    HEARD.with_borrow_mut(|recorded| match event {
        CallEvent::Enter { function, arguments } => recorded.lines.push(line("called", function, arguments)),
        CallEvent::Exit { function, start, end, outcome, arguments } => {
            let words = outcome.map_or_else(|code| format!("{}", code.number()), |()| "0".to_owned());
            recorded.lines.push(line(&words, function, arguments));
            recorded.times.extend([start, end]);
        }
    });
}

/// Returns a driver with four functions that succeed; the last calls the second, as a host function could.
fn fake() -> Api {
    unsafe extern "C" fn alloc(start: *mut CUdeviceptr, bytes: usize) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuMemAlloc`: `start` is a place for one address.
        unsafe { start.write(CUdeviceptr(bytes as u64 + 0x1000)) };
        Ok(())
    }
    unsafe extern "C" fn free(_: CUdeviceptr) -> CUresult {
        Ok(())
    }
    unsafe extern "C" fn create(stream: *mut CUstream, _: u32) -> CUresult {
        // SAFETY: the caller meets the conditions of `cuStreamCreate`: `stream` is a place for one handle.
        unsafe { stream.write(CUstream(0xabc)) };
        Ok(())
    }
    unsafe extern "C" fn synchronize() -> CUresult {
        memory::free(watched_api(), CUdeviceptr(0x2000)).map_err(|error| error.code)
    }
    Api {
        cuMemAlloc_v2: alloc,
        cuMemFree_v2: free,
        cuStreamCreate: create,
        cuCtxSynchronize: synchronize,
        cuMemGetAddressRange_v2: only_bytes,
        ..empty()
    }
}

/// Accepts null for the base, as the driver does.
unsafe extern "C" fn only_bytes(_: *mut CUdeviceptr, bytes: *mut usize, _: CUdeviceptr) -> CUresult {
    // SAFETY: the caller meets the conditions of `cuMemGetAddressRange`: `bytes` is a place for one `usize`.
    unsafe { bytes.write(512) };
    Ok(())
}

fn empty() -> Api {
    // SAFETY: no symbol is returned.
    unsafe { Api::from_symbols(|_| None) }.0
}

fn watched_api() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| watch(&fake(), observe))
}

fn record_calls(calls: impl FnOnce(&Api)) -> Vec<String> {
    HEARD.take();
    calls(watched_api());
    HEARD.take().lines
}

#[test]
fn an_output_argument_is_reported_as_the_value_written() {
    let recorded = record_calls(|api| assert_eq!(memory::alloc(api, 512), Ok(CUdeviceptr(0x1200))));
    assert_eq!(recorded, ["called cuMemAlloc_v2 start bytes=512", "0 cuMemAlloc_v2 start=@1200 bytes=512"]);
    let recorded = record_calls(|api| assert_eq!(stream::create(api, stream_flags::NON_BLOCKING), Ok(CUstream(0xabc))));
    assert_eq!(recorded, ["called cuStreamCreate stream flags=1", "0 cuStreamCreate stream=#abc flags=1"]);
}

#[test]
fn an_address_is_reported_before_the_call() {
    let recorded = record_calls(|api| assert_eq!(memory::free(api, CUdeviceptr(0x1200)), Ok(())));
    assert_eq!(recorded, ["called cuMemFree_v2 start=@1200", "0 cuMemFree_v2 start=@1200"]);
}

#[test]
fn a_failed_call_reports_its_code_and_opaque_outputs() {
    let recorded = record_calls(|api| {
        let refused = DriverError { call: Function::cuMemAllocHost_v2, code: CUerror::NOT_SUPPORTED };
        assert_eq!(host::alloc(api, 64), Err(refused));
    });
    assert_eq!(recorded, ["called cuMemAllocHost_v2 start bytes=64", "801 cuMemAllocHost_v2 start bytes=64"]);
}

#[test]
fn a_null_output_argument_is_not_read() {
    let mut bytes = 0;
    let recorded = record_calls(|api| {
        // SAFETY: the call takes a null for the base, and `bytes` outlives it.
        let outcome = unsafe { (api.cuMemGetAddressRange_v2)(std::ptr::null_mut(), &mut bytes, CUdeviceptr(0x2000)) };
        assert_eq!(outcome, Ok(()));
    });
    assert_eq!(bytes, 512);
    assert_eq!(recorded[1], "0 cuMemGetAddressRange_v2 base bytes start=@2000");
}

#[test]
fn a_nested_call_is_reported_between_enter_and_exit() {
    let recorded = record_calls(|api| assert_eq!(context::synchronize(api), Ok(())));
    assert_eq!(
        recorded,
        [
            "called cuCtxSynchronize",
            "called cuMemFree_v2 start=@2000",
            "0 cuMemFree_v2 start=@2000",
            "0 cuCtxSynchronize"
        ]
    );
}

#[test]
fn a_call_ends_after_it_starts_and_the_one_around_it_later() {
    let api = watched_api();
    HEARD.take();
    assert_eq!(context::synchronize(api), Ok(()));
    let times = HEARD.take().times;
    let [inner_start, inner_end, start, end] = times[..] else { panic!("not four times: {times:?}") };
    assert!(start <= inner_start && inner_start <= inner_end && inner_end <= end);
}

#[test]
fn an_unwatched_driver_reports_no_calls() {
    let recorded = record_calls(|_| assert_eq!(memory::free(&fake(), CUdeviceptr(1)), Ok(())));
    assert_eq!(recorded, Vec::<String>::new());
}

#[test]
fn a_process_watches_no_second_driver() {
    watched_api();
    assert!(catch_unwind(|| watch(&fake(), |_| {})).is_err());
    let recorded = record_calls(|api| assert_eq!(memory::free(api, CUdeviceptr(1)), Ok(())));
    assert_eq!(recorded.len(), 2);
}
