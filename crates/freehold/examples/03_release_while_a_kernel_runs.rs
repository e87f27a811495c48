//! Releasing memory while a kernel runs. The driver's own free would wait for the kernel; here nothing waits. The
//! memory is free at once for work after the kernel in its stream, and for other streams once the kernel is complete.

use std::time::Instant;

use freehold::{Device, Grid, Image, Result};

/// How long the kernel runs.
const SPEND_NS: u64 = 50_000_000;

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: `spend` touches no memory.
    let spend = unsafe { module.kernel("spend") }?;
    // SAFETY: `add` writes the first `n` elements of its block, which has as many in every launch below.
    let add = unsafe { module.kernel("add") }?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);

    let mut x = stream.zeros::<u32>(1 << 16)?;
    let address = x.address();
    stream.launch(&spend, Grid::line(1, 1), (SPEND_NS,))?;
    stream.launch(&add, Grid::cover(1u32 << 16, 256), (&mut x, 1u32, 1u32 << 16))?;

    let start = Instant::now();
    drop(x);
    println!("a block that a kernel of 50 ms is before: dropped in {:?}", start.elapsed());

    let start = Instant::now();
    let same = stream.alloc::<u32>(1 << 16)?;
    println!("its stream has the memory at once, in {:?}: {}", start.elapsed(), same.address() == address);
    drop(same);
    let another = other.alloc::<u32>(1 << 16)?;
    println!("another stream has it: {}", another.address() == address);
    println!("the kernel has passed: {}", stream.is_idle()?);

    stream.synchronize()?;
    let passed = other.alloc::<u32>(1 << 16)?;
    println!("when the kernel has passed, the other stream has it too: {}", passed.address() == address);
    Ok(())
}
