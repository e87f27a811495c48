//! A table that is watched: an observer is told of each call before it reaches the driver, and again when it has
//! returned.
//!
//! The static here exists because a table holds plain C functions, as that of [`faults`](super::faults) does: such a
//! function is given its arguments and nothing else, so which driver it stands before, and whom to tell, it can only
//! find in a static. A process watches one driver, once, for the rest of its life. A table that nobody watches is not
//! touched by any of this.
//!
//! This module knows nothing of what the functions do, beyond which of their arguments are places for results.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use super::api::{Api, Function, Vouched};
use super::code::CUresult;
use super::graph_types::*;
use super::kernel_types::*;
use super::managed_types::*;
use super::mapping_types::*;
use super::types::*;

/// An argument of a call: its name in the list, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    pub value: Value,
}

/// What an argument is, as far as an observer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of memory, a device's or the host's.
    Address(u64),
    /// A context, a stream, a module, …
    Handle(u64),
    Count(u64),
    Signed(i32),
    /// A structure, a function, or a place: nothing that is one number.
    Untold,
}

/// What an observer is told.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// A call is about to reach the driver. Where it never returns, this is all that is heard of it.
    Called { function: Function, arguments: &'a [Argument] },
    /// It has returned. Where it succeeded, a place for an address or a handle is told as what the driver put there.
    Returned { function: Function, start: Instant, end: Instant, outcome: CUresult, arguments: &'a [Argument] },
}

/// The table of `api`, watched by `observer`: it is called by the thread that makes the call, and inside a host function
/// also while another call of that thread has not returned.
///
/// The observer must not panic: there is C above it, and the process would be aborted.
///
/// # Panics
/// If the process watches a driver already.
pub fn watch(api: &Api, observer: impl Fn(Moment<'_>) + Send + Sync + 'static) -> Api {
    let watch = Watch { driver: *api, observer: Box::new(observer) };
    WATCH.set(watch).expect("a process watches one driver, once");
    WATCHED
}

struct Watch {
    driver: Api,
    observer: Box<dyn Fn(Moment<'_>) + Send + Sync>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Set before the first wrapper is handed out.
static WATCH: OnceLock<Watch> = OnceLock::new();

/// What an argument tells.
trait Told: Copy {
    fn given(self) -> Value {
        Value::Untold
    }

    /// What it is after a call that succeeded.
    ///
    /// # Safety
    /// `self` was an argument of a call of `function` that has succeeded just now.
    unsafe fn left(self, _function: Function) -> Value {
        self.given()
    }
}

/// What a pointer to it tells.
trait Pointed: Sized {
    fn given(_place: *const Self) -> Value {
        Value::Untold
    }

    /// As in [`Told::left`].
    ///
    /// # Safety
    /// `place` is not null, and was an argument of a call of `function` that has succeeded just now.
    unsafe fn left(place: *const Self, _function: Function) -> Value {
        Self::given(place)
    }
}

impl<T: Pointed> Told for *const T {
    fn given(self) -> Value {
        T::given(self)
    }
}

impl<T: Pointed> Told for *mut T {
    fn given(self) -> Value {
        T::given(self)
    }

    unsafe fn left(self, function: Function) -> Value {
        if self.is_null() {
            return Value::Untold;
        }
        // SAFETY: the pointer is not null, and the caller vouches for the rest.
        unsafe { T::left(self, function) }
    }
}

impl Pointed for c_void {
    fn given(place: *const Self) -> Value {
        Value::Address(place.addr() as u64)
    }
}

impl Pointed for CUdeviceptr {
    unsafe fn left(place: *const Self, _function: Function) -> Value {
        // SAFETY: each function of the list that takes a pointer to a device address takes a place for one, and has
        // written it when it succeeds.
        Value::Address(unsafe { place.read_unaligned() }.0)
    }
}

impl Pointed for *mut c_void {
    unsafe fn left(place: *const Self, function: Function) -> Value {
        if !matches!(function, Function::cuMemAllocHost_v2 | Function::cuMemHostAlloc) {
            return Value::Untold;
        }
        // SAFETY: these two functions take a place for one address, and have written it when they succeed.
        Value::Address(unsafe { place.read_unaligned() }.addr() as u64)
    }
}

macro_rules! told {
    ($($value:ident: $($kind:ty)*;)*) => {$($(
        impl Told for $kind {
            fn given(self) -> Value {
                Value::$value(self.into())
            }
        }
    )*)*};
}

told! {
    Count: u8 u16 u32 u64;
    Signed: i32;
}

impl Told for usize {
    fn given(self) -> Value {
        Value::Count(self as u64)
    }
}

impl Told for CUdevice {
    fn given(self) -> Value {
        Value::Signed(self.0)
    }
}

impl Told for CUdeviceptr {
    fn given(self) -> Value {
        Value::Address(self.0)
    }
}

macro_rules! numbered {
    ($($value:ident: $($kind:ty)*;)*) => {$($(
        impl Told for $kind {
            fn given(self) -> Value {
                Value::$value(self.0 as u64)
            }
        }
    )*)*};
}

numbered! {
    Handle: CUcontext CUstream CUevent CUmemoryPool CUgraph CUgraphExec CUmodule CUfunction CUlibrary CUkernel CUlinkState
        CUlogsCallbackHandle CUmemGenericAllocationHandle;
    Count: CUdevice_attribute CUdevice_P2PAttribute CUlimit CUfunc_cache CUsharedconfig CUmem_advise
        CUmem_range_attribute CUpointer_attribute CUstreamCaptureMode CUmemPool_attribute CUmemAllocationHandleType
        CUmemAllocationGranularity_flags CUfunction_attribute CUjitInputType;
}

macro_rules! places {
    ($($kind:ty)*) => {$(
        impl Pointed for $kind {
            unsafe fn left(place: *const Self, _function: Function) -> Value {
                // SAFETY: each function of the list that takes a pointer to such a handle takes a place for one, and
                // has written it when it succeeds.
                Value::Handle(unsafe { place.read_unaligned() }.0 as u64)
            }
        }
    )*};
}

// Not graphs, functions and kernels: of those some functions take a place that may stay as it was, or room for many.
places! { CUcontext CUstream CUevent CUmemoryPool CUgraphExec CUmodule CUlibrary CUlinkState CUmemGenericAllocationHandle }

macro_rules! untold {
    ($($kind:ty)*) => { $(impl Told for $kind {})* };
}

untold! {
    CUmemLocation CUipcMemHandle CUipcEventHandle CUhostFn CUstreamCallback CUoccupancyB2DSize CUlogsCallback
}

macro_rules! pointed {
    ($($kind:ty)*) => { $(impl Pointed for $kind {})* };
}

pointed! {
    c_char *const c_char i32 u32 u64 usize f32
    CUdevice CUuuid CUdevprop CUdriverProcAddressQueryResult CUexecAffinityParam CUctxCreateParams CUfunc_cache CUsharedconfig
    CUDA_MEMCPY2D CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER CUmem_range_attribute CUpointer_attribute CUstreamCaptureStatus
    CUstreamCaptureMode CUgraph CUgraphNode *const CUgraphNode CUstreamBatchMemOpParams CUmemPoolProps CUmemAccessDesc
    CUmemAccess_flags CUmemLocation CUmemPoolPtrExportData CUmemAllocationProp CUipcMemHandle CUipcEventHandle
    CUjit_option CUlibraryOption CUmoduleLoadingMode CUfunction CUkernel CUfunctionLoadingState CUlaunchConfig
    CUlogsCallbackHandle
}

macro_rules! wrappers {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        const WATCHED: Api = Api {
            // SAFETY: each wrapper calls the function of its name, of a table that was vouched for.
            vouched: unsafe { Vouched::new() },
            $($name: wrapper::$name,)*
        };

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod wrapper {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                let watch = WATCH.get().expect("a driver is watched before its wrappers are handed out");
                let function = Function::$name;
                let arguments: &[Argument] =
                    &[$(Argument { name: stringify!($argument), value: Told::given($argument) }),*];
                (watch.observer)(Moment::Called { function, arguments });
                let start = Instant::now();
                // SAFETY: the caller keeps the conditions of this very function, and the arguments are handed on as
                // they came.
                let outcome = unsafe { (watch.driver.$name)($($argument),*) };
                let end = Instant::now();
                if outcome.is_err() {
                    (watch.observer)(Moment::Returned { function, start, end, outcome, arguments });
                    return outcome;
                }
                let arguments: &[Argument] = &[$(Argument {
                    name: stringify!($argument),
                    // SAFETY: it was an argument of this function, which has succeeded.
                    value: unsafe { Told::left($argument, function) },
                }),*];
                (watch.observer)(Moment::Returned { function, start, end, outcome, arguments });
                outcome
            })*
        }
    };
}

crate::with_functions!(wrappers);
