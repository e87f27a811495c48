//! Two streams and one block. The second stream's use comes after the first's, without any code for it, and a drop
//! releases the memory after both. With the driver's own calls, forgetting the wait is a race.

use freehold::{Device, Grid, Image, Result};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: `scale` writes the first `n` elements of its block, which has as many in every launch below.
    let scale = unsafe { module.kernel("scale") }?;
    // SAFETY: `sum` reads as many, and writes one element of `total`.
    let sum = unsafe { module.kernel("sum") }?;
    // SAFETY: `spend` touches no memory.
    let spend = unsafe { module.kernel("spend") }?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let (n, grid) = (1000u32, Grid::cover(1000u32, 256));

    let mut x = stream.upload(&vec![1.0f32; n as usize])?;
    let mut total = other.zeros::<f32>(1)?;
    stream.launch(&spend, Grid::line(1, 1), (5_000_000u64,))?;
    stream.launch(&scale, grid, (&mut x, 2.0f32, n))?;
    other.launch(&sum, grid, (&x, &mut total, n))?;
    println!("a sum in {}, after the scaling in {}: {:?}", other.id(), stream.id(), other.download(&total)?);

    other.launch(&spend, Grid::line(1, 1), (5_000_000u64,))?;
    other.launch(&sum, grid, (&x, &mut total, n))?;
    let address = x.address();
    drop(x);
    let state = device.owner_of(address).map(|owner| owner.state);
    println!("dropped while {} is still to read it: {state:?}", other.id());
    let mut y = stream.upload(&vec![-1.0f32; n as usize])?;
    println!("a new block of its size lies elsewhere: {}", y.address() != address);
    println!("the second sum is of the old block: {:?}", other.download(&total)?);

    // The same by hand: an event of one stream that the other waits for, on the device.
    stream.launch(&scale, grid, (&mut y, 3.0f32, n))?;
    let scaled = stream.event()?;
    other.wait(&scaled)?;
    y.release_after(&other.event()?)?;
    other.synchronize()?;
    println!("{} has passed the event that {} waited for: {}", stream.id(), other.id(), scaled.is_complete()?);
    Ok(())
}
