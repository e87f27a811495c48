//! Programs beyond the examples. Each ends with the first error, and drops what it has.
//!
//! A value that an error returns is checked to be unchanged.

use std::os::fd::AsFd;

use freehold::{
    Block, CloseError, Contents, Device, Error, ExternalAccess, Grid, Image, Kernel, Permission, Result, Stream,
};

use crate::shared::{self, CHUNK};

/// The name of blocks that are left to their addresses, and may stay where a release fails.
pub(crate) const LET_GO: &str = "let go";

/// More than the longest upload that always goes through staging.
const LARGE: usize = 1 << 20;

fn kernel(device: &Device, name: &str) -> Result<Kernel> {
    crate::own::kernel(&device.module(&image()?)?, name)
}

fn image() -> Result<Image> {
    Image::ptx(include_str!("../../../examples/kernels.ptx"))
}

fn add(stream: &Stream, add: &Kernel, to: &mut Block<u32>, more: u32) -> Result<()> {
    let n = to.len() as u32;
    stream.launch(add, Grid::cover(n, 64), (to, more, n))
}

/// The error of a release that handed the block back, which must still be owned.
fn still_owned(CloseError { value: block, error }: CloseError<Block<u32>>) -> Error {
    let owner = block.owner().expect("a block that was not released has its owner");
    assert_eq!(owner.base, block.address());
    error
}

/// A block goes round three streams, and others follow it.
pub(crate) fn three_streams(device: &Device) -> Result<()> {
    let more = kernel(device, "add")?;
    let streams = [device.new_stream()?, device.new_stream()?, device.new_stream()?];
    let mut x = streams[0].upload(&[1u32; 300])?;
    for (stream, by) in streams.iter().chain(&streams).zip(1..) {
        add(stream, &more, &mut x, by)?;
    }
    let mut copies = Vec::new();
    for stream in &streams {
        let mut copy = stream.alloc::<u32>(300)?;
        stream.copy(&x, &mut copy)?;
        copies.push(copy);
    }
    add(&streams[1], &more, &mut x, 100)?;
    assert_eq!(streams[2].download(&x)?, [122; 300]);
    assert_eq!(streams[0].download(&copies[1])?, [22; 300]);
    Ok(())
}

/// A block that another stream reads is dropped, and its size is requested again in both streams.
pub(crate) fn dropped_in_use(device: &Device) -> Result<()> {
    let spend = kernel(device, "spend")?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    for round in 0..2_u32 {
        let x = stream.upload(&[round; 1000])?;
        other.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
        let mut copy = other.alloc::<u32>(1000)?;
        other.copy(&x, &mut copy)?;
        drop(x);
        let y = stream.upload(&[77_u32; 1000])?;
        let z = other.alloc::<u32>(1000)?;
        assert_eq!(other.download(&copy)?, [round; 1000]);
        drop((y, z));
    }
    Ok(())
}

/// The three ways to release that report.
pub(crate) fn releases(device: &Device) -> Result<()> {
    let more = kernel(device, "add")?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    for _ in 0..2 {
        let (mut x, mut y, mut z) = (stream.zeros::<u32>(64)?, stream.zeros::<u32>(64)?, stream.zeros::<u32>(64)?);
        for block in [&mut x, &mut y, &mut z] {
            add(&other, &more, block, 1)?;
        }
        x.close().map_err(still_owned)?;
        y.release_after(&other.event()?).map_err(still_owned)?;
        z.release_now().map_err(still_owned)?;
    }
    Ok(())
}

/// Streams, contexts and modules closed with work pending, and used on where that was refused.
pub(crate) fn closings(device: &Device) -> Result<()> {
    let context = device.new_context()?;
    let module = context.module(&image()?)?;
    let spend = crate::own::kernel(&module, "spend")?;
    let (stream, kept) = (context.new_stream()?, context.new_stream()?);
    let mut x = kept.zeros::<u32>(64)?;
    stream.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
    stream.fill_bytes(&mut x, 1)?;
    stream.close().map_err(|failed| failed.value.synchronize().err().unwrap_or(failed.error))?;
    assert_eq!(kept.download(&x)?, [0x0101_0101; 64]);
    kept.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
    drop(spend);
    module.close();
    let context = match context.close() {
        Ok(()) => panic!("a context with a live block is closed"),
        Err(CloseError { value: context, error: Error::ContextInUse { blocks, .. } }) => {
            assert_eq!(blocks.len(), 1);
            context
        }
        Err(CloseError { error, .. }) => return Err(error),
    };
    drop(x);
    context.close().map_err(Error::from)
}

/// A context that goes with its blocks and its work.
pub(crate) fn context_with_blocks(device: &Device) -> Result<()> {
    let context = device.new_context()?;
    let spend = crate::own::kernel(&context.module(&image()?)?, "spend")?;
    let stream = context.new_stream()?;
    let (x, y) = (stream.zeros::<u32>(64)?, stream.zeros::<u32>(LARGE)?);
    let here = device.new_stream()?;
    let mut copy = here.alloc::<u32>(64)?;
    here.copy(&x, &mut copy)?;
    stream.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
    context.close_with_blocks()?;
    assert!(matches!(here.copy(&x, &mut copy), Err(Error::ContextClosed { .. })));
    assert!(matches!(y.close(), Err(CloseError { error: Error::ContextClosed { .. }, .. })));
    assert_eq!(here.download(&copy)?, [0; 64]);
    Ok(())
}

/// Contexts that are dropped, not closed.
pub(crate) fn contexts_dropped(device: &Device) -> Result<()> {
    for _ in 0..2 {
        let context = device.new_context()?;
        let more = crate::own::kernel(&context.module(&image()?)?, "add")?;
        let mut x = context.new_stream()?.zeros::<u32>(64)?;
        drop(context);
        add(&x.context().new_stream()?, &more, &mut x, 5)?;
        assert_eq!(device.new_stream()?.download(&x)?, [5; 64]);
    }
    Ok(())
}

/// Blocks that are known by their addresses.
pub(crate) fn by_address(device: &Device) -> Result<()> {
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let mut x = stream.alloc_tagged::<u32>(64, LET_GO)?;
        other.fill_bytes(&mut x, 7)?;
        addresses.push(x.into_address());
    }
    for &address in &addresses {
        device.note_use(address, &other)?;
    }
    device.release(addresses[0])?;
    let claimed = device.claim(addresses[1])?;
    assert_eq!(stream.download(&claimed)?, [7; 256]);
    drop(claimed);
    let freed = std::thread::scope(|scope| scope.spawn(|| device.release(addresses[2])).join());
    freed.expect("a release does not panic")
}

/// Copies of all kinds, through staging and past it.
pub(crate) fn copies(device: &Device) -> Result<()> {
    let stream = device.new_stream()?;
    let mut large = stream.upload(&vec![3_u32; LARGE])?;
    let small = stream.upload(&[1_u32, 2, 3, 4])?;
    stream.write(&mut large.view_mut(..2)?, &[8, 9])?;
    stream.copy(&small.view(1..3)?, &mut large.view_mut(2..4)?)?;
    let (mut low, high) = large.view_mut(..100)?.split_at(50)?;
    stream.fill_bytes(&mut low, 0)?;
    stream.copy(&small, &mut high.split_at(4)?.0)?;
    assert_eq!(stream.download(&large.view(48..56)?)?, [0, 0, 1, 2, 3, 4, 3, 3]);
    let mut bytes = vec![0_u32; LARGE];
    stream.read(&large, &mut bytes)?;
    assert_eq!(bytes[LARGE - 1], 3);
    stream.write(&mut large, &bytes)
}

/// Uses in no order, and orders by hand.
pub(crate) fn events(device: &Device) -> Result<()> {
    let (more, spend) = (kernel(device, "add")?, kernel(device, "spend")?);
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let x = stream.zeros::<u32>(64)?;
    for _ in 0..3 {
        stream.launch(&spend, Grid::line(1, 1), (100_000_u64,))?;
        let done = stream.event()?;
        other.wait(&done)?;
        // SAFETY: the launches add to the block one after the other, by the event.
        let unordered = unsafe { x.unordered() };
        other.launch(&more, Grid::line(1, 64), (unordered, 1_u32, 64_u32))?;
        let after = other.event()?;
        after.synchronize()?;
        assert!(done.is_complete()? && after.is_complete()?);
        stream.wait(&after)?;
    }
    assert_eq!(stream.download(&x)?, [3; 64]);
    Ok(())
}

/// Streams dropped with work, whose blocks live on.
pub(crate) fn streams_dropped(device: &Device) -> Result<()> {
    let spend = kernel(device, "spend")?;
    let kept = device.new_stream()?;
    for _ in 0..3 {
        let stream = device.new_stream()?;
        stream.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
        let mut x = kept.alloc::<u32>(64)?;
        stream.fill_bytes(&mut x, 2)?;
        let y = stream.alloc::<u32>(640)?;
        let passed = stream.event()?;
        drop(stream);
        drop(y);
        passed.synchronize()?;
        assert_eq!(kept.download(&x)?, [0x0202_0202; 64]);
    }
    device.tidy()
}

/// Memory that goes back to the driver, and more than there is.
pub(crate) fn memory_back(device: &Device) -> Result<()> {
    let stream = device.new_stream()?;
    let blocks = [512_usize, 5000, 1 << 20].map(|bytes| stream.zeros::<u8>(bytes));
    drop(blocks);
    stream.synchronize()?;
    device.trim()?;
    let free_bytes = device.free_bytes()?;
    let x = stream.zeros::<u8>(4096)?;
    drop(x);
    device.synchronize()?;
    let Err(error) = stream.alloc::<u8>(1 << 50) else { panic!("a device has a pebibyte") };
    if !matches!(error, Error::OutOfMemory { .. }) {
        return Err(error);
    }
    device.trim()?;
    assert!(device.free_bytes()? >= free_bytes);
    Ok(())
}

/// Two names sleep, one with its contents; blocks are released and allocated meanwhile, and both wake.
pub(crate) fn sleeps(device: &Device) -> Result<()> {
    let stream = device.new_stream()?;
    device.set_sleepable("weights")?;
    device.set_sleepable("cache")?;
    let mut weights = stream.alloc_tagged::<u32>(1 << 20, "weights")?;
    stream.fill(&mut weights, 7)?;
    let [gone, cache] = [stream.alloc_tagged::<u8>(3 << 20, "weights")?, stream.alloc_tagged(5000, "cache")?];
    drop(gone);
    device.sleep("weights", Contents::Keep)?;
    device.sleep("cache", Contents::Drop)?;
    let more = stream.alloc_tagged::<u8>(4 << 20, "cache")?;
    drop(cache);
    assert!(matches!(stream.download(&more), Err(Error::Asleep { .. } | Error::Faulted(_))));
    device.wake("cache")?;
    device.wake("weights")?;
    assert_eq!(stream.download(&weights.view(..100)?)?, [7; 100]);
    Ok(())
}

/// A pool that may have no more: chunks are moved to another stream's heap, lent after a wait, and given back.
pub(crate) fn memory_moved(device: &Device) -> Result<()> {
    device.set_budget(16 << 20);
    let (one, other) = (device.new_stream()?, device.new_stream()?);
    let mut blocks = Vec::new();
    for _ in 0..8 {
        blocks.push(one.alloc::<u8>(2 << 20)?);
    }
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    one.synchronize()?;
    let large = other.zeros::<u8>(8 << 20)?;
    drop(blocks);
    let lent = other.zeros::<u8>(1 << 20)?;
    drop(large);
    let again = one.zeros::<u8>(6 << 20)?;
    drop((lent, again));
    device.synchronize()?;
    device.trim()?;
    Ok(())
}

/// Memory that other processes can have, which makes room for other memory and gets it back.
pub(crate) fn shareable_moved(device: &Device) -> Result<()> {
    device.set_budget(8 << 20);
    let stream = device.new_stream()?;
    let mut x = stream.alloc_shareable::<u32>(64)?;
    stream.fill_bytes(&mut x, 1)?;
    let exported = x.export()?;
    assert_eq!((exported.chunk_bytes, exported.bytes), (2 << 20, 256));
    let large = stream.alloc_shareable::<u8>(6 << 20)?;
    drop(large);
    stream.synchronize()?;
    let private = stream.zeros::<u8>(6 << 20)?;
    assert_eq!(stream.download(&x)?, [0x0101_0101; 64]);
    drop((private, x, exported));
    device.synchronize()?;
    device.trim()?;
    Ok(())
}

/// What a module says of itself.
pub(crate) fn modules(device: &Device) -> Result<()> {
    let module = device.module(&image()?)?;
    let twin = module.duplicate()?;
    assert_eq!(module.kernels()?.len(), 8);
    assert_ne!(module.variable("counter")?.0, twin.variable("counter")?.0);
    match crate::own::kernel(&module, "missing") {
        Err(Error::NoSuchKernel { known, .. }) => assert_eq!(known.len(), 8),
        Err(error) => return Err(error),
        Ok(_) => panic!("a kernel was found that is not there"),
    }
    let (stream, nothing) = (device.new_stream()?, crate::own::kernel(&twin, "nothing")?);
    assert_eq!(crate::own::kernel(&module, "add")?.parameters().len(), 3);
    stream.launch(&nothing, Grid::line(1, 1), ())?;
    drop(nothing);
    twin.close();
    stream.synchronize()
}

/// Work put in by several threads at once.
pub(crate) fn threads(device: &Device) -> Result<()> {
    let more = kernel(device, "add")?;
    let stream = device.new_stream()?;
    let x = stream.upload(&[4_u32; 64])?.share();
    let outcomes = std::thread::scope(|scope| {
        let workers = [1_u32, 2].map(|by| {
            let (x, more) = (x.clone(), &more);
            scope.spawn(move || -> Result<()> {
                let own = device.new_stream()?;
                let mut copy = own.alloc::<u32>(64)?;
                own.copy(&x, &mut copy)?;
                add(&own, more, &mut copy, by)?;
                assert_eq!(own.download(&copy)?, [4 + by; 64]);
                Ok(())
            })
        });
        workers.map(|worker| worker.join().expect("a worker does not panic"))
    });
    outcomes.into_iter().collect()
}

/// Memory of others: mapped twice, used in two streams, and left while it is used.
pub(crate) fn imports(device: &Device) -> Result<()> {
    let (more, spend) = (kernel(device, "add")?, kernel(device, "spend")?);
    let descriptor = shared::memory(CHUNK);
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let read = device.import(descriptor.as_fd(), CHUNK, Permission::Read)?;
    for round in 1..3_u32 {
        let written = device.import(descriptor.as_fd(), CHUNK, Permission::ReadWrite)?;
        let mut part = written.slice::<u32>(&stream, 4096, 64)?;
        stream.fill_bytes(&mut part, 0)?;
        other.launch(&spend, Grid::line(1, 1), (200_000_u64,))?;
        other.launch(&more, Grid::line(1, 64), (&mut part, round, 64_u32))?;
        part.gather(&stream)?;
        drop((part, written));
        let seen = read.slice::<u32>(&stream, 4096, 64)?;
        assert_eq!(stream.download(&seen)?, [round; 64]);
    }
    match device.import(descriptor.as_fd(), 2 * CHUNK, Permission::Read) {
        Err(Error::OtherLength { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => panic!("more was imported than there is"),
    }
}

/// Words that two streams write and await, left while they do.
pub(crate) fn semaphores(device: &Device) -> Result<()> {
    let descriptor = shared::words(64);
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let seen = match device.shared_semaphores(descriptor.as_fd(), 8) {
        // There are devices without.
        Err(Error::NoSemaphores) => return Ok(()),
        outcome => outcome?,
    };
    // A wait is only put in where the write that it is for is on its way.
    let semaphores = device.shared_semaphores(descriptor.as_fd(), 2)?;
    for turn in 1..4 {
        stream.write_value(&semaphores, 0, turn)?;
        other.wait_value(&semaphores, 0, turn)?;
        other.write_value(&semaphores, 1, turn)?;
    }
    drop(semaphores);
    other.synchronize()?;
    assert_eq!([seen.read(0), seen.read(1)], [3, 3]);
    Ok(())
}

/// Memory that transfers use, after work and before it, and rows that are packed for them.
pub(crate) fn lendings(device: &Device) -> Result<()> {
    let more = kernel(device, "add")?;
    let (stream, other) = (device.new_stream()?, device.new_stream()?);
    let mut x = stream.upload(&[1_u32; 64])?;
    let mut packed = stream.zeros::<u32>(16)?;
    add(&other, &more, &mut x, 1)?;
    stream.copy_rows(&x, 8, &mut packed, 2, 2, 8)?;
    let lent = [stream.lend(&packed)?, other.lend(&x)?];
    lent.iter().try_for_each(|lent| lent.wait())?;
    lent.into_iter().for_each(ExternalAccess::done);
    stream.lend_mut(&mut x)?.failed();
    let refused = stream.download(&x);
    assert!(matches!(refused, Err(Error::Undefined { bytes: 256, .. } | Error::Faulted(_))), "{refused:?}");
    stream.fill_bytes(&mut x, 0)?;
    // Where streams await no words this thread would wait for itself.
    match device.shared_semaphores(shared::words(8).as_fd(), 1) {
        Err(Error::NoSemaphores) => return Ok(()),
        outcome => drop(outcome?),
    }
    for round in 1..4 {
        let lent = other.lend_mut(&mut x.view_mut(..32)?)?;
        add(&stream, &more, &mut x, 1)?;
        add(&other, &more, &mut x, 1)?;
        lent.done();
        assert_eq!(stream.download(&x)?, [2 * round; 64]);
    }
    assert_eq!(other.download(&packed)?, [2; 16]);
    let lent = stream.lend_mut(&mut packed)?;
    drop(packed);
    drop((stream, other));
    lent.done();
    Ok(())
}
