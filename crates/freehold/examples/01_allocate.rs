//! Memory with an owner. A block is allocated, used by a kernel and read; any address in it leads to its owner. After a
//! drop, the next block of its size reuses the memory.

use freehold::{Device, Grid, Image, Result};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    println!("on {}", device.name()?);
    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: nothing checks what a kernel does, so the caller that looks it up guarantees what its launches do:
    // `scale` writes the first `n` elements of the block that it is given.
    let scale = unsafe { module.kernel("scale") }?;
    let stream = device.new_stream()?;

    let mut x = stream.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
    x.tag("the numbers of the example");
    stream.launch(&scale, Grid::cover(4u32, 32), (&mut x, 2.0f32, 4u32))?;
    println!("four numbers, doubled: {:?}", stream.download(&x)?);

    let address = x.address();
    if let Some(owner) = device.owner_of(address + 7) {
        println!("{:#x} lies in {owner}, in {} and {}", address + 7, owner.context, stream.id());
    }

    drop(x);
    println!("dropped, and kept by the pool: {} bytes", device.stats().cached_bytes);
    let again = stream.alloc::<u8>(16)?;
    println!("16 bytes anew, without a call of the driver: at {:#x} again: {}", address, again.address() == address);
    Ok(())
}
