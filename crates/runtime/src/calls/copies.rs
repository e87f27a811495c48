//! Copies and fills: which bytes they access, and when they are complete for the host.

pub(super) mod boxes;
pub(super) mod fills;
pub(super) mod linear;

use freehold_check::BlockKind;
use freehold_check::calls::{Access, CallEffect, Item, Rows};
use freehold_driver::cuda::{CUdeviceptr, CUmemorytype, CUpointer_attribute, CUresult, CUstream};

use super::wrap::Call;

/// A copy from pageable memory up to this size may return before it is done; a larger one is done when the call returns.
const STAGE_BYTES_MAX: u64 = 64 << 10;

/// What an address is, as the function says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Host,
    Device,
    Any,
}

/// What an address is, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residence {
    Device,
    Pinned,
    Pageable,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Rows of memory. `None` if the bytes are not known exactly.
    Memory {
        role: Role,
        start: u64,
        rows: Option<Rows>,
    },
    Array,
}

impl End {
    pub(super) fn linear(role: Role, start: u64, bytes: usize) -> Self {
        Self::Memory { role, start, rows: Some(Rows::range(start, bytes as u64)) }
    }

    fn residence(self, call: Call) -> Residence {
        let Self::Memory { role, start, .. } = self else { return Residence::Device };
        match (call.calls.checker.memory_kind(start), role) {
            (Some(BlockKind::Host), _) => Residence::Pinned,
            (Some(_), _) | (None, Role::Device) => Residence::Device,
            (None, Role::Host) => Residence::Pageable,
            (None, Role::Any) => asked(call, start),
        }
    }

    fn access(self, effect: CallEffect, residence: Residence) -> Option<Access> {
        let Self::Memory { start, rows, .. } = self else { return None };
        if residence == Residence::Pageable {
            return None;
        }
        Some(
            rows.map_or(Access { effect: CallEffect::Use, rows: Rows::range(start, 1) }, |rows| Access {
                effect,
                rows,
            }),
        )
    }
}

/// Asks the driver what an address is.
fn asked(call: Call, start: u64) -> Residence {
    let mut kind = CUmemorytype::default();
    let attribute = CUpointer_attribute::MEMORY_TYPE;
    // SAFETY: `kind` is a valid place for the answer, and the driver accepts any address.
    let known = unsafe { (call.api.cuPointerGetAttribute)((&raw mut kind).cast(), attribute, CUdeviceptr(start)) };
    match known {
        Ok(()) if kind == CUmemorytype::DEVICE => Residence::Device,
        Ok(()) => Residence::Pinned,
        Err(_) => Residence::Pageable,
    }
}

/// A copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) from: End,
    pub(super) to: End,
    pub(super) bytes: u64,
}

impl Copy {
    pub(super) fn linear(from: (Role, u64), to: (Role, u64), bytes: usize) -> Self {
        let (from, to) = (End::linear(from.0, from.1, bytes), End::linear(to.0, to.1, bytes));
        Self { from, to, bytes: bytes as u64 }
    }
}

/// Whether a call may return before its work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Sync,
    Async,
}

/// Returns what a copy in a graph accesses.
pub(super) fn accesses(call: Call, copy: &Copy) -> Vec<Access> {
    let read = copy.from.access(CallEffect::Read, copy.from.residence(call));
    let write = copy.to.access(CallEffect::Write, copy.to.residence(call));
    read.into_iter().chain(write).collect()
}

/// Tells the checker of a copy between contexts, which is in order with all work of both.
pub(super) fn copied_between(call: Call, copy: &Copy, result: CUresult) -> CUresult {
    if result.is_ok() {
        call.calls.checker.observe(&call.everything_so_far());
    }
    let copied = copied(call, copy, CUstream::NULL, Mode::Sync, result);
    if copied.is_ok() {
        call.calls.checker.observe(&call.everything_so_far());
    }
    copied
}

/// Makes a call that copies, and tells the checker of it.
pub(super) fn copied(call: Call, copy: &Copy, stream: CUstream, mode: Mode, result: CUresult) -> CUresult {
    call.noted(result)?;
    if copy.bytes == 0 || call.is_captured(stream) {
        return Ok(());
    }
    let (from, to) = (copy.from.residence(call), copy.to.residence(call));
    let is_waited_for = match (from, to) {
        (Residence::Device, Residence::Device) => false,
        (Residence::Pageable, Residence::Device) => copy.bytes > STAGE_BYTES_MAX && mode == Mode::Sync,
        (_, Residence::Pageable) | (Residence::Pinned | Residence::Pageable, Residence::Pinned) => true,
        _ => mode == Mode::Sync,
    };
    let none = Access { effect: CallEffect::Read, rows: Rows::range(0, 0) };
    let (read, write) = (copy.from.access(CallEffect::Read, from), copy.to.access(CallEffect::Write, to));
    let both = [read.or(write).unwrap_or(none), write.unwrap_or(none)];
    let count = usize::from(read.is_some()) + usize::from(write.is_some());
    let accesses = &both[..count];
    call.submit(
        stream,
        &[Item { kernel: None, module: None, accesses, arguments: &[], is_of_graph: false }],
        is_waited_for,
    );
    Ok(())
}
