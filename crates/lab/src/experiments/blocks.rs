//! Experiments on the granularity of memory, and on the address that the next block gets after a free (question 3).

use freehold_driver::cuda::{DriverError, memory};

use crate::answer_text::{alignment, choose, code, distance, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::latch::warm;

const MIB: usize = 1 << 20;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(3, 1, 1),
        did: "allocate 1 byte, then another: how much less is free each time",
        run: |b| taken(b, &[1, 1]),
    },
    Experiment {
        id: Id(3, 1, 2),
        did: "allocate 1 MiB three times: how much less is free each time",
        run: |b| taken(b, &[MIB, MIB, MIB]),
    },
    Experiment {
        id: Id(3, 1, 3),
        did: "allocate 2 MiB, 3 MiB and 2 MiB and a byte: how much less is free each time",
        run: |b| taken(b, &[2 * MIB, 3 * MIB, 2 * MIB + 1]),
    },
    Experiment {
        id: Id(3, 1, 4),
        did: "allocate 64 MiB and free it: what comes back, and is it at once",
        run: given_back,
    },
    Experiment {
        id: Id(3, 1, 5),
        did: "the alignment of a block of 100 bytes after one of 1, and of 2 MiB",
        run: alignments,
    },
    Experiment { id: Id(3, 1, 6), did: "how far apart two blocks of 1000 bytes lie", run: thousand },
    Experiment { id: Id(3, 1, 7), did: "the pitch of rows of 100 and of 513 bytes, elements of 4 bytes", run: pitches },
    Experiment { id: Id(3, 1, 8), did: "allocate rows of 0 bytes, 0 rows, and elements of 3 bytes", run: odd_pitches },
    Experiment { id: Id(3, 2, 1), did: "free 4 KiB, allocate 4 KiB", run: |b| again(b, 4096, 4096) },
    Experiment { id: Id(3, 2, 2), did: "free 64 MiB, allocate 64 MiB", run: |b| again(b, 64 * MIB, 64 * MIB) },
    Experiment {
        id: Id(3, 2, 3),
        did: "allocate three blocks of 4 KiB, free the middle one, allocate 4 KiB, then 8 KiB",
        run: hole,
    },
    Experiment {
        id: Id(3, 2, 4),
        did: "fill all of a device's memory with blocks of 256 MiB, free every other one, allocate 512 MiB",
        run: fragmented,
    },
];

/// Formats how much less is free after each allocation.
fn taken(b: &Fixture, sizes: &[usize]) -> Answer {
    b.init_context()?;
    warm(b)?;
    let mut answers = Vec::new();
    let mut before = memory::info(b)?.free_bytes;
    for &bytes in sizes {
        memory::alloc(b, bytes)?;
        let after = memory::info(b)?.free_bytes;
        answers.push(size(before.saturating_sub(after) as u64));
        before = after;
    }
    Ok(answers.join(", "))
}

fn given_back(b: &Fixture) -> Answer {
    b.init_context()?;
    warm(b)?;
    let before = memory::info(b)?.free_bytes;
    let block = memory::alloc(b, 64 * MIB)?;
    let during = memory::info(b)?.free_bytes;
    memory::free(b, block)?;
    let after = memory::info(b)?.free_bytes;
    let taken = size(before.saturating_sub(during) as u64);
    Ok(format!("{taken} taken, {} back at once", size(after.saturating_sub(during) as u64)))
}

fn alignments(b: &Fixture) -> Answer {
    b.init_context()?;
    memory::alloc(b, 1)?;
    let small = alignment(memory::alloc(b, 100)?, 2 << 20);
    Ok(format!("{small}, {}", alignment(memory::alloc(b, 2 * MIB)?, 2 << 20)))
}

fn thousand(b: &Fixture) -> Answer {
    b.init_context()?;
    let first = memory::alloc(b, 1000)?;
    Ok(distance(first, memory::alloc(b, 1000)?))
}

fn pitches(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |width| or_code(memory::alloc_pitch(b, width, 10, 4), |pitched| size(pitched.pitch_bytes as u64));
    Ok(format!("{}, {}", ask(100), ask(513)))
}

fn odd_pitches(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |width, height, element| code(memory::alloc_pitch(b, width, height, element));
    Ok(format!("{}, {}, {}", ask(0, 10, 4), ask(100, 0, 4), ask(100, 10, 3)))
}

fn again(b: &Fixture, first: usize, second: usize) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, first)?;
    memory::free(b, block)?;
    Ok(choose(memory::alloc(b, second)? == block, "the same address", "another address"))
}

fn hole(b: &Fixture) -> Answer {
    b.init_context()?;
    memory::alloc(b, 4096)?;
    let middle = memory::alloc(b, 4096)?;
    memory::alloc(b, 4096)?;
    memory::free(b, middle)?;
    let small = choose(memory::alloc(b, 4096)? == middle, "the hole", "elsewhere");
    memory::free(b, middle)?;
    Ok(format!("{small}, {}", choose(memory::alloc(b, 8192)? == middle, "the hole", "elsewhere")))
}

fn fragmented(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut blocks = Vec::new();
    let full = loop {
        match memory::alloc(b, 256 * MIB) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
    };
    for block in blocks.iter().step_by(2) {
        memory::free(b, *block)?;
    }
    Ok(format!("full {}, then {}", code::<(), _>(Err::<(), DriverError>(full)), code(memory::alloc(b, 512 * MIB))))
}
