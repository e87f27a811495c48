//! Experiments on the attributes of pointers, and the registration of host memory (7.11).

use super::fixture::{BYTES, Fixture, MAPPED, code, or_code};
use super::functions::PointerAttributes;
use crate::answer_text::choose;
use crate::experiment::Experiment;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 11, 1),
        did: "the attributes of device memory, and of an address inside it",
        run: |r| {
            let block = r.malloc(BYTES)?;
            Ok(format!("{}; {}", said(r, block), said(r, block + 100)))
        },
    },
    Experiment {
        id: Id(7, 11, 2),
        did: "the attributes of device memory that was freed",
        run: |r| {
            let block = r.malloc(BYTES)?;
            r.cudaFree(block)?;
            Ok(said(r, block))
        },
    },
    Experiment {
        id: Id(7, 11, 3),
        did: "the attributes of pinned memory, and of an address inside it",
        run: |r| {
            let block = r.pinned(BYTES)?;
            Ok(format!("{}; {}", said(r, block), said(r, block + 100)))
        },
    },
    Experiment {
        id: Id(7, 11, 4),
        did: "the attributes of host memory: registered, and unregistered again",
        run: |r| {
            let host = r.pageable(BYTES);
            r.cudaHostRegister(host, BYTES, 0)?;
            let registered = said(r, host);
            r.cudaHostUnregister(host)?;
            Ok(format!("{registered}; {}", said(r, host)))
        },
    },
    Experiment {
        id: Id(7, 11, 5),
        did: "the attributes of pageable memory, and of null",
        run: |r| {
            r.init()?;
            Ok(format!("{}; {}", said(r, r.pageable(BYTES)), said(r, 0)))
        },
    },
    Experiment { id: Id(7, 11, 6), did: "the attributes of managed memory", run: |r| Ok(said(r, r.managed(BYTES)?)) },
    Experiment {
        id: Id(7, 11, 7),
        did: "the attributes of memory of cudaMallocAsync, before and after cudaFreeAsync",
        run: |r| {
            let block = r.malloc_async(BYTES, 0)?;
            let before = said(r, block);
            r.cudaFreeAsync(block, 0)?;
            r.cudaDeviceSynchronize()?;
            Ok(format!("{before}; {}", said(r, block)))
        },
    },
    Experiment {
        id: Id(7, 11, 8),
        did: "the attributes of the byte after a block of 2 MiB",
        run: |r| {
            let block = r.malloc(2 << 20)?;
            Ok(said(r, block + (2 << 20)))
        },
    },
    Experiment {
        id: Id(7, 11, 9),
        did: "the attributes of memory of cudaHostAlloc that is write-combined",
        run: |r| {
            let mut block = 0;
            r.cudaHostAlloc(Some(&mut block), BYTES, 4)?;
            Ok(said(r, block))
        },
    },
    Experiment {
        id: Id(7, 11, 10),
        did: "the flags of memory: of cudaMallocHost, of cudaHostAlloc with none, registered, pageable",
        run: |r| {
            let flags = |start| {
                let mut flags = 0;
                or_code(r.cudaHostGetFlags(Some(&mut flags), start), |()| format!("{flags:#x}"))
            };
            let (pinned, host) = (r.pinned(BYTES)?, r.pageable(BYTES));
            let mut plain = 0;
            r.cudaHostAlloc(Some(&mut plain), BYTES, 0)?;
            r.cudaHostRegister(host, BYTES, 0)?;
            Ok(format!("{}, {}, {}, {}", flags(pinned), flags(plain), flags(host), flags(r.pageable(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 11, 11),
        did: "the device address of pinned memory, of an address inside it, and of pageable memory",
        run: |r| {
            let pinned = r.pinned(BYTES)?;
            let address = |start: u64| {
                let mut device = 0;
                let asked = r.cudaHostGetDevicePointer(Some(&mut device), start, 0);
                or_code(asked, |()| choose(device == start, "the same", "another"))
            };
            Ok(format!("{}, {}, {}", address(pinned), address(pinned + 64), address(r.pageable(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 11, 12),
        did: "the device address of pinned memory with flags that do not exist, and of device memory",
        run: |r| {
            let flags = code(r.cudaHostGetDevicePointer(Some(&mut 0), r.pinned(BYTES)?, 1));
            Ok(format!("{flags}, {}", code(r.cudaHostGetDevicePointer(Some(&mut 0), r.malloc(BYTES)?, 0))))
        },
    },
    Experiment {
        id: Id(7, 11, 13),
        did: "register host memory twice",
        run: |r| {
            let host = r.pageable(BYTES);
            Ok(format!("{}, {}", code(r.cudaHostRegister(host, BYTES, 0)), code(r.cudaHostRegister(host, BYTES, 0))))
        },
    },
    Experiment {
        id: Id(7, 11, 14),
        did: "register three pages, then the last of them and one more",
        run: |r| {
            let host = r.pageable(4 * BYTES);
            let first = code(r.cudaHostRegister(host, 3 * BYTES, 0));
            Ok(format!("{first}, {}", code(r.cudaHostRegister(host + 2 * BYTES as u64, 2 * BYTES, 0))))
        },
    },
    Experiment {
        id: Id(7, 11, 15),
        did: "register two pages that touch, one after the other, and copy across both",
        run: |r| {
            let (host, block) = (r.pageable(2 * BYTES), r.malloc(2 * BYTES)?);
            let first = code(r.cudaHostRegister(host, BYTES, 0));
            let second = code(r.cudaHostRegister(host + BYTES as u64, BYTES, 0));
            Ok(format!("{first}, {second}, {}", code(r.cudaMemcpy(block, host, 2 * BYTES, 1))))
        },
    },
    Experiment {
        id: Id(7, 11, 16),
        did: "register 100 bytes inside a page, then another 100 of the same page",
        run: |r| {
            let host = r.pageable(BYTES);
            let first = code(r.cudaHostRegister(host + 100, 100, 0));
            Ok(format!("{first}, {}", code(r.cudaHostRegister(host + 300, 100, 0))))
        },
    },
    Experiment {
        id: Id(7, 11, 17),
        did: "register one page of host memory, copy two pages from it",
        run: |r| {
            let (host, block) = (r.pageable(2 * BYTES), r.malloc(2 * BYTES)?);
            r.cudaHostRegister(host, BYTES, 0)?;
            Ok(code(r.cudaMemcpy(block, host, 2 * BYTES, 1)))
        },
    },
    Experiment {
        id: Id(7, 11, 18),
        did: "unregister an address inside registered memory, then its start, then its start again",
        run: |r| {
            let host = r.pageable(2 * BYTES);
            r.cudaHostRegister(host, 2 * BYTES, 0)?;
            let [inside, start, again] = [host + 64, host, host].map(|at| code(r.cudaHostUnregister(at)));
            Ok(format!("{inside}, {start}, {again}"))
        },
    },
    Experiment {
        id: Id(7, 11, 19),
        did: "unregister memory that was never registered, memory of cudaMallocHost, and null",
        run: |r| {
            let never = code(r.cudaHostUnregister(r.pageable(BYTES)));
            let pinned = code(r.cudaHostUnregister(r.pinned(BYTES)?));
            Ok(format!("{never}, {pinned}, {}", code(r.cudaHostUnregister(0))))
        },
    },
    Experiment {
        id: Id(7, 11, 20),
        did: "register no bytes, null, and with flags that do not exist",
        run: |r| {
            let none = code(r.cudaHostRegister(r.pageable(BYTES), 0, 0));
            let null = code(r.cudaHostRegister(0, BYTES, 0));
            Ok(format!("{none}, {null}, {}", code(r.cudaHostRegister(r.pageable(BYTES), BYTES, 0x100))))
        },
    },
    Experiment {
        id: Id(7, 11, 21),
        did: "register memory of cudaMallocHost, of cudaMalloc, and of cudaMallocManaged",
        run: |r| {
            let pinned = code(r.cudaHostRegister(r.pinned(BYTES)?, BYTES, 0));
            let device = code(r.cudaHostRegister(r.malloc(BYTES)?, BYTES, 0));
            Ok(format!("{pinned}, {device}, {}", code(r.cudaHostRegister(r.managed(BYTES)?, BYTES, 0))))
        },
    },
    Experiment {
        id: Id(7, 11, 22),
        did: "register host memory as mapped: does the device address equal the host's",
        run: |r| {
            let host = r.pageable(BYTES);
            r.cudaHostRegister(host, BYTES, MAPPED)?;
            let mut device = 0;
            r.cudaHostGetDevicePointer(Some(&mut device), host, 0)?;
            Ok(choose(device == host, "the same", "another"))
        },
    },
];

/// Formats what the runtime knows about an address.
fn said(r: &Fixture, address: u64) -> String {
    let mut found = PointerAttributes::default();
    let same = |pointer: u64| match pointer {
        0 => "null",
        pointer if pointer == address => "same",
        _ => "other",
    };
    or_code(r.cudaPointerGetAttributes(Some(&mut found), address), |()| {
        let kind = match found.kind {
            0 => "unregistered",
            1 => "host",
            2 => "device",
            3 => "managed",
            _ => "unknown",
        };
        let PointerAttributes { device, device_pointer, host_pointer, .. } = found;
        format!("{kind}, device {device}, device address {}, host address {}", same(device_pointer), same(host_pointer))
    })
}
