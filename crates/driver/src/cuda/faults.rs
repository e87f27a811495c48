//! Faults on demand: a table that counts its calls, and makes one of them fail before it reaches the driver.
//!
//! ```
//! # use freehold_driver::cuda::{Api, CUerror, Function, faults::{Fault, Faults}, memory};
//! # // SAFETY: no symbol is handed out.
//! # let (api, _) = unsafe { Api::from_symbols(|_| None) };
//! let third = Fault { function: Some(Function::cuMemAlloc_v2), nth: 3, code: CUerror::OUT_OF_MEMORY };
//! let faults = Faults::plan(&api, third);
//! let codes: Vec<_> = (1..=4).map(|_| memory::alloc(faults.api(), 512).unwrap_err().code).collect();
//! assert_eq!(codes[2], CUerror::OUT_OF_MEMORY);
//! ```
//!
//! The statics here exist because a table holds plain C functions: such a function is given its arguments and nothing
//! else, so what it is to do, and which driver it stands before, it can only find in a static. A plan is the
//! process's only one while its [`Faults`] lives. The drivers that were ever wrapped are remembered for good, each
//! with wrappers of its own, so that a table copied out of a plan goes on to the driver that it was made of, whatever
//! is planned later and for which driver.
//!
//! This module knows nothing of what the functions do.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::api::{Api, Function, Vouched};
use super::code::{CUerror, CUresult};
use super::graph_types::*;
use super::kernel_types::*;
use super::managed_types::*;
use super::mapping_types::*;
use super::types::*;

/// How many different drivers a process can wrap. Each has a full set of wrappers.
pub const DRIVERS_MAX: usize = 4;

/// How many calls [`Faults::record`] holds. Those after them are counted only.
pub const RECORD_CALLS_MAX: usize = 65_536;

/// A call that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function whose calls are counted; `None` is any.
    pub function: Option<Function>,
    /// Which of them fails; the first is 1.
    pub nth: u64,
    /// What it answers.
    pub code: CUerror,
}

/// A plan in force. While it lives no other begins: [`plan`](Self::plan) and [`count`](Self::count) wait for the one
/// of another thread to be dropped, and would wait for ever for one of the same thread.
#[derive(Debug)]
pub struct Faults {
    api: Api,
    _exclusive: MutexGuard<'static, ()>,
}

impl Faults {
    /// Makes one call of the wrapped driver fail.
    ///
    /// # Panics
    /// If `fault.nth` is zero, or if the process has wrapped [`DRIVERS_MAX`] other drivers already.
    pub fn plan(api: &Api, fault: Fault) -> Self {
        assert!(fault.nth > 0, "the first call is number 1");
        Self::begin(api, Some(fault))
    }

    /// Makes no call fail: counts and records them.
    ///
    /// # Panics
    /// If the process has wrapped [`DRIVERS_MAX`] other drivers already.
    pub fn count(api: &Api) -> Self {
        Self::begin(api, None)
    }

    /// The wrapped table. A copy of it that outlives the plan is the driver without faults, until a later plan for the
    /// same driver counts its calls too.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// How many calls were made through the table, the failed one included.
    pub fn calls(&self) -> u64 {
        with_plan(|plan| plan.calls)
    }

    /// How many of them were calls of `function`.
    pub fn calls_of(&self, function: Function) -> u64 {
        with_plan(|plan| plan.calls_of[function as usize])
    }

    /// Whether the planned call was made, and failed.
    pub fn has_fired(&self) -> bool {
        with_plan(|plan| plan.fault.is_some_and(|fault| plan.matching_calls(fault) >= fault.nth))
    }

    /// The functions called, in order: the first [`RECORD_CALLS_MAX`] of them.
    pub fn record(&self) -> Vec<Function> {
        with_plan(|plan| plan.record.clone())
    }

    fn begin(api: &Api, fault: Option<Fault>) -> Self {
        let turn = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = driver_index(api);
        *plan() = Some(Plan { driver, fault, calls: 0, calls_of: [0; FUNCTIONS], record: Vec::new() });
        Self { api: WRAPPED[driver], _exclusive: turn }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        *plan() = None;
    }
}

const FUNCTIONS: usize = Function::ALL.len();

/// What is in force, and what has happened under it.
struct Plan {
    /// The driver whose wrappers are counted: an index of [`DRIVERS`].
    driver: usize,
    fault: Option<Fault>,
    calls: u64,
    calls_of: [u64; FUNCTIONS],
    record: Vec<Function>,
}

impl Plan {
    fn note(&mut self, function: Function) -> CUresult {
        self.calls += 1;
        self.calls_of[function as usize] += 1;
        if self.record.len() < RECORD_CALLS_MAX {
            self.record.push(function);
        }
        match self.fault {
            Some(fault)
                if fault.function.is_none_or(|chosen| chosen == function)
                    && self.matching_calls(fault) == fault.nth =>
            {
                Err(fault.code)
            }
            _ => Ok(()),
        }
    }

    /// The calls so far that `fault` counts.
    fn matching_calls(&self, fault: Fault) -> u64 {
        fault.function.map_or(self.calls, |function| self.calls_of[function as usize])
    }
}

/// Held by the [`Faults`] in force. It guards no data, so a test that panics with it does no harm to the next.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// The plan in force. Locked for as long as a call is counted, never while a driver is called.
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// The drivers that were wrapped. An entry is written once.
static DRIVERS: [OnceLock<Api>; DRIVERS_MAX] = [const { OnceLock::new() }; DRIVERS_MAX];

static WRAPPED: [Api; DRIVERS_MAX] = [wrapped::<0>(), wrapped::<1>(), wrapped::<2>(), wrapped::<3>()];

fn plan() -> MutexGuard<'static, Option<Plan>> {
    PLAN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_plan<T>(read: impl FnOnce(&Plan) -> T) -> T {
    read(plan().as_ref().expect("a plan is in force while its `Faults` lives"))
}

/// The index in [`DRIVERS`] of this driver. Called by one thread at a time, which holds [`TURN`].
fn driver_index(api: &Api) -> usize {
    DRIVERS
        .iter()
        .position(|driver| is_same_api(driver.get_or_init(|| *api), api))
        .unwrap_or_else(|| panic!("a process wraps at most {DRIVERS_MAX} different drivers"))
}

fn is_same_api(one: &Api, other: &Api) -> bool {
    Function::ALL.iter().all(|&function| one.address(function) == other.address(function))
}

/// Counts a call of driver `driver`, and says whether it fails.
fn note(driver: usize, function: Function) -> CUresult {
    match plan().as_mut() {
        Some(plan) if plan.driver == driver => plan.note(function),
        _ => Ok(()),
    }
}

macro_rules! wrappers {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        const fn wrapped<const DRIVER: usize>() -> Api {
            Api {
                // SAFETY: each wrapper fails or calls the function of its name, of a table that was vouched for.
                vouched: unsafe { Vouched::new() },
                $($name: wrapper::$name::<DRIVER>,)*
            }
        }

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod wrapper {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name<const DRIVER: usize>($($argument: $kind),*) -> CUresult {
                note(DRIVER, Function::$name)?;
                let driver = DRIVERS[DRIVER].get().expect("a driver is remembered before its wrappers are handed out");
                // SAFETY: the caller keeps the conditions of this very function, and the arguments are handed on as
                // they came.
                unsafe { (driver.$name)($($argument),*) }
            })*
        }
    };
}

crate::with_functions!(wrappers);
