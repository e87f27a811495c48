//! A vector that grows while a kernel runs on it: its address stays, nothing is copied, nothing waits. Excess memory
//! goes back once the kernel is complete.

use std::time::Instant;

use freehold::{Device, DeviceVec, Grid, Image, Result};

/// How long the kernel runs.
const SPEND_NS: u64 = 20_000_000;

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: `spend` touches no memory.
    let spend = unsafe { module.kernel("spend") }?;
    // SAFETY: `add` writes the first `n` elements of its vector, which has at least as many in every launch below.
    let add = unsafe { module.kernel("add") }?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let n = 1000_u32;

    let mut x = DeviceVec::<u32>::new(&stream)?;
    x.extend_from_host(&stream, &vec![1; n as usize])?;
    println!("{} elements, memory for {}, addresses for more", x.len(), x.capacity());

    let address = x.address();
    stream.launch(&spend, Grid::line(1, 1), (SPEND_NS,))?;
    stream.launch(&add, Grid::cover(n, 256), (&mut x, 1_u32, n))?;
    let start = Instant::now();
    x.reserve(&other, 1 << 22)?;
    println!("under a kernel of 20 ms, 16 MiB more in {:?}; copied: {}", start.elapsed(), !x.grows_in_place());
    x.extend_from_host(&other, &[7, 8, 9])?;
    println!("the address is the same: {}", x.address() == address);
    println!("what the kernel wrote, and what follows it: {:?}", other.download(&x.view(998..)?)?);

    x.truncate(10);
    stream.launch(&spend, Grid::line(1, 1), (SPEND_NS,))?;
    stream.launch(&add, Grid::line(1, 10), (&mut x, 1_u32, 10_u32))?;
    x.shrink_to_fit()?;
    println!("memory for {} is left; the rest goes when the kernel has passed", x.capacity());
    println!("{:?}", x.download(&stream)?);
    println!("its owner record has {} bytes", device.owner_of(address).map_or(0, |owner| owner.bytes));
    Ok(())
}
