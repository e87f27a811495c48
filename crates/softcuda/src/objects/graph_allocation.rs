//! Memory of allocation nodes: an address that stays the same, and memory behind it from the first launch on.
//!
//! Calls see a block as allocated from the launch that allocates it until the call that frees it. For
//! work, it is mapped from the allocation to the free, in the order of the device; any other access faults.

use std::sync::{Arc, Mutex, MutexGuard};

use freehold_driver::cuda::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUerror, CUgraph, CUmemAccess_flags, CUmemAccessDesc, CUmemPoolProps,
    CUresult,
};

use super::device::Device;
use crate::base::sync::lock;
use crate::memory::arena::HOST_READ_WRITE;
use crate::memory::backing::Backing;
use crate::memory::mem_ref::MappingStatus;
use crate::memory::page_heap::PAGE_BYTES;

#[derive(Debug)]
pub(crate) struct GraphAllocation {
    pub(crate) address: u64,
    /// The requested size.
    pub(crate) bytes: u64,
    device: Arc<Device>,
    /// The graph with the node.
    pub(crate) graph: CUgraph,
    properties: CUmemPoolProps,
    access: Vec<CUmemAccessDesc>,
    /// Whether work can access the memory.
    pub(crate) status: Arc<MappingStatus>,
    /// Called after work has lost access.
    on_unmap: fn(),
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` before the first launch and after a trim.
    memory: Option<Arc<Backing>>,
    /// Whether a launch has allocated the block and no call has freed it.
    is_allocated: bool,
    /// Number of launches that have allocated the block without the device having freed it.
    uses: usize,
    /// Where free nodes for it are.
    freed_in: FreedIn,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FreedIn {
    #[default]
    NoGraph,
    OwnGraph,
    OtherGraphs,
}

impl GraphAllocation {
    /// Reserves an address for `bytes`, or returns `None` if there is none.
    pub(crate) fn reserve(
        device: &Arc<Device>,
        graph: CUgraph,
        bytes: u64,
        properties: CUmemPoolProps,
        access: Vec<CUmemAccessDesc>,
        on_unmap: fn(),
    ) -> Option<Self> {
        let status = Arc::new(MappingStatus::new(false));
        status.mark_unmapped();
        Some(Self {
            address: device.memory.reserve(bytes)?,
            bytes,
            device: Arc::clone(device),
            graph,
            properties,
            access,
            status,
            on_unmap,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn page_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Returns the parameters of the node. The list in them lives as long as this value.
    pub(crate) fn params(&self) -> CUDA_MEM_ALLOC_NODE_PARAMS {
        CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: self.properties,
            accessDescs: self.access.as_ptr(),
            accessDescCount: self.access.len(),
            bytesize: self.bytes as usize,
            dptr: CUdeviceptr(self.address),
        }
    }

    /// Returns the access that a device other than its own has.
    pub(crate) fn peer_access(&self, ordinal: usize) -> CUmemAccess_flags {
        let of = self.access.iter().find(|access| access.location.id == ordinal as i32);
        of.map_or(CUmemAccess_flags::PROT_NONE, |access| access.flags)
    }

    /// Records a free node in a graph. An allocation is freed either in its own graph or in others.
    pub(crate) fn note_free_node(&self, graph: CUgraph) -> CUresult {
        let mut state = self.state();
        let place = if graph == self.graph { FreedIn::OwnGraph } else { FreedIn::OtherGraphs };
        match state.freed_in {
            FreedIn::NoGraph => state.freed_in = place,
            FreedIn::OtherGraphs if place == FreedIn::OtherGraphs => {}
            _ => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    /// Gives the block memory. It keeps that of earlier launches.
    pub(crate) fn back(&self) -> CUresult {
        let mut state = self.state();
        if state.memory.is_some() {
            return Ok(());
        }
        let (device, bytes) = (&self.device.memory, self.page_bytes());
        let memory = Backing::create(&device.usage, bytes).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        let memory = memory.ok_or(CUerror::OUT_OF_MEMORY)?;
        let attached = device.arena.attach(self.address, &memory, 0, bytes, HOST_READ_WRITE);
        attached.map_err(|_| CUerror::OUT_OF_MEMORY)?;
        state.memory = Some(memory);
        self.device.graph_memory().reserve(bytes);
        Ok(())
    }

    pub(crate) fn is_allocated(&self) -> bool {
        self.state().is_allocated
    }

    /// Allocates the block for a launch.
    ///
    /// # Errors
    /// It is allocated, or there is no memory.
    pub(crate) fn alloc(&self) -> CUresult {
        if self.is_allocated() {
            return Err(CUerror::INVALID_VALUE);
        }
        self.back()?;
        let mut state = self.state();
        state.is_allocated = true;
        state.uses += 1;
        drop(state);
        self.device.graph_memory().take(self.bytes);
        Ok(())
    }

    /// Takes back [`alloc`](Self::alloc) for a launch that fails.
    pub(crate) fn undo_alloc(&self) {
        self.state().is_allocated = false;
        self.drop_use();
    }

    /// Frees the block for a call. The device still has to [`unmap`](Self::unmap) it.
    ///
    /// # Errors
    /// It is not allocated.
    pub(crate) fn free(&self) -> CUresult {
        let mut state = self.state();
        if !state.is_allocated {
            return Err(CUerror::INVALID_VALUE);
        }
        state.is_allocated = false;
        Ok(())
    }

    /// Takes back [`free`](Self::free) for a launch that fails.
    pub(crate) fn undo_free(&self) {
        self.state().is_allocated = true;
    }

    /// Gives work access.
    pub(crate) fn map(&self) {
        self.status.mark_mapped();
    }

    /// Takes access from work, and overwrites the memory.
    pub(crate) fn unmap(&self) {
        self.status.mark_unmapped();
        (self.on_unmap)();
        let memory = self.state().memory.clone();
        if let Some(memory) = memory {
            self.device.memory.arena.poison_written(self.address, self.bytes, &memory, 0);
        }
        self.drop_use();
    }

    fn drop_use(&self) {
        self.state().uses -= 1;
        self.device.graph_memory().give_back(self.bytes);
    }

    /// Returns whether no launch uses the block, and none has left it allocated.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().uses == 0
    }

    /// Returns the memory to the device, unless a launch uses it.
    pub(crate) fn trim(&self) {
        let mut state = self.state();
        if state.uses == 0
            && let Some(memory) = state.memory.take()
        {
            self.device.memory.arena.detach(self.address, self.page_bytes());
            drop(memory);
            self.device.graph_memory().release(self.page_bytes());
        }
    }

    /// Releases the memory and the address. Nothing refers to the block any more.
    pub(crate) fn release(&self) {
        self.trim();
        self.device.memory.unreserve(self.address, self.bytes);
    }
}
