//! Experiments on what a driver reports about an address (question 0).

use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUmemorytype, CUpointer_attribute, CUstream, DriverError, attach_flags, context, device,
    memory, pointer,
};

use crate::answer_text::{choose, code, or_code, size};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(0, 13, 1),
        did: "ask for the memory type of device, pool, pinned, registered and managed memory",
        run: kinds,
    },
    Experiment {
        id: Id(0, 13, 2),
        did: "ask for the memory type of a pageable, a freed and a null address",
        run: kinds_of_nothing,
    },
    Experiment {
        id: Id(0, 13, 3),
        did: "ask for the context of pool, pinned, registered and managed memory",
        run: contexts,
    },
    Experiment {
        id: Id(0, 13, 4),
        did: "ask for start and size at byte 300 of a block of 1000 bytes",
        run: range_of_interior,
    },
    Experiment {
        id: Id(0, 13, 5),
        did: "ask for the host pointer of device, pinned, registered and managed memory",
        run: host_pointers,
    },
    Experiment {
        id: Id(0, 13, 6),
        did: "compare the buffer ids of two blocks, and of two that had the same address in turn",
        run: buffer_ids,
    },
    Experiment { id: Id(0, 13, 7), did: "ask which of device, pinned and managed memory is managed", run: managed },
    Experiment {
        id: Id(0, 13, 8),
        did: "ask for the pool of a block of cuMemAlloc and of cuMemAllocAsync",
        run: pools,
    },
    Experiment {
        id: Id(0, 13, 9),
        did: "ask for the device ordinal of device, pinned and managed memory",
        run: ordinals,
    },
    Experiment {
        id: Id(0, 13, 10),
        did: "cuPointerGetAttributes for type and context of a pageable address",
        run: attributes_of_pageable,
    },
    Experiment { id: Id(0, 13, 11), did: "ask for attribute 0 and attribute 999 of a block", run: unknown_attribute },
    Experiment {
        id: Id(0, 13, 12),
        did: "cuMemGetAddressRange of a pinned, a pageable and a freed address, and just past the end of a block",
        run: ranges_of_others,
    },
];

/// One block of each kind, with their context.
struct Blocks {
    context: CUcontext,
    device: CUdeviceptr,
    pool: CUdeviceptr,
    pinned: CUdeviceptr,
    registered: CUdeviceptr,
    managed: CUdeviceptr,
}

fn blocks(b: &Fixture) -> Result<Blocks, DriverError> {
    let context = b.init_context()?;
    let device = memory::alloc(b, 4096)?;
    let pool = memory::alloc_async(b, 4096, CUstream::NULL)?;
    context::synchronize(b)?;
    let pinned = b.alloc_host(4096)?;
    let registered = b.registered_buffer(4096)?.address();
    let managed = memory::alloc_managed(b, 4096, attach_flags::GLOBAL)?;
    Ok(Blocks { context, device, pool, pinned, registered, managed })
}

/// Formats `ask` for each address.
fn each(addresses: &[(&str, CUdeviceptr)], ask: impl Fn(CUdeviceptr) -> String) -> String {
    let answers: Vec<String> = addresses.iter().map(|(name, at)| format!("{name} {}", ask(*at))).collect();
    answers.join(", ")
}

fn kind(b: &Fixture, at: CUdeviceptr) -> String {
    or_code(pointer::memory_type(b, at), |kind| match kind {
        CUmemorytype::HOST => "host".to_owned(),
        CUmemorytype::DEVICE => "device".to_owned(),
        CUmemorytype::UNIFIED => "unified".to_owned(),
        other => format!("type {}", other.0),
    })
}

fn kinds(b: &Fixture) -> Answer {
    let Blocks { device, pool, pinned, registered, managed, .. } = blocks(b)?;
    let addresses =
        [("device", device), ("pool", pool), ("pinned", pinned), ("registered", registered), ("managed", managed)];
    Ok(each(&addresses, |at| kind(b, at)))
}

fn kinds_of_nothing(b: &Fixture) -> Answer {
    b.init_context()?;
    let freed = memory::alloc(b, 64 << 20)?;
    memory::free(b, freed)?;
    let pageable = HostBuffer::pageable(4096).address();
    let addresses = [("pageable", pageable), ("freed", freed), ("null", CUdeviceptr::NULL)];
    Ok(each(&addresses, |at| kind(b, at)))
}

fn contexts(b: &Fixture) -> Answer {
    let Blocks { context, pool, pinned, registered, managed, .. } = blocks(b)?;
    let ask = |at| {
        or_code(pointer::context(b, at), |owner| match owner {
            CUcontext::NULL => "null".to_owned(),
            owner => choose(owner == context, "the current one", "another"),
        })
    };
    Ok(each(&[("pool", pool), ("pinned", pinned), ("registered", registered), ("managed", managed)], ask))
}

fn range_of_interior(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 1000)?;
    let at = CUdeviceptr(block.0 + 300);
    let start = pointer::range_start(b, at)?;
    let bytes = pointer::range_bytes(b, at)?;
    let range = memory::range(b, at)?;
    let same = choose(start == block && range.base == block, "the block's start", "another start");
    Ok(format!("{same}, {} by attribute, {} by cuMemGetAddressRange", size(bytes), size(range.bytes as u64)))
}

fn host_pointers(b: &Fixture) -> Answer {
    let Blocks { device, pinned, registered, managed, .. } = blocks(b)?;
    let ask = |at: CUdeviceptr| {
        or_code(pointer::host_pointer(b, at), |host| match host.addr() as u64 {
            0 => "null".to_owned(),
            host => choose(host == at.0, "the same address", "another address"),
        })
    };
    Ok(each(&[("device", device), ("pinned", pinned), ("registered", registered), ("managed", managed)], ask))
}

fn buffer_ids(b: &Fixture) -> Answer {
    b.init_context()?;
    let id = |at| pointer::buffer_id(b, at);
    let (first, second) = (memory::alloc(b, 4096)?, memory::alloc(b, 4096)?);
    let (first_id, second_id) = (id(first)?, id(second)?);
    memory::free(b, second)?;
    let third = memory::alloc(b, 4096)?;
    let differ = |one: bool| choose(one, "the same id", "another id");
    let again = choose(third == second, "same address", "other address");
    Ok(format!("{}; {again}, {}", differ(first_id == second_id), differ(id(third)? == second_id)))
}

fn managed(b: &Fixture) -> Answer {
    let Blocks { device, pinned, managed, .. } = blocks(b)?;
    let ask = |at| or_code(pointer::is_managed(b, at), |managed| choose(managed, "yes", "no"));
    Ok(each(&[("device", device), ("pinned", pinned), ("managed", managed)], ask))
}

fn pools(b: &Fixture) -> Answer {
    let Blocks { device, pool, .. } = blocks(b)?;
    let default = device::default_pool(b, b.device)?;
    let ask = |at| {
        or_code(pointer::pool(b, at), |pool| match pool.0 {
            0 => "null".to_owned(),
            _ => choose(pool == default, "the default pool", "another pool"),
        })
    };
    Ok(each(&[("cuMemAlloc", device), ("cuMemAllocAsync", pool)], ask))
}

fn ordinals(b: &Fixture) -> Answer {
    let Blocks { device, pinned, managed, .. } = blocks(b)?;
    let ask = |at| {
        or_code(pointer::device_ordinal(b, at), |ordinal| {
            choose(ordinal == b.device.0, "this device", "another device")
        })
    };
    Ok(each(&[("device", device), ("pinned", pinned), ("managed", managed)], ask))
}

fn attributes_of_pageable(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = HostBuffer::pageable(4096).address();
    let attributes = [CUpointer_attribute::MEMORY_TYPE, CUpointer_attribute::CONTEXT];
    Ok(or_code(pointer::attributes(b, at, attributes), |values| {
        format!("SUCCESS, type {}, context {}", values[0], values[1])
    }))
}

fn unknown_attribute(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let ask = |number| code(pointer::attribute(b, block, CUpointer_attribute(number)));
    Ok(format!("{}, {}", ask(0), ask(999)))
}

fn ranges_of_others(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 64 << 20)?;
    let freed = memory::alloc(b, 64 << 20)?;
    memory::free(b, freed)?;
    let pinned = b.alloc_host(4096)?;
    let pageable = HostBuffer::pageable(4096).address();
    let beyond = CUdeviceptr(block.0 + (64 << 20));
    let addresses = [("pinned", pinned), ("pageable", pageable), ("freed", freed), ("past the end", beyond)];
    Ok(each(&addresses, |at| code(memory::range(b, at))))
}
