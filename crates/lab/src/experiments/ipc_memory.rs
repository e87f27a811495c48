//! Experiments on memory opened by another process: which memory has a handle, and what an opened block allows
//! (question 1).

use std::ptr;

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUipcMemHandle, Function, attach_flags, context, fill, ipc, ipc_flags, memory, pointer,
};

use crate::answer_text::{byte_runs, choose, code, distance, or_code};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::{Fixture, check};
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, kernel, launch, word_at};
use crate::mapped::{self, MIB, PAGE, exportable_pool, offset};
use crate::partner::Partner;
use crate::partner_request::{PartnerRequest, token};

/// The flags required to open a handle.
pub(super) const LAZY: u32 = ipc_flags::LAZY_ENABLE_PEER_ACCESS;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 1, 1),
        did: "cuIpcGetMemHandle of a block, opened and read by another process",
        run: |b| {
            let (other, _, at) = opened_there(b, PAGE)?;
            other.holds(at, 4096)
        },
    },
    Experiment {
        id: Id(1, 1, 2),
        did: "get the handle of a block twice: whether the bytes are the same; and of two blocks",
        run: handles_compared,
    },
    Experiment {
        id: Id(1, 1, 3),
        did: "get the handle of the midst of a block: what the process that opens it finds at its address",
        run: interior,
    },
    Experiment {
        id: Id(1, 1, 4),
        did: "open two blocks of 512 bytes: what is read at each, and how far apart they lie there",
        run: small_blocks,
    },
    Experiment {
        id: Id(1, 1, 5),
        did: "get the handle of null, of a wild address, and of a freed block",
        run: |b| {
            b.init_context()?;
            let freed = memory::alloc(b, 64 * MIB)?;
            memory::free(b, freed)?;
            let addresses = [CUdeviceptr::NULL, CUdeviceptr(0x1234_5600_0000), freed];
            Ok(addresses.map(|at| code(ipc::memory_handle(b, at))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 1, 6),
        did: "get the handle of pinned, of registered, of managed and of pageable memory",
        run: |b| {
            b.init_context()?;
            let registered = b.registered_buffer(4096)?.address();
            let managed = memory::alloc_managed(b, PAGE, attach_flags::GLOBAL)?;
            let addresses = [b.alloc_host(4096)?, registered, managed, HostBuffer::pageable(4096).address()];
            Ok(addresses.map(|at| code(ipc::memory_handle(b, at))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 1, 7),
        did: "open the handle of one's own block",
        run: |b| {
            b.init_context()?;
            let handle = ipc::memory_handle(b, memory::alloc(b, PAGE)?)?;
            Ok(code(ipc::open_memory(b, handle, LAZY)))
        },
    },
    Experiment {
        id: Id(1, 1, 8),
        did: "open a handle with flags of 0, of 2 and of 3",
        run: |b| {
            let (_other, _, handle) = theirs(b, PAGE)?;
            Ok([0, 2, 3].map(|flags| code(ipc::open_memory(b, handle, flags))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 1, 9),
        did: "open a handle whose bytes are all 0, and one whose bytes are all 0xff",
        run: |b| {
            b.init_context()?;
            let open = |byte| code(ipc::open_memory(b, CUipcMemHandle { bytes: [byte; 64] }, LAZY));
            Ok(format!("{}, {}", open(0), open(0xff)))
        },
    },
    Experiment {
        id: Id(1, 1, 10),
        did: "open a handle twice: whether the address is the same; close it, read, close it, close it",
        run: opened_twice,
    },
    Experiment {
        id: Id(1, 1, 11),
        did: "cuMemFree and cuMemFreeAsync of an opened block, then read it",
        run: |b| {
            let (_other, _, handle) = theirs(b, PAGE)?;
            let at = ipc::open_memory(b, handle, LAZY)?;
            let free = code(memory::free(b, at));
            let free_async = code(memory::free_async(b, at, DEFAULT));
            Ok(format!("{free}, {free_async}, reads {}", or_code(b.bytes_at(at, 4096), |bytes| byte_runs(&bytes))))
        },
    },
    Experiment {
        id: Id(1, 1, 12),
        did: "get the handle of an opened block",
        run: |b| {
            let (_other, _, handle) = theirs(b, PAGE)?;
            Ok(code(ipc::memory_handle(b, ipc::open_memory(b, handle, LAZY)?)))
        },
    },
    Experiment {
        id: Id(1, 1, 13),
        did: "close a block of cuMemAlloc, null, a wild address, and the midst of an opened block",
        run: |b| {
            let (_other, _, handle) = theirs(b, PAGE)?;
            let midst = offset(ipc::open_memory(b, handle, LAZY)?, 4096);
            let addresses = [memory::alloc(b, PAGE)?, CUdeviceptr::NULL, CUdeviceptr(0x1234_5600_0000), midst];
            Ok(addresses.map(|at| code(ipc::close_memory(b, at))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 1, 14),
        did: "close an opened block, then fill it and read it",
        run: |b| {
            let (_other, _, handle) = theirs(b, 64 * MIB)?;
            let at = ipc::open_memory(b, handle, LAZY)?;
            let closed = code(ipc::close_memory(b, at));
            Ok(format!("{closed}, {}, {}", code(fill::d8(b, at, 1, 16)), code(b.bytes_at(at, 16))))
        },
    },
    Experiment {
        id: Id(1, 1, 15),
        did: "another process opens a block and fills it, then its kernel writes a word: what is read here",
        run: |b| {
            let (other, block, at) = opened_there(b, PAGE)?;
            other.run(PartnerRequest::Fill { at, value: 0x33, bytes: 4096 })?;
            let filled = byte_runs(&b.bytes_at(block, 4096)?);
            other.run(PartnerRequest::Store { at, value: 7 })?;
            Ok(format!("{filled}, word {}", word_at(b, block)?))
        },
    },
    Experiment {
        id: Id(1, 1, 16),
        did: "a kernel here writes a block that another process has opened: what is read there",
        run: |b| {
            let (other, block, at) = opened_there(b, PAGE)?;
            launch(b, kernel(b, KERNELS, c"store")?, ONE, DEFAULT, &[block.0, 0x0707_0707])?;
            context::synchronize(b)?;
            other.holds(at, 4)
        },
    },
    Experiment {
        id: Id(1, 1, 17),
        did: "two processes open a block; one closes it, the other reads it and what is written here afterwards",
        run: opened_by_two,
    },
    Experiment {
        id: Id(1, 1, 18),
        did: "another process closes a block: the exporter fills and reads it, and its handle is opened again",
        run: |b| {
            let (other, block, at) = opened_there(b, PAGE)?;
            other.run(PartnerRequest::CloseMemory(at))?;
            fill::d8(b, block, 0x33, 4096)?;
            let here = byte_runs(&b.bytes_at(block, 4096)?);
            let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
            let again = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
            Ok(format!("{here}, again {}", other.holds(again, 4096)?))
        },
    },
    Experiment {
        id: Id(1, 1, 19),
        did: "get a handle, open one and close one with no context current",
        run: no_context,
    },
    Experiment {
        id: Id(1, 1, 20),
        did: "get the handle of a block of a context that is not current, and open it elsewhere",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let block = memory::alloc(b, PAGE)?;
            fill::d8(b, block, 0x5a, PAGE)?;
            context::synchronize(b)?;
            b.second_context()?;
            let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
            let at = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
            other.holds(at, 4096)
        },
    },
    Experiment {
        id: Id(1, 1, 21),
        did: "get a handle with no place for it",
        run: |b| {
            b.init_context()?;
            let block = memory::alloc(b, PAGE)?;
            // SAFETY: null is a pointer that the call must reject and does not dereference.
            let outcome = unsafe { (b.cuIpcGetMemHandle)(ptr::null_mut(), block) };
            Ok(code(check(Function::cuIpcGetMemHandle, outcome)))
        },
    },
    Experiment {
        id: Id(1, 1, 23),
        did: "open a handle with no place for the address",
        run: |b| {
            let (_other, _, handle) = theirs(b, PAGE)?;
            // SAFETY: null is a pointer that the call must reject and does not dereference.
            let outcome = unsafe { (b.cuIpcOpenMemHandle_v2)(ptr::null_mut(), handle, LAZY) };
            Ok(code(check(Function::cuIpcOpenMemHandle_v2, outcome)))
        },
    },
    Experiment {
        id: Id(1, 1, 22),
        did: "open a handle in two contexts of one process: whether the address is the same, and two closes",
        run: opened_in_two_contexts,
    },
    Experiment {
        id: Id(1, 3, 1),
        did: "get the handle of memory of cuMemAllocAsync",
        run: |b| {
            b.init_context()?;
            let block = memory::alloc_async(b, PAGE, DEFAULT)?;
            context::synchronize(b)?;
            Ok(code(ipc::memory_handle(b, block)))
        },
    },
    Experiment {
        id: Id(1, 3, 2),
        did: "get the handle of mapped memory of cuMemCreate, and cuMemFree of it",
        run: |b| {
            b.init_context()?;
            let at = mapped::map_new(b, PAGE)?.start;
            Ok(format!("{}, {}", code(ipc::memory_handle(b, at)), code(memory::free(b, at))))
        },
    },
    Experiment {
        id: Id(1, 3, 3),
        did: "get the handle of a block of a pool that can be exported",
        run: |b| {
            b.init_context()?;
            let block = memory::alloc_from_pool_async(b, PAGE, exportable_pool(b)?, DEFAULT)?;
            context::synchronize(b)?;
            Ok(code(ipc::memory_handle(b, block)))
        },
    },
    Experiment {
        id: Id(1, 3, 4),
        did: "whether memory of cuMemAlloc, of cuMemAllocAsync, pinned and managed memory is capable of legacy IPC",
        run: |b| {
            b.init_context()?;
            let pooled = memory::alloc_async(b, PAGE, DEFAULT)?;
            let managed = memory::alloc_managed(b, PAGE, attach_flags::GLOBAL)?;
            let addresses = [memory::alloc(b, PAGE)?, pooled, b.alloc_host(4096)?, managed];
            let ask = |at| or_code(pointer::is_legacy_ipc_capable(b, at), |capable| choose(capable, "yes", "no"));
            Ok(addresses.map(ask).join(", "))
        },
    },
];

/// Returns another process, its block of 0x5a, and the block's handle. This process has a context.
pub(super) fn theirs(b: &Fixture, bytes: usize) -> Result<(Partner, CUdeviceptr, CUipcMemHandle), Failure> {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let block = other.address(PartnerRequest::Alloc(bytes))?;
    other.run(PartnerRequest::Fill { at: block, value: 0x5a, bytes: 4096 })?;
    let bytes = token(&other.bytes(PartnerRequest::MemoryHandle(block))?)?;
    Ok((other, block, CUipcMemHandle { bytes }))
}

/// Returns another process that has opened a block of 0x5a of this one, and the block's addresses here and there.
pub(super) fn opened_there(b: &Fixture, bytes: usize) -> Result<(Partner, CUdeviceptr, CUdeviceptr), Failure> {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let block = memory::alloc(b, bytes)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
    Ok((other, block, at))
}

fn handles_compared(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, PAGE)?;
    let [first, again] = [ipc::memory_handle(b, block)?, ipc::memory_handle(b, block)?];
    let second = ipc::memory_handle(b, memory::alloc(b, PAGE)?)?;
    let same = |holds| choose(holds, "the same", "others");
    Ok(format!("{}, {}", same(first == again), same(first == second)))
}

fn interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let block = memory::alloc(b, 2 * PAGE)?;
    fill::d8(b, block, 0x11, PAGE)?;
    fill::d8(b, offset(block, PAGE), 0x22, PAGE)?;
    context::synchronize(b)?;
    let handle = match ipc::memory_handle(b, offset(block, PAGE)) {
        Ok(handle) => handle,
        refused => return Ok(code(refused)),
    };
    let at = other.address(PartnerRequest::OpenMemory { handle: handle.bytes.to_vec(), flags: LAZY })?;
    other.holds(at, 16)
}

fn small_blocks(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let mut places = Vec::new();
    let mut held = Vec::new();
    for value in [0x11, 0x22] {
        let block = memory::alloc(b, 512)?;
        fill::d8(b, block, value, 512)?;
        context::synchronize(b)?;
        let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
        let at = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
        held.push(other.holds(at, 512)?);
        places.push(at);
    }
    Ok(format!("{}, {}", held.join(" "), distance(places[0], places[1])))
}

fn opened_twice(b: &Fixture) -> Answer {
    let (_other, _, handle) = theirs(b, 64 * MIB)?;
    let first = ipc::open_memory(b, handle, LAZY)?;
    let second = match ipc::open_memory(b, handle, LAZY) {
        Ok(second) => second,
        refused => return Ok(code(refused)),
    };
    let same = choose(first == second, "the same", "two addresses");
    let closed = code(ipc::close_memory(b, first));
    let read = or_code(b.bytes_at(second, 4096), |bytes| byte_runs(&bytes));
    let rest = [second, second].map(|at| code(ipc::close_memory(b, at)));
    Ok(format!("{same}; {closed}, reads {read}, {}", rest.join(", ")))
}

fn opened_by_two(b: &Fixture) -> Answer {
    let (first, block, there) = opened_there(b, PAGE)?;
    let second = Partner::start_with_context(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = second.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
    first.run(PartnerRequest::CloseMemory(there))?;
    let read = second.holds(at, 4096)?;
    fill::d8(b, block, 0x33, 4096)?;
    context::synchronize(b)?;
    Ok(format!("{read}, {}", second.holds(at, 4096)?))
}

fn no_context(b: &Fixture) -> Answer {
    let (_other, _, handle) = theirs(b, PAGE)?;
    let block = memory::alloc(b, PAGE)?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    context::set_current(b, CUcontext::NULL)?;
    let got = code(ipc::memory_handle(b, block));
    let opened = code(ipc::open_memory(b, handle, LAZY));
    Ok(format!("{got}, {opened}, {}", code(ipc::close_memory(b, at))))
}

fn opened_in_two_contexts(b: &Fixture) -> Answer {
    let (_other, _, handle) = theirs(b, 64 * MIB)?;
    let first = ipc::open_memory(b, handle, LAZY)?;
    b.second_context()?;
    let second = match ipc::open_memory(b, handle, LAZY) {
        Ok(second) => second,
        refused => return Ok(code(refused)),
    };
    let same = choose(first == second, "the same", "two addresses");
    Ok(format!("{same}; {}", [first, second].map(|at| code(ipc::close_memory(b, at))).join(", ")))
}
