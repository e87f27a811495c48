//! A watched table: what its observer is told, and when. All tests of the process share its one watch.

use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::OnceLock;
use std::time::Instant;

use freehold_driver::cuda::watch::{Argument, Moment, Value, watch};
use freehold_driver::cuda::{
    Api, CUdeviceptr, CUerror, CUresult, CUstream, CallError, Function, context, host, memory, stream, stream_flags,
};

/// What this thread has heard, one line a moment, and when its calls began and ended.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    times: Vec<Instant>,
}

thread_local! {
    static HEARD: RefCell<Heard> = RefCell::default();
}

fn line(words: &str, function: Function, arguments: &[Argument]) -> String {
    let arguments = arguments.iter().map(|argument| match argument.value {
        Value::Address(address) => format!(" {}=@{address:x}", argument.name),
        Value::Handle(handle) => format!(" {}=#{handle:x}", argument.name),
        Value::Count(count) => format!(" {}={count}", argument.name),
        Value::Signed(number) => format!(" {}={number:+}", argument.name),
        Value::Untold => format!(" {}", argument.name),
    });
    format!("{words} {function}{}", arguments.collect::<String>())
}

fn observe(moment: Moment<'_>) {
    HEARD.with_borrow_mut(|heard| match moment {
        Moment::Called { function, arguments } => heard.lines.push(line("called", function, arguments)),
        Moment::Returned { function, start, end, outcome, arguments } => {
            let words = outcome.map_or_else(|code| format!("{}", code.number()), |()| "0".to_owned());
            heard.lines.push(line(&words, function, arguments));
            heard.times.extend([start, end]);
        }
    });
}

/// A driver with four functions that succeed; the last calls the second, as a host function could.
fn fake() -> Api {
    unsafe extern "C" fn alloc(start: *mut CUdeviceptr, bytes: usize) -> CUresult {
        // SAFETY: the caller keeps the conditions of `cuMemAlloc`: `start` is a place for one address.
        unsafe { start.write(CUdeviceptr(bytes as u64 + 0x1000)) };
        Ok(())
    }
    unsafe extern "C" fn free(_: CUdeviceptr) -> CUresult {
        Ok(())
    }
    unsafe extern "C" fn create(stream: *mut CUstream, _: u32) -> CUresult {
        // SAFETY: the caller keeps the conditions of `cuStreamCreate`: `stream` is a place for one handle.
        unsafe { stream.write(CUstream(0xabc)) };
        Ok(())
    }
    unsafe extern "C" fn synchronize() -> CUresult {
        memory::free(watched(), CUdeviceptr(0x2000)).map_err(|error| error.code)
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

/// Takes a null for the base, as the driver does.
unsafe extern "C" fn only_bytes(_: *mut CUdeviceptr, bytes: *mut usize, _: CUdeviceptr) -> CUresult {
    // SAFETY: the caller keeps the conditions of `cuMemGetAddressRange`: `bytes` is a place for one `usize`.
    unsafe { bytes.write(512) };
    Ok(())
}

fn empty() -> Api {
    // SAFETY: no symbol is handed out.
    unsafe { Api::from_symbols(|_| None) }.0
}

fn watched() -> &'static Api {
    static API: OnceLock<Api> = OnceLock::new();
    API.get_or_init(|| watch(&fake(), observe))
}

fn heard_of(calls: impl FnOnce(&Api)) -> Vec<String> {
    HEARD.take();
    calls(watched());
    HEARD.take().lines
}

#[test]
fn a_place_is_told_as_what_the_driver_put_there() {
    let heard = heard_of(|api| assert_eq!(memory::alloc(api, 512), Ok(CUdeviceptr(0x1200))));
    assert_eq!(heard, ["called cuMemAlloc_v2 start bytes=512", "0 cuMemAlloc_v2 start=@1200 bytes=512"]);
    let heard = heard_of(|api| assert_eq!(stream::create(api, stream_flags::NON_BLOCKING), Ok(CUstream(0xabc))));
    assert_eq!(heard, ["called cuStreamCreate stream flags=1", "0 cuStreamCreate stream=#abc flags=1"]);
}

#[test]
fn an_address_is_told_before_the_call() {
    let heard = heard_of(|api| assert_eq!(memory::free(api, CUdeviceptr(0x1200)), Ok(())));
    assert_eq!(heard, ["called cuMemFree_v2 start=@1200", "0 cuMemFree_v2 start=@1200"]);
}

#[test]
fn a_refusal_is_told_with_its_code_and_leaves_its_places_untold() {
    let heard = heard_of(|api| {
        let refused = CallError { call: Function::cuMemAllocHost_v2, code: CUerror::NOT_SUPPORTED };
        assert_eq!(host::alloc(api, 64), Err(refused));
    });
    assert_eq!(heard, ["called cuMemAllocHost_v2 start bytes=64", "801 cuMemAllocHost_v2 start bytes=64"]);
}

#[test]
fn a_place_that_is_null_is_not_looked_at() {
    let mut bytes = 0;
    let heard = heard_of(|api| {
        // SAFETY: the call takes a null for the base, and `bytes` outlives it.
        let outcome = unsafe { (api.cuMemGetAddressRange_v2)(std::ptr::null_mut(), &mut bytes, CUdeviceptr(0x2000)) };
        assert_eq!(outcome, Ok(()));
    });
    assert_eq!(bytes, 512);
    assert_eq!(heard[1], "0 cuMemGetAddressRange_v2 base bytes start=@2000");
}

#[test]
fn a_call_inside_a_call_is_told_between_its_two_moments() {
    let heard = heard_of(|api| assert_eq!(context::synchronize(api), Ok(())));
    assert_eq!(
        heard,
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
    let api = watched();
    HEARD.take();
    assert_eq!(context::synchronize(api), Ok(()));
    let times = HEARD.take().times;
    let [inner_start, inner_end, start, end] = times[..] else { panic!("two calls have four times: {times:?}") };
    assert!(start <= inner_start && inner_start <= inner_end && inner_end <= end);
}

#[test]
fn a_driver_that_is_not_watched_is_heard_of_nowhere() {
    let heard = heard_of(|_| assert_eq!(memory::free(&fake(), CUdeviceptr(1)), Ok(())));
    assert_eq!(heard, Vec::<String>::new());
}

#[test]
fn a_process_watches_no_second_driver() {
    watched();
    assert!(catch_unwind(|| watch(&fake(), |_| {})).is_err());
    let heard = heard_of(|api| assert_eq!(memory::free(api, CUdeviceptr(1)), Ok(())));
    assert_eq!(heard.len(), 2);
}
