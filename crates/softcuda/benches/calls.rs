//! The cost of the software driver's most frequent calls.
//!
//! Each call is measured alone. Calls that streams might slow down are also measured while other streams copy
//! continuously.

mod bench;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use divan::Bencher;
use freehold_driver::cuda::{self, Api, event_flags, stream_flags};

use bench::Bench;

// SAFETY: the benchmark names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

fn main() {
    divan::main();
}

/// A stream in its own context that copies until it is dropped.
struct Traffic {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start() -> Self {
        const BYTES: usize = 1 << 20;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let _bench = Bench::new();
            let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
            let from = cuda::memory::alloc(&API, BYTES).expect("the device has memory");
            let to = cuda::memory::alloc(&API, BYTES).expect("the device has memory");
            while !seen.load(Ordering::Relaxed) {
                for _ in 0..8 {
                    cuda::copy::device_to_device_async(&API, to, from, BYTES, stream).expect("the spans are alive");
                }
                cuda::stream::synchronize(&API, stream).expect("copies do not fault");
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the traffic ends well");
        }
    }
}

#[divan::bench]
fn context_current(bencher: Bencher) {
    let _bench = Bench::new();
    bencher.bench_local(|| cuda::context::current(&API));
}

#[divan::bench(args = [512, 65_536, 2_097_152, 33_554_432])]
fn alloc_free_pair(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    bencher.bench_local(|| {
        let block = cuda::memory::alloc(&API, bytes).expect("the device has memory");
        cuda::memory::free(&API, block)
    });
}

#[divan::bench(args = [1, 100, 10_000])]
fn alloc_free_pair_beside_live_blocks(bencher: Bencher, blocks: usize) {
    let _bench = Bench::new();
    for _ in 0..blocks {
        cuda::memory::alloc(&API, 512).expect("the device has memory");
    }
    bencher.bench_local(|| {
        let block = cuda::memory::alloc(&API, 512).expect("the device has memory");
        cuda::memory::free(&API, block)
    });
}

#[divan::bench(args = [65_536, 33_554_432])]
fn alloc_free_async_pair(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    bencher.bench_local(|| {
        let block = cuda::memory::alloc_async(&API, bytes, stream).expect("the device has memory");
        cuda::memory::free_async(&API, block, stream)
    });
    cuda::stream::synchronize(&API, stream).expect("frees do not fault");
}

#[divan::bench]
fn event_record_and_query(bencher: Bencher) {
    let _bench = Bench::new();
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    let event = cuda::event::create(&API, event_flags::DISABLE_TIMING).expect("an event can be created");
    bencher.bench_local(|| {
        cuda::event::record(&API, event, stream).expect("both are of one context");
        cuda::event::query(&API, event)
    });
}

#[divan::bench]
fn event_record_and_query_beside_busy_streams(bencher: Bencher) {
    let _bench = Bench::new();
    let _traffic = Traffic::start();
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    let event = cuda::event::create(&API, event_flags::DISABLE_TIMING).expect("an event can be created");
    bencher.bench_local(|| {
        cuda::event::record(&API, event, stream).expect("both are of one context");
        cuda::event::query(&API, event)
    });
}

#[divan::bench]
fn alloc_free_pair_beside_busy_streams(bencher: Bencher) {
    let _bench = Bench::new();
    let _traffic = Traffic::start();
    bencher.bench_local(|| {
        let block = cuda::memory::alloc(&API, 512).expect("the device has memory");
        cuda::memory::free(&API, block)
    });
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[divan::bench]
fn host_function_round_trip(bencher: Bencher) {
    let _bench = Bench::new();
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    bencher.bench_local(|| {
        // SAFETY: the function touches nothing.
        unsafe { cuda::stream::launch_host(&API, stream, nothing, std::ptr::null_mut()) }.expect("the stream is alive");
        cuda::stream::synchronize(&API, stream)
    });
}

const KERNELS: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }
";

/// Launches an empty kernel of `blocks` blocks of 32 threads and waits for it.
#[divan::bench(args = [1, 64])]
fn kernel_round_trip(bencher: Bencher, blocks: u32) {
    let _bench = Bench::new();
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    // SAFETY: the text ends in a NUL.
    let module = unsafe { cuda::module::load(&API, KERNELS.as_ptr().cast()) }.expect("the text is right");
    let function = cuda::module::function(&API, module, c"nothing").expect("the module has the kernel");
    let shape = cuda::launch::LaunchConfig::linear(blocks, 32);
    bencher.bench_local(|| {
        // SAFETY: the kernel has no parameters and touches nothing.
        unsafe { cuda::launch::kernel(&API, function, shape, stream, &mut []) }.expect("the launch is right");
        cuda::stream::synchronize(&API, stream)
    });
}

/// Computes `y = a * x + y` over `count` elements, in blocks of 128 threads. Every access is checked.
#[divan::bench(args = [1 << 14, 1 << 18])]
fn saxpy(bencher: Bencher, count: u32) {
    /// PTX instructions of one thread.
    const INSTRUCTIONS: u64 = 20;
    let _bench = Bench::new();
    let text = concat!(include_str!("../tests/kernels/saxpy.ptx"), "\0");
    // SAFETY: the text ends in a NUL.
    let module = unsafe { cuda::module::load(&API, text.as_ptr().cast()) }.expect("the text is right");
    let function = cuda::module::function(&API, module, c"saxpy").expect("the module has the kernel");
    let bytes = 4 * count as usize;
    let (mut y, mut x) = (allocate(bytes), allocate(bytes));
    let (mut a, mut n) = (2.5f32, count);
    let shape = cuda::launch::LaunchConfig::linear(count.div_ceil(128), 128);
    let stream = cuda::stream::create(&API, stream_flags::NON_BLOCKING).expect("a stream can be created");
    bencher.counter(divan::counter::ItemsCount::new(INSTRUCTIONS * u64::from(count))).bench_local(|| {
        let mut arguments: [*mut c_void; 4] =
            [(&raw mut y).cast(), (&raw mut x).cast(), (&raw mut a).cast(), (&raw mut n).cast()];
        // SAFETY: the arguments are those of the kernel, which stays within the two blocks.
        unsafe { cuda::launch::kernel(&API, function, shape, stream, &mut arguments) }.expect("the launch is right");
        cuda::stream::synchronize(&API, stream)
    });
}

fn allocate(bytes: usize) -> cuda::CUdeviceptr {
    cuda::memory::alloc(&API, bytes).expect("there is memory")
}
