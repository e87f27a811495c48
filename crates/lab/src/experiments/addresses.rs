//! Experiments on addresses without memory: reserving, freeing and using them (question 6).

use freehold_driver::cuda::{
    CUdeviceptr, DriverError, Function, address, allocation, context, driver, fill, mapping, memory, pointer,
};

use crate::answer_text::{alignment, byte_runs, choose, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::free_memory::FreeMemory;
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, kernel, launch};
use crate::mapped::{self, MIB, PAGE, offset, reserve};

const GIB: usize = 1 << 30;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(6, 2, 1), did: "reserve 0 bytes of addresses", run: |b| sizes(b, &[0]) },
    Experiment {
        id: Id(6, 2, 2),
        did: "reserve 1 byte of addresses, 64 KiB, and 3 MiB",
        run: |b| sizes(b, &[1, 64 << 10, 3 * MIB]),
    },
    Experiment {
        id: Id(6, 2, 3),
        did: "reserve 2 MiB of addresses, 1 TiB, and 1 EiB",
        run: |b| sizes(b, &[PAGE, GIB << 10, GIB << 30]),
    },
    Experiment {
        id: Id(6, 2, 4),
        did: "reserve addresses with an alignment of 0: on what they start",
        run: |b| aligned(b, 0, PAGE as u64),
    },
    Experiment {
        id: Id(6, 2, 5),
        did: "reserve addresses with an alignment of 3",
        run: |b| aligned(b, 3, PAGE as u64),
    },
    Experiment {
        id: Id(6, 2, 6),
        did: "reserve addresses with an alignment of 4096",
        run: |b| aligned(b, 4096, PAGE as u64),
    },
    Experiment {
        id: Id(6, 2, 7),
        did: "reserve addresses with an alignment of 2 MiB",
        run: |b| aligned(b, PAGE, PAGE as u64),
    },
    Experiment {
        id: Id(6, 2, 8),
        did: "reserve addresses with an alignment of 1 GiB",
        run: |b| aligned(b, GIB, GIB as u64),
    },
    Experiment { id: Id(6, 2, 9), did: "reserve free addresses by a hint", run: free_hint },
    Experiment { id: Id(6, 2, 10), did: "reserve addresses by a hint to reserved ones", run: reserved_hint },
    Experiment {
        id: Id(6, 2, 11),
        did: "reserve free addresses by a hint that is not a multiple of 2 MiB",
        run: unaligned_hint,
    },
    Experiment { id: Id(6, 2, 12), did: "reserve addresses with flags of 1", run: flags },
    Experiment { id: Id(6, 2, 13), did: "reserve addresses with no place for the answer", run: no_place },
    Experiment {
        id: Id(6, 2, 14),
        did: "give back half of the reserved addresses, then all",
        run: |b| freed(b, 0, PAGE),
    },
    Experiment {
        id: Id(6, 2, 15),
        did: "give back twice as many addresses as were reserved, then as many",
        run: |b| freed(b, 0, 4 * PAGE),
    },
    Experiment {
        id: Id(6, 2, 16),
        did: "give back the second half of the reserved addresses, then all",
        run: |b| freed(b, PAGE, PAGE),
    },
    Experiment {
        id: Id(6, 2, 17),
        did: "give back 0 bytes of the reserved addresses, then all",
        run: |b| freed(b, 0, 0),
    },
    Experiment { id: Id(6, 2, 18), did: "give back reserved addresses twice", run: freed_twice },
    Experiment {
        id: Id(6, 2, 19),
        did: "give back addresses to which memory is mapped, and read the memory",
        run: freed_while_mapped,
    },
    Experiment {
        id: Id(6, 2, 20),
        did: "give back as reserved addresses: a block of cuMemAlloc, null, and a wild address",
        run: freed_foreign,
    },
    Experiment {
        id: Id(6, 2, 21),
        did: "reserve neighbouring addresses twice, and give both back in one call",
        run: freed_together,
    },
    Experiment { id: Id(6, 2, 22), did: "reserve 1 GiB of addresses: what is taken of the device", run: costs },
    Experiment {
        id: Id(6, 2, 23),
        did: "reserve addresses and give them back with no context current",
        run: no_context,
    },
    Experiment { id: Id(6, 2, 24), did: "reserve addresses before cuInit", run: before_init },
    Experiment {
        id: Id(6, 2, 25),
        did: "fill, copy to and copy from reserved addresses to which nothing is mapped",
        run: used,
    },
    Experiment {
        id: Id(6, 2, 26),
        did: "a kernel writes to a reserved address to which nothing is mapped",
        run: written,
    },
    Experiment {
        id: Id(6, 2, 27),
        did: "ask for the memory type and the range of a reserved address, and of one given back",
        run: known,
    },
    Experiment {
        id: Id(6, 2, 28),
        did: "reserve addresses in a context, destroy it: whether memory can be mapped to them",
        run: context_destroyed,
    },
];

fn sizes(b: &Fixture, sizes: &[usize]) -> Answer {
    b.init_context()?;
    let codes: Vec<String> = sizes.iter().map(|&bytes| code(reserve(b, bytes))).collect();
    Ok(codes.join(", "))
}

fn aligned(b: &Fixture, by: usize, most: u64) -> Answer {
    b.init_context()?;
    Ok(or_code(address::reserve(b, PAGE, by, CUdeviceptr::NULL), |start| alignment(start, most)))
}

/// Returns four pages of addresses that were just reserved and freed.
fn vacant(b: &Fixture) -> Result<CUdeviceptr, DriverError> {
    let start = reserve(b, 4 * PAGE)?;
    address::free(b, start, 4 * PAGE)?;
    Ok(start)
}

fn requested(b: &Fixture, hint: CUdeviceptr) -> String {
    or_code(address::reserve(b, PAGE, 0, hint), |start| choose(start == hint, "as requested", "another address"))
}

fn free_hint(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = vacant(b)?;
    Ok(format!("{}, {}", requested(b, start), requested(b, offset(start, 2 * PAGE))))
}

fn reserved_hint(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, 4 * PAGE)?;
    Ok(format!("{}, {}", requested(b, start), requested(b, offset(start, PAGE))))
}

fn unaligned_hint(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = vacant(b)?;
    Ok(requested(b, offset(start, 4096)))
}

fn flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let mut start = CUdeviceptr::NULL;
    // SAFETY: `start` outlives the call, which writes one address to it.
    let outcome = unsafe { (b.cuMemAddressReserve)(&mut start, PAGE, 0, CUdeviceptr::NULL, 1) };
    Ok(code(check(Function::cuMemAddressReserve, outcome)))
}

fn no_place(b: &Fixture) -> Answer {
    b.init_context()?;
    // SAFETY: null is a pointer that the call must reject and does not dereference.
    let outcome = unsafe { (b.cuMemAddressReserve)(std::ptr::null_mut(), PAGE, 0, CUdeviceptr::NULL, 0) };
    Ok(code(check(Function::cuMemAddressReserve, outcome)))
}

fn freed(b: &Fixture, shift: usize, bytes: usize) -> Answer {
    b.init_context()?;
    let start = reserve(b, 2 * PAGE)?;
    let wrong = code(address::free(b, offset(start, shift), bytes));
    Ok(format!("{wrong}, {}", code(address::free(b, start, 2 * PAGE))))
}

fn freed_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, 2 * PAGE)?;
    let first = code(address::free(b, start, 2 * PAGE));
    Ok(format!("{first}, {}", code(address::free(b, start, 2 * PAGE))))
}

fn freed_while_mapped(b: &Fixture) -> Answer {
    b.init_context()?;
    let mapped = mapped::map_new(b, PAGE)?;
    fill::d8(b, mapped.start, 0x5a, PAGE)?;
    let freed = code(address::free(b, mapped.start, PAGE));
    let read = or_code(b.bytes_at(mapped.start, 4096), |bytes| byte_runs(&bytes));
    Ok(format!("{freed}, reads {read}, unmap {}", code(mapping::unmap(b, mapped.start, PAGE))))
}

fn freed_foreign(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, PAGE)?;
    let free = |at| code(address::free(b, at, PAGE));
    let codes = format!("{}, {}, {}", free(block), free(CUdeviceptr::NULL), free(CUdeviceptr(0x1234_5600_0000)));
    Ok(format!("{codes}; the block's free {}", code(memory::free(b, block))))
}

fn freed_together(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = vacant(b)?;
    let (first, second) = (requested(b, start), requested(b, offset(start, PAGE)));
    let both = code(address::free(b, start, 2 * PAGE));
    let each = [start, offset(start, PAGE)].map(|start| code(address::free(b, start, PAGE)));
    Ok(format!("{first}, {second}; both {both}; each {}, {}", each[0], each[1]))
}

fn costs(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    reserve(b, GIB)?;
    Ok(level.exactly(b)?)
}

fn no_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let start = reserve(b, PAGE);
    let reserved = code(start);
    Ok(format!("{reserved}, {}", code(address::free(b, start.unwrap_or_default(), PAGE))))
}

fn before_init(b: &Fixture) -> Answer {
    Ok(code(reserve(b, PAGE)))
}

fn used(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, PAGE)?;
    let filled = code(fill::d8(b, start, 1, 4096));
    let copied_in = code(b.copy_in(start, HostBuffer::pageable(4096)));
    Ok(format!("{filled}, {copied_in}, {}", code(b.copy_out(HostBuffer::pageable(4096), start))))
}

fn written(b: &Fixture) -> Answer {
    b.init_context()?;
    let store = kernel(b, KERNELS, c"store")?;
    let start = reserve(b, PAGE)?;
    launch(b, store, ONE, DEFAULT, &[start.0, 1])?;
    Ok(code(context::synchronize(b)))
}

fn known(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, PAGE)?;
    let ask = || format!("{} and {}", code(pointer::memory_type(b, start)), code(memory::range(b, start)));
    let reserved = ask();
    address::free(b, start, PAGE)?;
    Ok(format!("{reserved}; given back {}", ask()))
}

fn context_destroyed(b: &Fixture) -> Answer {
    let primary = b.init_context()?;
    let context = b.second_context()?;
    let start = reserve(b, PAGE)?;
    context::destroy(b, context)?;
    context::set_current(b, primary)?;
    let memory = allocation::create(b, PAGE, &mapped::device_prop(b))?;
    let mapped = code(mapping::map(b, start, PAGE, 0, memory));
    let access = code(mapping::set_access(b, start, PAGE, &[mapped::read_write_access(b)]));
    Ok(format!("map {mapped}, access {access}, fill {}", code(fill::d8(b, start, 1, 4096))))
}
