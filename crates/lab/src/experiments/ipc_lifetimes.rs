//! Experiments on the lifetime of memory that one process has opened from another, and on the end of either (question
//! 1).

use freehold_driver::cuda::{CUdeviceptr, CUipcMemHandle, context, fill, ipc, memory};

use super::ipc_memory::{LAZY, opened_there, theirs};
use crate::answer_text::{byte_runs, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::Fixture;
use crate::free_memory::{BLOCK, FreeMemory};
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, kernel, launch, word_at};
use crate::mapped::PAGE;
use crate::partner::Partner;
use crate::partner_request::{PartnerRequest, token};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 2, 1),
        did: "the exporter exits: the importer's contents, memory taken, and when it closes",
        run: |b| exporter_ends(b, Partner::exit),
    },
    Experiment {
        id: Id(1, 2, 2),
        did: "the exporter is killed: the importer's contents, memory taken, and when it closes",
        run: |b| exporter_ends(b, |exporter| exporter.kill().map(drop)),
    },
    Experiment {
        id: Id(1, 2, 3),
        did: "the importer exits without closing: the exporter's contents, memory taken, and when it frees",
        run: |b| importer_ends(b, Partner::exit),
    },
    Experiment {
        id: Id(1, 2, 4),
        did: "the importer is killed: the exporter's contents, memory taken, and when it frees",
        run: |b| importer_ends(b, |importer| importer.kill().map(drop)),
    },
    Experiment {
        id: Id(1, 2, 5),
        did: "open the handle of a block whose process has exited, and of one that was killed",
        run: |b| {
            let (first, _, of_first) = theirs(b, PAGE)?;
            let (second, _, of_second) = theirs(b, PAGE)?;
            first.exit()?;
            second.kill()?;
            Ok([of_first, of_second].map(|handle| code(ipc::open_memory(b, handle, LAZY))).join(", "))
        },
    },
    Experiment {
        id: Id(1, 2, 6),
        did: "exporter and then importer are killed: the importer's contents in between, and the memory",
        run: both_killed,
    },
    Experiment {
        id: Id(1, 2, 7),
        did: "the exporter frees a block that is open elsewhere: the code, contents there, memory taken, and when it \
              is closed",
        run: freed_while_open,
    },
    Experiment {
        id: Id(1, 2, 8),
        did: "open the handle of a block that its process has freed",
        run: |b| {
            let (other, block, handle) = theirs(b, BLOCK)?;
            other.run(PartnerRequest::Free(block))?;
            Ok(code(ipc::open_memory(b, handle, LAZY)))
        },
    },
    Experiment {
        id: Id(1, 2, 9),
        did: "the exporter destroys the context of a block that is open elsewhere: contents there, memory taken, and \
              when it is closed",
        run: exporting_context_destroyed,
    },
    Experiment {
        id: Id(1, 2, 10),
        did: "destroy the context in which a block was opened: read it and close it in another",
        run: importing_context_destroyed,
    },
    Experiment {
        id: Id(1, 2, 11),
        did: "destroy the context in which a block was opened, and the exporter frees it: the memory",
        run: importing_context_destroyed_and_freed,
    },
    Experiment {
        id: Id(1, 2, 12),
        did: "a kernel of the importer faults: there, and what the exporter can do with the block afterwards",
        run: importer_faults,
    },
    Experiment {
        id: Id(1, 2, 13),
        did: "the exporter frees a block that is open elsewhere, and frees it once more",
        run: |b| {
            let (_other, block, _) = opened_there(b, PAGE)?;
            Ok(format!("{}, {}", code(memory::free(b, block)), code(memory::free(b, block))))
        },
    },
    Experiment {
        id: Id(1, 2, 14),
        did: "the exporter frees a block that is open elsewhere: the importer fills it and its kernel writes to it",
        run: |b| {
            let (other, block, at) = opened_there(b, BLOCK)?;
            memory::free(b, block)?;
            let filled = code(other.run(PartnerRequest::Fill { at, value: 0x33, bytes: 4096 }));
            let stored = code(other.run(PartnerRequest::Store { at, value: 0x4444_4444 }));
            Ok(format!("{filled}, {stored}, {}", other.holds(at, 4)?))
        },
    },
];

fn exporter_ends(b: &Fixture, end: impl FnOnce(Partner) -> Result<(), Failure>) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let (other, _, handle) = theirs(b, BLOCK)?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    end(other)?;
    let taken = level.settles_to_one_block(b)?;
    let held = or_code(b.bytes_at(at, 4096), |bytes| byte_runs(&bytes));
    let closed = code(ipc::close_memory(b, at));
    Ok(format!("{taken}, holds {held}; close {closed}, {}", level.recovers(b)?))
}

fn importer_ends(b: &Fixture, end: impl FnOnce(Partner) -> Result<(), Failure>) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let (other, block, at) = opened_there(b, BLOCK)?;
    other.run(PartnerRequest::Fill { at, value: 0x33, bytes: 4096 })?;
    end(other)?;
    let taken = level.settles_to_one_block(b)?;
    let held = or_code(b.bytes_at(block, 4096), |bytes| byte_runs(&bytes));
    let freed = code(memory::free(b, block));
    Ok(format!("{taken}, holds {held}; free {freed}, {}", level.recovers(b)?))
}

fn both_killed(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let importer = Partner::start_with_context(b)?;
    let (exporter, _, handle) = theirs(b, BLOCK)?;
    let at = importer.address(PartnerRequest::OpenMemory { handle: handle.bytes.to_vec(), flags: LAZY })?;
    exporter.kill()?;
    let held = importer.holds(at, 4096)?;
    importer.kill()?;
    Ok(format!("holds {held}; {}", level.recovers(b)?))
}

fn freed_while_open(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let level = FreeMemory::now(b)?;
    let block = memory::alloc(b, BLOCK)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
    let freed = code(memory::free(b, block));
    let taken = level.blocks(b)?;
    let held = other.holds(at, 4096)?;
    other.run(PartnerRequest::CloseMemory(at))?;
    Ok(format!("free {freed}, {taken}, holds {held}; closed {}", level.recovers(b)?))
}

fn exporting_context_destroyed(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let level = FreeMemory::now(b)?;
    let context = b.second_context()?;
    let block = memory::alloc(b, BLOCK)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = other.address(PartnerRequest::OpenMemory { handle, flags: LAZY })?;
    context::destroy(b, context)?;
    b.init_context()?;
    let taken = level.settles_to_one_block(b)?;
    let held = other.holds(at, 4096)?;
    other.run(PartnerRequest::CloseMemory(at))?;
    Ok(format!("{taken}, holds {held}; closed {}", level.recovers(b)?))
}

fn importing_context_destroyed(b: &Fixture) -> Answer {
    let (_other, _, handle) = theirs(b, BLOCK)?;
    let context = b.second_context()?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    context::destroy(b, context)?;
    b.init_context()?;
    let read = or_code(b.bytes_at(at, 4096), |bytes| byte_runs(&bytes));
    Ok(format!("{read}, {}", code(ipc::close_memory(b, at))))
}

fn importing_context_destroyed_and_freed(b: &Fixture) -> Answer {
    b.init_context()?;
    let other = Partner::start_with_context(b)?;
    let level = FreeMemory::now(b)?;
    let block = other.address(PartnerRequest::Alloc(BLOCK))?;
    let handle = other.bytes(PartnerRequest::MemoryHandle(block))?;
    let context = b.second_context()?;
    let handle = CUipcMemHandle { bytes: token(&handle)? };
    ipc::open_memory(b, handle, LAZY)?;
    context::destroy(b, context)?;
    b.init_context()?;
    other.run(PartnerRequest::Free(block))?;
    Ok(level.recovers(b)?)
}

fn importer_faults(b: &Fixture) -> Answer {
    let (other, block, at) = opened_there(b, PAGE)?;
    let store = kernel(b, KERNELS, c"store")?;
    let wild = CUdeviceptr(0x1234_5600_0000);
    let there = code(other.run(PartnerRequest::Store { at: wild, value: 7 }));
    let again = code(other.bytes(PartnerRequest::Read { at, bytes: 16 }));
    let held = byte_runs(&b.bytes_at(block, 4096)?);
    launch(b, store, ONE, DEFAULT, &[block.0, 7])?;
    let word = or_code(word_at(b, block), |word| word.to_string());
    Ok(format!("there {there}, then {again}; holds {held}, a kernel here writes {word}"))
}
