//! Wrong releases and their errors. The driver returns one code for all of them, INVALID_VALUE, or no error; here each
//! error names the mistake, and nothing changes.

use freehold::{Adoption, Device, Image, Result};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

fn wrong(device: &Device, what: &str, address: u64) {
    match device.release(address) {
        Ok(()) => println!("{what}: released"),
        Err(error) => println!("{what}:\n  {error}"),
    }
}

pub fn run(device: &Device) -> Result<()> {
    let stream = device.new_stream()?;
    let held = stream.alloc_tagged::<u32>(100, "the matrix")?;
    wrong(device, "an address within a block", held.address() + 8);
    wrong(device, "a block that somebody holds", held.address());

    // For foreign code: the block is identified by its address from now on.
    let address = held.into_address();
    device.release(address)?;
    wrong(device, "the same address a second time", address);
    wrong(device, "an address that nobody ever got", 16);

    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    let (counter, bytes) = module.variable("counter")?;
    let adopted = device.adopt(counter, bytes as u64, Adoption::Foreign, "a variable of a module")?;
    wrong(device, "memory of others", counter);
    drop(adopted);

    // As if another process had shared it: no allocation of this process has such a low address.
    let imported = device.adopt(1 << 20, 4096, Adoption::Imported { process: 1 }, "another process's")?;
    wrong(device, "imported memory", 1 << 20);
    drop(imported);

    let context = device.new_context()?;
    let address = context.new_stream()?.alloc::<u8>(100)?.into_address();
    context.close_with_blocks()?;
    wrong(device, "a block whose context is destroyed", address);
    Ok(())
}
