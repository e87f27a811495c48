//! Fault injection: which call fails, what is counted, and what remains when a plan has ended.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use freehold_driver::cuda::faults::{Fault, Faults, RECORD_CALLS_MAX};
use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUresult, DriverError, Function, context, driver, memory};

thread_local! {
    /// The calls of this thread that reached [`fake`].
    static REACHED: Cell<u64> = const { Cell::new(0) };
}

/// Returns a driver with three functions that succeed.
fn fake() -> Api {
    unsafe extern "C" fn init(_: u32) -> CUresult {
        REACHED.set(REACHED.get() + 1);
        Ok(())
    }
    unsafe extern "C" fn alloc(start: *mut CUdeviceptr, bytes: usize) -> CUresult {
        REACHED.set(REACHED.get() + 1);
        // SAFETY: the caller meets the conditions of `cuMemAlloc`: `start` is a place for one address.
        unsafe { start.write(CUdeviceptr(bytes as u64)) };
        Ok(())
    }
    unsafe extern "C" fn free(_: CUdeviceptr) -> CUresult {
        REACHED.set(REACHED.get() + 1);
        Ok(())
    }
    Api { cuInit: init, cuMemAlloc_v2: alloc, cuMemFree_v2: free, ..empty() }
}

fn empty() -> Api {
    // SAFETY: no symbol is returned.
    unsafe { Api::from_symbols(|_| None) }.0
}

unsafe extern "C" fn alloc_at<const ADDRESS: u64>(start: *mut CUdeviceptr, _: usize) -> CUresult {
    // SAFETY: the caller meets the conditions of `cuMemAlloc`: `start` is a place for one address.
    unsafe { start.write(CUdeviceptr(ADDRESS)) };
    Ok(())
}

fn third_alloc() -> Fault {
    Fault { function: Some(Function::cuMemAlloc_v2), nth: 3, code: CUerror::OUT_OF_MEMORY }
}

#[test]
fn the_nth_call_fails_and_those_around_it_do_not() {
    let faults = Faults::plan(&fake(), third_alloc());
    let outcomes = [10, 20, 30, 40, 50].map(|bytes| memory::alloc(faults.api(), bytes));
    let failed = Err(DriverError { call: Function::cuMemAlloc_v2, code: CUerror::OUT_OF_MEMORY });
    assert_eq!(outcomes, [Ok(CUdeviceptr(10)), Ok(CUdeviceptr(20)), failed, Ok(CUdeviceptr(40)), Ok(CUdeviceptr(50))]);
}

#[test]
fn a_call_of_another_function_neither_counts_nor_fails() {
    let faults = Faults::plan(&fake(), third_alloc());
    for _ in 0..5 {
        assert_eq!(memory::free(faults.api(), CUdeviceptr(1)), Ok(()));
    }
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
    assert!(!faults.has_fired());
    assert_eq!(memory::alloc(faults.api(), 10).unwrap_err().code, CUerror::OUT_OF_MEMORY);
    assert!(faults.has_fired());
    assert_eq!(memory::free(faults.api(), CUdeviceptr(1)), Ok(()));
}

#[test]
fn a_fault_of_no_function_counts_every_call() {
    let unknown = Fault { function: None, nth: 2, code: CUerror::UNKNOWN };
    let faults = Faults::plan(&fake(), unknown);
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
    assert_eq!(
        memory::free(faults.api(), CUdeviceptr(10)).unwrap_err().to_string(),
        "cuMemFree_v2: CUDA_ERROR_UNKNOWN (999)"
    );
    assert_eq!(memory::free(faults.api(), CUdeviceptr(10)), Ok(()));
}

#[test]
fn the_failing_call_does_not_reach_the_driver() {
    let before = REACHED.get();
    let faults = Faults::plan(&fake(), third_alloc());
    let failed = (0..5).filter(|_| memory::alloc(faults.api(), 10).is_err()).count();
    assert_eq!(failed, 1);
    assert_eq!(faults.calls(), 5);
    assert_eq!(REACHED.get() - before, 4);
}

#[test]
fn counting_fails_nothing_and_records_the_order() {
    let faults = Faults::count(&fake());
    assert_eq!(driver::init(faults.api(), 0), Ok(()));
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
    assert_eq!(memory::free(faults.api(), CUdeviceptr(10)), Ok(()));
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
    use Function::{cuInit, cuMemAlloc_v2, cuMemFree_v2};
    assert_eq!(faults.record(), [cuInit, cuMemAlloc_v2, cuMemFree_v2, cuMemAlloc_v2]);
    assert_eq!(faults.calls(), 4);
    assert_eq!(faults.calls_of(cuMemAlloc_v2), 2);
    assert_eq!(faults.calls_of(Function::cuStreamCreate), 0);
    assert!(!faults.has_fired());
}

#[test]
fn a_new_plan_counts_from_zero() {
    for _ in 0..3 {
        let faults = Faults::count(&fake());
        assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
        assert_eq!((faults.calls(), faults.record().len()), (1, 1));
    }
}

#[test]
fn every_call_of_a_run_can_be_made_to_fail() {
    fn run(api: &Api) -> Result<(), DriverError> {
        driver::init(api, 0)?;
        let start = memory::alloc(api, 10)?;
        memory::free(api, start)
    }
    let order = {
        let faults = Faults::count(&fake());
        assert_eq!(run(faults.api()), Ok(()));
        faults.record()
    };
    assert_eq!(order.len(), 3);
    for (nth, &call) in (1..).zip(&order) {
        let faults = Faults::plan(&fake(), Fault { function: None, nth, code: CUerror::UNKNOWN });
        assert_eq!(run(faults.api()), Err(DriverError { call, code: CUerror::UNKNOWN }));
        assert_eq!(faults.calls(), nth);
    }
}

#[test]
fn an_error_of_the_driver_passes_through() {
    let faults = Faults::count(&fake());
    let error = context::synchronize(faults.api()).unwrap_err();
    assert_eq!(error, DriverError { call: Function::cuCtxSynchronize, code: CUerror::NOT_SUPPORTED });
}

#[test]
fn the_record_is_bounded_and_the_count_is_not() {
    let faults = Faults::count(&fake());
    for _ in 0..=RECORD_CALLS_MAX {
        assert_eq!(driver::init(faults.api(), 0), Ok(()));
    }
    assert_eq!(faults.calls(), 65_537);
    assert_eq!(faults.record().len(), 65_536);
}

#[test]
fn one_call_fails_among_those_of_many_threads() {
    static REACHED_BY_ALL: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" fn synchronize() -> CUresult {
        REACHED_BY_ALL.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    let api = Api { cuCtxSynchronize: synchronize, ..empty() };
    let faults =
        Faults::plan(&api, Fault { function: Some(Function::cuCtxSynchronize), nth: 1234, code: CUerror::UNKNOWN });
    let failed: usize = thread::scope(|scope| {
        let calls = || (0..1000).filter(|_| context::synchronize(faults.api()).is_err()).count();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(calls)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(failed, 1);
    assert_eq!(faults.calls(), 8000);
    assert_eq!(REACHED_BY_ALL.load(Ordering::Relaxed), 7999);
}

#[test]
fn one_plan_is_in_force_at_a_time() {
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    let plan = || {
        for _ in 0..50 {
            let faults = Faults::plan(&fake(), third_alloc());
            assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0);
            let failed: Vec<_> = (0..4).map(|_| memory::alloc(faults.api(), 10).is_err()).collect();
            assert_eq!(failed, [false, false, true, false]);
            assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(plan);
        }
    });
}

#[test]
fn a_table_that_outlives_its_plan_is_the_driver_without_faults() {
    // A driver that no other test uses: an active plan for it would count the calls below.
    let api = Api { cuMemAlloc_v2: alloc_at::<0xa>, ..empty() };
    let faults = Faults::plan(&api, Fault { function: None, nth: 1, code: CUerror::UNKNOWN });
    let stale = *faults.api();
    drop(faults);
    assert_eq!(memory::alloc(&stale, 10), Ok(CUdeviceptr(0xa)));
    assert_eq!(context::synchronize(&stale).unwrap_err().code, CUerror::NOT_SUPPORTED);
}

#[test]
fn a_table_of_an_earlier_plan_stays_with_its_driver() {
    let stale = *Faults::count(&fake()).api();
    let other = Api { cuMemAlloc_v2: alloc_at::<0xb>, ..empty() };
    let faults = Faults::plan(&other, Fault { function: None, nth: 2, code: CUerror::UNKNOWN });
    assert_eq!(memory::alloc(&stale, 10), Ok(CUdeviceptr(10)));
    assert_eq!(memory::alloc(&stale, 10), Ok(CUdeviceptr(10)));
    assert_eq!(faults.calls(), 0);
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(0xb)));
    assert_eq!(memory::alloc(faults.api(), 10).unwrap_err().code, CUerror::UNKNOWN);
}

#[test]
fn a_panic_ends_the_plan_and_leaves_the_next_one_whole() {
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _faults = Faults::plan(&fake(), Fault { function: None, nth: 1, code: CUerror::UNKNOWN });
        panic!("a failing test");
    }));
    assert!(panicked.is_err());
    let faults = Faults::count(&fake());
    assert_eq!(memory::alloc(faults.api(), 10), Ok(CUdeviceptr(10)));
}

#[test]
#[should_panic(expected = "nth counts from 1")]
fn planning_call_zero_panics() {
    Faults::plan(&fake(), Fault { function: None, nth: 0, code: CUerror::UNKNOWN });
}
