//! Question 1: how long memory lives that one process has opened of another, and what the end of either does to it.

use freehold_driver::cuda::{CUdeviceptr, CUipcMemHandle, context, fill, ipc, memory};

use super::ipc_memory::{LAZY, opened_there, theirs};
use super::{Answer, Experiment, Failure};
use crate::lab::answers::{all, code, or_code};
use crate::lab::ask::{Ask, token};
use crate::lab::bench::Bench;
use crate::lab::id::Id;
use crate::lab::kernels::{DEFAULT, KERNELS, ONE, kernel, launch, word_at};
use crate::lab::level::{BLOCK, Level};
use crate::lab::mapped::PAGE;
use crate::lab::partner::Partner;

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
            other.does(Ask::Free(block))?;
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
        did: "a kernel of the importer faults: there, and what the exporter can do with the block then",
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
            let filled = code(other.does(Ask::Fill { at, value: 0x33, bytes: 4096 }));
            let stored = code(other.does(Ask::Store { at, value: 0x4444_4444 }));
            Ok(format!("{filled}, {stored}, {}", other.holds(at, 4)?))
        },
    },
];

fn exporter_ends(b: &Bench, end: impl FnOnce(Partner) -> Result<(), Failure>) -> Answer {
    b.begin()?;
    let level = Level::now(b)?;
    let (other, _, handle) = theirs(b, BLOCK)?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    end(other)?;
    let taken = level.settles_to_one(b)?;
    let held = or_code(b.bytes_at(at, 4096), |bytes| all(&bytes));
    let closed = code(ipc::close_memory(b, at));
    Ok(format!("{taken}, holds {held}; close {closed}, {}", level.comes_back(b)?))
}

fn importer_ends(b: &Bench, end: impl FnOnce(Partner) -> Result<(), Failure>) -> Answer {
    b.begin()?;
    let level = Level::now(b)?;
    let (other, block, at) = opened_there(b, BLOCK)?;
    other.does(Ask::Fill { at, value: 0x33, bytes: 4096 })?;
    end(other)?;
    let taken = level.settles_to_one(b)?;
    let held = or_code(b.bytes_at(block, 4096), |bytes| all(&bytes));
    let freed = code(memory::free(b, block));
    Ok(format!("{taken}, holds {held}; free {freed}, {}", level.comes_back(b)?))
}

fn both_killed(b: &Bench) -> Answer {
    b.begin()?;
    let level = Level::now(b)?;
    let importer = Partner::begun(b)?;
    let (exporter, _, handle) = theirs(b, BLOCK)?;
    let at = importer.address(Ask::OpenMemory { handle: handle.bytes.to_vec(), flags: LAZY })?;
    exporter.kill()?;
    let held = importer.holds(at, 4096)?;
    importer.kill()?;
    Ok(format!("holds {held}; {}", level.comes_back(b)?))
}

fn freed_while_open(b: &Bench) -> Answer {
    b.begin()?;
    let other = Partner::begun(b)?;
    let level = Level::now(b)?;
    let block = memory::alloc(b, BLOCK)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = other.address(Ask::OpenMemory { handle, flags: LAZY })?;
    let freed = code(memory::free(b, block));
    let taken = level.blocks(b)?;
    let held = other.holds(at, 4096)?;
    other.does(Ask::CloseMemory(at))?;
    Ok(format!("free {freed}, {taken}, holds {held}; closed {}", level.comes_back(b)?))
}

fn exporting_context_destroyed(b: &Bench) -> Answer {
    b.begin()?;
    let other = Partner::begun(b)?;
    let level = Level::now(b)?;
    let context = b.another()?;
    let block = memory::alloc(b, BLOCK)?;
    fill::d8(b, block, 0x5a, 4096)?;
    context::synchronize(b)?;
    let handle = ipc::memory_handle(b, block)?.bytes.to_vec();
    let at = other.address(Ask::OpenMemory { handle, flags: LAZY })?;
    context::destroy(b, context)?;
    b.begin()?;
    let taken = level.settles_to_one(b)?;
    let held = other.holds(at, 4096)?;
    other.does(Ask::CloseMemory(at))?;
    Ok(format!("{taken}, holds {held}; closed {}", level.comes_back(b)?))
}

fn importing_context_destroyed(b: &Bench) -> Answer {
    let (_other, _, handle) = theirs(b, BLOCK)?;
    let context = b.another()?;
    let at = ipc::open_memory(b, handle, LAZY)?;
    context::destroy(b, context)?;
    b.begin()?;
    let read = or_code(b.bytes_at(at, 4096), |bytes| all(&bytes));
    Ok(format!("{read}, {}", code(ipc::close_memory(b, at))))
}

fn importing_context_destroyed_and_freed(b: &Bench) -> Answer {
    b.begin()?;
    let other = Partner::begun(b)?;
    let level = Level::now(b)?;
    let block = other.address(Ask::Alloc(BLOCK))?;
    let handle = other.bytes(Ask::MemoryHandle(block))?;
    let context = b.another()?;
    let handle = CUipcMemHandle { bytes: token(&handle)? };
    ipc::open_memory(b, handle, LAZY)?;
    context::destroy(b, context)?;
    b.begin()?;
    other.does(Ask::Free(block))?;
    Ok(level.comes_back(b)?)
}

fn importer_faults(b: &Bench) -> Answer {
    let (other, block, at) = opened_there(b, PAGE)?;
    let store = kernel(b, KERNELS, c"store")?;
    let wild = CUdeviceptr(0x1234_5600_0000);
    let there = code(other.does(Ask::Store { at: wild, value: 7 }));
    let again = code(other.bytes(Ask::Read { at, bytes: 16 }));
    let held = all(&b.bytes_at(block, 4096)?);
    launch(b, store, ONE, DEFAULT, &[block.0, 7])?;
    let word = or_code(word_at(b, block), |word| word.to_string());
    Ok(format!("there {there}, then {again}; holds {held}, a kernel here writes {word}"))
}
