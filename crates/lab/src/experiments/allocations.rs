//! Experiments on physical memory without an address: what can be created, what it takes, and when it is returned
//! (question 6).

use std::ptr;

use freehold_driver::cuda::{
    CUdevice, CUdeviceptr, CUmemAllocationGranularity_flags, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, Function, allocation, context,
    driver, fill, mapping, memory,
};

use crate::answer_text::{byte_runs, choose, code, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::failure::Failure;
use crate::fixture::{Fixture, check};
use crate::free_memory::{BLOCK, FreeMemory};
use crate::id::Id;
use crate::mapped::{self, Mapped, PAGE, device_prop, shareable_prop};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(6, 3, 1), did: "cuMemCreate of 0 bytes", run: |b| created(b, 0) },
    Experiment { id: Id(6, 3, 2), did: "cuMemCreate of 1 byte", run: |b| created(b, 1) },
    Experiment { id: Id(6, 3, 3), did: "cuMemCreate of 3 MiB", run: |b| created(b, 3 << 20) },
    Experiment { id: Id(6, 3, 4), did: "cuMemCreate of 2 MiB", run: |b| created(b, PAGE) },
    Experiment { id: Id(6, 3, 5), did: "cuMemCreate of more than the device has, and of 1 EiB", run: too_much },
    Experiment {
        id: Id(6, 3, 6),
        did: "cuMemCreate of allocation type 0, and of 77",
        run: |b| {
            let kinds = [CUmemAllocationType::INVALID, CUmemAllocationType(77)];
            each(b, &kinds.map(|kind| CUmemAllocationProp { kind, ..device_prop(b) }))
        },
    },
    Experiment {
        id: Id(6, 3, 7),
        did: "cuMemCreate at a location of type 0, and of 77",
        run: |b| {
            let kinds = [CUmemLocationType::INVALID, CUmemLocationType(77)];
            each(b, &kinds.map(|kind| at(b, CUmemLocation { kind, id: b.device.0 })))
        },
    },
    Experiment {
        id: Id(6, 3, 8),
        did: "cuMemCreate on device 99, and on device -1",
        run: |b| {
            let ids = [99, -1];
            each(b, &ids.map(|id| at(b, CUmemLocation { kind: CUmemLocationType::DEVICE, id })))
        },
    },
    Experiment {
        id: Id(6, 3, 9),
        did: "cuMemCreate with handle type 64, and with usage 8",
        run: |b| {
            let odd = CUmemAllocationProp { requestedHandleTypes: CUmemAllocationHandleType(64), ..device_prop(b) };
            each(b, &[odd, CUmemAllocationProp { usage: 8, ..device_prop(b) }])
        },
    },
    Experiment {
        id: Id(6, 3, 10),
        did: "cuMemCreate with flags of 1",
        run: |b| {
            let mut handle = CUmemGenericAllocationHandle::default();
            created_with(b, Some(&mut handle), Some(&device_prop(b)), 1)
        },
    },
    Experiment {
        id: Id(6, 3, 11),
        did: "cuMemCreate of 256 MiB and cuMemRelease: the free memory after each, to the byte",
        run: takes_and_gives,
    },
    Experiment { id: Id(6, 3, 12), did: "release a handle twice", run: released_twice },
    Experiment { id: Id(6, 3, 13), did: "release handle 0", run: |b| released_foreign(b, 0) },
    Experiment {
        id: Id(6, 3, 14),
        did: "retain the handle of an address: whether it is the same, and two releases",
        run: retained,
    },
    Experiment { id: Id(6, 3, 15), did: "retain the handle of the last byte of a mapping", run: retained_of_interior },
    Experiment {
        id: Id(6, 3, 16),
        did: "retain the handle of a block of cuMemAlloc, of a reserved address and of null",
        run: retained_of_others,
    },
    Experiment {
        id: Id(6, 3, 17),
        did: "retain the handle of a mapping whose handle was released, unmap, map it again and read",
        run: retained_after_release,
    },
    Experiment { id: Id(6, 3, 18), did: "the properties of a handle", run: properties },
    Experiment { id: Id(6, 3, 20), did: "the minimum and the recommended granularity", run: granularity },
    Experiment {
        id: Id(6, 3, 21),
        did: "the granularity by option 2, on device 99, and of allocation type 0",
        run: odd_granularity,
    },
    Experiment { id: Id(6, 3, 22), did: "cuMemCreate and cuMemRelease with no context current", run: no_context },
    Experiment {
        id: Id(6, 3, 23),
        did: "cuMemCreate before cuInit",
        run: |b| Ok(code(allocation::create(b, PAGE, &device_prop(b)))),
    },
    Experiment {
        id: Id(6, 3, 24),
        did: "make and map memory in a context, destroy it: whether the memory can be read, unmapped and released",
        run: context_destroyed,
    },
    Experiment {
        id: Id(6, 3, 25),
        did: "make memory in a context, destroy it: whether 256 MiB come back, and whether the handle can be mapped",
        run: handle_survives,
    },
    Experiment {
        id: Id(6, 3, 26),
        did: "the granularity and the properties with no context current",
        run: asked_without_context,
    },
    Experiment {
        id: Id(6, 3, 27),
        did: "write memory, release it, make as much again: whether the new memory holds zeros",
        run: zeroed,
    },
    Experiment { id: Id(6, 3, 28), did: "release a handle that never was", run: |b| released_foreign(b, 0x1234_5678) },
    Experiment {
        id: Id(6, 3, 29),
        did: "cuMemCreate with no place for the handle",
        run: |b| created_with(b, None, Some(&device_prop(b)), 0),
    },
    Experiment {
        id: Id(6, 3, 30),
        did: "cuMemCreate with no properties",
        run: |b| {
            let mut handle = CUmemGenericAllocationHandle::default();
            created_with(b, Some(&mut handle), None, 0)
        },
    },
    Experiment {
        id: Id(6, 3, 31),
        did: "retain the handle of an address once, and release it three times",
        run: released_thrice,
    },
];

fn at(b: &Fixture, location: CUmemLocation) -> CUmemAllocationProp {
    CUmemAllocationProp { location, ..device_prop(b) }
}

fn created(b: &Fixture, bytes: usize) -> Answer {
    b.init_context()?;
    Ok(code(allocation::create(b, bytes, &device_prop(b))))
}

fn too_much(b: &Fixture) -> Answer {
    b.init_context()?;
    let more = memory::info(b)?.total_bytes.next_multiple_of(PAGE) + PAGE;
    let create = |bytes| code(allocation::create(b, bytes, &device_prop(b)));
    Ok(format!("{}, {}", create(more), create(1 << 60)))
}

fn each(b: &Fixture, props: &[CUmemAllocationProp]) -> Answer {
    b.init_context()?;
    let codes: Vec<String> = props.iter().map(|prop| code(allocation::create(b, PAGE, prop))).collect();
    Ok(codes.join(", "))
}

/// Returns what `cuMemCreate` answers if an argument may be missing.
fn created_with(
    b: &Fixture,
    place: Option<&mut CUmemGenericAllocationHandle>,
    prop: Option<&CUmemAllocationProp>,
    flags: u64,
) -> Answer {
    b.init_context()?;
    let place = place.map_or(ptr::null_mut(), ptr::from_mut);
    let prop = prop.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the call writes one handle to `place` and reads `prop`: each is a reference that outlives the call, or
    // null, which the call must reject and does not dereference.
    let outcome = unsafe { (b.cuMemCreate)(place, PAGE, prop, flags) };
    Ok(code(check(Function::cuMemCreate, outcome)))
}

fn released_thrice(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, .. } = mapped::map_new(b, PAGE)?;
    let again = allocation::retain(b, start)?;
    Ok([allocation, again, again].map(|handle| code(allocation::release(b, handle))).join(", "))
}

fn takes_and_gives(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let handle = allocation::create(b, BLOCK, &device_prop(b))?;
    let taken = level.exactly(b)?;
    allocation::release(b, handle)?;
    Ok(format!("{taken}, then {}", level.exactly(b)?))
}

fn released_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let handle = allocation::create(b, PAGE, &device_prop(b))?;
    let first = code(allocation::release(b, handle));
    Ok(format!("{first}, {}", code(allocation::release(b, handle))))
}

fn released_foreign(b: &Fixture, number: u64) -> Answer {
    b.init_context()?;
    Ok(code(allocation::release(b, CUmemGenericAllocationHandle(number))))
}

fn retained(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    let again = allocation::retain(b, start)?;
    let same = choose(again == allocation, "the same", "another");
    let first = code(allocation::release(b, allocation));
    let second = code(allocation::release(b, again));
    Ok(format!("{same}; {first}, {second}; unmap {}", code(mapping::unmap(b, start, bytes))))
}

fn retained_of_interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, .. } = mapped::map_new(b, PAGE)?;
    let last = mapped::offset(start, PAGE - 1);
    Ok(or_code(allocation::retain(b, last), |again| choose(again == allocation, "the same", "another")))
}

fn retained_of_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let addresses = [memory::alloc(b, PAGE)?, mapped::reserve(b, PAGE)?, CUdeviceptr::NULL];
    Ok(addresses.map(|at| code(allocation::retain(b, at))).join(", "))
}

fn retained_after_release(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    allocation::release(b, allocation)?;
    let again = allocation::retain(b, start)?;
    mapping::unmap(b, start, bytes)?;
    mapping::map(b, start, bytes, 0, again)?;
    mapping::set_access(b, start, bytes, &[mapped::read_access(b)])?;
    let held = byte_runs(&b.bytes_at(start, 4096)?);
    Ok(format!("holds {held}, release {}", code(allocation::release(b, again))))
}

fn told(b: &Fixture, prop: CUmemAllocationProp) -> String {
    let CUmemAllocationProp { kind, requestedHandleTypes, location, .. } = prop;
    let place = choose(location.id == b.device.0, "this device", "another device");
    let rest = (prop.win32HandleMetaData, prop.compressionType, prop.gpuDirectRDMACapable, prop.usage);
    let rest = choose(rest == (0, 0, 0, 0), "the rest zeros", "the rest not all zeros");
    format!("type {}, handles {}, at {} {place}, {rest}", kind.0, requestedHandleTypes.0, location.kind.0)
}

fn properties(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |prop| -> Result<String, Failure> {
        let handle = allocation::create(b, PAGE, &prop)?;
        Ok(or_code(allocation::properties(b, handle), |prop| told(b, prop)))
    };
    Ok(format!("plain: {}; shareable: {}", ask(device_prop(b))?, ask(shareable_prop(b))?))
}

fn granularity(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |prop, option| or_code(allocation::granularity_bytes(b, &prop, option), |bytes| size(bytes as u64));
    let options = [CUmemAllocationGranularity_flags::MINIMUM, CUmemAllocationGranularity_flags::RECOMMENDED];
    let plain = options.map(|option| ask(device_prop(b), option)).join(", ");
    Ok(format!("plain {plain}; shareable {}", options.map(|option| ask(shareable_prop(b), option)).join(", ")))
}

fn odd_granularity(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |prop, option| or_code(allocation::granularity_bytes(b, &prop, option), |bytes| size(bytes as u64));
    let minimum = CUmemAllocationGranularity_flags::MINIMUM;
    let option = ask(device_prop(b), CUmemAllocationGranularity_flags(2));
    let device = ask(CUmemAllocationProp::on_device(CUdevice(99), CUmemAllocationHandleType::NONE), minimum);
    let kind = ask(CUmemAllocationProp { kind: CUmemAllocationType::INVALID, ..device_prop(b) }, minimum);
    Ok(format!("{option}, {device}, {kind}"))
}

fn no_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let handle = allocation::create(b, PAGE, &device_prop(b));
    let made = code(handle);
    Ok(format!("{made}, {}", code(allocation::release(b, handle.unwrap_or_default()))))
}

fn asked_without_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let minimum = CUmemAllocationGranularity_flags::MINIMUM;
    let bytes = or_code(allocation::granularity_bytes(b, &device_prop(b), minimum), |bytes| size(bytes as u64));
    let handle = allocation::create(b, PAGE, &device_prop(b))?;
    Ok(format!("{bytes}, {}", code(allocation::properties(b, handle))))
}

fn context_destroyed(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    context::destroy(b, context)?;
    context::set_current(b, primary)?;
    let read = or_code(b.bytes_at(start, 4096), |bytes| byte_runs(&bytes));
    let unmapped = code(mapping::unmap(b, start, bytes));
    Ok(format!("reads {read}, unmap {unmapped}, release {}", code(allocation::release(b, allocation))))
}

fn handle_survives(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let level = FreeMemory::now(b)?;
    let context = b.second_context()?;
    let handle = allocation::create(b, BLOCK, &device_prop(b))?;
    context::destroy(b, context)?;
    context::set_current(b, primary)?;
    let left = level.blocks(b)?;
    let mapped = code(mapped::map_existing(b, handle, BLOCK));
    Ok(format!("{left}, map {mapped}, release {}", code(allocation::release(b, handle))))
}

fn zeroed(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    mapping::unmap(b, start, bytes)?;
    allocation::release(b, allocation)?;
    let next = mapped::map_new(b, PAGE)?;
    Ok(byte_runs(&b.bytes_at(next.start, 4096)?))
}
