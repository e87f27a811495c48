//! Experiments on kernels that fault, and the state of their process afterwards.

use freehold_driver::CallError;
use freehold_driver::opencl::{Kernel, kernel, memory, queue};

use super::fixture::{Fixture, Session, launch};
use crate::answer_text::{byte_runs, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(OPENCL, 9, 1),
        did: "a kernel stores at address 16: its queue, then another queue, then a new context",
        run: near_null,
    },
    Experiment {
        id: Id(OPENCL, 9, 2),
        did: "a kernel stores far beyond all memory: its queue, then another queue, then a new context",
        run: far_away,
    },
];

fn near_null(b: &Fixture) -> Answer {
    stray(b, 16)
}

fn far_away(b: &Fixture) -> Answer {
    stray(b, 0x0000_7fff_0000_0000)
}

fn stray(b: &Fixture, address: u64) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0x5a)?;
    let other = Session { queue: session.queue()?, ..session };
    launch(session.queue, kernel_writing_to(&session, address)?, 1)?;
    let strayed = code(queue::finish(session.queue));
    let beside = or_code(other.bytes(buffer), |bytes| byte_runs(&bytes));
    let fresh = or_code(b.open_session().and_then(|fresh| fresh.bytes(fresh.buffer(0x11)?)), |bytes| byte_runs(&bytes));
    Ok(format!("{strayed}, {beside}, {fresh}"))
}

/// Returns the kernel `follow`, which stores at `address`.
fn kernel_writing_to(session: &Session, address: u64) -> Result<Kernel, CallError> {
    let (follow, place) = (session.kernel(c"follow")?, session.buffer(0)?);
    memory::fill(session.queue, place, 0, 8, &address.to_le_bytes(), &[])?;
    kernel::set_memory(follow, 0, place)?;
    kernel::set_value(follow, 1, &1_u32.to_le_bytes())?;
    queue::finish(session.queue)?;
    Ok(follow)
}
