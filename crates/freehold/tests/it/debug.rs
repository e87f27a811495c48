//! What `{:?}` prints: one line that identifies a handle, and the message of an error.

use std::fmt::Debug;
use std::os::fd::AsFd;

use freehold::{Adoption, Arena, DeviceVec, DynArg, Error, Grid, Image, Permission, Value};

use crate::own::{Own, kernel};
use crate::shared;

/// The longest text that is looked at in a line or two.
const BYTES_MAX: usize = 500;

fn short(what: &str, shown: &dyn Debug) {
    let text = format!("{shown:?}");
    assert!(text.len() < BYTES_MAX, "{what}: {} bytes: {}", text.len(), &text[..BYTES_MAX]);
}

#[test]
fn every_public_handle_prints_short() {
    let own = Own::new();
    let [stream, other] = own.streams();
    // Warm: with blocks that are owned, kept and leaving, and a kernel in two streams.
    let blocks: Vec<_> = (1..200).map(|kib| stream.zeros::<u32>(kib * 256).unwrap()).collect();
    drop(stream.zeros::<u8>(64 << 20).unwrap());
    let mut block = stream.zeros::<u32>(1000).unwrap();
    other.launch(&own.kernels.add, Grid::cover(1000_u32, 256), (&mut block, 1_u32, 1000_u32)).unwrap();
    short("device", &own.device);
    short("context", own.device.primary());
    short("stream", &stream);
    short("event", &stream.event().unwrap());
    short("module", &own.kernels.module);
    short("kernel", &kernel(&own.kernels.module, "scale").unwrap());
    short("image", &Image::ptx(include_str!("../../examples/kernels.ptx")).unwrap());
    short("grid", &Grid::line(1, 1));
    short("totals", &own.device.stats());
    short("owner", &block.owner());
    short("view", &block.view(1..).unwrap());
    short("view_mut", &block.view_mut(1..).unwrap());
    short("actual", &DynArg::memory_mut(&mut block, 0));
    short("value", &Value(1.0_f32));
    // SAFETY: it is used for nothing.
    short("unordered", &unsafe { block.unordered() });
    short("lent", &other.lend_mut(&mut block).unwrap());
    short("block", &block);
    short("shared", &block.share());
    let mut vector = DeviceVec::<f64>::new(&stream).unwrap();
    vector.resize(&stream, 100_000, 1.5).unwrap();
    short("vector", &vector);
    let mut arena = Arena::new(&stream, 1 << 20).unwrap();
    arena.scope(|scope| {
        let pieces: Vec<_> = (0..100).map(|_| scope.alloc::<u8>(1000).unwrap()).collect();
        short("piece", &pieces[99]);
        short("scope", scope);
    });
    short("arena", &arena);
    short("adopted", &own.device.adopt(1 << 20, 4096, Adoption::Foreign, "theirs").unwrap());
    let words = shared::words(128);
    short("semaphores", &own.device.shared_semaphores(words.as_fd(), 16).unwrap());
    short("host memory", &own.device.host_memory(words.as_fd(), 128).unwrap());
    let imported = own.device.import(shared::memory(shared::CHUNK).as_fd(), shared::CHUNK, Permission::Read).unwrap();
    short("part", &imported.slice::<u32>(&stream, 0, 100).unwrap());
    short("unmap_status", &imported.unmap_status());
    short("imported", &imported);
    short("recording", &own.device.record(None).unwrap());
    drop(blocks);
}

#[test]
fn an_error_prints_its_sentence_wherever_it_is_printed() {
    let own = Own::new();
    let [stream] = own.streams();
    let error = stream.alloc::<[u8; 0]>(1).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    let fails = || -> freehold::Result<()> { stream.alloc::<[u8; 0]>(1).map(drop) };
    // What the runtime prints of a `main` that returns it.
    assert_eq!(format!("Error: {:?}", fails().unwrap_err()), "Error: zero bytes: expected at least one");
    let Err(error) = freehold::open::device(Some("gpu")) else { panic!("there is no such device") };
    assert_eq!(
        format!("{error:?}"),
        r#"unknown device "gpu": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"#
    );
    let Err(Error::WrongRelease(wrong)) = own.device.release(16) else { panic!("nobody has it") };
    assert_eq!(format!("{wrong:?}"), wrong.to_string());
}
