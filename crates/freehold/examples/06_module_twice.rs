//! The life of a module. An image is loaded twice, each time with its own variables; one of the modules is closed while
//! its kernel runs. The driver's own unload would wait; here nothing waits.

use std::time::Instant;

use freehold::{Device, Grid, Image, Module, Result};

fn main() -> Result<()> {
    run(&freehold::open()?)
}

pub fn run(device: &Device) -> Result<()> {
    let image = Image::ptx(include_str!("kernels.ptx"))?;
    let module = device.module(&image)?;
    drop(image); // The module has a copy.
    let again = module.duplicate()?;
    let stream = device.new_stream()?;
    // SAFETY: `count` touches a variable of its module alone.
    let first = unsafe { module.kernel("count") }?;
    // SAFETY: as above.
    let second = unsafe { again.kernel("count") }?;
    // SAFETY: `spend` touches no memory.
    let spend = unsafe { again.kernel("spend") }?;

    for kernel in [&first, &first, &second] {
        stream.launch(kernel, Grid::line(1, 1), ())?;
    }
    let counted = |module: &Module| stream.read_variable::<u32>(module, "counter");
    println!("the first module's kernel ran {} times, the second's {}", counted(&module)?, counted(&again)?);

    stream.launch(&spend, Grid::line(1, 1), (20_000_000u64,))?;
    let start = Instant::now();
    drop((second, spend));
    again.close();
    println!("closed while its kernel runs, in {:?}", start.elapsed());
    stream.launch(&first, Grid::line(1, 1), ())?;
    println!("the first module goes on: its kernel ran {} times", counted(&module)?);
    device.tidy()?;
    println!("the second module is unloaded now that nothing is pending");
    Ok(())
}
