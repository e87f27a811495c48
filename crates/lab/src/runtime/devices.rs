//! Experiments on devices, their primary contexts, and peers (7.1).

use freehold_driver::cuda::{CUcontext, primary};

use super::fixture::{BYTES, Fixture, code, or_code};
use crate::answer_text::choose;
use crate::experiment::{Answer, Experiment};
use crate::id::Id;

/// An ordinal that no machine has.
const ABSENT: i32 = 99;

pub(super) const EXPERIMENTS: &[Experiment<Fixture>] = &[
    Experiment {
        id: Id(7, 1, 1),
        did: "ask for the version of the runtime",
        run: |r| {
            let mut version = 0;
            let outcome = r.cudaRuntimeGetVersion(Some(&mut version));
            Ok(or_code(outcome, |()| format!("{}.{}", version / 1000, version % 1000 / 10)))
        },
    },
    Experiment {
        id: Id(7, 1, 2),
        did: "ask for the version of the runtime, with a null place",
        run: |r| Ok(code(r.cudaRuntimeGetVersion(None))),
    },
    Experiment {
        id: Id(7, 1, 3),
        did: "count the devices, as the first call: which context is there",
        run: |r| {
            let count = code(r.device_count());
            Ok(format!("{count}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 4),
        did: "set device 0, as the first call: which context is there",
        run: |r| {
            let set = code(r.cudaSetDevice(0));
            Ok(format!("{set}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 5),
        did: "free null, as the first call: which context is there",
        run: |r| {
            let free = code(r.cudaFree(0));
            Ok(format!("{free}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 6),
        did: "synchronize the device, as the first call: which context is there",
        run: |r| {
            let done = code(r.cudaDeviceSynchronize());
            Ok(format!("{done}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 7),
        did: "initialize device 0 with cudaInitDevice, as the first call: which context is there",
        run: |r| {
            let done = code(r.cudaInitDevice(0, 0, 0));
            Ok(format!("{done}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 8),
        did: "ask for the last error, as the first call: which context is there",
        run: |r| {
            let last = code(r.cudaGetLastError());
            Ok(format!("{last}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 9),
        did: "ask for an attribute of device 0, as the first call: which context is there",
        run: |r| {
            let asked = code(r.cudaDeviceGetAttribute(Some(&mut 0), WARP_SIZE, 0));
            Ok(format!("{asked}, {}", contexts(r)?))
        },
    },
    Experiment {
        id: Id(7, 1, 10),
        did: "set a device that does not exist: 99, and -1",
        run: |r| Ok(format!("{}, {}", code(r.cudaSetDevice(ABSENT)), code(r.cudaSetDevice(-1)))),
    },
    Experiment {
        id: Id(7, 1, 11),
        did: "set a device that does not exist, as the first call, then ask for the device and allocate",
        run: |r| {
            let set = code(r.cudaSetDevice(ABSENT));
            Ok(format!("{set}, {}, {}", device(r), code(r.malloc(BYTES))))
        },
    },
    Experiment {
        id: Id(7, 1, 12),
        did: "ask for an attribute that does not exist, and for one of a device that does not",
        run: |r| {
            let attribute = code(r.cudaDeviceGetAttribute(Some(&mut 0), 9999, 0));
            Ok(format!("{attribute}, {}", code(r.cudaDeviceGetAttribute(Some(&mut 0), WARP_SIZE, ABSENT))))
        },
    },
    Experiment {
        id: Id(7, 1, 13),
        did: "set flags of the device, then allocate, then ask for the flags",
        run: |r| {
            let set = code(r.cudaSetDeviceFlags(BLOCKING_SYNC));
            r.malloc(BYTES)?;
            Ok(format!("{set}, {}", flags(r)))
        },
    },
    Experiment {
        id: Id(7, 1, 14),
        did: "allocate, then set flags of the device, then ask for the flags",
        run: |r| {
            r.malloc(BYTES)?;
            let set = code(r.cudaSetDeviceFlags(BLOCKING_SYNC));
            Ok(format!("{set}, {}", flags(r)))
        },
    },
    Experiment {
        id: Id(7, 1, 15),
        did: "set flags of the device that do not exist",
        run: |r| Ok(code(r.cudaSetDeviceFlags(0x1000))),
    },
    Experiment {
        id: Id(7, 1, 16),
        did: "ask whether a device can access itself as a peer",
        run: |r| {
            let mut can = -1;
            Ok(or_code(r.cudaDeviceCanAccessPeer(Some(&mut can), 0, 0), |()| can.to_string()))
        },
    },
    Experiment {
        id: Id(7, 1, 17),
        did: "enable the access of a device to itself, and disable it",
        run: |r| {
            let enabled = code(r.cudaDeviceEnablePeerAccess(0, 0));
            Ok(format!("{enabled}, {}", code(r.cudaDeviceDisablePeerAccess(0))))
        },
    },
    Experiment {
        id: Id(7, 1, 18),
        did: "ask whether a device can access one that does not exist, and enable that",
        run: |r| {
            let can = code(r.cudaDeviceCanAccessPeer(Some(&mut 0), 0, ABSENT));
            Ok(format!("{can}, {}", code(r.cudaDeviceEnablePeerAccess(ABSENT, 0))))
        },
    },
    Experiment {
        id: Id(7, 1, 19),
        did: "ask for a peer attribute of a device and itself",
        run: |r| Ok(code(r.cudaDeviceGetP2PAttribute(Some(&mut 0), 1, 0, 0))),
    },
    Experiment {
        id: Id(7, 1, 20),
        did: "copy between peers that are the same device: what arrives",
        run: |r| {
            let (from, to) = (r.zeros(BYTES)?, r.zeros(BYTES)?);
            r.cudaMemset(from, 7, BYTES)?;
            let copied = code(r.cudaMemcpyPeer(to, 0, from, 0, BYTES));
            Ok(format!("{copied}, {}", r.bytes_at(to, 1)?[0]))
        },
    },
    Experiment {
        id: Id(7, 1, 21),
        did: "ask for the range of stream priorities",
        run: |r| {
            let (mut least, mut greatest) = (9, 9);
            let outcome = r.cudaDeviceGetStreamPriorityRange(Some(&mut least), Some(&mut greatest));
            Ok(or_code(outcome, |()| format!("{least} to {greatest}")))
        },
    },
    Experiment {
        id: Id(7, 1, 22),
        did: "set a limit that does not exist",
        run: |r| Ok(code(r.cudaDeviceSetLimit(99, 1))),
    },
];

const WARP_SIZE: i32 = 10;
const BLOCKING_SYNC: u32 = 4;

/// Says whether the primary context exists, and whether it is current.
fn contexts(r: &Fixture) -> Answer {
    let device = r.driver_device()?;
    let exists = primary::state(&r.driver, device)?.active;
    let current = r.current()? != CUcontext::NULL;
    Ok(format!("{}, {}", choose(exists, "created", "not created"), choose(current, "current", "not current")))
}

fn device(r: &Fixture) -> String {
    let mut device = -9;
    or_code(r.cudaGetDevice(Some(&mut device)), |()| format!("device {device}"))
}

fn flags(r: &Fixture) -> String {
    let mut flags = 0;
    or_code(r.cudaGetDeviceFlags(Some(&mut flags)), |()| format!("flags {flags:#x}"))
}
