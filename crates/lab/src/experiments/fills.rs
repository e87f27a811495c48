//! Experiments on fills: which ones fail, and which bytes change (question 3).

use freehold_driver::cuda::{CUdeviceptr, context, fill, memory};

use crate::answer_text::{byte_runs, code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(3, 4, 1), did: "cuMemsetD16 at byte 1, cuMemsetD32 at bytes 2 and 4", run: misaligned },
    Experiment { id: Id(3, 4, 2), did: "cuMemsetD2D32 with a pitch of 6, and of 8 for rows of 16", run: pitches },
    Experiment { id: Id(3, 4, 3), did: "fill 0 bytes of a block, of null", run: nothing },
    Experiment { id: Id(3, 4, 4), did: "fill a byte more than a block has", run: past_the_end },
    Experiment { id: Id(3, 4, 5), did: "fill pinned, registered and pageable memory of the host", run: host_memory },
    Experiment { id: Id(3, 4, 6), did: "fill 2 rows of 3 bytes in a pitch of 8: the bytes after it", run: rows },
    Experiment {
        id: Id(3, 4, 7),
        did: "fill 2 words with cuMemsetD16 and 1 with cuMemsetD32: the bytes after it",
        run: order,
    },
    Experiment { id: Id(3, 4, 8), did: "fill a freed block of 64 MiB", run: freed },
];

fn misaligned(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let at = |byte| CUdeviceptr(block.0 + byte);
    let short = code(fill::d16(b, at(1), 1, 4));
    Ok(format!("{short}, {}, {}", code(fill::d32(b, at(2), 1, 4)), code(fill::d32(b, at(4), 1, 4))))
}

fn pitches(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let odd = code(fill::rectangle_d32(b, block, 6, 1, 1, 2));
    Ok(format!("{odd}, {}", code(fill::rectangle_d32(b, block, 8, 1, 4, 2))))
}

fn nothing(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    Ok(format!("{}, {}", code(fill::d8(b, block, 1, 0)), code(fill::d8(b, CUdeviceptr::NULL, 1, 0))))
}

fn past_the_end(b: &Fixture) -> Answer {
    b.init_context()?;
    let (small, large) = (memory::alloc(b, 512)?, memory::alloc(b, 2 << 20)?);
    Ok(format!(
        "of 512 bytes {}, of 2 MiB {}",
        code(fill::d8(b, small, 1, 513)),
        code(fill::d8(b, large, 1, (2 << 20) + 1))
    ))
}

fn host_memory(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.pinned_buffer(4096)?;
    let outcome = code(fill::d8(b, pinned.address(), 0x5a, 4096));
    context::synchronize(b)?;
    let held = byte_runs(&pinned.to_vec());
    let registered = code(fill::d8(b, b.registered_buffer(4096)?.address(), 1, 4096));
    let pageable = code(fill::d8(b, HostBuffer::pageable(4096).address(), 1, 4096));
    Ok(format!("{outcome} and holds {held}, {registered}, {pageable}"))
}

fn rows(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 16)?;
    fill::d8(b, block, 0, 16)?;
    fill::rectangle_d8(b, block, 8, 7, 3, 2)?;
    Ok(format!("{:?}", b.bytes_at(block, 16)?))
}

fn order(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 8)?;
    fill::d16(b, block, 0x1234, 2)?;
    fill::d32(b, CUdeviceptr(block.0 + 4), 0x5678_9abc, 1)?;
    Ok(format!("{:02x?}", b.bytes_at(block, 8)?))
}

fn freed(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 64 << 20)?;
    memory::free(b, block)?;
    Ok(code(fill::d8(b, block, 1, 4096)))
}
