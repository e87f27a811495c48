//! An observed table: it calls an observer before each call reaches the driver, and again after the call has returned.
//!
//! The state is in a static because a table contains plain C functions, as that of [`faults`](super::faults) does: they
//! receive their arguments and nothing else. A process observes one driver, once, until it exits. A table that is not
//! observed is unaffected.
//!
//! This module does not know what the functions do, except which of their arguments receive results.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

use super::api::{Api, DriverContract, Function, with_functions};
use super::array_types::*;
use super::code::CUresult;
use super::graph_types::*;
use super::kernel_types::*;
use super::managed_types::*;
use super::mapping_types::*;
use super::node_types::*;
use super::types::*;

/// An argument of a call: its name in the list, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name in the list of functions.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
}

/// The value of an argument, as far as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The address of device or host memory.
    Address(u64),
    /// A context, a stream, a module, …
    Handle(u64),
    /// A number: a size, a count or flags.
    Count(u64),
    /// A number that may be negative.
    Signed(i32),
    /// A structure, a function, or a location for a result: not a single number.
    Opaque,
}

/// What an observer receives.
#[derive(Clone, Copy, Debug)]
pub enum CallEvent<'a> {
    /// A call is about to reach the driver. If it never returns, there is no `Exit`.
    Enter {
        /// The function.
        function: Function,
        /// Its arguments.
        arguments: &'a [Argument],
    },
    /// The call has returned. If it succeeded, an output argument for an address or a handle appears as the value that
    /// the driver wrote.
    Exit {
        /// The function.
        function: Function,
        /// When it was called.
        start: Instant,
        /// When it had returned.
        end: Instant,
        /// Its result.
        outcome: CUresult,
        /// Its arguments, with the values that the driver wrote.
        arguments: &'a [Argument],
    },
}

/// Returns a table that calls `observer` and then `api`. The observer runs on the thread that makes the call; inside a
/// host function it runs while another call of that thread has not returned.
///
/// The observer must not panic: it is called from C, and the process would abort.
///
/// # Panics
/// If the process already observes a driver.
pub fn watch(api: &Api, observer: impl Fn(CallEvent<'_>) + Send + Sync + 'static) -> Api {
    let watch = Watch { driver: *api, observer: Box::new(observer) };
    WATCH.set(watch).expect("a process can observe only one driver, once");
    WATCHED
}

struct Watch {
    driver: Api,
    observer: Box<dyn Fn(CallEvent<'_>) + Send + Sync>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Set before the first wrapper is returned.
static WATCH: OnceLock<Watch> = OnceLock::new();

/// How an argument appears to an observer.
trait ArgumentValue: Copy {
    fn on_enter(self) -> Value {
        Value::Opaque
    }

    /// Its value after a successful call.
    ///
    /// # Safety
    /// `self` was an argument of a call of `function` that has just succeeded.
    unsafe fn on_exit(self, _function: Function) -> Value {
        self.on_enter()
    }
}

/// How a pointer to this type appears to an observer.
trait PointeeValue: Sized {
    fn on_enter(_pointer: *const Self) -> Value {
        Value::Opaque
    }

    /// As in [`ArgumentValue::on_exit`].
    ///
    /// # Safety
    /// `pointer` is not null, and was an argument of a call of `function` that has just succeeded.
    unsafe fn on_exit(pointer: *const Self, _function: Function) -> Value {
        Self::on_enter(pointer)
    }
}

impl<T: PointeeValue> ArgumentValue for *const T {
    fn on_enter(self) -> Value {
        T::on_enter(self)
    }
}

impl<T: PointeeValue> ArgumentValue for *mut T {
    fn on_enter(self) -> Value {
        T::on_enter(self)
    }

    unsafe fn on_exit(self, function: Function) -> Value {
        if self.is_null() {
            return Value::Opaque;
        }
        // SAFETY: the pointer is not null, and the caller guarantees the rest.
        unsafe { T::on_exit(self, function) }
    }
}

impl PointeeValue for c_void {
    fn on_enter(pointer: *const Self) -> Value {
        Value::Address(pointer.addr() as u64)
    }
}

impl PointeeValue for CUdeviceptr {
    unsafe fn on_exit(pointer: *const Self, _function: Function) -> Value {
        // SAFETY: each function of the list that takes a pointer to a device address takes a place for one, and has
        // written it when it succeeds.
        Value::Address(unsafe { pointer.read_unaligned() }.0)
    }
}

impl PointeeValue for *mut c_void {
    unsafe fn on_exit(pointer: *const Self, function: Function) -> Value {
        if !matches!(function, Function::cuMemAllocHost_v2 | Function::cuMemHostAlloc) {
            return Value::Opaque;
        }
        // SAFETY: these two functions take a place for one address, and have written it when they succeed.
        Value::Address(unsafe { pointer.read_unaligned() }.addr() as u64)
    }
}

macro_rules! argument_values {
    ($($value:ident: $($kind:ty)*;)*) => {$($(
        impl ArgumentValue for $kind {
            fn on_enter(self) -> Value {
                Value::$value(self.into())
            }
        }
    )*)*};
}

argument_values! {
    Count: u8 u16 u32 u64;
    Signed: i32;
}

impl ArgumentValue for usize {
    fn on_enter(self) -> Value {
        Value::Count(self as u64)
    }
}

impl ArgumentValue for CUdevice {
    fn on_enter(self) -> Value {
        Value::Signed(self.0)
    }
}

impl ArgumentValue for CUdeviceptr {
    fn on_enter(self) -> Value {
        Value::Address(self.0)
    }
}

macro_rules! newtype_values {
    ($($value:ident: $($kind:ty)*;)*) => {$($(
        impl ArgumentValue for $kind {
            fn on_enter(self) -> Value {
                Value::$value(self.0 as u64)
            }
        }
    )*)*};
}

newtype_values! {
    Handle: CUcontext CUstream CUevent CUmemoryPool CUgraph CUgraphExec CUgraphNode CUuserObject CUmodule CUfunction CUlibrary CUkernel CUlinkState
        CUlogsCallbackHandle CUmemGenericAllocationHandle CUarray CUmipmappedArray CUtexObject CUsurfObject;
    Count: CUdevice_attribute CUdevice_P2PAttribute CUlimit CUfunc_cache CUsharedconfig CUmem_advise
        CUmem_range_attribute CUpointer_attribute CUstreamCaptureMode CUmemPool_attribute CUmemAllocationHandleType
        CUmemAllocationGranularity_flags CUfunction_attribute CUjitInputType CUlaunchAttributeID CUgraphMem_attribute;
}

macro_rules! output_handles {
    ($($kind:ty)*) => {$(
        impl PointeeValue for $kind {
            unsafe fn on_exit(pointer: *const Self, _function: Function) -> Value {
                // SAFETY: each function of the list that takes a pointer to such a handle takes a place for one, and
                // has written it when it succeeds.
                Value::Handle(unsafe { pointer.read_unaligned() }.0 as u64)
            }
        }
    )*};
}

// Not graphs, functions and kernels: some calls take a place for those that may stay unwritten, or room for several.
output_handles! { CUcontext CUstream CUevent CUmemoryPool CUgraphExec CUmodule CUlibrary CUlinkState CUmemGenericAllocationHandle
CUarray CUmipmappedArray CUtexObject CUsurfObject }

macro_rules! opaque_values {
    ($($kind:ty)*) => { $(impl ArgumentValue for $kind {})* };
}

opaque_values! {
    CUmemLocation CUipcMemHandle CUipcEventHandle CUhostFn CUstreamCallback CUoccupancyB2DSize CUlogsCallback
    CUtensorMapDataType
}

macro_rules! opaque_pointees {
    ($($kind:ty)*) => { $(impl PointeeValue for $kind {})* };
}

opaque_pointees! {
    c_char *const c_char i32 u32 u64 usize f32
    CUdevice CUuuid CUdevprop CUdriverProcAddressQueryResult CUexecAffinityParam CUctxCreateParams CUfunc_cache CUsharedconfig
    CUDA_MEMCPY2D CUDA_MEMCPY3D CUDA_MEMCPY3D_PEER CUmem_range_attribute CUpointer_attribute CUstreamCaptureStatus
    CUstreamCaptureMode CUgraph CUgraphNode *const CUgraphNode CUstreamBatchMemOpParams CUmemPoolProps CUmemAccessDesc
    CUmemAccess_flags CUmemLocation CUmemPoolPtrExportData CUmemAllocationProp CUipcMemHandle CUipcEventHandle
    CUjit_option CUlibraryOption CUmoduleLoadingMode CUfunction CUkernel CUfunctionLoadingState CUlaunchConfig
    CUlogsCallbackHandle CUgraphEdgeData *const CUgraphEdgeData CUlaunchAttributeValue CUgraphNodeType CUgraphNodeParams
    CUDA_KERNEL_NODE_PARAMS CUDA_MEMSET_NODE_PARAMS CUDA_HOST_NODE_PARAMS CUDA_BATCH_MEM_OP_NODE_PARAMS CUDA_MEM_ALLOC_NODE_PARAMS
    CUDA_GRAPH_INSTANTIATE_PARAMS CUgraphExecUpdateResultInfo CUuserObject CUDA_ARRAY_DESCRIPTOR CUDA_ARRAY3D_DESCRIPTOR CUDA_RESOURCE_DESC
    CUDA_TEXTURE_DESC CUDA_RESOURCE_VIEW_DESC CUtensorMap
}

macro_rules! wrappers {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        const WATCHED: Api = Api {
            // SAFETY: each wrapper calls the function of its name, of a table that carries the promise.
            contract: unsafe { DriverContract::new() },
            $($name: wrapper::$name,)*
        };

        #[allow(non_snake_case, reason = "named as C names the functions")]
        mod wrapper {
            use super::*;

            $(pub(super) unsafe extern "C" fn $name($($argument: $kind),*) -> CUresult {
                let watch = WATCH.get().expect("the observer is set before its wrappers are returned");
                let function = Function::$name;
                let arguments: &[Argument] =
                    &[$(Argument { name: stringify!($argument), value: ArgumentValue::on_enter($argument) }),*];
                (watch.observer)(CallEvent::Enter { function, arguments });
                let start = Instant::now();
                // SAFETY: the caller meets the conditions of this function, and the arguments are passed on unchanged.
                let outcome = unsafe { (watch.driver.$name)($($argument),*) };
                let end = Instant::now();
                if outcome.is_err() {
                    (watch.observer)(CallEvent::Exit { function, start, end, outcome, arguments });
                    return outcome;
                }
                let arguments: &[Argument] = &[$(Argument {
                    name: stringify!($argument),
                    // SAFETY: it was an argument of this function, which has succeeded.
                    value: unsafe { ArgumentValue::on_exit($argument, function) },
                }),*];
                (watch.observer)(CallEvent::Exit { function, start, end, outcome, arguments });
                outcome
            })*
        }
    };
}

with_functions!(wrappers);
