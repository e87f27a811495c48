//! Experiments on access to mapped memory, and on what a mapping or its end waits for (questions 6 and 2).

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemLocation, CUmemLocationType, DriverError, Function, address,
    allocation, context, copy, fill, mapping, memory, stream, stream_flags,
};

use crate::answer_text::{byte_runs, code, code_and_pace, or_code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::host_buffer::HostBuffer;
use crate::id::Id;
use crate::kernels::{DEFAULT, FAULTS, ONE, Spin, kernel, launch, word_at, zeros};
use crate::latch::Latch;
use crate::mapped::{
    self, Mapped, PAGE, device_prop, map_without_access, no_access, offset, on_device, read_access, read_write_access,
    reserve,
};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: Id(2, 4, 1),
        did: "cuMemMap beside a mapping that a kernel uses",
        run: |b| {
            beside(
                b,
                |b| Ok((reserve(b, PAGE)?, allocation::create(b, PAGE, &device_prop(b))?)),
                |b, (at, handle)| mapping::map(b, at, PAGE, 0, handle),
            )
        },
    },
    Experiment {
        id: Id(2, 4, 2),
        did: "cuMemSetAccess beside a mapping that a kernel uses",
        run: |b| {
            beside(
                b,
                |b| map_without_access(b, PAGE),
                |b, new| mapping::set_access(b, new.start, PAGE, &[read_write_access(b)]),
            )
        },
    },
    Experiment {
        id: Id(2, 4, 3),
        did: "cuMemUnmap beside a mapping that a kernel uses",
        run: |b| beside(b, |b| mapped::map_new(b, PAGE), |b, other| mapping::unmap(b, other.start, PAGE)),
    },
    Experiment {
        id: Id(2, 4, 4),
        did: "cuMemCreate while a kernel runs",
        run: |b| beside(b, |_| Ok(()), |b, ()| allocation::create(b, PAGE, &device_prop(b))),
    },
    Experiment {
        id: Id(2, 4, 5),
        did: "cuMemRelease of memory that is not mapped, while a kernel runs",
        run: |b| {
            beside(b, |b| allocation::create(b, PAGE, &device_prop(b)), |b, handle| allocation::release(b, handle))
        },
    },
    Experiment {
        id: Id(2, 4, 6),
        did: "cuMemAddressReserve while a kernel runs",
        run: |b| beside(b, |_| Ok(()), |b, ()| reserve(b, PAGE)),
    },
    Experiment {
        id: Id(2, 4, 7),
        did: "cuMemAddressFree while a kernel runs",
        run: |b| beside(b, |b| reserve(b, PAGE), |b, at| address::free(b, at, PAGE)),
    },
    Experiment {
        id: Id(2, 4, 8),
        did: "cuMemUnmap of what a running kernel will write, and what becomes of the kernel",
        run: unmapped_under_kernel,
    },
    Experiment {
        id: Id(2, 4, 9),
        did: "cuMemUnmap of other memory while a stream waits for a word",
        run: unmapped_beside_wait,
    },
    Experiment {
        id: Id(2, 4, 10),
        did: "cuMemRelease of the handle of a mapping that a running kernel will write, and what becomes of the kernel",
        run: released_under_kernel,
    },
    Experiment {
        id: Id(6, 1, 1),
        did: "fill and copy to a mapping that may be read",
        run: |b| {
            let (_, at) = read_only(b)?;
            let filled = code(fill::d32(b, at, 1, 16));
            Ok(format!("{filled}, {}", code(b.copy_in(at, HostBuffer::pageable(4096)))))
        },
    },
    Experiment {
        id: Id(6, 1, 2),
        did: "copy from a mapping that may be read, to the host and within the device",
        run: |b| {
            let (_, at) = read_only(b)?;
            let to = memory::alloc(b, 4096)?;
            let read = or_code(b.bytes_at(at, 4096), |bytes| byte_runs(&bytes));
            Ok(format!("{read}, {}", code(copy::device_to_device(b, to, at, 4096))))
        },
    },
    Experiment {
        id: Id(6, 1, 3),
        did: "copy within the device to a mapping that may be read",
        run: |b| {
            let (_, to) = read_only(b)?;
            let from = memory::alloc(b, 4096)?;
            Ok(code(copy::device_to_device(b, to, from, 4096)))
        },
    },
    Experiment {
        id: Id(6, 1, 4),
        did: "a kernel reads a mapping that may be read",
        run: |b| kernel_reads(b, |at| mapping::set_access(b, at, PAGE, &[read_access(b)])),
    },
    Experiment {
        id: Id(6, 1, 5),
        did: "a kernel writes to a mapping that may be read",
        run: |b| kernel_writes(b, &read_access(b)),
    },
    Experiment {
        id: Id(6, 1, 6),
        did: "let a mapping that may be read be written, fill it and read it",
        run: |b| {
            let (_, at) = read_only(b)?;
            let access = code(mapping::set_access(b, at, PAGE, &[read_write_access(b)]));
            let filled = code(fill::d8(b, at, 0x33, PAGE));
            Ok(format!("{access}, fill {filled}, holds {}", byte_runs(&b.bytes_at(at, 4096)?)))
        },
    },
    Experiment {
        id: Id(6, 1, 7),
        did: "write memory by one mapping that may be written, and read it by another that may be read",
        run: |b| {
            let (writable, readable) = read_only(b)?;
            fill::d8(b, writable, 0x44, PAGE)?;
            Ok(byte_runs(&b.bytes_at(readable, 4096)?))
        },
    },
    Experiment {
        id: Id(6, 1, 8),
        did: "cuMemsetD8Async and cuMemcpyHtoDAsync to a mapping that may be read",
        run: |b| {
            let (_, at) = read_only(b)?;
            let filled = code(fill::d8_async(b, at, 1, 16, DEFAULT));
            let copied = code(b.copy_in_async(at, b.registered_buffer(4096)?, DEFAULT));
            Ok(format!("{filled}, {copied}, synchronize {}", code(context::synchronize(b))))
        },
    },
    Experiment {
        id: Id(6, 5, 1),
        did: "fill, copy to and copy from a mapping before access is set",
        run: |b| {
            b.init_context()?;
            let at = map_without_access(b, PAGE)?.start;
            used(b, at)
        },
    },
    Experiment {
        id: Id(6, 5, 2),
        did: "a kernel reads a mapping before access is set",
        run: |b| kernel_reads(b, |_| Ok(())),
    },
    Experiment {
        id: Id(6, 5, 3),
        did: "a kernel writes to a mapping whose access was taken away",
        run: |b| kernel_writes(b, &no_access(b)),
    },
    Experiment {
        id: Id(6, 5, 4),
        did: "set access of a mapping to nothing: the code, then fill, copy to and copy from it",
        run: |b| {
            b.init_context()?;
            let at = mapped::map_new(b, PAGE)?.start;
            let set = code(mapping::set_access(b, at, PAGE, &[no_access(b)]));
            Ok(format!("{set}; {}", used(b, at)?))
        },
    },
    Experiment {
        id: Id(6, 5, 5),
        did: "set access of the first half of a mapping, then fill each half",
        run: |b| {
            b.init_context()?;
            let at = map_without_access(b, 2 * PAGE)?.start;
            let set = code(mapping::set_access(b, at, PAGE, &[read_write_access(b)]));
            let halves = [at, offset(at, PAGE)].map(|at| code(fill::d8(b, at, 1, 4096)));
            Ok(format!("{set}; {}", halves.join(", ")))
        },
    },
    Experiment {
        id: Id(6, 5, 6),
        did: "set access over two mappings at once, then over them and a page of nothing",
        run: over_two,
    },
    Experiment {
        id: Id(6, 5, 7),
        did: "set access of reserved addresses, of a block of cuMemAlloc, and of null",
        run: |b| {
            b.init_context()?;
            let addresses = [reserve(b, PAGE)?, memory::alloc(b, PAGE)?, CUdeviceptr::NULL];
            Ok(addresses.map(|at| code(mapping::set_access(b, at, PAGE, &[read_write_access(b)]))).join(", "))
        },
    },
    Experiment {
        id: Id(6, 5, 8),
        did: "set access for no place",
        run: |b| {
            b.init_context()?;
            let at = map_without_access(b, PAGE)?.start;
            Ok(code(mapping::set_access(b, at, PAGE, &[])))
        },
    },
    Experiment { id: Id(6, 5, 16), did: "set access for one place, and with no list", run: no_list },
    Experiment {
        id: Id(6, 5, 9),
        did: "set access for device 99, for the host, and for a location of type 0",
        run: |b| {
            let kinds =
                [(CUmemLocationType::DEVICE, 99), (CUmemLocationType::HOST, 0), (CUmemLocationType::INVALID, 0)];
            each_access(
                b,
                &kinds
                    .map(|(kind, id)| CUmemAccessDesc { location: CUmemLocation { kind, id }, ..read_write_access(b) }),
            )
        },
    },
    Experiment {
        id: Id(6, 5, 10),
        did: "set access to 2, and to 77",
        run: |b| {
            each_access(
                b,
                &[2, 77].map(|flags| CUmemAccessDesc { flags: CUmemAccess_flags(flags), ..read_write_access(b) }),
            )
        },
    },
    Experiment {
        id: Id(6, 5, 11),
        did: "set access of 0 bytes, of 1 MiB and of more than a mapping",
        run: |b| {
            b.init_context()?;
            let at = map_without_access(b, PAGE)?.start;
            Ok([0, PAGE / 2, 2 * PAGE]
                .map(|bytes| code(mapping::set_access(b, at, bytes, &[read_write_access(b)])))
                .join(", "))
        },
    },
    Experiment {
        id: Id(6, 5, 12),
        did: "ask for the access of a mapping before it is set, to be read, to be written, and to nothing",
        run: asked,
    },
    Experiment {
        id: Id(6, 5, 13),
        did: "ask for the access of a reserved address, of a block of cuMemAlloc, of null and in the midst of a mapping",
        run: |b| {
            b.init_context()?;
            let midst = offset(mapped::map_new(b, PAGE)?.start, 12345);
            let addresses = [reserve(b, PAGE)?, memory::alloc(b, PAGE)?, CUdeviceptr::NULL, midst];
            Ok(addresses.map(|at| access(b, on_device(b), at)).join(", "))
        },
    },
    Experiment {
        id: Id(6, 5, 14),
        did: "ask for the access of device 99, of the host, and of a location of type 0",
        run: |b| {
            b.init_context()?;
            let at = mapped::map_new(b, PAGE)?.start;
            let kinds =
                [(CUmemLocationType::DEVICE, 99), (CUmemLocationType::HOST, 0), (CUmemLocationType::INVALID, 0)];
            Ok(kinds.map(|(kind, id)| access(b, CUmemLocation { kind, id }, at)).join(", "))
        },
    },
    Experiment {
        id: Id(6, 5, 15),
        did: "unmap memory that may be written, map it to the same addresses: the access afterwards",
        run: |b| {
            b.init_context()?;
            let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
            mapping::unmap(b, start, bytes)?;
            mapping::map(b, start, bytes, 0, allocation)?;
            Ok(access(b, on_device(b), start))
        },
    },
];

/// A kernel spins and will write mapped memory. Returns whether `call` waits for it, and whether the kernel has
/// written.
fn beside<T, U>(
    b: &Fixture,
    before: impl FnOnce(&Fixture) -> Result<T, DriverError>,
    call: impl FnOnce(&Fixture, T) -> Result<U, DriverError>,
) -> Answer {
    b.init_context()?;
    let used = mapped::map_new(b, PAGE)?.start;
    let spin = Spin::new(b)?;
    let before = before(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    spin.run(b, stream, used, 7)?;
    let pace = code_and_pace(spin.latch.during(|| call(b, before)));
    stream::synchronize(b, stream)?;
    Ok(format!("{pace}, the kernel wrote {}", word_at(b, used)?))
}

fn unmapped_under_kernel(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    spin.run(b, stream, start, 7)?;
    let pace = code_and_pace(spin.latch.during(|| mapping::unmap(b, start, bytes)));
    Ok(format!("{pace}, synchronize {}", code(stream::synchronize(b, stream))))
}

fn released_under_kernel(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, allocation, .. } = mapped::map_new(b, PAGE)?;
    let spin = Spin::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    spin.run(b, stream, start, 7)?;
    let pace = code_and_pace(spin.latch.during(|| allocation::release(b, allocation)));
    let ended = code(stream::synchronize(b, stream));
    Ok(format!("{pace}, synchronize {ended}, the kernel wrote {}", word_at(b, start)?))
}

fn unmapped_beside_wait(b: &Fixture) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    let latch = Latch::new(b)?;
    let stream = stream::create(b, stream_flags::NON_BLOCKING)?;
    latch.block_stream(b, stream)?;
    let pace = code_and_pace(latch.during(|| mapping::unmap(b, start, bytes)));
    Ok(format!("{pace}, synchronize {}", code(stream::synchronize(b, stream))))
}

/// Maps one page of 0x5a at two addresses: the first writable, the second read-only.
fn read_only(b: &Fixture) -> Result<(CUdeviceptr, CUdeviceptr), DriverError> {
    b.init_context()?;
    let Mapped { start, allocation, bytes } = mapped::map_new(b, PAGE)?;
    fill::d8(b, start, 0x5a, bytes)?;
    context::synchronize(b)?;
    let second = mapped::map_existing(b, allocation, bytes)?;
    mapping::set_access(b, second, bytes, &[read_access(b)])?;
    Ok((start, second))
}

fn used(b: &Fixture, at: CUdeviceptr) -> Answer {
    let filled = code(fill::d8(b, at, 1, 4096));
    let copied_in = code(b.copy_in(at, HostBuffer::pageable(4096)));
    Ok(format!("{filled}, {copied_in}, {}", code(b.copy_out(HostBuffer::pageable(4096), at))))
}

fn kernel_reads(b: &Fixture, prepare: impl FnOnce(CUdeviceptr) -> Result<(), DriverError>) -> Answer {
    b.init_context()?;
    let load = kernel(b, FAULTS, c"load")?;
    let to = zeros(b)?;
    let at = map_without_access(b, PAGE)?.start;
    prepare(at)?;
    launch(b, load, ONE, DEFAULT, &[at.0, to.0])?;
    Ok(code(context::synchronize(b)))
}

fn kernel_writes(b: &Fixture, access: &CUmemAccessDesc) -> Answer {
    b.init_context()?;
    let Mapped { start, bytes, .. } = mapped::map_new(b, PAGE)?;
    let store = kernel(b, FAULTS, c"store")?;
    mapping::set_access(b, start, bytes, &[*access])?;
    launch(b, store, ONE, DEFAULT, &[start.0, 7])?;
    Ok(code(context::synchronize(b)))
}

fn over_two(b: &Fixture) -> Answer {
    b.init_context()?;
    let start = reserve(b, 3 * PAGE)?;
    for at in [start, offset(start, PAGE)] {
        let handle = allocation::create(b, PAGE, &device_prop(b))?;
        mapping::map(b, at, PAGE, 0, handle)?;
    }
    let two = code(mapping::set_access(b, start, 2 * PAGE, &[read_write_access(b)]));
    let filled = code(fill::d8(b, start, 1, 2 * PAGE));
    let more = code(mapping::set_access(b, start, 3 * PAGE, &[read_access(b)]));
    Ok(format!("{two}, fill {filled}; {more}, the first then {}", access(b, on_device(b), start)))
}

fn no_list(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = map_without_access(b, PAGE)?.start;
    // SAFETY: null is a pointer that the call must reject and does not dereference.
    let outcome = unsafe { (b.cuMemSetAccess)(at, PAGE, std::ptr::null(), 1) };
    Ok(code(check(Function::cuMemSetAccess, outcome)))
}

fn each_access(b: &Fixture, accesses: &[CUmemAccessDesc]) -> Answer {
    b.init_context()?;
    let at = map_without_access(b, PAGE)?.start;
    let codes: Vec<String> = accesses.iter().map(|access| code(mapping::set_access(b, at, PAGE, &[*access]))).collect();
    Ok(codes.join(", "))
}

/// Returns the access of a location at an address.
fn access(b: &Fixture, location: CUmemLocation, at: CUdeviceptr) -> String {
    or_code(mapping::access(b, location, at), |flags| flags.to_string())
}

fn asked(b: &Fixture) -> Answer {
    b.init_context()?;
    let at = map_without_access(b, PAGE)?.start;
    let mut states = vec![access(b, on_device(b), at)];
    for desc in [read_access(b), read_write_access(b), no_access(b)] {
        mapping::set_access(b, at, PAGE, &[desc])?;
        states.push(access(b, on_device(b), at));
    }
    Ok(states.join(", "))
}
