//! Experiments on copies: which ones fail, and where the bytes go (question 3).

use std::ptr;

use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUmemorytype, DriverError, Function, context, copy, fill, memory,
};

use crate::answer_text::{byte_runs, code, distance};
use crate::experiment::{Answer, Experiment};
use crate::fixture::{Fixture, check};
use crate::host_buffer::HostBuffer;
use crate::id::Id;

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(3, 3, 1), did: "copy 513 bytes to a block of 512, and 1 byte to its end", run: past_the_end },
    Experiment { id: Id(3, 3, 2), did: "copy across two blocks that lie side by side", run: across_blocks },
    Experiment {
        id: Id(3, 3, 3),
        did: "copy to a freed block of 64 MiB, and to a freed one of 512 bytes beside a live one",
        run: to_freed,
    },
    Experiment {
        id: Id(3, 3, 4),
        did: "copy 0 bytes between null and null: to a device, from it, within it",
        run: nothing,
    },
    Experiment { id: Id(3, 3, 5), did: "copy 16 bytes to null on the host, and to null on the device", run: to_null },
    Experiment { id: Id(3, 3, 6), did: "cuMemcpyDtoD to bytes 128 of what it copies from", run: overlapping },
    Experiment { id: Id(3, 3, 7), did: "cuMemcpy from pageable memory to a device, within it, and back", run: unified },
    Experiment {
        id: Id(3, 3, 8),
        did: "cuMemcpyDtoD from pinned memory, cuMemcpyHtoD from device memory, cuMemcpyDtoH from pinned memory",
        run: wrong_names,
    },
    Experiment {
        id: Id(3, 3, 9),
        did: "copy 3 rows of 5 bytes from the middle of a pitch of 16 to a pitch of 8",
        run: rows,
    },
    Experiment { id: Id(3, 3, 10), did: "copy rows of 16 bytes with a pitch of 8", run: pitch_below_width },
    Experiment {
        id: Id(3, 3, 11),
        did: "copy a box of 2 by 2 by 2 bytes out of one of 4 by 4 by 4",
        run: box_of_bytes,
    },
    Experiment { id: Id(3, 3, 12), did: "copy rows of 0 bytes, and 0 rows", run: no_rows },
    Experiment { id: Id(3, 3, 13), did: "copy rows past the end of a block", run: rows_past_the_end },
    Experiment { id: Id(3, 3, 14), did: "copy rows with a memory type of 0, and of 9", run: unknown_type },
];

fn past_the_end(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 512)?;
    let longer = code(b.copy_in(block, HostBuffer::pageable(513)));
    Ok(format!("{longer}, {}", code(b.copy_in(CUdeviceptr(block.0 + 512), HostBuffer::pageable(1)))))
}

fn across_blocks(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (memory::alloc(b, 512)?, memory::alloc(b, 512)?);
    let outcome = code(b.copy_in(first.min(second), HostBuffer::pageable(1024)));
    Ok(format!("{}: {outcome}", distance(first, second)))
}

fn to_freed(b: &Fixture) -> Answer {
    b.init_context()?;
    let large = memory::alloc(b, 64 << 20)?;
    memory::free(b, large)?;
    let gone = code(b.copy_in(large, HostBuffer::pageable(16)));
    memory::alloc(b, 512)?;
    let small = memory::alloc(b, 512)?;
    memory::free(b, small)?;
    Ok(format!("{gone}, {}", code(b.copy_in(small, HostBuffer::pageable(16)))))
}

fn nothing(b: &Fixture) -> Answer {
    b.init_context()?;
    // SAFETY: no byte is read or written.
    let to = unsafe { (b.api.cuMemcpyHtoD_v2)(CUdeviceptr::NULL, ptr::null(), 0) };
    // SAFETY: no byte is read or written.
    let from = unsafe { (b.api.cuMemcpyDtoH_v2)(ptr::null_mut(), CUdeviceptr::NULL, 0) };
    let within = code(copy::device_to_device(b, CUdeviceptr::NULL, CUdeviceptr::NULL, 0));
    let to = code(check(Function::cuMemcpyHtoD_v2, to));
    Ok(format!("{to}, {}, {within}", code(check(Function::cuMemcpyDtoH_v2, from))))
}

fn to_null(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 16)?;
    // SAFETY: no object is at null, so none of our memory is written, whatever the driver does.
    let host = unsafe { (b.api.cuMemcpyDtoH_v2)(ptr::null_mut(), block, 16) };
    let host = code(check(Function::cuMemcpyDtoH_v2, host));
    Ok(format!("{host}, {}", code(b.copy_in(CUdeviceptr::NULL, HostBuffer::pageable(16)))))
}

fn overlapping(b: &Fixture) -> Answer {
    b.init_context()?;
    let block = memory::alloc(b, 4096)?;
    let copied = code(copy::device_to_device(b, CUdeviceptr(block.0 + 128), block, 256));
    Ok(format!("{copied}, synchronize {}", code(context::synchronize(b))))
}

fn unified(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (memory::alloc(b, 4096)?, memory::alloc(b, 4096)?);
    let (from, to) = (HostBuffer::pageable(4096), HostBuffer::pageable(4096));
    from.fill(0x5a);
    let copy = |to: CUdeviceptr, from: CUdeviceptr| {
        // SAFETY: each address has the 4096 bytes that are copied; those of the host stay until the process ends, and
        // are used only through atomics.
        check(Function::cuMemcpy, unsafe { (b.api.cuMemcpy)(to, from, 4096) })
    };
    let inwards = code(copy(first, from.address()));
    let within = code(copy(second, first));
    let outwards = code(copy(to.address(), second));
    Ok(format!("{inwards}, {within}, {outwards}, {}", byte_runs(&to.to_vec())))
}

fn wrong_names(b: &Fixture) -> Answer {
    b.init_context()?;
    let (first, second) = (memory::alloc(b, 4096)?, memory::alloc(b, 4096)?);
    let pinned = b.pinned_buffer(4096)?;
    let within = code(copy::device_to_device(b, first, pinned.address(), 4096));
    // SAFETY: the call gets a device address as a host address; a driver that recognizes it copies within the device,
    // and one that does not faults in a process that has no other purpose.
    let inwards = unsafe { (b.api.cuMemcpyHtoD_v2)(second, first.0 as *const _, 4096) };
    let outwards = code(b.copy_out(HostBuffer::pageable(4096), pinned.address()));
    Ok(format!("{within}, {}, {outwards}", code(check(Function::cuMemcpyHtoD_v2, inwards))))
}

fn copy_rows(b: &Fixture, copy: &CUDA_MEMCPY2D) -> Result<(), DriverError> {
    // SAFETY: `copy` outlives the call, and the host sides of every copy in this file have all the bytes it names and
    // stay until the process ends.
    check(Function::cuMemcpy2D_v2, unsafe { (b.api.cuMemcpy2D_v2)(copy) })
}

/// From the host to the device, both from their start.
fn to_device(from: HostBuffer, from_pitch: usize, to: CUdeviceptr, to_pitch: usize) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::HOST,
        srcHost: from.address().0 as usize,
        srcPitch: from_pitch,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        dstPitch: to_pitch,
        ..Default::default()
    }
}

fn rows(b: &Fixture) -> Answer {
    b.init_context()?;
    let from = HostBuffer::pageable(16 * 8);
    from.count_up();
    let to = memory::alloc(b, 8 * 4)?;
    fill::d8(b, to, 0xff, 8 * 4)?;
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        dstXInBytes: 1,
        WidthInBytes: 5,
        Height: 3,
        ..to_device(from, 16, to, 8)
    };
    let outcome = code(copy_rows(b, &copy));
    let hex: Vec<String> =
        b.bytes_at(to, 8 * 3)?.chunks(8).map(|row| row.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    Ok(format!("{outcome}, {}", hex.join(" ")))
}

fn pitch_below_width(b: &Fixture) -> Answer {
    b.init_context()?;
    let to = memory::alloc(b, 4096)?;
    let copy = CUDA_MEMCPY2D { WidthInBytes: 16, Height: 2, ..to_device(HostBuffer::pageable(4096), 8, to, 8) };
    Ok(code(copy_rows(b, &copy)))
}

fn no_rows(b: &Fixture) -> Answer {
    b.init_context()?;
    let to = memory::alloc(b, 4096)?;
    let plain = to_device(HostBuffer::pageable(4096), 16, to, 16);
    let narrow = code(copy_rows(b, &CUDA_MEMCPY2D { WidthInBytes: 0, Height: 2, ..plain }));
    Ok(format!("{narrow}, {}", code(copy_rows(b, &CUDA_MEMCPY2D { WidthInBytes: 16, Height: 0, ..plain }))))
}

fn rows_past_the_end(b: &Fixture) -> Answer {
    b.init_context()?;
    let to = memory::alloc(b, 1 << 20)?;
    let copy =
        CUDA_MEMCPY2D { WidthInBytes: 1024, Height: 1025, ..to_device(HostBuffer::pageable(2 << 20), 1024, to, 1024) };
    Ok(code(copy_rows(b, &copy)))
}

fn unknown_type(b: &Fixture) -> Answer {
    b.init_context()?;
    let to = memory::alloc(b, 4096)?;
    let plain = CUDA_MEMCPY2D { WidthInBytes: 16, Height: 2, ..to_device(HostBuffer::pageable(4096), 16, to, 16) };
    let ask = |kind| code(copy_rows(b, &CUDA_MEMCPY2D { srcMemoryType: CUmemorytype(kind), ..plain }));
    Ok(format!("{}, {}", ask(0), ask(9)))
}

fn box_of_bytes(b: &Fixture) -> Answer {
    b.init_context()?;
    let from = HostBuffer::pageable(64);
    from.count_up();
    let to = memory::alloc(b, 8)?;
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: 1,
        srcY: 1,
        srcZ: 1,
        srcMemoryType: CUmemorytype::HOST,
        srcHost: from.address().0 as usize,
        srcPitch: 4,
        srcHeight: 4,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        dstPitch: 2,
        dstHeight: 2,
        WidthInBytes: 2,
        Height: 2,
        Depth: 2,
        ..Default::default()
    };
    // SAFETY: `copy` outlives the call, and the host side has the 64 bytes that it names and stays.
    let outcome = unsafe { (b.api.cuMemcpy3D_v2)(&copy) };
    let outcome = code(check(Function::cuMemcpy3D_v2, outcome));
    Ok(format!("{outcome}, {:?}", b.bytes_at(to, 8)?))
}
