//! Kernels that go wrong, and what is left of their process.

use freehold_driver::CallError;
use freehold_driver::opencl::{Kernel, kernel, memory, queue};

use super::bench::{Bench, Desk, launch};
use crate::lab::answers::{all, code, or_code};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment {
        id: Id(O, 9, 1),
        did: "a kernel stores at address 16: its queue, then another queue, then a new context",
        run: near_null,
    },
    Experiment {
        id: Id(O, 9, 2),
        did: "a kernel stores far beyond all memory: its queue, then another queue, then a new context",
        run: far_away,
    },
];

fn near_null(b: &Bench) -> Answer {
    stray(b, 16)
}

fn far_away(b: &Bench) -> Answer {
    stray(b, 0x0000_7fff_0000_0000)
}

fn stray(b: &Bench, address: u64) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0x5a)?;
    let other = Desk { queue: desk.queue()?, ..desk };
    launch(desk.queue, aimed(&desk, address)?, 1)?;
    let strayed = code(queue::finish(desk.queue));
    let beside = or_code(other.bytes(buffer), |bytes| all(&bytes));
    let fresh = or_code(b.begin().and_then(|fresh| fresh.bytes(fresh.buffer(0x11)?)), |bytes| all(&bytes));
    Ok(format!("{strayed}, {beside}, {fresh}"))
}

/// The kernel `follow`, which stores at `address`.
fn aimed(desk: &Desk, address: u64) -> Result<Kernel, CallError> {
    let (follow, place) = (desk.kernel(c"follow")?, desk.buffer(0)?);
    memory::fill(desk.queue, place, 0, 8, &address.to_le_bytes(), &[])?;
    kernel::set_memory(follow, 0, place)?;
    kernel::set_value(follow, 1, &1_u32.to_le_bytes())?;
    queue::finish(desk.queue)?;
    Ok(follow)
}
