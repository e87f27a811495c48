//! Experiments with many processes on one device: whose memory is taken, and when it is returned (question 1).

use std::os::unix::process::ExitStatusExt;

use freehold_driver::cuda::{CUdeviceptr, fill, memory};

use crate::answer_text::{choose, code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::free_memory::FreeMemory;
use crate::id::Id;
use crate::partner::Partner;
use crate::partner_request::PartnerRequest;

const GIB: usize = 1 << 30;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(1, 7, 1),
        did: "another process allocates 1 GiB and frees it: the memory taken, seen here",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let level = FreeMemory::now(b)?;
            let block = other.address(PartnerRequest::Alloc(GIB))?;
            let taken = level.blocks(b)?;
            other.run(PartnerRequest::Free(block))?;
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
            b.init_context()?;
            let level = FreeMemory::now(b)?;
            let other = Partner::start_with_context(b)?;
            let allocation = other.number(PartnerRequest::Create(GIB))?;
            other.address(PartnerRequest::Map { allocation, bytes: GIB })?;
            Ok(format!("{}, {}", killed(other)?, level.recovers(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 5),
        did: "a process that has 1 GiB of a pool is killed: how it ended, and the memory",
        run: |b| {
            b.init_context()?;
            let level = FreeMemory::now(b)?;
            let other = Partner::start_with_context(b)?;
            let pool = other.number(PartnerRequest::CreatePool)?;
            other.address(PartnerRequest::AllocOf { pool, bytes: GIB })?;
            Ok(format!("{}, {}", killed(other)?, level.recovers(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 6),
        did: "a process that has 1 GiB and a kernel that does not end is killed: how it ended, and the memory",
        run: |b| {
            b.init_context()?;
            let level = FreeMemory::now(b)?;
            let other = Partner::start_with_context(b)?;
            other.address(PartnerRequest::Alloc(GIB))?;
            let stream = other.number(PartnerRequest::CreateStream)?;
            other.run(PartnerRequest::Spin { stream, to: CUdeviceptr::NULL, value: 0 })?;
            Ok(format!("{}, {}", killed(other)?, level.recovers(b)?))
        },
    },
    Experiment {
        id: Id(1, 7, 7),
        did: "the free memory that two processes see",
        run: |b| {
            b.init_context()?;
            let other = Partner::start_with_context(b)?;
            let there = other.number(PartnerRequest::FreeBytes)?;
            Ok(choose(there == memory::info(b)?.free_bytes as u64, "the same", "not the same"))
        },
    },
    Experiment {
        id: Id(1, 7, 8),
        did: "another process takes half of what is free: allocate three quarters of what was, then when it has exited",
        run: crowded,
    },
    Experiment {
        id: Id(1, 7, 9),
        did: "a kernel that does not end runs in a process that is killed: a kernel here afterwards",
        run: |b| {
            b.init_context()?;
            let block = memory::alloc(b, 4096)?;
            let other = Partner::start_with_context(b)?;
            let stream = other.number(PartnerRequest::CreateStream)?;
            other.run(PartnerRequest::Spin { stream, to: CUdeviceptr::NULL, value: 0 })?;
            killed(other)?;
            let third = Partner::start_with_context(b)?;
            let there = third.address(PartnerRequest::Alloc(4096))?;
            let stored = code(third.run(PartnerRequest::Store { at: there, value: 1 }));
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

fn ended(b: &Fixture, end: impl FnOnce(Partner) -> Answer) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let other = Partner::start_with_context(b)?;
    other.address(PartnerRequest::Alloc(GIB))?;
    let how = end(other)?;
    Ok(format!("{how}, {}", level.recovers(b)?))
}

fn crowded(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let other = Partner::start_with_context(b)?;
    let free_bytes = memory::info(b)?.free_bytes;
    let half = other.address(PartnerRequest::Alloc(free_bytes / 2));
    let there = code(half);
    let crowded = code(memory::alloc(b, free_bytes / 4 * 3));
    other.exit()?;
    let back = level.recovers(b)?;
    Ok(format!("{there}; {crowded}; {back}, {}", code(memory::alloc(b, free_bytes / 4 * 3))))
}
