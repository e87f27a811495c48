//! Experiments on allocations and frees: sizes, wrong pointers, free memory (7.10).

use super::fixture::{ATTACH_GLOBAL, BYTES, Fixture, MIB, code, or_code};
use crate::answer_text::{choose, size};
use crate::experiment::Experiment;
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 10, 1),
        did: "cudaFree twice",
        run: |r| {
            let block = r.malloc(BYTES)?;
            Ok(format!("{}, {}", code(r.cudaFree(block)), code(r.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 10, 2),
        did: "cudaFree of an address inside a block, then of the block",
        run: |r| {
            let block = r.malloc(BYTES)?;
            Ok(format!("{}, {}", code(r.cudaFree(block + 256)), code(r.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 10, 3),
        did: "cudaFree of pinned memory, then cudaFreeHost",
        run: |r| {
            let block = r.pinned(BYTES)?;
            Ok(format!("{}, {}", code(r.cudaFree(block)), code(r.cudaFreeHost(block))))
        },
    },
    Experiment {
        id: Id(7, 10, 4),
        did: "cudaFree of an address on the stack, and of one that nothing has",
        run: |r| {
            r.init()?;
            let word = 0_u64;
            let stack = code(r.cudaFree(std::ptr::from_ref(&word) as u64));
            Ok(format!("{stack}, {}", code(r.cudaFree(0x10))))
        },
    },
    Experiment {
        id: Id(7, 10, 5),
        did: "cudaFree of registered host memory",
        run: |r| {
            let host = r.pageable(BYTES);
            r.cudaHostRegister(host, BYTES, 0)?;
            Ok(code(r.cudaFree(host)))
        },
    },
    Experiment {
        id: Id(7, 10, 6),
        did: "cudaFree of managed memory, twice",
        run: |r| {
            let block = r.managed(BYTES)?;
            Ok(format!("{}, {}", code(r.cudaFree(block)), code(r.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 10, 7),
        did: "cudaFree of memory of cudaMallocAsync, twice",
        run: |r| {
            let block = r.malloc_async(BYTES, 0)?;
            Ok(format!("{}, {}", code(r.cudaFree(block)), code(r.cudaFree(block))))
        },
    },
    Experiment {
        id: Id(7, 10, 8),
        did: "cudaFreeAsync twice, and of null",
        run: |r| {
            let block = r.malloc_async(BYTES, 0)?;
            let twice = format!("{}, {}", code(r.cudaFreeAsync(block, 0)), code(r.cudaFreeAsync(block, 0)));
            Ok(format!("{twice}; {}", code(r.cudaFreeAsync(0, 0))))
        },
    },
    Experiment {
        id: Id(7, 10, 9),
        did: "cudaFreeHost twice, and of null",
        run: |r| {
            let block = r.pinned(BYTES)?;
            let twice = format!("{}, {}", code(r.cudaFreeHost(block)), code(r.cudaFreeHost(block)));
            Ok(format!("{twice}; {}", code(r.cudaFreeHost(0))))
        },
    },
    Experiment {
        id: Id(7, 10, 10),
        did: "cudaFreeHost of an address inside a block, of pageable memory, and of device memory",
        run: |r| {
            let inside = code(r.cudaFreeHost(r.pinned(BYTES)? + 64));
            let pageable = code(r.cudaFreeHost(r.pageable(BYTES)));
            Ok(format!("{inside}, {pageable}, {}", code(r.cudaFreeHost(r.malloc(BYTES)?))))
        },
    },
    Experiment {
        id: Id(7, 10, 11),
        did: "cudaFreeHost of registered host memory",
        run: |r| {
            let host = r.pageable(BYTES);
            r.cudaHostRegister(host, BYTES, 0)?;
            Ok(code(r.cudaFreeHost(host)))
        },
    },
    Experiment {
        id: Id(7, 10, 12),
        did: "allocate no bytes with cudaMalloc, cudaMallocHost and cudaMallocAsync: code and address",
        run: |r| {
            let said = |outcome: Result<(), _>, start: u64| {
                format!("{} {}", code(outcome), choose(start == 0, "null", "not null"))
            };
            let (mut device, mut host, mut pooled) = (1, 1, 1);
            let device = (r.cudaMalloc(Some(&mut device), 0), device);
            let host = (r.cudaMallocHost(Some(&mut host), 0), host);
            let pooled = (r.cudaMallocAsync(Some(&mut pooled), 0, 0), pooled);
            Ok(format!("{}, {}, {}", said(device.0, device.1), said(host.0, host.1), said(pooled.0, pooled.1)))
        },
    },
    Experiment {
        id: Id(7, 10, 13),
        did: "cudaMallocManaged of no bytes, without flags, and with flags that do not exist",
        run: |r| {
            let made = |bytes, flags| code(r.cudaMallocManaged(Some(&mut 0), bytes, flags));
            Ok(format!("{}, {}, {}", made(0, ATTACH_GLOBAL), made(BYTES, 0), made(BYTES, 8)))
        },
    },
    Experiment {
        id: Id(7, 10, 14),
        did: "cudaHostAlloc with flags that do not exist, and cudaMalloc with a null place",
        run: |r| {
            let flags = code(r.cudaHostAlloc(Some(&mut 0), BYTES, 0x100));
            Ok(format!("{flags}, {}", code(r.cudaMalloc(None, BYTES))))
        },
    },
    Experiment {
        id: Id(7, 10, 15),
        did: "the pitch of rows of 1, 512 and 513 bytes",
        run: |r| {
            let [one, whole, more] = [1, 512, 513].map(|width| {
                let mut pitch = 0;
                or_code(r.cudaMallocPitch(Some(&mut 0), Some(&mut pitch), width, 4), |()| pitch.to_string())
            });
            Ok(format!("{one}, {whole}, {more}"))
        },
    },
    Experiment {
        id: Id(7, 10, 16),
        did: "cudaMallocPitch of rows of no bytes, and of no rows",
        run: |r| {
            let pitched = |width, height| code(r.cudaMallocPitch(Some(&mut 0), Some(&mut 0), width, height));
            Ok(format!("{}, {}", pitched(0, 4), pitched(4, 0)))
        },
    },
    Experiment {
        id: Id(7, 10, 17),
        did: "free memory after cudaMalloc of 64 MiB, and after cudaFree",
        run: |r| {
            r.init()?;
            let before = r.free_bytes()?;
            let block = r.malloc(64 * MIB)?;
            let taken = before - r.free_bytes()?;
            r.cudaFree(block)?;
            let left = before - r.free_bytes()?;
            Ok(format!("{} less, {} less", size(taken as u64), size(left as u64)))
        },
    },
    Experiment {
        id: Id(7, 10, 18),
        did: "free memory after cudaMalloc of a byte, and after another one",
        run: |r| {
            r.init()?;
            let before = r.free_bytes()?;
            r.malloc(1)?;
            let first = before - r.free_bytes()?;
            r.malloc(1)?;
            Ok(format!("{} less, {} less", size(first as u64), size((before - r.free_bytes()?) as u64)))
        },
    },
    Experiment {
        id: Id(7, 10, 19),
        did: "the distance of two blocks of a byte, and the alignment of a block",
        run: |r| {
            let (first, second) = (r.malloc(1)?, r.malloc(1)?);
            let aligned = choose(first.is_multiple_of(512), "multiple of 512", "not a multiple of 512");
            Ok(format!("{}, {aligned}", size(first.abs_diff(second))))
        },
    },
    Experiment {
        id: Id(7, 10, 20),
        did: "pinned memory of cudaMallocHost: can the host write it, and the device read it",
        run: |r| {
            let start = r.pinned(BYTES)?;
            let start = std::ptr::NonNull::new(start as *mut u8).expect("the runtime returned memory");
            // SAFETY: pinned memory is aligned to a page and has these bytes; it is neither freed nor used otherwise.
            let host = unsafe { HostBuffer::shared(start, BYTES) };
            host.fill(5);
            let block = r.zeros(BYTES)?;
            r.cudaMemcpy(block, host.address().0, BYTES, super::fixture::ON_DEVICE)?;
            Ok(r.bytes_at(block, 1)?[0].to_string())
        },
    },
];
