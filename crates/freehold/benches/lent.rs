//! Benchmark of lending a block that no pending work uses, and of ending the access: the overhead for a transfer
//! library beside its own call. On the software device, which is not called.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use divan::Bencher;
use divan::counter::ItemsCount;
use freehold::{Block, Device, Stream};
use freehold_driver::cuda::{Api, CUdevice, driver};

// SAFETY: the benchmark names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

/// Operations in a row.
const ROW: usize = 1000;

fn main() {
    divan::main();
}

/// A stream, and a block that its work has passed.
fn idle() -> (Stream, Block<u32>) {
    driver::init(&API, 0).unwrap();
    // SAFETY: the table is a driver's, and nothing of the device is destroyed by others.
    let stream = unsafe { Device::new(API, CUdevice(0)) }.unwrap().new_stream().unwrap();
    let block = stream.zeros::<u32>(1000).unwrap();
    stream.synchronize().unwrap();
    (stream, block)
}

#[divan::bench]
fn lend_and_done(bencher: Bencher<'_, '_>) {
    let (stream, block) = idle();
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for _ in 0..ROW {
            let lent = stream.lend(&block).unwrap();
            lent.wait().unwrap();
            lent.done();
        }
    });
}

#[divan::bench]
fn lend_mut_and_done(bencher: Bencher<'_, '_>) {
    let (stream, mut block) = idle();
    bencher.counter(ItemsCount::new(ROW)).bench_local(|| {
        for _ in 0..ROW {
            let lent = stream.lend_mut(&mut block).unwrap();
            lent.wait().unwrap();
            lent.done();
        }
    });
}
