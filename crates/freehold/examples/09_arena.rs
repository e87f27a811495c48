//! Memory for the steps of a program, allocated once: what a step allocates in its scope is freed at its end, and the
//! next step reuses the addresses. Work of the last step that still runs in another stream is waited for, on the
//! device.

use freehold::{Arena, Device, Grid, Image, Result};

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
    let (n, grid) = (1000_u32, Grid::cover(1000_u32, 256));

    let mut totals = other.zeros::<f32>(3)?;
    let mut arena = Arena::new(&stream, 64 << 10)?;
    for step in 0..3_usize {
        arena.scope(|scope| -> Result<()> {
            let mut x = scope.alloc::<f32>(n as usize)?;
            stream.write(&mut x, &vec![1.0; n as usize])?;
            stream.launch(&scale, grid, (&mut x, step as f32, n))?;
            // The sum is late: the next step writes to the same addresses after it.
            other.launch(&spend, Grid::line(1, 1), (2_000_000_u64,))?;
            other.launch(&sum, grid, (&x, &mut totals.view_mut(step..=step)?, n))?;
            let inner = scope.scope(|inner| inner.alloc::<u8>(1).map(|piece| piece.address()))?;
            let (x, offset) = (x.address(), inner - x.address());
            println!("step {step}: at {x:#x}; a slice of the nested scope {offset} bytes after that");
            Ok(())
        })?;
    }
    println!("the sums: {:?}", other.download(&totals)?);

    let refused = arena.scope(|scope| scope.alloc::<f32>(1 << 20).err());
    println!("{}", refused.map_or_else(String::new, |error| error.to_string()));
    Ok(())
}
