//! The objects that a random run has created, alive or dead, and those that it got from another process.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::ptr;

use freehold_driver::cuda::{
    Api, CUarray, CUcontext, CUdeviceptr, CUerror, CUevent, CUgraph, CUgraphExec, CUlibrary, CUlinkState,
    CUlogsCallbackHandle, CUmemGenericAllocationHandle, CUmemoryPool, CUmipmappedArray, CUmodule, CUstream,
    CUsurfObject, CUtexObject, CUuserObject, DriverError, Function, address, allocation, array, context, event, graph,
    host, ipc, library, link, logs, mapping, memory, module, pool, stream, texture, user_object,
};

use crate::common::api_calls::Handle;
use freehold_testing::Random;

/// Maximum number of remembered objects of each kind. There are fewer contexts, events and objects of images, so that
/// two objects often belong together.
const KNOWN_MAX: usize = 12;
const CONTEXTS_MAX: usize = 3;
const FEW_MAX: usize = 4;

/// The way in which something is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shared {
    Allocation,
    Pool,
    /// A block of `cuMemAlloc`.
    Memory,
    Event,
    /// A block of a pool.
    PoolBlock,
}

impl Shared {
    pub(crate) const TOKENS: [Self; 3] = [Self::Memory, Self::Event, Self::PoolBlock];
}

/// Reserved or mapped addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: CUdeviceptr,
    pub(crate) bytes: u64,
}

/// The kind of object that a call creates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Made {
    Handle(Handle),
    Block,
    Pages,
    Opened,
    Reserved,
    Mapped,
    Descriptor(Shared),
    Token(Shared),
}

/// The objects known to all threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Known {
    handles: BTreeMap<Handle, Vec<usize>>,
    pub(crate) blocks: Vec<CUdeviceptr>,
    /// Pinned and managed memory. Copies do not use it: after such memory is freed, the program may have other data at
    /// its address, which a copy would overwrite.
    pub(crate) pages: Vec<CUdeviceptr>,
    /// Blocks of allocation nodes. Only frees use them: work that is not ordered with their graphs would fault.
    pub(crate) graph_blocks: Vec<CUdeviceptr>,
    /// Blocks of another process.
    pub(crate) opened: Vec<CUdeviceptr>,
    pub(crate) reserved: Vec<Range>,
    pub(crate) mapped: Vec<Range>,
    descriptors: BTreeMap<Shared, Vec<OwnedFd>>,
    tokens: BTreeMap<Shared, Vec<[u8; 64]>>,
    /// Functions that succeeded.
    pub(crate) useful: BTreeSet<Function>,
}

/// Adds an object, and returns the one that it replaces.
fn note<T: PartialEq>(list: &mut Vec<T>, one: T, most: usize, random: &mut Random) -> Option<T> {
    if list.contains(&one) {
        return None;
    }
    let forgotten = (list.len() == most).then(|| list.swap_remove(random.below(most as u64) as usize));
    list.push(one);
    forgotten
}

/// Releases an object that may be dead, until that fails. Any error is accepted except an internal error of the driver.
fn release(mut once: impl FnMut() -> Result<(), DriverError>) {
    loop {
        if let Err(error) = once() {
            return assert_ne!(error.code, CUerror::UNKNOWN, "{error}");
        }
    }
}

impl Known {
    pub(crate) fn handles(&self, kind: Handle) -> &[usize] {
        self.handles.get(&kind).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn descriptors(&self, kind: Shared) -> &[OwnedFd] {
        self.descriptors.get(&kind).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn tokens(&self, kind: Shared) -> &[[u8; 64]] {
        self.tokens.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Adds a handle, and releases the one that it replaces.
    pub(crate) fn note_handle(&mut self, api: &Api, kind: Handle, made: usize, random: &mut Random) {
        let most = match kind {
            Handle::Context => CONTEXTS_MAX,
            Handle::Event | Handle::Module | Handle::Library | Handle::Graph | Handle::Exec => FEW_MAX,
            Handle::Function | Handle::Kernel => FEW_MAX,
            _ => KNOWN_MAX,
        };
        let Some(old) = note(self.handles.entry(kind).or_default(), made, most, random) else { return };
        match kind {
            Handle::Context => release(|| context::destroy(api, CUcontext(old))),
            Handle::Stream => release(|| stream::destroy(api, CUstream(old))),
            Handle::Event => release(|| event::destroy(api, CUevent(old))),
            Handle::Pool => release(|| pool::destroy(api, CUmemoryPool(old))),
            Handle::Module => release(|| module::unload(api, CUmodule(old))),
            Handle::Library => release(|| library::unload(api, CUlibrary(old))),
            Handle::Link => release(|| link::destroy(api, CUlinkState(old))),
            Handle::LogsCallback => release(|| logs::unregister(api, CUlogsCallbackHandle(old))),
            Handle::Allocation => release(|| allocation::release(api, CUmemGenericAllocationHandle(old as u64))),
            Handle::Graph => release(|| graph::destroy(api, CUgraph(old))),
            Handle::Exec => release(|| graph::destroy_exec(api, CUgraphExec(old))),
            Handle::UserObject => release(|| user_object::release(api, CUuserObject(old), 1)),
            Handle::Array => release(|| array::destroy(api, CUarray(old))),
            Handle::Mipmap => release(|| array::destroy_mipmapped(api, CUmipmappedArray(old))),
            Handle::Texture => release(|| texture::destroy(api, CUtexObject(old))),
            Handle::Surface => release(|| texture::destroy_surface(api, CUsurfObject(old))),
            // A node ends with its graph.
            Handle::Function | Handle::Kernel | Handle::Node => {}
        }
    }

    /// Adds a block, and frees the one that it replaces.
    pub(crate) fn note_block(&mut self, api: &Api, made: CUdeviceptr, random: &mut Random) {
        // A null address comes from a request for nothing, and freeing it always succeeds.
        if made != CUdeviceptr::NULL
            && let Some(old) = note(&mut self.blocks, made, KNOWN_MAX, random)
        {
            release(|| memory::free(api, old));
        }
    }

    /// Adds a block of an allocation node, which lives as long as its graph.
    pub(crate) fn note_graph_block(&mut self, made: CUdeviceptr, random: &mut Random) {
        note(&mut self.graph_blocks, made, KNOWN_MAX, random);
    }

    /// Adds pinned or managed memory, and frees what it replaces.
    pub(crate) fn note_pages(&mut self, api: &Api, made: CUdeviceptr, random: &mut Random) {
        if made != CUdeviceptr::NULL
            && let Some(old) = note(&mut self.pages, made, KNOWN_MAX, random)
        {
            release(|| memory::free(api, old));
            // SAFETY: nothing on the host uses what the driver gave to this run.
            release(|| unsafe { host::free(api, ptr::with_exposed_provenance_mut(old.0 as usize)) });
        }
    }

    pub(crate) fn note_opened(&mut self, api: &Api, made: CUdeviceptr, random: &mut Random) {
        if let Some(old) = note(&mut self.opened, made, FEW_MAX, random) {
            release(|| ipc::close_memory(api, old));
        }
    }

    /// Adds reserved addresses. Unmaps and frees those that they replace.
    pub(crate) fn note_reserved(&mut self, api: &Api, made: Range, random: &mut Random) {
        if let Some(old) = note(&mut self.reserved, made, KNOWN_MAX, random) {
            // A range that is no longer reserved can be neither unmapped nor freed.
            if mapping::unmap(api, old.start, old.bytes as usize).is_ok() {
                release(|| address::free(api, old.start, old.bytes as usize));
            }
        }
    }

    pub(crate) fn note_mapped(&mut self, api: &Api, made: Range, random: &mut Random) {
        if let Some(old) = note(&mut self.mapped, made, KNOWN_MAX, random)
            && let Err(error) = mapping::unmap(api, old.start, old.bytes as usize)
        {
            assert_ne!(error.code, CUerror::UNKNOWN, "{error}");
        }
    }

    /// Adds a descriptor, and closes the one that it replaces.
    pub(crate) fn note_descriptor(&mut self, kind: Shared, made: OwnedFd, random: &mut Random) {
        let list = self.descriptors.entry(kind).or_default();
        if list.len() == KNOWN_MAX {
            list.swap_remove(random.below(KNOWN_MAX as u64) as usize);
        }
        list.push(made);
    }

    pub(crate) fn note_token(&mut self, kind: Shared, made: [u8; 64], random: &mut Random) {
        note(self.tokens.entry(kind).or_default(), made, KNOWN_MAX, random);
    }
}
