//! The C types of a graph's nodes: their parameters, their edges, and the reports of instantiation and updates. Their
//! layout is asserted.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, non_snake_case, reason = "the types and fields are named as C names them")]

use std::ffi::c_void;
use std::fmt;

use super::graph_types::{CUgraph, CUgraphNode};
use super::kernel_types::{CUfunction, CUkernel};
use super::types::{
    CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUevent, CUhostFn, CUmemAccessDesc, CUmemPoolProps, CUstream,
    CUstreamBatchMemOpParams, c_enums, handles,
};

handles! {
    /// An object of the program that graphs keep alive.
    CUuserObject;
}

c_enums! {
    CUgraphNodeType {
        KERNEL = 0,
        MEMCPY = 1,
        MEMSET = 2,
        HOST = 3,
        GRAPH = 4,
        EMPTY = 5,
        WAIT_EVENT = 6,
        EVENT_RECORD = 7,
        EXT_SEMAS_SIGNAL = 8,
        EXT_SEMAS_WAIT = 9,
        MEM_ALLOC = 10,
        MEM_FREE = 11,
        BATCH_MEM_OP = 12,
        CONDITIONAL = 13,
    }
    CUgraphExecUpdateResult {
        SUCCESS = 0,
        ERROR = 1,
        TOPOLOGY_CHANGED = 2,
        NODE_TYPE_CHANGED = 3,
        FUNCTION_CHANGED = 4,
        PARAMETERS_CHANGED = 5,
        NOT_SUPPORTED = 6,
        UNSUPPORTED_FUNCTION_CHANGE = 7,
        ATTRIBUTES_CHANGED = 8,
    }
    CUgraphInstantiateResult {
        SUCCESS = 0,
        ERROR = 1,
        INVALID_STRUCTURE = 2,
        NODE_OPERATION_NOT_SUPPORTED = 3,
        MULTIPLE_CTXS_NOT_SUPPORTED = 4,
    }
    CUgraphMem_attribute {
        USED_MEM_CURRENT = 0,
        USED_MEM_HIGH = 1,
        RESERVED_MEM_CURRENT = 2,
        RESERVED_MEM_HIGH = 3,
    }
    CUgraphChildGraphNodeOwnership {
        CLONE = 0,
        MOVE = 1,
    }
}

/// Flags of `cuStreamUpdateCaptureDependencies`.
pub mod capture_dependency_flags {
    pub const ADD: u32 = 0;
    pub const SET: u32 = 1;
}

/// Flags of `cuUserObjectCreate`.
pub mod user_object_flags {
    pub const NO_DESTRUCTOR_SYNC: u32 = 1;
}

/// Flags of `cuGraphRetainUserObject`.
pub mod graph_user_object_flags {
    /// The caller's references become the graph's.
    pub const MOVE: u32 = 1;
}

/// The kind of a dependency. All zero for the ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUgraphEdgeData {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

const _: () = assert!(size_of::<CUgraphEdgeData>() == 8);

/// A launch of a kernel. Its function is `func`, or `kern` in the context `ctx` if `func` is null.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub gridDimX: u32,
    pub gridDimY: u32,
    pub gridDimZ: u32,
    pub blockDimX: u32,
    pub blockDimY: u32,
    pub blockDimZ: u32,
    pub sharedMemBytes: u32,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);

/// A copy, in the node parameters of `cuGraphAddNode`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: i32,
    pub reserved: i32,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

const _: () = assert!(size_of::<CUDA_MEMCPY_NODE_PARAMS>() == 216);

/// A fill: `width` elements of `elementSize` bytes in each of `height` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: u32,
    pub elementSize: u32,
    pub width: usize,
    pub height: usize,
}

const _: () = assert!(size_of::<CUDA_MEMSET_NODE_PARAMS>() == 40);

/// A fill, in the node parameters of `cuGraphAddNode`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub params: CUDA_MEMSET_NODE_PARAMS,
    pub ctx: CUcontext,
}

const _: () = assert!(size_of::<CUDA_MEMSET_NODE_PARAMS_v2>() == 48);

/// A call of a function of the host.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_HOST_NODE_PARAMS {
    pub func: CUhostFn,
    pub userData: *mut c_void,
}

const _: () = assert!(size_of::<CUDA_HOST_NODE_PARAMS>() == 16);

/// A graph within a graph, in the node parameters of `cuGraphAddNode`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_CHILD_GRAPH_NODE_PARAMS {
    pub graph: CUgraph,
    pub ownership: CUgraphChildGraphNodeOwnership,
}

/// Operations on words of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_BATCH_MEM_OP_NODE_PARAMS {
    pub ctx: CUcontext,
    pub count: u32,
    pub paramArray: *mut CUstreamBatchMemOpParams,
    pub flags: u32,
}

const _: () = assert!(size_of::<CUDA_BATCH_MEM_OP_NODE_PARAMS>() == 32);

/// An allocation. The address is an output.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

const _: () = assert!(size_of::<CUDA_MEM_ALLOC_NODE_PARAMS>() == 120);

/// The parameters of a node of the kind `kind`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUgraphNodeParams {
    pub kind: CUgraphNodeType,
    pub reserved0: [u32; 3],
    pub value: CUgraphNodeParamsValue,
    pub reserved2: u64,
}

/// The member is that of the node's kind. Every member may have any bytes.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CUgraphNodeParamsValue {
    pub words: [u64; 29],
    pub kernel: CUDA_KERNEL_NODE_PARAMS,
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub host: CUDA_HOST_NODE_PARAMS,
    pub graph: CUDA_CHILD_GRAPH_NODE_PARAMS,
    pub event: CUevent,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
    pub free: CUdeviceptr,
    pub mem_ops: CUDA_BATCH_MEM_OP_NODE_PARAMS,
}

const _: () = assert!(size_of::<CUgraphNodeParams>() == 256);
const _: () = assert!(std::mem::offset_of!(CUgraphNodeParams, value) == 16);

impl CUgraphNodeParams {
    /// Returns parameters of which all bytes but the kind are zero.
    pub const fn zeroed(kind: CUgraphNodeType) -> Self {
        Self { kind, reserved0: [0; 3], value: CUgraphNodeParamsValue { words: [0; 29] }, reserved2: 0 }
    }
}

impl fmt::Debug for CUgraphNodeParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CUgraphNodeParams").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Debug for CUgraphNodeParamsValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CUgraphNodeParamsValue").finish_non_exhaustive()
    }
}

/// The arguments and the results of `cuGraphInstantiateWithParams`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    pub flags: u64,
    pub hUploadStream: CUstream,
    pub hErrNode_out: CUgraphNode,
    pub result_out: CUgraphInstantiateResult,
}

const _: () = assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);

/// Why an update of an executable graph was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: CUgraphExecUpdateResult,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

const _: () = assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);

/// The value of an attribute of a launch, a stream or a kernel node: that of `CUlaunchAttribute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct CUlaunchAttributeValue(pub [u64; 8]);

const _: () = assert!(size_of::<CUlaunchAttributeValue>() == 64);
