//! Fault injection: a table that counts its calls, and makes one of them fail before it reaches the driver.
//!
//! ```
//! # use freehold_driver::cuda::{Api, CUerror, Function, faults::{Fault, Faults}, memory};
//! # // SAFETY: no symbol is returned.
//! # let (api, _) = unsafe { Api::from_symbols(|_| None) };
//! let third = Fault { function: Some(Function::cuMemAlloc_v2), nth: 3, code: CUerror::OUT_OF_MEMORY };
//! let faults = Faults::plan(&api, third);
//! let codes: Vec<_> = (1..=4).map(|_| memory::alloc(faults.api(), 512).unwrap_err().code).collect();
//! assert_eq!(codes[2], CUerror::OUT_OF_MEMORY);
//! ```
//!
//! The state is in statics because a table contains plain C functions, which receive their arguments and nothing else.
//! Only one plan is active in a process at a time, while its [`Faults`] lives. Every driver that was ever wrapped is
//! kept, with wrappers of its own: a table copied out of a plan keeps calling the driver that it was made from,
//! whatever is planned later.
//!
//! This module does not know what the functions do.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::api::{Api, DriverContract, Function, with_functions};
use super::array_types::*;
use super::code::{CUerror, CUresult};
use super::graph_types::*;
use super::kernel_types::*;
use super::managed_types::*;
use super::mapping_types::*;
use super::node_types::*;
use super::types::*;

/// The number of different drivers that a process can wrap. Each has a full set of wrappers.
pub const DRIVERS_MAX: usize = 4;

/// The number of calls that [`Faults::record`] holds. Later ones are only counted.
pub const RECORD_CALLS_MAX: usize = 65_536;

/// A call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The function whose calls are counted; `None` is any.
    pub function: Option<Function>,
    /// The number of the call that fails, from 1.
    pub nth: u64,
    /// The code that it returns.
    pub code: CUerror,
}

/// An active plan. Only one exists at a time: [`plan`](Self::plan) and [`count`](Self::count) wait until that of
/// another thread is dropped, and deadlock if it is the same thread's.
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
        assert!(fault.nth > 0, "nth counts from 1");
        Self::begin(api, Some(fault))
    }

    /// Counts and records calls, and makes none fail.
    ///
    /// # Panics
    /// If the process has wrapped [`DRIVERS_MAX`] other drivers already.
    pub fn count(api: &Api) -> Self {
        Self::begin(api, None)
    }

    /// Returns the wrapped table. After the plan is dropped, a copy of it makes no call fail, until a later plan for
    /// the same driver counts its calls too.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the number of calls through the table, including the failed one.
    pub fn calls(&self) -> u64 {
        with_plan(|plan| plan.calls)
    }

    /// Returns the number of calls of `function`.
    pub fn calls_of(&self, function: Function) -> u64 {
        with_plan(|plan| plan.calls_of[function as usize])
    }

    /// Returns whether the planned call was made, and failed.
    pub fn has_fired(&self) -> bool {
        with_plan(|plan| plan.fault.is_some_and(|fault| plan.matching_calls(fault) >= fault.nth))
    }

    /// Returns the functions called, in order: the first [`RECORD_CALLS_MAX`] of them.
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

/// The active plan, and the calls made under it.
struct Plan {
    /// The driver whose calls are counted: an index into [`DRIVERS`].
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

    /// Returns the number of calls so far that `fault` counts.
    fn matching_calls(&self, fault: Fault) -> u64 {
        fault.function.map_or(self.calls, |function| self.calls_of[function as usize])
    }
}

/// Held by the active [`Faults`]. It guards no data, so a test that panics with it does not affect the next.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// The active plan. Locked while a call is counted, never while a driver is called.
static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

/// The wrapped drivers. An entry is written once.
static DRIVERS: [OnceLock<Api>; DRIVERS_MAX] = [const { OnceLock::new() }; DRIVERS_MAX];

static WRAPPED: [Api; DRIVERS_MAX] = [wrapped::<0>(), wrapped::<1>(), wrapped::<2>(), wrapped::<3>()];

fn plan() -> MutexGuard<'static, Option<Plan>> {
    PLAN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_plan<T>(read: impl FnOnce(&Plan) -> T) -> T {
    read(plan().as_ref().expect("a plan is active while its `Faults` lives"))
}

/// Returns the index in [`DRIVERS`] of this driver. Only the thread that holds [`EXCLUSIVE`] calls it.
fn driver_index(api: &Api) -> usize {
    DRIVERS
        .iter()
        .position(|driver| is_same_api(driver.get_or_init(|| *api), api))
        .unwrap_or_else(|| panic!("a process can wrap at most {DRIVERS_MAX} different drivers"))
}

fn is_same_api(one: &Api, other: &Api) -> bool {
    Function::ALL.iter().all(|&function| one.address(function) == other.address(function))
}

/// Counts a call of driver `driver`, and returns the error if it fails.
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
                // SAFETY: each wrapper fails or calls the function of its name, of a table that carries the promise.
                contract: unsafe { DriverContract::new() },
                $($name: wrapper::$name::<DRIVER>,)*
            }
        }

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod wrapper {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name<const DRIVER: usize>($($argument: $kind),*) -> CUresult {
                note(DRIVER, Function::$name)?;
                let driver = DRIVERS[DRIVER].get().expect("a driver is stored before its wrappers are returned");
                // SAFETY: the caller meets the conditions of this function, and the arguments are passed on unchanged.
                unsafe { (driver.$name)($($argument),*) }
            })*
        }
    };
}

with_functions!(wrappers);
