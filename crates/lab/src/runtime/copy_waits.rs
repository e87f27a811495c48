//! Experiments on which copies and fills wait for a kernel that runs before them in their stream (7.4).

use super::fixture::{BYTES, DEFAULT, Fixture, HOST_TO_HOST, MIB, ON_DEVICE, PER_THREAD, TO_DEVICE, TO_HOST};
use super::spin::Spin;
use crate::experiment::{Answer, Experiment};
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 4, 1),
        did: "a kernel runs in the legacy stream: cudaMemcpy of 4 KiB from pageable memory",
        run: |r| copied(r, Memory::Device, Memory::Pageable, BYTES, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 2),
        did: "a kernel runs in the legacy stream: cudaMemcpy of 1 MiB from pageable memory",
        run: |r| copied(r, Memory::Device, Memory::Pageable, MIB, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 3),
        did: "a kernel runs in the legacy stream: cudaMemcpy from pinned memory",
        run: |r| copied(r, Memory::Device, Memory::Pinned, BYTES, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 4),
        did: "a kernel runs in the legacy stream: cudaMemcpy to pageable memory",
        run: |r| copied(r, Memory::Pageable, Memory::Device, BYTES, TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 5),
        did: "a kernel runs in the legacy stream: cudaMemcpy to pinned memory",
        run: |r| copied(r, Memory::Pinned, Memory::Device, BYTES, TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 6),
        did: "a kernel runs in the legacy stream: cudaMemcpy from device to device",
        run: |r| copied(r, Memory::Device, Memory::Device, BYTES, ON_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 7),
        did: "a kernel runs in the legacy stream: cudaMemcpy from pageable to pageable memory",
        run: |r| copied(r, Memory::Pageable, Memory::Pageable, BYTES, HOST_TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 8),
        did: "a kernel runs in the legacy stream: cudaMemcpy from pinned to pinned memory",
        run: |r| copied(r, Memory::Pinned, Memory::Pinned, BYTES, HOST_TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 9),
        did: "a kernel runs in the legacy stream: cudaMemcpy of no bytes from pageable memory",
        run: |r| copied(r, Memory::Device, Memory::Pageable, 0, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 10),
        did: "a kernel runs in the legacy stream: cudaMemcpy from managed memory to the device",
        run: |r| copied(r, Memory::Device, Memory::Managed, BYTES, DEFAULT),
    },
    Experiment {
        id: Id(7, 4, 11),
        did: "a kernel runs in a non-blocking stream: cudaMemcpy from pageable memory, and to it",
        run: |r| {
            let spin = Spin::new(r)?;
            let (stream, block, host) = (r.non_blocking()?, r.malloc(MIB)?, r.pageable(MIB));
            spin.run(r, stream)?;
            Ok(spin.pace(|| {
                r.cudaMemcpy(block, host, MIB, TO_DEVICE)?;
                r.cudaMemcpy(host, block, MIB, TO_HOST)
            }))
        },
    },
    Experiment {
        id: Id(7, 4, 12),
        did: "a kernel runs in the thread's own stream: cudaMemcpy from pageable memory",
        run: |r| {
            let spin = Spin::new(r)?;
            let (block, host) = (r.malloc(MIB)?, r.pageable(MIB));
            spin.run(r, PER_THREAD)?;
            Ok(spin.pace(|| r.cudaMemcpy(block, host, MIB, TO_DEVICE)))
        },
    },
    Experiment {
        id: Id(7, 4, 13),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it of 4 KiB from pageable memory",
        run: |r| copied_async(r, Memory::Device, Memory::Pageable, BYTES, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 14),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it of 64 KiB from pageable memory",
        run: |r| copied_async(r, Memory::Device, Memory::Pageable, 64 << 10, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 15),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it of 64 KiB and a byte from pageable memory",
        run: |r| copied_async(r, Memory::Device, Memory::Pageable, (64 << 10) + 1, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 16),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it of 8 MiB from pageable memory",
        run: |r| copied_async(r, Memory::Device, Memory::Pageable, 8 * MIB, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 17),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it of 4 KiB to pageable memory",
        run: |r| copied_async(r, Memory::Pageable, Memory::Device, BYTES, TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 18),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from pinned memory",
        run: |r| copied_async(r, Memory::Device, Memory::Pinned, MIB, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 19),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it to pinned memory",
        run: |r| copied_async(r, Memory::Pinned, Memory::Device, MIB, TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 20),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from registered memory",
        run: |r| copied_async(r, Memory::Device, Memory::Registered, MIB, TO_DEVICE),
    },
    Experiment {
        id: Id(7, 4, 21),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from pageable to pageable memory",
        run: |r| copied_async(r, Memory::Pageable, Memory::Pageable, BYTES, HOST_TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 22),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from pageable to pinned memory",
        run: |r| copied_async(r, Memory::Pinned, Memory::Pageable, BYTES, HOST_TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 23),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from pinned to pinned memory",
        run: |r| copied_async(r, Memory::Pinned, Memory::Pinned, BYTES, HOST_TO_HOST),
    },
    Experiment {
        id: Id(7, 4, 24),
        did: "a kernel runs in a stream: cudaMemcpyAsync behind it from managed memory to pageable memory",
        run: |r| copied_async(r, Memory::Pageable, Memory::Managed, BYTES, DEFAULT),
    },
    Experiment {
        id: Id(7, 4, 25),
        did: "a kernel runs in the legacy stream: cudaMemset of device memory",
        run: |r| filled(r, Memory::Device),
    },
    Experiment {
        id: Id(7, 4, 26),
        did: "a kernel runs in the legacy stream: cudaMemset of pinned memory",
        run: |r| filled(r, Memory::Pinned),
    },
    Experiment {
        id: Id(7, 4, 27),
        did: "a kernel runs in the legacy stream: cudaMemset of managed memory",
        run: |r| filled(r, Memory::Managed),
    },
    Experiment {
        id: Id(7, 4, 28),
        did: "a kernel runs in the legacy stream: cudaMemset2D of device memory",
        run: |r| {
            let spin = Spin::new(r)?;
            let block = r.malloc(BYTES)?;
            spin.run(r, 0)?;
            Ok(spin.pace(|| r.cudaMemset2D(block, 64, 0, 32, 64)))
        },
    },
    Experiment {
        id: Id(7, 4, 29),
        did: "a kernel runs in the legacy stream: cudaMemcpy2D to pageable memory",
        run: |r| {
            let spin = Spin::new(r)?;
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            spin.run(r, 0)?;
            Ok(spin.pace(|| r.cudaMemcpy2D(host, 64, block, 64, 32, 64, TO_HOST)))
        },
    },
    Experiment {
        id: Id(7, 4, 30),
        did: "a kernel runs in the legacy stream: cudaMemcpyPeer within one device",
        run: |r| {
            let spin = Spin::new(r)?;
            let (from, to) = (r.malloc(BYTES)?, r.malloc(BYTES)?);
            spin.run(r, 0)?;
            Ok(spin.pace(|| r.cudaMemcpyPeer(to, 0, from, 0, BYTES)))
        },
    },
];

/// A kind of memory.
#[derive(Clone, Copy)]
enum Memory {
    Device,
    Managed,
    Pageable,
    Pinned,
    Registered,
}

impl Memory {
    fn make(self, r: &Fixture, bytes: usize) -> Result<u64, super::functions::RuntimeError> {
        match self {
            Self::Device => r.zeros(bytes.max(1)),
            Self::Managed => r.managed(bytes),
            Self::Pageable => Ok(r.pageable(bytes)),
            Self::Pinned => r.pinned(bytes),
            Self::Registered => {
                let host = r.pageable(bytes);
                r.cudaHostRegister(host, bytes, 0).map(|()| host)
            }
        }
    }
}

fn copied(r: &Fixture, to: Memory, from: Memory, bytes: usize, kind: i32) -> Answer {
    let spin = Spin::new(r)?;
    let (to, from) = (to.make(r, bytes)?, from.make(r, bytes)?);
    spin.run(r, 0)?;
    Ok(spin.pace(|| r.cudaMemcpy(to, from, bytes, kind)))
}

fn copied_async(r: &Fixture, to: Memory, from: Memory, bytes: usize, kind: i32) -> Answer {
    let spin = Spin::new(r)?;
    let (to, from, stream) = (to.make(r, bytes)?, from.make(r, bytes)?, r.non_blocking()?);
    spin.run(r, stream)?;
    Ok(spin.pace(|| r.cudaMemcpyAsync(to, from, bytes, kind, stream)))
}

fn filled(r: &Fixture, memory: Memory) -> Answer {
    let spin = Spin::new(r)?;
    let block = memory.make(r, BYTES)?;
    spin.run(r, 0)?;
    Ok(spin.pace(|| r.cudaMemset(block, 1, BYTES)))
}
