//! Exact reference counts. The driver does not count references to an address: one free ends it. A shared block lives
//! until its last reference is dropped, on any thread.

use std::thread;

use freehold::{Device, Grid, Image, Result, Shared};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

/// Adds up the block in its home stream.
fn total_of(device: &Device, x: Shared<f32>) -> Result<f32> {
    let stream = device.new_stream()?;
    let module = device.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: `sum` reads the first `n` elements of `x`, which has as many below, and writes one of `total`.
    let sum = unsafe { module.kernel("sum") }?;
    let mut total = stream.zeros::<f32>(1)?;
    let n = x.len() as u32;
    stream.launch(&sum, Grid::cover(n, 256), (&x, &mut total, n))?;
    Ok(stream.download(&total)?[0])
}

pub fn run(device: &Device) -> Result<()> {
    let stream = device.new_stream()?;
    let x = stream.upload(&vec![0.5f32; 1000])?.share();
    let address = x.address();
    println!("shared, with {} reference", x.count());

    let (second, third) = (x.clone(), x.clone());
    println!("{} references, none of which is a copy of the memory", x.count());
    let (one, two) = thread::scope(|scope| {
        let readers = [second, third].map(|reference| scope.spawn(|| total_of(device, reference)));
        readers.map(|reader| reader.join().expect("a reader does not panic")).into()
    });
    println!("two threads read it at once: {} and {}; {} reference is left", one?, two?, x.count());

    // The only reference can become the owner again, which may write.
    let mut block = x.into_block().expect("the readers have dropped theirs");
    stream.fill_bytes(&mut block, 0)?;
    let (last, kept) = (block.share(), device.blocks().len());
    thread::scope(|scope| drop(scope.spawn(move || drop(last))));
    println!("{kept} block was owned; the last reference went in another thread: {}", device.blocks().len());
    println!("who owns {address:#x} now: {:?}", device.owner_of(address).map(|owner| owner.state));
    Ok(())
}
