//! How long a kernel's image lives. An image is loaded twice, with variables of its own each time (fact 4.2); one of the
//! modules is closed while its kernel runs. The driver's own unload would wait (fact 4.1); here nothing does.

use std::time::Instant;

use freehold::{Device, Grid, Image, Module, Result, Stream};
use freehold_driver::cuda::copy;

fn main() -> Result<()> {
    run(&freehold::open()?)
}

/// What the module's variable holds.
fn counter(device: &Device, stream: &Stream, module: &Module) -> Result<u32> {
    let (address, bytes) = module.variable("counter")?;
    let mut counter = [0; 4];
    assert_eq!(bytes, counter.len());
    stream.synchronize()?;
    let to = counter.as_mut_ptr().cast();
    // SAFETY: `counter` has room for the four bytes, and outlives the wait below for the copy.
    let copied = unsafe { copy::device_to_host_async(device.api(), to, address, bytes, stream.raw()) };
    stream.foreign_work();
    copied.map_err(freehold::Error::from).and(stream.synchronize())?;
    Ok(u32::from_le_bytes(counter))
}

pub fn run(device: &Device) -> Result<()> {
    let image = Image::ptx(include_str!("kernels.ptx"))?;
    let module = device.module(&image)?;
    drop(image); // The module has its own.
    let again = module.duplicate()?;
    let stream = device.stream()?;
    let (first, second, spend) = (module.kernel("count")?, again.kernel("count")?, again.kernel("spend")?);

    for kernel in [&first, &first, &second] {
        stream.launch(kernel, Grid::line(1, 1), ())?;
    }
    let counts = (counter(device, &stream, &module)?, counter(device, &stream, &again)?);
    println!("the first module's kernel ran {} times, the second's {}", counts.0, counts.1);

    stream.launch(&spend, Grid::line(1, 1), (20_000_000u64,))?;
    let start = Instant::now();
    drop((second, spend));
    again.close();
    println!("closed while its kernel runs, in {:?}", start.elapsed());
    stream.launch(&first, Grid::line(1, 1), ())?;
    println!("the first module goes on: its kernel ran {} times", counter(device, &stream, &module)?);
    device.tidy()?;
    println!("the second module is unloaded now that nothing is pending");
    Ok(())
}
