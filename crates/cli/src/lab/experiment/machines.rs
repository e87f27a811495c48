//! Question 1: one device and many processes: whose memory is taken, and when that of a process comes back.

use std::os::unix::process::ExitStatusExt;

use freehold_driver::cuda::{CUdeviceptr, fill, memory};

use super::{Answer, Experiment};
use crate::lab::answers::{code, either};
use crate::lab::ask::Ask;
use crate::lab::bench::Bench;
use crate::lab::id::Id;
use crate::lab::level::Level;
use crate::lab::partner::Partner;

const GIB: usize = 1 << 30;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 7, 1),
        did: "another process allocates 1 GiB and frees it: the memory taken, seen here",
        run: |b| {
            b.begin()?;
            let other = Partner::begun(b)?;
            let level = Level::now(b)?;
            let block = other.address(Ask::Alloc(GIB))?;
            let taken = level.blocks(b)?;
            other.does(Ask::Free(block))?;
            Ok(format!("{taken}, {}", level.blocks(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 2),
        did: "a process that has 1 GiB exits: the memory",
        run: |b| ended(b, |other| other.exit().map(|()| "exited".to_owned())),
    },
    Experiment {
        id: Id(1, 7, 3),
        did: "a process that has 1 GiB is killed: how it ended, and the memory",
        run: |b| ended(b, killed),
    },
    Experiment {
        id: Id(1, 7, 4),
        did: "a process that has 1 GiB of cuMemCreate, mapped, is killed: how it ended, and the memory",
        run: |b| {
            b.begin()?;
            let level = Level::now(b)?;
            let other = Partner::begun(b)?;
            let allocation = other.number(Ask::Create(GIB))?;
            other.address(Ask::Map { allocation, bytes: GIB })?;
            Ok(format!("{}, {}", killed(other)?, level.comes_back(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 5),
        did: "a process that has 1 GiB of a pool is killed: how it ended, and the memory",
        run: |b| {
            b.begin()?;
            let level = Level::now(b)?;
            let other = Partner::begun(b)?;
            let pool = other.number(Ask::CreatePool)?;
            other.address(Ask::AllocOf { pool, bytes: GIB })?;
            Ok(format!("{}, {}", killed(other)?, level.comes_back(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 6),
        did: "a process that has 1 GiB and a kernel that does not end is killed: how it ended, and the memory",
        run: |b| {
            b.begin()?;
            let level = Level::now(b)?;
            let other = Partner::begun(b)?;
            other.address(Ask::Alloc(GIB))?;
            let stream = other.number(Ask::CreateStream)?;
            other.does(Ask::Spin { stream, to: CUdeviceptr::NULL, value: 0 })?;
            Ok(format!("{}, {}", killed(other)?, level.comes_back(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 7),
        did: "the free memory that two processes see",
        run: |b| {
            b.begin()?;
            let other = Partner::begun(b)?;
            let there = other.number(Ask::FreeBytes)?;
            Ok(either(there == memory::info(b)?.free_bytes as u64, "the same", "not the same"))
        },
    },
    Experiment {
        id: Id(1, 7, 8),
        did: "another process takes half of what is free: allocate three quarters of what was, then when it has exited",
        run: crowded,
    },
    Experiment {
        id: Id(1, 7, 9),
        did: "a kernel that does not end runs in a process that is killed: a kernel here then",
        run: |b| {
            b.begin()?;
            let block = memory::alloc(b, 4096)?;
            let other = Partner::begun(b)?;
            let stream = other.number(Ask::CreateStream)?;
            other.does(Ask::Spin { stream, to: CUdeviceptr::NULL, value: 0 })?;
            killed(other)?;
            let third = Partner::begun(b)?;
            let there = third.address(Ask::Alloc(4096))?;
            let stored = code(third.does(Ask::Store { at: there, value: 1 }));
            Ok(format!("{stored}, a fill here {}", code(fill::d8(b, block, 1, 4096))))
        },
    },
];

fn killed(other: Partner) -> Answer {
    Ok(match other.kill()?.signal() {
        Some(libc::SIGKILL) => "killed".to_owned(),
        signal => format!("ended otherwise: {signal:?}"),
    })
}

fn ended(b: &Bench, end: impl FnOnce(Partner) -> Answer) -> Answer {
    b.begin()?;
    let level = Level::now(b)?;
    let other = Partner::begun(b)?;
    other.address(Ask::Alloc(GIB))?;
    let how = end(other)?;
    Ok(format!("{how}, {}", level.comes_back(b)?))
}

fn crowded(b: &Bench) -> Answer {
    b.begin()?;
    let level = Level::now(b)?;
    let other = Partner::begun(b)?;
    let free_bytes = memory::info(b)?.free_bytes;
    let half = other.address(Ask::Alloc(free_bytes / 2));
    let there = code(half);
    let crowded = code(memory::alloc(b, free_bytes / 4 * 3));
    other.exit()?;
    let back = level.comes_back(b)?;
    Ok(format!("{there}; {crowded}; {back}, {}", code(memory::alloc(b, free_bytes / 4 * 3))))
}
