//! Experiments on sub-buffers: where they may lie, and how long they live.

use freehold_driver::opencl::{memory, queue};

use super::fixture::{BYTES, Fixture};
use crate::answer_text::{byte_runs, code, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::id::{Id, OPENCL};

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment { id: Id(OPENCL, 3, 1), did: "the alignment of parts that the device asks for", run: alignment },
    Experiment { id: Id(OPENCL, 3, 2), did: "a part that begins at byte 1", run: odd },
    Experiment {
        id: Id(OPENCL, 3, 3),
        did: "a part that begins at half the alignment, and at the alignment",
        run: halves,
    },
    Experiment { id: Id(OPENCL, 3, 4), did: "a part that reaches beyond its buffer", run: beyond },
    Experiment { id: Id(OPENCL, 3, 5), did: "a part of no bytes, and one of one byte", run: small },
    Experiment { id: Id(OPENCL, 3, 6), did: "a part of a part", run: nested },
    Experiment {
        id: Id(OPENCL, 3, 7),
        did: "two parts that overlap: write through one, read through the other",
        run: overlap,
    },
    Experiment { id: Id(OPENCL, 3, 8), did: "copy between two parts that overlap", run: copy_overlap },
    Experiment { id: Id(OPENCL, 3, 9), did: "copy within a buffer from and to places that overlap", run: copy_within },
    Experiment { id: Id(OPENCL, 3, 10), did: "the count of a buffer with a part", run: counted },
    Experiment { id: Id(OPENCL, 3, 11), did: "release the buffer, read through its part", run: without_parent },
    Experiment { id: Id(OPENCL, 3, 12), did: "release the part, read the buffer", run: without_part },
    Experiment {
        id: Id(OPENCL, 3, 13),
        did: "release the buffer, then the part, then the buffer again",
        run: parent_twice,
    },
];

fn alignment(b: &Fixture) -> Answer {
    Ok(size(b.device.info.align_bytes))
}

fn odd(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    Ok(code(memory::sub_buffer(buffer, 0, 1, 64)))
}

fn halves(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    let half = code(memory::sub_buffer(buffer, 0, b.align() / 2, 64));
    Ok(format!("{half}, {}", code(memory::sub_buffer(buffer, 0, b.align(), 64))))
}

fn beyond(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    Ok(code(memory::sub_buffer(buffer, 0, BYTES - b.align(), b.align() + 1)))
}

fn small(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    let empty = code(memory::sub_buffer(buffer, 0, 0, 0));
    Ok(format!("{empty}, {}", code(memory::sub_buffer(buffer, 0, 0, 1))))
}

fn nested(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    let part = memory::sub_buffer(buffer, 0, 0, BYTES / 2)?;
    Ok(code(memory::sub_buffer(part, 0, 0, BYTES / 4)))
}

fn overlap(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let (left, right) = (memory::sub_buffer(buffer, 0, 0, 2048)?, memory::sub_buffer(buffer, 0, 1024, 2048)?);
    memory::fill(session.queue, left, 0, 2048, &[0x5a], &[])?;
    let seen = session.bytes(right)?;
    Ok(format!("{}, then {}", byte_runs(&seen[..1024]), byte_runs(&seen[1024..])))
}

fn copy_overlap(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let (left, right) = (memory::sub_buffer(buffer, 0, 0, 2048)?, memory::sub_buffer(buffer, 0, 1024, 2048)?);
    Ok(code(memory::copy(session.queue, (left, 0), (right, 0), 2048, &[])))
}

fn copy_within(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0)?;
    let apart = code(memory::copy(session.queue, (buffer, 0), (buffer, 1024), 1024, &[]));
    Ok(format!(
        "side by side {apart}, overlapping {}",
        code(memory::copy(session.queue, (buffer, 0), (buffer, 512), 1024, &[]))
    ))
}

fn counted(b: &Fixture) -> Answer {
    let buffer = b.open_session()?.buffer(0)?;
    memory::sub_buffer(buffer, 0, 0, 64)?;
    Ok(memory::reference_count(buffer)?.to_string())
}

fn without_parent(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0x5a)?;
    let part = memory::sub_buffer(buffer, 0, 1024, 1024)?;
    memory::release(buffer)?;
    for _ in 0..8 {
        session.buffer(0xff)?;
    }
    Ok(or_code(session.bytes(part), |bytes| byte_runs(&bytes)))
}

fn without_part(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0x5a)?;
    let part = memory::sub_buffer(buffer, 0, 1024, 1024)?;
    memory::fill(session.queue, part, 0, 1024, &[0x11], &[])?;
    queue::finish(session.queue)?;
    memory::release(part)?;
    let bytes = session.bytes(buffer)?;
    Ok(format!("{}, {} in the part", byte_runs(&bytes[..1024]), byte_runs(&bytes[1024..2048])))
}

fn parent_twice(b: &Fixture) -> Answer {
    let session = b.open_session()?;
    let buffer = session.buffer(0x5a)?;
    let part = memory::sub_buffer(buffer, 0, 1024, 1024)?;
    let released = [code(memory::release(buffer)), code(memory::release(part)), code(memory::release(buffer))];
    Ok(released.join(", "))
}
