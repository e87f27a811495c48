//! Experiments on copies and fills: directions that do not fit, pitches, sizes (7.12).

use super::fixture::{BYTES, DEFAULT, Fixture, HOST_TO_HOST, ON_DEVICE, TO_DEVICE, TO_HOST, code};
use crate::experiment::{Answer, Experiment};
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 12, 1),
        did: "copy from device to device, declared as host to device: what arrives",
        run: |r| {
            let (from, to) = (r.zeros(BYTES)?, r.zeros(BYTES)?);
            r.cudaMemset(from, 7, BYTES)?;
            let copied = code(r.cudaMemcpy(to, from, BYTES, TO_DEVICE));
            arrived(r, copied, to)
        },
    },
    Experiment {
        id: Id(7, 12, 2),
        did: "copy from device to device, declared as host to host: what arrives",
        run: |r| {
            let (from, to) = (r.zeros(BYTES)?, r.zeros(BYTES)?);
            r.cudaMemset(from, 7, BYTES)?;
            let copied = code(r.cudaMemcpy(to, from, BYTES, HOST_TO_HOST));
            arrived(r, copied, to)
        },
    },
    Experiment {
        id: Id(7, 12, 3),
        did: "copy from pageable memory to the device, declared as device to host: what arrives",
        run: |r| from_host(r, r.pageable(BYTES), TO_HOST),
    },
    Experiment {
        id: Id(7, 12, 4),
        did: "copy from pageable memory to the device, declared as device to device: what arrives",
        run: |r| from_host(r, r.pageable(BYTES), ON_DEVICE),
    },
    Experiment {
        id: Id(7, 12, 5),
        did: "copy from pinned memory to the device, declared as device to device: what arrives",
        run: |r| from_host(r, r.pinned(BYTES)?, ON_DEVICE),
    },
    Experiment {
        id: Id(7, 12, 6),
        did: "copy from pinned memory to the device, declared as device to host: what arrives",
        run: |r| from_host(r, r.pinned(BYTES)?, TO_HOST),
    },
    Experiment {
        id: Id(7, 12, 7),
        did: "copy with cudaMemcpyDefault: pageable to device, device to device, device to pageable",
        run: |r| {
            let (host, back) = (HostBuffer::pageable(BYTES), HostBuffer::pageable(BYTES));
            host.fill(9);
            let (first, second) = (r.zeros(BYTES)?, r.zeros(BYTES)?);
            let to = code(r.cudaMemcpy(first, host.address().0, BYTES, DEFAULT));
            let on = code(r.cudaMemcpy(second, first, BYTES, DEFAULT));
            let from = code(r.cudaMemcpy(back.address().0, second, BYTES, DEFAULT));
            Ok(format!("{to}, {on}, {from}, {}", back.to_vec()[0]))
        },
    },
    Experiment {
        id: Id(7, 12, 8),
        did: "copy with cudaMemcpyDefault from pageable to pageable memory",
        run: |r| {
            r.init()?;
            Ok(code(r.cudaMemcpy(r.pageable(BYTES), r.pageable(BYTES), BYTES, DEFAULT)))
        },
    },
    Experiment {
        id: Id(7, 12, 9),
        did: "copy in a direction that does not exist: 7, and -1",
        run: |r| {
            let (from, to) = (r.zeros(BYTES)?, r.zeros(BYTES)?);
            Ok(format!("{}, {}", code(r.cudaMemcpy(to, from, BYTES, 7)), code(r.cudaMemcpy(to, from, BYTES, -1))))
        },
    },
    Experiment {
        id: Id(7, 12, 10),
        did: "copy no bytes: from null to null, in a direction that does not exist, from freed memory",
        run: |r| {
            let (from, to) = (r.malloc(BYTES)?, r.malloc(BYTES)?);
            r.cudaFree(from)?;
            let null = code(r.cudaMemcpy(0, 0, 0, TO_DEVICE));
            let direction = code(r.cudaMemcpy(to, to, 0, 7));
            Ok(format!("{null}, {direction}, {}", code(r.cudaMemcpy(to, from, 0, ON_DEVICE))))
        },
    },
    Experiment {
        id: Id(7, 12, 11),
        did: "copy to null, and from null, on the device",
        run: |r| {
            let block = r.zeros(BYTES)?;
            let to = code(r.cudaMemcpy(0, block, BYTES, ON_DEVICE));
            Ok(format!("{to}, {}", code(r.cudaMemcpy(block, 0, BYTES, ON_DEVICE))))
        },
    },
    Experiment {
        id: Id(7, 12, 12),
        did: "copy a byte more than a block of 2 MiB has to the host, and then synchronize",
        run: |r| {
            let block = r.malloc(2 << 20)?;
            let copied = code(r.cudaMemcpy(r.pageable((2 << 20) + 1), block, (2 << 20) + 1, TO_HOST));
            Ok(format!("{copied}, {}", code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 12, 13),
        did: "copy from a freed block of 2 MiB to the host, and then synchronize",
        run: |r| {
            let block = r.malloc(2 << 20)?;
            r.cudaFree(block)?;
            let copied = code(r.cudaMemcpy(r.pageable(BYTES), block, BYTES, TO_HOST));
            Ok(format!("{copied}, {}", code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 12, 14),
        did: "copy on the device between ranges that overlap",
        run: |r| {
            let block = r.zeros(2 * BYTES)?;
            Ok(code(r.cudaMemcpy(block + 64, block, BYTES, ON_DEVICE)))
        },
    },
    Experiment {
        id: Id(7, 12, 15),
        did: "cudaMemcpy2D with a pitch below the width: of the target, and of the source",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            let to = code(r.cudaMemcpy2D(block, 16, host, 32, 32, 4, TO_DEVICE));
            Ok(format!("{to}, {}", code(r.cudaMemcpy2D(block, 32, host, 16, 32, 4, TO_DEVICE))))
        },
    },
    Experiment {
        id: Id(7, 12, 16),
        did: "cudaMemcpy2D of no rows, and of rows of no bytes",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            let rows = code(r.cudaMemcpy2D(block, 32, host, 32, 32, 0, TO_DEVICE));
            Ok(format!("{rows}, {}", code(r.cudaMemcpy2D(block, 32, host, 32, 0, 4, TO_DEVICE))))
        },
    },
    Experiment {
        id: Id(7, 12, 17),
        did: "cudaMemcpy2D with a pitch of 2^31 bytes, of one row",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            Ok(code(r.cudaMemcpy2D(block, 1 << 31, host, 32, 32, 1, TO_DEVICE)))
        },
    },
    Experiment {
        id: Id(7, 12, 18),
        did: "cudaMemcpy2D in a direction that does not exist",
        run: |r| {
            let (block, host) = (r.malloc(BYTES)?, r.pageable(BYTES));
            Ok(code(r.cudaMemcpy2D(block, 32, host, 32, 32, 4, 7)))
        },
    },
    Experiment {
        id: Id(7, 12, 19),
        did: "cudaMemset of the values 0x1ff and -1: what is there then",
        run: |r| {
            let block = r.zeros(BYTES)?;
            r.cudaMemset(block, 0x1ff, 1)?;
            r.cudaMemset(block + 1, -1, 1)?;
            Ok(format!("{:?}", &r.bytes_at(block, 3)?))
        },
    },
    Experiment {
        id: Id(7, 12, 20),
        did: "cudaMemset of no bytes of null, and of a byte of null",
        run: |r| {
            r.init()?;
            Ok(format!("{}, {}", code(r.cudaMemset(0, 0, 0)), code(r.cudaMemset(0, 0, 1))))
        },
    },
    Experiment {
        id: Id(7, 12, 21),
        did: "cudaMemset of a byte more than a block of 2 MiB has, and then synchronize",
        run: |r| {
            let block = r.malloc(2 << 20)?;
            let filled = code(r.cudaMemset(block, 0, (2 << 20) + 1));
            Ok(format!("{filled}, {}", code(r.cudaDeviceSynchronize())))
        },
    },
    Experiment {
        id: Id(7, 12, 22),
        did: "cudaMemset of pageable memory",
        run: |r| {
            r.init()?;
            Ok(code(r.cudaMemset(r.pageable(BYTES), 1, BYTES)))
        },
    },
    Experiment {
        id: Id(7, 12, 23),
        did: "cudaMemset2D with a pitch below the width, and of one row",
        run: |r| {
            let block = r.malloc(BYTES)?;
            let rows = code(r.cudaMemset2D(block, 16, 0, 32, 4));
            Ok(format!("{rows}, {}", code(r.cudaMemset2D(block, 16, 0, 32, 1))))
        },
    },
];

/// Copies sevens from host memory to the device in a direction.
fn from_host(r: &Fixture, host: u64, kind: i32) -> Answer {
    let from = std::ptr::NonNull::new(host as *mut u8).expect("the memory was allocated");
    // SAFETY: the memory has these bytes, is aligned to a page, is never freed, and is used only through this.
    unsafe { HostBuffer::shared(from, BYTES) }.fill(7);
    let to = r.zeros(BYTES)?;
    let copied = code(r.cudaMemcpy(to, host, BYTES, kind));
    arrived(r, copied, to)
}

/// Says what a block has after a copy.
fn arrived(r: &Fixture, copied: String, to: u64) -> Answer {
    Ok(format!("{copied}, {}", r.bytes_at(to, 1)?[0]))
}
