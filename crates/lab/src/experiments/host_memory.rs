//! Experiments on host memory that a driver allocates or registers, and on which calls free it (question 0).

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, attach_flags, context, fill, host_alloc_flags, host_register_flags, memory,
};

use crate::answer_text::{byte_runs, choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 14, 1),
        did: "compare the device pointer of pinned, mapped and registered memory with the host's",
        run: device_pointers,
    },
    Experiment { id: Id(0, 14, 2), did: "ask for the device pointer with flags 1", run: device_pointer_flags },
    Experiment {
        id: Id(0, 14, 3),
        did: "read the flags back of cuMemAllocHost, and of cuMemHostAlloc with flags 0 and 7",
        run: flags,
    },
    Experiment { id: Id(0, 14, 4), did: "cuMemHostAlloc with flags 0x10", run: unknown_flags },
    Experiment { id: Id(0, 14, 5), did: "cuMemAllocHost of 0 bytes: what it gives", run: zero_bytes },
    Experiment { id: Id(0, 14, 6), did: "register the same memory twice, unregister it twice", run: register_twice },
    Experiment {
        id: Id(0, 14, 7),
        did: "register two pages, register the second and a third, then a part of the first",
        run: register_overlapping,
    },
    Experiment { id: Id(0, 14, 8), did: "unregister the second page of registered memory", run: unregister_interior },
    Experiment { id: Id(0, 14, 9), did: "register 100 bytes from byte 24 of a page", run: register_unaligned },
    Experiment { id: Id(0, 14, 10), did: "register 0 bytes, and null", run: register_nothing },
    Experiment { id: Id(0, 14, 11), did: "register with flags 0x10", run: register_flags },
    Experiment { id: Id(0, 14, 12), did: "register memory that is pinned already", run: register_pinned },
    Experiment {
        id: Id(0, 14, 13),
        did: "cuMemFreeHost of registered memory, of device memory and of a pageable address",
        run: free_host_of_others,
    },
    Experiment {
        id: Id(0, 14, 14),
        did: "cuMemFreeHost of an interior address, of null, and twice",
        run: free_host_wrong,
    },
    Experiment { id: Id(0, 14, 15), did: "unregister pinned memory", run: unregister_pinned },
    Experiment { id: Id(0, 14, 16), did: "free pinned memory with another context current", run: free_host_elsewhere },
    Experiment {
        id: Id(0, 14, 17),
        did: "register memory in a context, destroy the context, register it in another",
        run: registration_ends_with_context,
    },
    Experiment { id: Id(0, 14, 18), did: "cuMemAllocManaged with flags 0, and of 0 bytes", run: managed_wrong },
    Experiment { id: Id(0, 14, 19), did: "fill managed memory, synchronize, read it with the host", run: managed_read },
    Experiment {
        id: Id(0, 14, 20),
        did: "cuMemFreeHost and cuMemHostUnregister with no context current",
        run: free_without_context,
    },
];

fn device_pointers(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    let mapped = b.alloc_host_with(4096, host_alloc_flags::DEVICEMAP)?;
    let registered = b.registered_buffer(4096)?.address();
    let ask =
        |at: CUdeviceptr| or_code(b.device_address(at, 0), |address| choose(address == at, "the same", "another"));
    Ok(format!("{}, {}, {}", ask(pinned), ask(mapped), ask(registered)))
}

fn device_pointer_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    Ok(code(b.device_address(pinned, 1)))
}

fn flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let ask = |at| or_code(b.host_flags(at), |flags| format!("{flags:#x}"));
    let plain = ask(b.alloc_host(4096)?);
    let none = ask(b.alloc_host_with(4096, 0)?);
    Ok(format!("{plain}, {none}, {}", ask(b.alloc_host_with(4096, 7)?)))
}

fn unknown_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(code(b.alloc_host_with(4096, 0x10)))
}

fn zero_bytes(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(or_code(b.alloc_host(0), |start| choose(start == CUdeviceptr::NULL, "null", "an address")))
}

fn free_without_context(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    let registered = b.registered_buffer(4096)?.address();
    context::set_current(b, CUcontext::NULL)?;
    let freed = code(b.free_host(pinned));
    Ok(format!("{freed}, {}", code(b.unregister(registered))))
}

fn register_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = HostBuffer::pageable(4096).address();
    let (first, second) = (code(b.register(at, 4096, 0)), code(b.register(at, 4096, 0)));
    Ok(format!("{first}, {second}; {}, {}", code(b.unregister(at)), code(b.unregister(at))))
}

fn register_overlapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = HostBuffer::pageable(3 * 4096).address();
    b.register(at, 2 * 4096, 0)?;
    let overlapping = code(b.register(CUdeviceptr(at.0 + 4096), 2 * 4096, 0));
    Ok(format!("{overlapping}, {}", code(b.register(at, 4096, 0))))
}

fn unregister_interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = b.registered_buffer(2 * 4096)?.address();
    let interior = code(b.unregister(CUdeviceptr(at.0 + 4096)));
    Ok(format!("{interior}, then its start {}", code(b.unregister(at))))
}

fn register_unaligned(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = CUdeviceptr(HostBuffer::pageable(4096).address().0 + 24);
    let registered = code(b.register(at, 100, host_register_flags::DEVICEMAP));
    let address =
        or_code(b.device_address(at, 0), |address| choose(address == at, "the same address", "another address"));
    Ok(format!("{registered}, {address}"))
}

fn register_nothing(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = HostBuffer::pageable(4096).address();
    Ok(format!("{}, {}", code(b.register(at, 0, 0)), code(b.register(CUdeviceptr::NULL, 4096, 0))))
}

fn register_flags(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(code(b.register(HostBuffer::pageable(4096).address(), 4096, 0x10)))
}

fn register_pinned(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    Ok(code(b.register(pinned, 4096, 0)))
}

fn free_host_of_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let registered = code(b.free_host(b.registered_buffer(4096)?.address()));
    let device = code(b.free_host(memory::alloc(b, 4096)?));
    Ok(format!("{registered}, {device}, {}", code(b.free_host(HostBuffer::pageable(4096).address()))))
}

fn free_host_wrong(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    let interior = code(b.free_host(CUdeviceptr(pinned.0 + 64)));
    let null = code(b.free_host(CUdeviceptr::NULL));
    let (first, second) = (code(b.free_host(pinned)), code(b.free_host(pinned)));
    Ok(format!("{interior}, null {null}, {first} then {second}"))
}

fn unregister_pinned(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    Ok(code(b.unregister(pinned)))
}

fn free_host_elsewhere(b: &Fixture) -> Answer {
    b.init_context()?;
    let pinned = b.alloc_host(4096)?;
    b.second_context()?;
    Ok(code(b.free_host(pinned)))
}

fn registration_ends_with_context(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    let at = HostBuffer::pageable(4096).address();
    b.register(at, 4096, 0)?;
    context::destroy(b, context)?;
    context::set_current(b, primary)?;
    Ok(code(b.register(at, 4096, 0)))
}

fn managed_wrong(b: &Fixture) -> Answer {
    b.init_context()?;
    Ok(format!(
        "{}, {}",
        code(memory::alloc_managed(b, 4096, 0)),
        code(memory::alloc_managed(b, 0, attach_flags::GLOBAL))
    ))
}

fn managed_read(b: &Fixture) -> Answer {
    b.init_context()?;
    let managed = memory::alloc_managed(b, 4096, attach_flags::GLOBAL)?;
    fill::d8(b, managed, 0x5a, 4096)?;
    context::synchronize(b)?;
    let start =
        std::ptr::NonNull::new(managed.0 as *mut u8).expect("the driver allocates at an address other than null");
    // SAFETY: the host may use managed memory while no work is pending; it is not freed, and is page-aligned.
    let host = unsafe { HostBuffer::shared(start, 4096) };
    Ok(byte_runs(&host.to_vec()))
}
