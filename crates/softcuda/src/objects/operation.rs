//! The operations of graph nodes: as the program described them, and as work that a stream runs.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUfunction, CUgraphExecUpdateResult, CUgraphNodeType,
    CUlaunchAttribute, CUlaunchAttributeID, CUstreamBatchMemOpParams,
};

use super::event_state::EventSlot;
use super::graph_allocation::GraphAllocation;
use crate::engine::work::{HostCall, Work};

/// What a node does. It never changes: a node with new parameters gets another.
#[derive(Debug)]
pub(crate) enum Operation {
    Kernel(KernelNode),
    Memcpy(MemcpyNode),
    Memset(MemsetNode),
    Host(HostCall),
    Empty,
    EventRecord(EventNode),
    EventWait(EventNode),
    MemOps(MemOpsNode),
    MemAlloc(Arc<GraphAllocation>),
    MemFree(Arc<GraphAllocation>),
}

/// The size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchShape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// The blocks of a cluster, if an attribute states them.
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) shared_bytes: u32,
    pub(crate) is_cooperative: bool,
}

/// A launch of a kernel.
#[derive(Debug)]
pub(crate) struct KernelNode {
    /// A function of a module, or a kernel of a library.
    pub(crate) function: CUfunction,
    pub(crate) is_library_kernel: bool,
    pub(crate) context: CUcontext,
    pub(crate) shape: LaunchShape,
    /// One for each id that was set. A cooperative launch has that attribute.
    pub(crate) attributes: Vec<CUlaunchAttribute>,
    pub(crate) arguments: Arguments,
    pub(crate) work: Work,
}

impl KernelNode {
    /// Returns the value of an attribute, zero if it was not set.
    pub(crate) fn attribute(&self, id: CUlaunchAttributeID) -> [u64; 8] {
        self.attributes.iter().find(|attribute| attribute.id == id).map_or([0; 8], |attribute| attribute.value)
    }
}

/// The arguments of a kernel in one buffer, and the address of each. The program may read both.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// In units that are aligned as every argument needs.
    buffer: Box<[u128]>,
    bytes: usize,
    addresses: Box<[usize]>,
}

impl Arguments {
    /// Copies arguments, each of which starts at one of `offsets`.
    pub(crate) fn new(bytes: &[u8], offsets: impl Iterator<Item = usize>) -> Self {
        let unit = |part: &[u8]| {
            let mut unit = [0; 16];
            unit[..part.len()].copy_from_slice(part);
            u128::from_le_bytes(unit)
        };
        let buffer: Box<[u128]> = bytes.chunks(16).map(unit).collect();
        let start = buffer.as_ptr().addr();
        Self { addresses: offsets.map(|offset| start + offset).collect(), bytes: bytes.len(), buffer }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.buffer.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        bytes.truncate(self.bytes);
        bytes
    }

    /// Returns the list of addresses; null if there are no arguments.
    pub(crate) fn addresses(&self) -> *mut *mut c_void {
        if self.addresses.is_empty() {
            return ptr::null_mut();
        }
        self.addresses.as_ptr().cast_mut().cast()
    }
}

/// Where the memory of a copy or a fill is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Residence {
    /// A device, by its ordinal.
    Device(usize),
    Host,
}

#[derive(Debug)]
pub(crate) struct MemcpyNode {
    pub(crate) params: CUDA_MEMCPY3D,
    pub(crate) context: CUcontext,
    pub(crate) from: Residence,
    pub(crate) to: Residence,
    pub(crate) work: Work,
}

impl MemcpyNode {
    pub(crate) fn is_linear(&self) -> bool {
        self.params.Height <= 1 && self.params.Depth <= 1
    }
}

#[derive(Debug)]
pub(crate) struct MemsetNode {
    pub(crate) params: CUDA_MEMSET_NODE_PARAMS,
    pub(crate) context: CUcontext,
    pub(crate) to: Residence,
    pub(crate) work: Work,
}

#[derive(Debug)]
pub(crate) struct EventNode {
    pub(crate) event: CUevent,
    pub(crate) slot: Arc<EventSlot>,
}

/// Operations on words of memory, which run in their order.
#[derive(Debug)]
pub(crate) struct MemOpsNode {
    pub(crate) context: CUcontext,
    pub(crate) flags: u32,
    pub(crate) operations: Vec<CUstreamBatchMemOpParams>,
    pub(crate) works: Vec<Work>,
}

impl Operation {
    pub(crate) fn type_code(&self) -> CUgraphNodeType {
        match self {
            Self::Kernel(_) => CUgraphNodeType::KERNEL,
            Self::Memcpy(_) => CUgraphNodeType::MEMCPY,
            Self::Memset(_) => CUgraphNodeType::MEMSET,
            Self::Host(_) => CUgraphNodeType::HOST,
            Self::Empty => CUgraphNodeType::EMPTY,
            Self::EventRecord(_) => CUgraphNodeType::EVENT_RECORD,
            Self::EventWait(_) => CUgraphNodeType::WAIT_EVENT,
            Self::MemOps(_) => CUgraphNodeType::BATCH_MEM_OP,
            Self::MemAlloc(_) => CUgraphNodeType::MEM_ALLOC,
            Self::MemFree(_) => CUgraphNodeType::MEM_FREE,
        }
    }

    /// Returns whether it allocates or frees memory.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self, Self::MemAlloc(_) | Self::MemFree(_))
    }

    /// Returns whether an executable graph may skip the node.
    pub(crate) fn can_be_disabled(&self) -> bool {
        matches!(self, Self::Kernel(_) | Self::Memcpy(_) | Self::Memset(_))
    }

    /// Checks whether a node of an executable graph may become `new`.
    pub(crate) fn check_update(&self, new: &Self) -> Result<(), CUgraphExecUpdateResult> {
        let check = |allowed, refusal| if allowed { Ok(()) } else { Err(refusal) };
        match (self, new) {
            (Self::Kernel(old), Self::Kernel(new)) => {
                check(old.context == new.context, CUgraphExecUpdateResult::UNSUPPORTED_FUNCTION_CHANGE)?;
                let is_same = old.shape.is_cooperative == new.shape.is_cooperative;
                check(is_same, CUgraphExecUpdateResult::ATTRIBUTES_CHANGED)
            }
            (Self::Memcpy(old), Self::Memcpy(new)) => {
                let kinds = |node: &MemcpyNode| (node.params.srcMemoryType, node.params.dstMemoryType);
                let ends = |node: &MemcpyNode| (node.context, node.from, node.to);
                check(kinds(old) == kinds(new) && ends(old) == ends(new), CUgraphExecUpdateResult::PARAMETERS_CHANGED)
            }
            (Self::Memset(old), Self::Memset(new)) => {
                let place = |node: &MemsetNode| (node.context, node.to, node.params.height.max(1));
                let size = |node: &MemsetNode| (node.params.width, node.params.elementSize, node.params.pitch);
                let is_same_size = old.params.height <= 1 || size(old) == size(new);
                check(place(old) == place(new) && is_same_size, CUgraphExecUpdateResult::PARAMETERS_CHANGED)
            }
            (Self::MemOps(old), Self::MemOps(new)) => {
                let kinds = |node: &MemOpsNode| -> Vec<_> { node.operations.iter().map(|one| one.operation).collect() };
                let is_same = old.context == new.context && kinds(old) == kinds(new);
                check(is_same, CUgraphExecUpdateResult::PARAMETERS_CHANGED)
            }
            (Self::MemAlloc(old), Self::MemAlloc(new)) | (Self::MemFree(old), Self::MemFree(new)) => {
                check(Arc::ptr_eq(old, new), CUgraphExecUpdateResult::NOT_SUPPORTED)
            }
            _ => check(self.type_code() == new.type_code(), CUgraphExecUpdateResult::NODE_TYPE_CHANGED),
        }
    }
}
