//! Fails every driver call of every example and of many scenarios, one at a time: nothing panics, no block is lost, and
//! nothing is left when the device is closed.
//!
//! A run at low effort fails some of the calls of each scenario.
//!
//! A run has two parts. While one call fails, the scenario ends in any way, and everything but the device is dropped.
//! Then calls succeed again, and everything that is left completes.

mod drivers;
mod scenarios;

macro_rules! examples {
    ($($name:ident $path:literal)*) => {$(
        #[path = $path]
        #[allow(dead_code, unreachable_pub, reason = "an example has a `main` of its own")]
        mod $name;
    )*};
}

examples! {
    allocate "../../../examples/01_allocate.rs"
    two_contexts "../../../examples/02_two_contexts.rs"
    release_while_a_kernel_runs "../../../examples/03_release_while_a_kernel_runs.rs"
    two_streams "../../../examples/04_two_streams.rs"
    shared_references "../../../examples/05_shared_references.rs"
    module_twice "../../../examples/06_module_twice.rs"
    wrong_releases "../../../examples/07_wrong_releases.rs"
    vector "../../../examples/08_vector.rs"
    arena "../../../examples/09_arena.rs"
}

use std::time::Instant;

use crate::children::alone;
use drivers::Machine;
use freehold::PoolStats;
use freehold::{Device, Error, Result};
use freehold_driver::cuda::faults::{Fault, Faults};
use freehold_driver::cuda::{CUcontext, CUerror, Function};
use freehold_testing::{HANG_TIMEOUT, at_effort, report_covered};

struct Scenario {
    name: &'static str,
    run: fn(&Device) -> Result<()>,
}

macro_rules! scenarios {
    ($($module:ident::$function:ident)*) => {
        [$(Scenario { name: stringify!($module::$function), run: $module::$function }),*]
    };
}

const EXAMPLES: [Scenario; 9] = scenarios! {
    allocate::run two_contexts::run release_while_a_kernel_runs::run two_streams::run shared_references::run
    module_twice::run wrong_releases::run vector::run arena::run
};

const OTHERS: [Scenario; 19] = scenarios! {
    scenarios::three_streams scenarios::dropped_in_use scenarios::releases scenarios::closings
    scenarios::context_with_blocks scenarios::contexts_dropped scenarios::by_address scenarios::copies
    scenarios::events scenarios::streams_dropped scenarios::memory_back scenarios::memory_moved scenarios::shareable_moved
    scenarios::modules scenarios::threads scenarios::imports scenarios::semaphores scenarios::lendings scenarios::sleeps
};

/// Blocks that scenarios let go of, and that are still there where their release failed.
const LET_GO: [&str; 2] = [scenarios::LET_GO, "the matrix"];

/// What a driver makes, and what ends it; a context that is destroyed takes what it has along.
const PAIRS: [(Function, Function); 3] = [
    (Function::cuStreamCreate, Function::cuStreamDestroy_v2),
    (Function::cuEventCreate, Function::cuEventDestroy_v2),
    (Function::cuModuleLoadDataEx, Function::cuModuleUnload),
];
const CONTEXTS: (Function, Function) = (Function::cuCtxCreate_v2, Function::cuCtxDestroy_v2);
const LASTING: [(Function, Function); 4] = [
    CONTEXTS,
    (Function::cuMemHostRegister_v2, Function::cuMemHostUnregister),
    (Function::cuMemHostAlloc, Function::cuMemFreeHost),
    (Function::cuDevicePrimaryCtxRetain, Function::cuDevicePrimaryCtxRelease_v2),
];

/// Which calls of a scenario fail in turn: all, or the first ones, some of those after them, and the last.
struct Sample {
    nth: u64,
    /// How many calls there were when none failed. There may be more where threads wait.
    calls: u64,
}

impl Sample {
    /// The next after `nth`. It is beyond all calls in the end.
    fn next(&mut self) -> u64 {
        let (first, stride) = at_effort((1, 97), (3, 13), (1, 1));
        let next = if self.nth < first { self.nth + 1 } else { self.nth + stride };
        self.nth = if self.nth < self.calls { next.min(self.calls) } else { next };
        self.nth
    }
}

/// Says which call it was, where a test fails.
struct Case<'a> {
    scenario: &'a Scenario,
    nth: u64,
    code: CUerror,
    call: Option<Function>,
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { scenario, nth, code, call } = self;
            eprintln!("{}, call {nth} fails with {code}: {call:?}", scenario.name);
        }
    }
}

/// How often each function was answered. The record of all calls would not do: it ends after many, and a thread that waits for a
/// stream without words asks for as long as it waits.
struct Calls(Vec<i64>);

impl Calls {
    fn of(faults: &Faults) -> Self {
        Self(Function::ALL.iter().map(|&function| faults.calls_of(function) as i64).collect())
    }

    fn add(&mut self, more: &Self) {
        self.0.iter_mut().zip(&more.0).for_each(|(calls, more)| *calls += more);
    }

    /// How many of the things that `pair` makes and ends are left.
    fn left(&self, (made, ended): (Function, Function)) -> i64 {
        self.0[made as usize] - self.0[ended as usize]
    }

    fn check_nothing_is_left(&self) {
        let with_context = self.0[CONTEXTS.0 as usize] > 0;
        let pairs = PAIRS.iter().filter(|_| !with_context);
        for &pair in pairs.chain(&LASTING) {
            assert_eq!(self.left(pair), 0, "{} without {}", pair.0, pair.1);
        }
    }
}

/// Runs the scenario with one call after the other made to fail. How many were.
fn sweep(machine: &Machine, scenario: &Scenario, code: CUerror) -> u64 {
    let mut case = Case { scenario, nth: 0, code, call: None };
    // What the driver makes once and keeps, it makes now.
    let mut sample = Sample { nth: 0, calls: warm_up(machine, scenario.run) };
    let free_bytes = machine.free_bytes();
    for failed in 0.. {
        case.nth = sample.next();
        let current = machine.current();
        let faults = Faults::plan(machine.api(), Fault { function: None, nth: case.nth, code });
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(*faults.api(), machine.ordinal) };
        let outcome = match &device {
            Ok(device) => (scenario.run)(device),
            Err(error) => Err(error.clone()),
        };
        let mut calls = Calls::of(&faults);
        let fired = faults.has_fired();
        if fired {
            let call = faults.record()[case.nth as usize - 1];
            calls.0[call as usize] -= 1;
            case.call = Some(call);
        }
        drop(faults);
        assert_eq!(machine.current(), current, "the thread's own context is current again");
        if let Ok(device) = device {
            rest(machine, device, &mut calls);
        }
        calls.check_nothing_is_left();
        assert_eq!(machine.free_bytes(), free_bytes, "memory is left");
        assert_eq!(machine.left(), (0, 0), "addresses or mappings are left");
        if !fired {
            outcome.unwrap();
            return failed;
        }
    }
    unreachable!("a scenario makes so many calls and no more")
}

/// Runs a scenario without a fault. How many calls it makes.
fn warm_up(machine: &Machine, run: fn(&Device) -> Result<()>) -> u64 {
    let faults = Faults::count(machine.api());
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let device = unsafe { Device::new(*faults.api(), machine.ordinal) }.unwrap();
    run(&device).unwrap();
    let (mut calls, made) = (Calls::of(&faults), faults.calls());
    drop(faults);
    rest(machine, device, &mut calls);
    calls.check_nothing_is_left();
    made
}

/// Lets a device come to rest once nothing fails, and closes it.
fn rest(machine: &Machine, device: Device, calls: &mut Calls) {
    let faults = Faults::count(machine.api());
    for owner in device.blocks() {
        assert!(owner.tag.as_deref().is_some_and(|tag| LET_GO.contains(&tag)), "lost: {owner}");
        device.release(owner.base).unwrap();
    }
    let begun = Instant::now();
    loop {
        device.synchronize().unwrap();
        device.tidy().unwrap();
        device.trim().unwrap();
        let contexts = calls.left(CONTEXTS) + Calls::of(&faults).left(CONTEXTS);
        if contexts == 0 && device.stats() == PoolStats::default() {
            break;
        }
        assert!(begun.elapsed() < HANG_TIMEOUT, "{contexts} contexts and {:?} are left", device.stats());
        std::thread::yield_now();
    }
    drop(device);
    calls.add(&Calls::of(&faults));
}

fn sweep_all(machine: &Machine, scenarios: &[Scenario], code: CUerror) {
    let begun = Instant::now();
    let mut all = 0;
    for scenario in scenarios {
        let begun = Instant::now();
        let calls = sweep(machine, scenario, code);
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("{}: {calls} calls failed with {code} in {seconds:.1} s", scenario.name);
        all += calls;
    }
    eprintln!("{all} calls failed with {code} in {:.1} s", begun.elapsed().as_secs_f64());
    report_covered(all, "failed calls");
}

#[test]
fn for_every_n_the_nth_call_of_an_example_fails_and_nothing_is_lost() {
    alone("for_every_n_the_nth_call_of_an_example_fails_and_nothing_is_lost", || {
        let machine = Machine::open();
        sweep_all(&machine, &EXAMPLES, CUerror::INVALID_VALUE);
        machine.with_context(|| sweep_all(&machine, &EXAMPLES, CUerror::OUT_OF_MEMORY));
    });
}

#[test]
fn for_every_n_the_nth_call_fails_and_nothing_is_lost() {
    alone("for_every_n_the_nth_call_fails_and_nothing_is_lost", || {
        let machine = Machine::open();
        sweep_all(&machine, &OTHERS, CUerror::INVALID_VALUE);
        machine.with_context(|| sweep_all(&machine, &OTHERS, CUerror::OUT_OF_MEMORY));
    });
}

#[test]
fn for_every_n_the_nth_call_fails_and_nothing_is_lost_where_streams_write_no_words() {
    alone("for_every_n_the_nth_call_fails_and_nothing_is_lost_where_streams_write_no_words", || {
        let machine = Machine::without_words();
        sweep_all(&machine, &OTHERS, CUerror::INVALID_VALUE);
        machine.with_context(|| sweep_all(&machine, &OTHERS, CUerror::OUT_OF_MEMORY));
    });
}

#[test]
fn for_every_n_the_nth_call_fails_and_nothing_is_lost_where_memory_is_not_mapped() {
    alone("for_every_n_the_nth_call_fails_and_nothing_is_lost_where_memory_is_not_mapped", || {
        let machine = Machine::without_mapping();
        // Chunks are neither moved nor shared there, none of others are mapped, and none sleep.
        let absent = ["memory_moved", "shareable_moved", "imports", "sleeps"];
        let is_there = |scenario: &&Scenario| !absent.iter().any(|no| scenario.name.ends_with(no));
        for scenario in OTHERS.iter().filter(is_there) {
            sweep_all(&machine, std::slice::from_ref(scenario), CUerror::INVALID_VALUE);
            sweep_all(&machine, std::slice::from_ref(scenario), CUerror::OUT_OF_MEMORY);
        }
    });
}

/// Calls that are made once more where they fail: a fault that stays is met again.
const ASKED_TWICE: [Function; 6] = [
    Function::cuCtxGetCurrent,
    Function::cuCtxPushCurrent_v2,
    Function::cuCtxPopCurrent_v2,
    Function::cuFuncGetParamInfo,
    Function::cuStreamSynchronize,
    Function::cuThreadExchangeStreamCaptureMode,
];

/// Scenarios in which another thread may be on its way to the driver when a fault is noticed.
const THREADED: [&str; 2] = ["shared_references :: run", "scenarios :: threads"];

/// Calls that may wait for the device. Pinned memory is not among them: a page that cannot be used goes back at once.
const WAITING: [Function; 6] = [
    Function::cuCtxSynchronize,
    Function::cuEventSynchronize,
    Function::cuCtxDestroy_v2,
    Function::cuMemFree_v2,
    Function::cuModuleUnload,
    Function::cuMemHostUnregister,
];

/// Runs the scenario with a fault that stays at one call after the other. How many calls were made to fail.
fn sweep_faults(machine: &Machine, scenario: &Scenario) -> u64 {
    let code = CUerror::ILLEGAL_ADDRESS;
    let mut case = Case { scenario, nth: 0, code, call: None };
    let mut sample = Sample { nth: 0, calls: warm_up(machine, scenario.run) };
    for failed in 0.. {
        case.nth = sample.next();
        let faults = Faults::plan(machine.api(), Fault { function: None, nth: case.nth, code });
        // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
        let device = unsafe { Device::new(*faults.api(), machine.ordinal) };
        let outcome = device.as_ref().map_err(Error::clone).and_then(scenario.run);
        let (mut calls, made) = (faults.record(), faults.calls());
        if !faults.has_fired() {
            outcome.unwrap();
            drop((device, faults));
            machine.forget_everything();
            return failed;
        }
        let after = calls.split_off(case.nth as usize);
        case.call = calls.pop();
        let was_noticed = device.as_ref().is_ok_and(|device| device.name().is_err());
        if was_noticed {
            let waiting = after.iter().find(|call| WAITING.contains(call) && !THREADED.contains(&scenario.name));
            assert_eq!(waiting, None, "nothing waits for a device that has failed");
            assert!(matches!(outcome, Err(Error::Faulted(_)) | Ok(())), "{outcome:?}");
            check_every_call_says_so(device.as_ref().unwrap());
        } else if device.is_ok() {
            assert!(case.call.is_some_and(|call| ASKED_TWICE.contains(&call)), "the fault went unnoticed");
            outcome.unwrap();
        }
        drop(device);
        let is_quiet = faults.calls() == made;
        assert!(is_quiet || !was_noticed, "a device that has failed is not asked");
        drop(faults);
        machine.forget_everything();
    }
    unreachable!("a scenario makes so many calls and no more")
}

fn check_every_call_says_so(device: &Device) {
    let faulted = |outcome: Result<()>| matches!(outcome, Err(Error::Faulted(_)));
    assert!(faulted(device.name().map(drop)));
    assert!(faulted(device.new_context().map(drop)));
    assert!(faulted(device.new_stream().map(drop)));
    assert!(faulted(device.synchronize()));
    assert!(faulted(device.tidy()));
    assert!(faulted(device.trim().map(drop)));
    assert!(faulted(device.free_bytes().map(drop)));
    assert!(faulted(device.release(16)));
    assert!(faulted(device.claim(16).map(drop)));
}

#[test]
fn a_fault_that_stays_is_said_by_every_later_call() {
    alone("a_fault_that_stays_is_said_by_every_later_call", || {
        let machine = Machine::open();
        let begun = Instant::now();
        let mut all = 0;
        for scenario in EXAMPLES.iter().chain(&OTHERS) {
            all += sweep_faults(&machine, scenario);
        }
        eprintln!("{all} calls failed with a fault that stays in {:.1} s", begun.elapsed().as_secs_f64());
        report_covered(all, "failed calls");
    });
}

/// A device that is closed while calls fail: what it has stays until the process ends.
#[test]
fn for_every_n_the_nth_call_of_closing_a_device_fails_without_a_panic() {
    alone("for_every_n_the_nth_call_of_closing_a_device_fails_without_a_panic", || {
        let machine = Machine::open();
        let mut nth = 0;
        loop {
            nth += 1;
            let api = *Faults::count(machine.api()).api();
            // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
            let device = unsafe { Device::new(api, machine.ordinal) }.unwrap();
            scenarios::copies(&device).unwrap();
            device.synchronize().unwrap();
            let faults = Faults::plan(machine.api(), Fault { function: None, nth, code: CUerror::INVALID_VALUE });
            drop(device);
            let fired = faults.has_fired();
            drop(faults);
            assert_eq!(machine.current(), CUcontext::NULL);
            machine.forget_everything();
            if !fired {
                break;
            }
        }
        assert!(nth > 5, "closing a device makes {nth} calls");
    });
}
