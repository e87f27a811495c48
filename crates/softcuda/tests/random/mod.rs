//! Runs of random calls, each in its own process beside a partner process that dies in the middle.

mod known;
mod lists;
mod partner;
mod structures;
mod wild;

use std::fs;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use freehold_driver::cuda::{CUerror, CUstream, CUstreamCaptureMode, Function, capture, context, fill, memory};
use freehold_testing::{Random, report_covered, seed};

use crate::common::api_calls::{self, Handle, Source};
use crate::common::{self, Context, child};
use crate::peer::{Machine, Peer};
use known::Known;
use lists::FUTILE;
use partner::Partner;
use wild::Wild;

/// Memory of each device of a run. The partner uses a fifth of one.
const MEMORY: &str = "1GiB";

/// Maximum number of descriptors, and of mappings, of a run: released objects leave none behind.
const DESCRIPTORS_MAX: usize = 400;
const MAPPINGS_MAX: usize = 1000;

/// Maximum number of additional rounds of calls, made if some functions have never succeeded.
const MORE_MAX: u64 = 3;

/// Number of calls after which nearly every function has succeeded.
const ENOUGH: usize = 500_000;

/// The settings of a random run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The name of the test.
    pub(crate) name: &'static str,
    pub(crate) schedule: &'static str,
    pub(crate) threads: usize,
    /// Calls of all threads together.
    pub(crate) calls: usize,
}

/// Whether a thread of this process has panicked.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Records panics from now on.
fn note_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        before(info);
    }));
}

/// Makes `calls` random calls. None may fail with an internal error of the driver.
fn call_wildly(own: &Context, wild: &mut Wild<'_>, calls: usize, half_way: impl Fn()) {
    let api = own.api;
    for number in 0..calls {
        if number == calls / 2 {
            half_way();
        }
        if number % 16 == 0 && memory::info(&api).is_err() {
            wild.enter(own.device);
        }
        if number % 16 == 8 {
            // A captured stream accepts few other calls, so most captures are ended early. The result does not matter.
            let stream = CUstream(wild.handle(Handle::Stream));
            if let Err(error) = capture::end(&api, stream) {
                assert_ne!(error.code, CUerror::UNKNOWN, "{error}");
            }
        }
        let function = wild.choose();
        let answer = api_calls::call(&api, function, wild);
        if answer == Err(CUerror::ILLEGAL_ADDRESS) {
            // A graph has accessed host memory that is gone, which is allowed: after this fault nothing works.
            return;
        }
        // A panic of the driver becomes an error code that some images return legitimately, so the panic itself is
        // checked.
        assert!(!PANICKED.load(Ordering::SeqCst), "call {number}, of {function}: {answer:?}");
        if answer.is_ok() {
            wild.note();
        }
    }
}

impl Run {
    pub(crate) fn check(self) {
        if child::is_child(self.name) {
            return self.make_calls();
        }
        self.start(seed());
        report_covered(self.calls as u64, "random calls");
    }

    /// Makes the calls in its own process. Its memory is free when it is gone.
    fn start(self, seed: u64) {
        let machine = Machine::new();
        let variables = [("FREEHOLD_SOFT_MEMORY", MEMORY), ("FREEHOLD_SOFT_DEVICES", "2")];
        let watcher = Peer::start(machine.name(), &variables);
        watcher.ask("start");
        let before = watcher.free_bytes();
        let seed = seed.to_string();
        let own = [
            ("FREEHOLD_SOFT_MACHINE", machine.name()),
            ("FREEHOLD_SOFT_SCHEDULE", self.schedule),
            ("FREEHOLD_SEED", &seed),
        ];
        let outcome = child::run(self.name, &[&variables[..], &own].concat());
        let (status, output) = (outcome.status, outcome.output);
        assert!(status.success(), "{status:?} with seed {seed} under {}:\n{output}", self.schedule);
        let said = outcome.reported.join(", ");
        println!("{} calls with seed {seed} under {}: {said}", self.calls, self.schedule);
        assert_eq!(watcher.free_bytes(), before, "all memory is back after the run with seed {seed}");
    }

    fn make_calls(self) {
        note_panics();
        let seed = seed();
        let partner = Partner::start();
        let own = Context::create();
        let zero = common::address(&own.words()[0]);
        let (known, all_here) = (Mutex::new(Known::default()), Barrier::new(self.threads));
        thread::scope(|scope| {
            for thread in 0..self.threads {
                let (own, known, all_here, partner) = (&own, &known, &all_here, &partner);
                scope.spawn(move || {
                    own.enter();
                    let random = Random::new(seed ^ thread as u64);
                    let mut wild = Wild::new(random, own.api, (zero, own.handle), known, partner);
                    all_here.wait();
                    call_wildly(own, &mut wild, self.calls / self.threads, || {
                        if thread == 0 {
                            partner.kill();
                        }
                    });
                });
            }
        });
        let never = || -> Vec<_> {
            let useful = &known.lock().unwrap().useful;
            let never = |function: &&Function| !useful.contains(function) && !FUTILE.contains(function);
            Function::ALL.iter().filter(never).collect()
        };
        let is_enough = || self.calls < ENOUGH || never().len() <= 2;
        // Random calls may never meet the preconditions of a function: then more are made.
        for more in (1..=MORE_MAX).take_while(|_| !is_enough()) {
            own.enter();
            let mut wild =
                Wild::new(Random::new(seed.wrapping_add(more)), own.api, (zero, own.handle), &known, &partner);
            call_wildly(&own, &mut wild, self.calls, || {});
        }
        own.enter();
        if context::synchronize(&own.api).is_err_and(|error| error.code == CUerror::ILLEGAL_ADDRESS) {
            child::report_line("ended by a fault");
            return std::mem::forget(own);
        }
        let never = never();
        assert!(is_enough(), "calls that never succeed prove little: {never:?}");
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        let mappings = fs::read_to_string("/proc/self/maps").unwrap().lines().count();
        child::report_line(&format!("{descriptors} descriptors, {mappings} mappings, without success {never:?}"));
        assert!(descriptors <= DESCRIPTORS_MAX, "{descriptors} descriptors are open");
        assert!(mappings <= MAPPINGS_MAX, "{mappings} mappings are there");
        // Whatever was done, a new context works if its thread ignores captures that were not ended.
        capture::exchange_mode(&own.api, CUstreamCaptureMode::RELAXED).unwrap();
        let fresh = Context::create();
        let block = fresh.block(4096);
        fill::d8(&fresh.api, block, 5, 4096).unwrap();
        assert_eq!(fresh.byte(block, 4096), 5);
        // A call may have destroyed it.
        std::mem::forget(own);
    }
}
