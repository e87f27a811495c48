//! Two contexts of one device. Memory of one is used by a kernel of the other, and released on a thread without a
//! current context. A context with live blocks is not closed, unless it is closed with them.

use freehold::{CloseError, Device, Error, Grid, Image, Result};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    let (first, second) = (device.new_context()?, device.new_context()?);
    let (here, there) = (first.new_stream()?, second.new_stream()?);
    let module = second.module(&Image::ptx(include_str!("kernels.ptx"))?)?;
    // SAFETY: `add` writes the first `n` elements of its block, which has as many in the one launch below.
    let add = unsafe { module.kernel("add") }?;

    let mut x = here.upload(&[1u32, 2, 3])?;
    there.launch(&add, Grid::cover(3u32, 32), (&mut x, 10u32, 3u32))?;
    println!("allocated in {}, changed by a kernel of {}: {:?}", first.id(), second.id(), here.download(&x)?);

    let address = x.address();
    std::thread::scope(|scope| {
        scope.spawn(move || x.close().map_err(Error::from)).join().expect("a release does not panic")
    })?;
    println!("released in a thread without a context; {} blocks are owned", device.blocks().len());
    let weights = here.alloc_tagged::<u32>(3, "weights")?;
    println!("the next block of {} is the same memory: {}", first.id(), weights.address() == address);

    match first.close() {
        Ok(()) => println!("no block is lost by this"),
        Err(CloseError { value: first, error }) => {
            println!("refused: {error}");
            first.close_with_blocks()?;
        }
    }
    println!("closed with its blocks; {} blocks are owned", device.blocks().len());
    if let Err(error) = there.download(&weights) {
        println!("a copy from the weights: {error}");
    }
    drop(weights);
    Ok(())
}
