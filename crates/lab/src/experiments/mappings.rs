//! Experiments on mapping memory to addresses, and on what unmaps it (question 6).

use freehold_driver::cuda::{
    CUdeviceptr, CUmemGenericAllocationHandle, DriverError, Function, allocation, context, copy, driver, fill, mapping,
    memory, stream, stream_flags,
};

use crate::answer_text::{byte_runs, code, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::free_memory::{BLOCK, FreeMemory};
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, kernel, launch, word_at};
use crate::mapped::{self, Mapped, PAGE, device_prop, offset, read_write_access, reserve};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(6, 4, 1),
        did: "map to addresses that are not reserved, to null, and to a block of cuMemAlloc",
        run: not_reserved,
    },
    Experiment {
        id: Id(6, 4, 3),
        did: "map a handle from 2 MiB on",
        run: |b| onto(b, Onto { bytes: PAGE, from: PAGE, ..WHOLE }),
    },
    Experiment {
        id: Id(6, 4, 4),
        did: "map the first half of a handle",
        run: |b| onto(b, Onto { bytes: PAGE, ..WHOLE }),
    },
    Experiment {
        id: Id(6, 4, 5),
        did: "map more than a handle has",
        run: |b| onto(b, Onto { bytes: 4 * PAGE, ..WHOLE }),
    },
    Experiment { id: Id(6, 4, 6), did: "map 0 bytes of a handle", run: |b| onto(b, Onto { bytes: 0, ..WHOLE }) },
    Experiment {
        id: Id(6, 4, 7),
        did: "map 1 MiB of a handle, and a whole one from 64 KiB of the reserved addresses on",
        run: |b| {
            Ok(format!(
                "{}, {}",
                onto(b, Onto { bytes: PAGE / 2, ..WHOLE })?,
                onto(b, Onto { offset: 64 << 10, ..WHOLE })?
            ))
        },
    },
    Experiment {
        id: Id(6, 4, 8),
        did: "map a whole handle in the midst of reserved addresses",
        run: |b| onto(b, Onto { offset: PAGE, ..WHOLE }),
    },
    Experiment { id: Id(6, 4, 9), did: "map over a mapping, and over the end of one", run: over_another },
    Experiment { id: Id(6, 4, 10), did: "map with flags of 1", run: flags },
    Experiment {
        id: Id(6, 4, 11),
        did: "map a released handle",
        run: |b| {
            b.init_context()?;
            let dead = allocation::create(b, PAGE, &device_prop(b))?;
            allocation::release(b, dead)?;
            mapped_of(b, dead)
        },
    },
    Experiment { id: Id(6, 4, 12), did: "map two handles side by side: fill and copy across both", run: side_by_side },
    Experiment {
        id: Id(6, 4, 13),
        did: "map two handles side by side: a copy of the device across both, and a kernel's words in each",
        run: side_by_side_kernel,
    },
    Experiment { id: Id(6, 4, 14), did: "map one handle to two addresses, write one and read the other", run: twice },
    Experiment {
        id: Id(6, 4, 15),
        did: "map one handle to two addresses: a kernel writes one, and a copy reads the other",
        run: twice_kernel,
    },
    Experiment {
        id: Id(6, 4, 16),
        did: "map one handle to two addresses, unmap one, read the other",
        run: twice_unmapped_once,
    },
    Experiment { id: Id(6, 4, 17), did: "unmap half of a mapping, then read it", run: |b| unmapped(b, 0, PAGE) },
    Experiment {
        id: Id(6, 4, 18),
        did: "unmap the second half of a mapping, then read it",
        run: |b| unmapped(b, PAGE, PAGE),
    },
    Experiment {
        id: Id(6, 4, 19),
        did: "unmap more than a mapping has, then read it",
        run: |b| unmapped(b, 0, 4 * PAGE),
    },
    Experiment { id: Id(6, 4, 20), did: "unmap 0 bytes of a mapping, then read it", run: |b| unmapped(b, 0, 0) },
    Experiment {
        id: Id(6, 4, 21),
        did: "unmap two mappings side by side in one call, then read each",
        run: both_unmapped,
    },
    Experiment {
        id: Id(6, 4, 22),
        did: "unmap two mappings with a page of nothing between them in one call",
        run: unmapped_with_hole,
    },
    Experiment { id: Id(6, 4, 23), did: "unmap twice", run: unmapped_twice },
    Experiment {
        id: Id(6, 4, 24),
        did: "unmap reserved addresses, a block of cuMemAlloc, and null",
        run: unmapped_foreign,
    },
    Experiment {
        id: Id(6, 4, 25),
        did: "unmap memory and map it elsewhere: whether the contents are there",
        run: moved,
    },
    Experiment {
        id: Id(6, 4, 26),
        did: "fill, copy to and copy from an address that was unmapped",
        run: used_after_unmap,
    },
    Experiment {
        id: Id(6, 4, 27),
        did: "a copy that begins in a mapping and ends beyond it",
        run: |b| {
            b.init_context()?;
            let start = reserve(b, 2 * PAGE)?;
            let handle = allocation::create(b, PAGE, &device_prop(b))?;
            mapping::map(b, start, PAGE, 0, handle)?;
            mapping::set_access(b, start, PAGE, &[read_write_access(b)])?;
            let over = offset(start, PAGE - 2048);
            let filled = code(fill::d8(b, over, 1, 4096));
            Ok(format!("fill {filled}, copy {}", code(b.copy_out(HostBuffer::pageable(4096), over))))
        },
    },
    Experiment { id: Id(6, 4, 28), did: "map, set access and unmap with no context current", run: no_context },
    Experiment { id: Id(6, 4, 29), did: "cuMemFree and cuMemFreeAsync of mapped memory, then read it", run: freed },
    Experiment {
        id: Id(6, 4, 30),
        did: "release a mapped handle of 256 MiB, then unmap it: the memory taken after each",
        run: released_while_mapped,
    },
    Experiment {
        id: Id(6, 4, 31),
        did: "unmap a handle of 256 MiB, then release it: the memory taken after each",
        run: unmapped_then_released,
    },
    Experiment {
        id: Id(6, 4, 32),
        did: "map a handle of 256 MiB to two addresses, release it, unmap each: the memory taken after each",
        run: released_while_mapped_twice,
    },
    Experiment { id: Id(6, 4, 33), did: "map handle 0", run: |b| mapped_of(b, CUmemGenericAllocationHandle(0)) },
    Experiment {
        id: Id(6, 4, 34),
        did: "map a handle that never was",
        run: |b| mapped_of(b, CUmemGenericAllocationHandle(0x1234_5678)),
    },
    Experiment {
        id: Id(6, 4, 35),
        did: "no context current: in a stream copy to a mapping from pinned and pageable memory, from it to both, to and \
              from a block, and fill it",
        run: |b| unguided(b, |b| Ok(mapped::map_new(b, 2 * PAGE)?.start)),
    },
    Experiment {
        id: Id(6, 4, 36),
        did: "the same over the border of two mappings side by side",
        run: |b| unguided(b, pair),
    },
];

/// A handle of 4 MiB, or a part of it, to be mapped into 8 MiB of reserved addresses.
struct Onto {
    /// From the first of the addresses.
    offset: usize,
    bytes: usize,
    /// From the start of the handle.
    from: usize,
}

const WHOLE: Onto = Onto { offset: 0, bytes: 2 * PAGE, from: 0 };

fn onto(b: &Fixture, Onto { offset: shift, bytes, from }: Onto) -> Answer {
    b.init_context()?;
    let start = reserve(b, 4 * PAGE)?;
    let handle = allocation::create(b, 2 * PAGE, &device_prop(b))?;
    Ok(code(mapping::map(b, offset(start, shift), bytes, from, handle)))
}

fn not_reserved(b: &Fixture) -> Answer {
    b.init_context()?;
    let handle = allocation::create(b, PAGE, &device_prop(b))?;
    let block = memory::alloc(b, PAGE)?;
    let map = |at| code(mapping::map(b, at, PAGE, 0, handle));
    Ok(format!("{}, {}, {}", map(CUdeviceptr(0x1234_5600_0000)), map(CUdeviceptr::NULL), map(block)))
}

fn over_another(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, 4 * PAGE)?;
    let first = allocation::create(b, 2 * PAGE, &device_prop(b))?;
    let second = allocation::create(b, 2 * PAGE, &device_prop(b))?;
    mapping::map(b, start, 2 * PAGE, 0, first)?;
    let same = code(mapping::map(b, start, 2 * PAGE, 0, second));
    Ok(format!("{same}, {}", code(mapping::map(b, offset(start, PAGE), 2 * PAGE, 0, second))))
}

fn flags(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, PAGE)?;
    let handle = allocation::create(b, PAGE, &device_prop(b))?;
    // SAFETY: the call takes no pointer.
    let outcome = unsafe { (b.cuMemMap)(start, PAGE, 0, handle, 1) };
    Ok(code(check(Function::cuMemMap, outcome)))
}

fn mapped_of(b: &Fixture, handle: CUmemGenericAllocationHandle) -> Answer {
    b.init_context()?;
    let start = reserve(b, PAGE)?;
    Ok(code(mapping::map(b, start, PAGE, 0, handle)))
}

/// Returns two pages of addresses with a handle of one page mapped to each.
fn pair(b: &Fixture) -> Result<CUdeviceptr, DriverError> {
    let start = reserve(b, 2 * PAGE)?;
    for at in [start, offset(start, PAGE)] {
        let handle = allocation::create(b, PAGE, &device_prop(b))?;
        mapping::map(b, at, PAGE, 0, handle)?;
    }
    mapping::set_access(b, start, 2 * PAGE, &[read_write_access(b)])?;
    Ok(start)
}

fn side_by_side(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = pair(b)?;
    let across = offset(start, PAGE - 2048);
    let filled = code(fill::d8(b, start, 0x11, 2 * PAGE));
    let host = HostBuffer::pageable(4096);
    host.fill(0x22);
    let copied = code(b.copy_in(across, host));
    let held =
        [start, across, offset(start, PAGE + 2048)].map(|at| or_code(b.bytes_at(at, 1024), |bytes| byte_runs(&bytes)));
    Ok(format!("fill {filled}, copy {copied}, holds {}", held.join(" ")))
}

fn side_by_side_kernel(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = pair(b)?;
    let store = kernel(b, KERNELS, c"store")?;
    fill::d8(b, start, 0x11, 2 * PAGE)?;
    let to = memory::alloc(b, 2 * PAGE)?;
    let copied = code(copy::device_to_device(b, to, start, 2 * PAGE));
    let held = byte_runs(&b.bytes_at(offset(to, PAGE - 2048), 4096)?);
    let (last, first) = (offset(start, PAGE - 4), offset(start, PAGE));
    launch(b, store, ONE, DEFAULT, &[last.0, 5])?;
    launch(b, store, ONE, DEFAULT, &[first.0, 6])?;
    context::synchronize(b)?;
    Ok(format!("copy {copied}, holds {held}, words {} {}", word_at(b, last)?, word_at(b, first)?))
}

/// Formats what work in a stream does with the middle of two mapped pages while no context is current.
fn unguided(b: &Fixture, pages: impl FnOnce(&Fixture) -> Result<CUdeviceptr, DriverError>) -> Answer {
    b.init_context()?;
    let middle = offset(pages(b)?, PAGE - 2048);
    let block = memory::alloc(b, 4096)?;
    let (pinned, pageable) = (b.pinned_buffer(4096)?, HostBuffer::pageable(4096));
    let work = stream::create(b, stream_flags::NON_BLOCKING)?;
    context::pop_current(b)?;
    let answers = [
        code(b.copy_in_async(middle, pinned, work)),
        code(b.copy_in_async(middle, pageable, work)),
        code(b.copy_out_async(pinned, middle, work)),
        code(b.copy_out_async(pageable, middle, work)),
        code(copy::device_to_device_async(b, block, middle, 4096, work)),
        code(copy::device_to_device_async(b, middle, block, 4096, work)),
        code(fill::d8_async(b, middle, 1, 4096, work)),
    ];
    stream::synchronize(b, work)?;
    Ok(answers.join(" "))
}

/// Maps one handle of a page to two addresses.
fn alias(b: &Fixture) -> Result<[CUdeviceptr; 2], DriverError> {
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    let second = mapped::map_existing(b, allocation, bytes)?;
    mapping::set_access(b, second, bytes, &[read_write_access(b)])?;
    Ok([start, second])
}

fn twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let [one, other] = alias(b)?;
    fill::d8(b, one, 0x5a, PAGE)?;
    let forth = byte_runs(&b.bytes_at(other, 4096)?);
    fill::d8(b, other, 0x33, PAGE)?;
    Ok(format!("{forth}, and back {}", byte_runs(&b.bytes_at(one, 4096)?)))
}

fn twice_kernel(b: &Fixture) -> Answer {
    b.init_context()?;
    let [one, other] = alias(b)?;
    let store = kernel(b, KERNELS, c"store")?;
    launch(b, store, ONE, DEFAULT, &[one.0, 7])?;
    Ok(word_at(b, other)?.to_string())
}

fn twice_unmapped_once(b: &Fixture) -> Answer {
    b.init_context()?;
    let [one, other] = alias(b)?;
    fill::d8(b, one, 0x5a, PAGE)?;
    context::synchronize(b)?;
    let unmapped = code(mapping::unmap(b, one, PAGE));
    let read = or_code(b.bytes_at(other, 4096), |bytes| byte_runs(&bytes));
    Ok(format!("unmap {unmapped}, reads {read}, and the unmapped one {}", code(b.bytes_at(one, 4096))))
}

fn unmapped(b: &Fixture, shift: usize, bytes: usize) -> Answer {
    b.init_context()?;
    let start = reserve(b, 4 * PAGE)?;
    let handle = allocation::create(b, 2 * PAGE, &device_prop(b))?;
    mapping::map(b, start, 2 * PAGE, 0, handle)?;
    mapping::set_access(b, start, 2 * PAGE, &[read_write_access(b)])?;
    fill::d8(b, start, 0x5a, 2 * PAGE)?;
    context::synchronize(b)?;
    let unmapped = code(mapping::unmap(b, offset(start, shift), bytes));
    let read = [start, offset(start, PAGE)].map(|at| or_code(b.bytes_at(at, 4096), |bytes| byte_runs(&bytes)));
    Ok(format!("{unmapped}, reads {}", read.join(" ")))
}

fn both_unmapped(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = pair(b)?;
    let unmapped = code(mapping::unmap(b, start, 2 * PAGE));
    let read = [start, offset(start, PAGE)].map(|at| code(b.bytes_at(at, 4096)));
    Ok(format!("{unmapped}, reads {}", read.join(" ")))
}

fn unmapped_with_hole(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, 3 * PAGE)?;
    for at in [start, offset(start, 2 * PAGE)] {
        let handle = allocation::create(b, PAGE, &device_prop(b))?;
        mapping::map(b, at, PAGE, 0, handle)?;
        mapping::set_access(b, at, PAGE, &[read_write_access(b)])?;
    }
    let unmapped = code(mapping::unmap(b, start, 3 * PAGE));
    let read = [start, offset(start, 2 * PAGE)].map(|at| code(b.bytes_at(at, 4096)));
    Ok(format!("{unmapped}, reads {}", read.join(" ")))
}

fn unmapped_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    let first = code(mapping::unmap(b, start, bytes));
    Ok(format!("{first}, {}", code(mapping::unmap(b, start, bytes))))
}

fn unmapped_foreign(b: &Fixture) -> Answer {
    b.init_context()?;
    let addresses = [reserve(b, PAGE)?, memory::alloc(b, PAGE)?, CUdeviceptr::NULL];
    Ok(addresses.map(|at| code(mapping::unmap(b, at, PAGE))).join(", "))
}

fn moved(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    mapping::unmap(b, start, bytes)?;
    let elsewhere = mapped::map_existing(b, allocation, bytes)?;
    mapping::set_access(b, elsewhere, bytes, &[read_write_access(b)])?;
    Ok(byte_runs(&b.bytes_at(elsewhere, 4096)?))
}

fn used_after_unmap(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    mapping::unmap(b, start, bytes)?;
    let filled = code(fill::d8(b, start, 1, 4096));
    let copied_in = code(b.copy_in(start, HostBuffer::pageable(4096)));
    Ok(format!("{filled}, {copied_in}, {}", code(b.copy_out(HostBuffer::pageable(4096), start))))
}

fn no_context(b: &Fixture) -> Answer {
    driver::init(b, 0)?;
    let start = reserve(b, PAGE)?;
    let handle = allocation::create(b, PAGE, &device_prop(b))?;
    let mapped = code(mapping::map(b, start, PAGE, 0, handle));
    let access = code(mapping::set_access(b, start, PAGE, &[read_write_access(b)]));
    let asked = code(mapping::access(b, mapped::on_device(b), start));
    let retained = code(allocation::retain(b, start));
    let unmapped = code(mapping::unmap(b, start, PAGE));
    Ok(format!("map {mapped}, set access {access}, ask for it {asked}, retain {retained}, unmap {unmapped}"))
}

fn freed(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    let free = code(memory::free(b, start));
    let free_async = code(memory::free_async(b, start, DEFAULT));
    Ok(format!("{free}, {free_async}, reads {}", or_code(b.bytes_at(start, 4096), |bytes| byte_runs(&bytes))))
}

fn released_while_mapped(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, BLOCK)?;
    allocation::release(b, allocation)?;
    let released = level.blocks(b)?;
    let filled = code(fill::d8(b, start, 1, 4096));
    // Unmapping would not wait for the fill.
    context::synchronize(b)?;
    mapping::unmap(b, start, bytes)?;
    Ok(format!("{released}, fill {filled}; {}", level.blocks(b)?))
}

fn unmapped_then_released(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, BLOCK)?;
    mapping::unmap(b, start, bytes)?;
    let unmapped = level.blocks(b)?;
    allocation::release(b, allocation)?;
    Ok(format!("{unmapped}, {}", level.blocks(b)?))
}

fn released_while_mapped_twice(b: &Fixture) -> Answer {
    b.init_context()?;
    let level = FreeMemory::now(b)?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, BLOCK)?;
    let second = mapped::map_existing(b, allocation, bytes)?;
    allocation::release(b, allocation)?;
    let released = level.blocks(b)?;
    mapping::unmap(b, start, bytes)?;
    let once = level.blocks(b)?;
    mapping::unmap(b, second, bytes)?;
    Ok(format!("{released}, {once}, {}", level.blocks(b)?))
}
