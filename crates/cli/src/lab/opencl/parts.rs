//! Parts of buffers: where they may lie, and how long they live.

use freehold_driver::opencl::{memory, queue};

use super::bench::{BYTES, Bench};
use crate::lab::answers::{all, code, or_code, size};
use crate::lab::experiment::{Answer, Experiment};
use crate::lab::id::{Id, O};

pub(super) const EXPERIMENTS: &[Experiment<Bench>] = &[
    Experiment { id: Id(O, 3, 1), did: "the alignment of parts that the device asks for", run: alignment },
    Experiment { id: Id(O, 3, 2), did: "a part that begins at byte 1", run: odd },
    Experiment { id: Id(O, 3, 3), did: "a part that begins at half the alignment, and at the alignment", run: halves },
    Experiment { id: Id(O, 3, 4), did: "a part that reaches beyond its buffer", run: beyond },
    Experiment { id: Id(O, 3, 5), did: "a part of no bytes, and one of one byte", run: small },
    Experiment { id: Id(O, 3, 6), did: "a part of a part", run: nested },
    Experiment {
        id: Id(O, 3, 7),
        did: "two parts that overlap: write through one, read through the other",
        run: overlap,
    },
    Experiment { id: Id(O, 3, 8), did: "copy between two parts that overlap", run: copy_overlap },
    Experiment { id: Id(O, 3, 9), did: "copy within a buffer from and to places that overlap", run: copy_within },
    Experiment { id: Id(O, 3, 10), did: "the count of a buffer with a part", run: counted },
    Experiment { id: Id(O, 3, 11), did: "release the buffer, read through its part", run: without_parent },
    Experiment { id: Id(O, 3, 12), did: "release the part, read the buffer", run: without_part },
    Experiment { id: Id(O, 3, 13), did: "release the buffer, then the part, then the buffer again", run: parent_twice },
];

fn alignment(b: &Bench) -> Answer {
    Ok(size(b.found.facts.align_bytes))
}

fn odd(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    Ok(code(memory::part(buffer, 0, 1, 64)))
}

fn halves(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    let half = code(memory::part(buffer, 0, b.align() / 2, 64));
    Ok(format!("{half}, {}", code(memory::part(buffer, 0, b.align(), 64))))
}

fn beyond(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    Ok(code(memory::part(buffer, 0, BYTES - b.align(), b.align() + 1)))
}

fn small(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    let empty = code(memory::part(buffer, 0, 0, 0));
    Ok(format!("{empty}, {}", code(memory::part(buffer, 0, 0, 1))))
}

fn nested(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    let part = memory::part(buffer, 0, 0, BYTES / 2)?;
    Ok(code(memory::part(part, 0, 0, BYTES / 4)))
}

fn overlap(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let (left, right) = (memory::part(buffer, 0, 0, 2048)?, memory::part(buffer, 0, 1024, 2048)?);
    memory::fill(desk.queue, left, 0, 2048, &[0x5a], &[])?;
    let seen = desk.bytes(right)?;
    Ok(format!("{}, then {}", all(&seen[..1024]), all(&seen[1024..])))
}

fn copy_overlap(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let (left, right) = (memory::part(buffer, 0, 0, 2048)?, memory::part(buffer, 0, 1024, 2048)?);
    Ok(code(memory::copy(desk.queue, (left, 0), (right, 0), 2048, &[])))
}

fn copy_within(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0)?;
    let apart = code(memory::copy(desk.queue, (buffer, 0), (buffer, 1024), 1024, &[]));
    Ok(format!(
        "side by side {apart}, overlapping {}",
        code(memory::copy(desk.queue, (buffer, 0), (buffer, 512), 1024, &[]))
    ))
}

fn counted(b: &Bench) -> Answer {
    let buffer = b.begin()?.buffer(0)?;
    memory::part(buffer, 0, 0, 64)?;
    Ok(memory::count(buffer)?.to_string())
}

fn without_parent(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0x5a)?;
    let part = memory::part(buffer, 0, 1024, 1024)?;
    memory::release(buffer)?;
    for _ in 0..8 {
        desk.buffer(0xff)?;
    }
    Ok(or_code(desk.bytes(part), |bytes| all(&bytes)))
}

fn without_part(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0x5a)?;
    let part = memory::part(buffer, 0, 1024, 1024)?;
    memory::fill(desk.queue, part, 0, 1024, &[0x11], &[])?;
    queue::finish(desk.queue)?;
    memory::release(part)?;
    let bytes = desk.bytes(buffer)?;
    Ok(format!("{}, {} in the part", all(&bytes[..1024]), all(&bytes[1024..2048])))
}

fn parent_twice(b: &Bench) -> Answer {
    let desk = b.begin()?;
    let buffer = desk.buffer(0x5a)?;
    let part = memory::part(buffer, 0, 1024, 1024)?;
    let released = [code(memory::release(buffer)), code(memory::release(part)), code(memory::release(buffer))];
    Ok(released.join(", "))
}
