//! Experiments on handles for other processes (7.17).

use super::fixture::{BYTES, DISABLE_TIMING, Fixture, INTERPROCESS, MIB, code, or_code};
use super::functions::{IpcHandle, RuntimeError};
use crate::answer_text::choose;
use crate::experiment::Experiment;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 17, 1),
        did: "get the handle of a block, and of an address inside it: are they equal",
        run: |r| {
            let block = r.malloc(2 * MIB)?;
            let inside = handle(r, block + MIB as u64);
            let whole = handle(r, block)?;
            Ok(or_code(inside, |inside| choose(inside == whole, "equal", "different")))
        },
    },
    Experiment {
        id: Id(7, 17, 2),
        did: "get the handle of a block twice: are they equal",
        run: |r| {
            let block = r.malloc(2 * MIB)?;
            Ok(choose(handle(r, block)? == handle(r, block)?, "equal", "different"))
        },
    },
    Experiment {
        id: Id(7, 17, 3),
        did: "get the handle of pinned memory, of managed memory, and of memory of cudaMallocAsync",
        run: |r| {
            let pinned = code(handle(r, r.pinned(BYTES)?));
            let managed = code(handle(r, r.managed(BYTES)?));
            Ok(format!("{pinned}, {managed}, {}", code(handle(r, r.malloc_async(BYTES, 0)?))))
        },
    },
    Experiment {
        id: Id(7, 17, 4),
        did: "get the handle of pageable memory, of freed memory, and of null",
        run: |r| {
            let block = r.malloc(2 * MIB)?;
            r.cudaFree(block)?;
            let pageable = code(handle(r, r.pageable(BYTES)));
            Ok(format!("{pageable}, {}, {}", code(handle(r, block)), code(handle(r, 0))))
        },
    },
    Experiment {
        id: Id(7, 17, 5),
        did: "open a handle in the process that made it",
        run: |r| {
            let made = handle(r, r.malloc(2 * MIB)?)?;
            Ok(code(r.cudaIpcOpenMemHandle(Some(&mut 0), made, 1)))
        },
    },
    Experiment {
        id: Id(7, 17, 6),
        did: "open a handle of zeros, and one without the flag that is required",
        run: |r| {
            let zeros = code(r.cudaIpcOpenMemHandle(Some(&mut 0), IpcHandle([0; 64]), 1));
            let made = handle(r, r.malloc(2 * MIB)?)?;
            Ok(format!("{zeros}, {}", code(r.cudaIpcOpenMemHandle(Some(&mut 0), made, 0))))
        },
    },
    Experiment {
        id: Id(7, 17, 7),
        did: "close with cudaIpcCloseMemHandle a block of the process, and null",
        run: |r| {
            let block = r.malloc(2 * MIB)?;
            Ok(format!("{}, {}", code(r.cudaIpcCloseMemHandle(block)), code(r.cudaIpcCloseMemHandle(0))))
        },
    },
    Experiment {
        id: Id(7, 17, 8),
        did: "get the handle of an event that is for other processes, and of one that is not",
        run: |r| {
            let [shared, own] = [INTERPROCESS | DISABLE_TIMING, DISABLE_TIMING].map(|flags| {
                code(r.event(flags).and_then(|event| r.cudaIpcGetEventHandle(Some(&mut IpcHandle([0; 64])), event)))
            });
            Ok(format!("{shared}, {own}"))
        },
    },
];

fn handle(r: &Fixture, start: u64) -> Result<IpcHandle, RuntimeError> {
    let mut handle = IpcHandle([0; 64]);
    r.cudaIpcGetMemHandle(Some(&mut handle), start).map(|()| handle)
}
