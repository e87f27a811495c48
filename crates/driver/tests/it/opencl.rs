//! An OpenCL context as a backend, with each memory model. On a machine without OpenCL these tests say so and pass,
//! unless FREEHOLD_DEVICE asks for it.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use freehold_driver::handle::{Event, Kernel, Module, Stream};
use freehold_driver::opencl::device::Svm;
use freehold_driver::opencl::discovery::{self, InstalledDevice};
use freehold_driver::opencl::{Context, MemoryModel};
use freehold_driver::{
    ArgKind, Arguments, Backend, CallError, DeviceMemory, ErrorKind, ImageKind, Kernels, LaunchConfig, LoadError,
    Parameter, Pattern, PitchedPtr,
};
use freehold_testing::at_effort;

const KERNELS: &[u8] = b"
__kernel void add(__global uint *x, uint more, uint n) {
    uint i = (uint)get_global_id(0);
    if (i < n) { x[i] += more; }
}
__kernel void grouped(__global uint *to, __local uint *scratch) {
    scratch[get_local_id(0)] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        uint sum = 0;
        for (uint at = 0; at < get_local_size(0); at++) { sum += scratch[at]; }
        *to = sum;
    }
}
__kernel void slow(__global uint *x, uint turns) {
    uint value = *x;
    for (uint turn = 0; turn < turns; turn++) { value = value * 1664525u + 1013904223u; }
    *x = value;
}
\0";

type Result<T> = std::result::Result<T, CallError>;

/// An OpenCL context looks up every handle and address that it is given, so tests may pass any.
struct TestContext(Context);

macro_rules! safe_calls {
    ($(fn $name:ident($($argument:ident: $of:ty),*) -> $answer:ty;)*) => {
        impl TestContext {$(
            fn $name(&self, $($argument: $of),*) -> $answer {
                // SAFETY: the context rejects unknown handles, and no test uses memory in two streams at once.
                unsafe { self.0.$name($($argument),*) }
            }
        )*}
    };
}

safe_calls! {
    fn close() -> Result<()>;
    fn free(address: u64) -> Result<()>;
    fn destroy_stream(stream: Stream) -> Result<()>;
    fn is_idle(stream: Stream) -> Result<bool>;
    fn wait_until_idle(stream: Stream) -> Result<()>;
    fn destroy_event(event: Event) -> Result<()>;
    fn record(event: Event, stream: Stream) -> Result<()>;
    fn is_complete(event: Event) -> Result<bool>;
    fn wait(event: Event) -> Result<()>;
    fn stream_wait_event(stream: Stream, event: Event) -> Result<()>;
    fn copy(to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;
    fn copy_2d(to: PitchedPtr, from: PitchedPtr, row_bytes: usize, rows: usize, stream: Stream) -> Result<()>;
    fn fill(to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()>;
    fn kernel(module: Module, name: &CStr) -> Result<Option<Kernel>>;
    fn kernel_names(module: Module) -> Result<Vec<String>>;
    fn parameters(kernel: Kernel) -> Result<Vec<Parameter>>;
}

impl std::ops::Deref for TestContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.0
    }
}

/// Contexts on the first device: one for each memory model that it supports.
fn contexts() -> Vec<TestContext> {
    let Some(found) = found() else { return Vec::new() };
    let mut manners = vec![MemoryModel::Buffers];
    if found.info.svm != Svm::None {
        manners.push(MemoryModel::Svm);
    }
    manners.into_iter().map(|manner| TestContext(Context::new(found.clone(), manner).unwrap())).collect()
}

fn found() -> Option<InstalledDevice> {
    static FOUND: OnceLock<std::result::Result<Vec<InstalledDevice>, discovery::DiscoveryError>> = OnceLock::new();
    // SAFETY: one thread calls, and the others wait for it.
    match FOUND.get_or_init(|| unsafe { discovery::devices() }) {
        Ok(all) => Some(all[0].clone()),
        Err(absence) => {
            let is_demanded = std::env::var("FREEHOLD_DEVICE").is_ok_and(|device| device.starts_with("opencl"));
            assert!(!is_demanded, "FREEHOLD_DEVICE asks for OpenCL, but {absence}");
            println!("nothing was tested: {absence}");
            None
        }
    }
}

fn upload(context: &TestContext, to: u64, values: &[u32], stream: Stream) {
    let bytes = std::mem::size_of_val(values);
    // SAFETY: the copy has completed before the values are dropped.
    unsafe { context.upload(to, values.as_ptr().cast(), bytes, stream) }.unwrap();
    context.wait_until_idle(stream).unwrap();
}

fn download(context: &TestContext, from: u64, len: usize, stream: Stream) -> Vec<u32> {
    let mut values = vec![0_u32; len];
    // SAFETY: the copy has completed before the values are read.
    unsafe { context.download(values.as_mut_ptr().cast(), from, 4 * len, stream) }.unwrap();
    context.wait_until_idle(stream).unwrap();
    values
}

/// Launches `add` over 100 values.
fn add(context: &TestContext, kernel: Kernel, x: u64, more: u32, stream: Stream) {
    let (mut x, mut more, mut n) = (x, more, 100_u32);
    let mut pointers = [(&raw mut x).cast::<c_void>(), (&raw mut more).cast::<c_void>(), (&raw mut n).cast::<c_void>()];
    let passed = [ArgKind::Address, ArgKind::Value { bytes: 4 }, ArgKind::Value { bytes: 4 }];
    let arguments = Arguments { pointers: &mut pointers, kinds: &passed };
    // SAFETY: there are three arguments of these sizes.
    unsafe { context.launch(kernel, LaunchConfig::linear(4, 32), stream, arguments) }.unwrap();
}

fn load(context: &TestContext) -> freehold_driver::handle::Module {
    // SAFETY: the text ends in a NUL.
    unsafe { context.load(ImageKind::OpenCl, KERNELS) }.unwrap()
}

#[test]
fn what_is_uploaded_copied_and_filled_comes_back() {
    for context in contexts() {
        let stream = context.create_stream().unwrap();
        let (one, two) = (context.alloc(4096).unwrap(), context.alloc(4096).unwrap());
        upload(&context, one + 512, &[1, 2, 3], stream);
        context.fill(two, Pattern::U8(0xff), 4096, stream).unwrap();
        context.copy(two + 1024, one + 516, 8, stream).unwrap();
        assert_eq!(download(&context, two + 1024, 3, stream), [2, 3, u32::MAX]);
        let rows = |start, pitch_bytes| PitchedPtr { start, pitch_bytes };
        upload(&context, one, &[1, 2, 3, 4, 5, 6], stream);
        context.copy_2d(rows(two, 16), rows(one, 8), 4, 3, stream).unwrap();
        assert_eq!(
            download(&context, two, 9, stream),
            [1, u32::MAX, u32::MAX, u32::MAX, 3, u32::MAX, u32::MAX, u32::MAX, 5]
        );
        context.close().unwrap();
    }
}

#[test]
fn an_unallocated_address_is_rejected_and_not_dereferenced() {
    for context in contexts() {
        let stream = context.create_stream().unwrap();
        let block = context.alloc(4096).unwrap();
        let refused = |outcome: Result<()>| outcome.unwrap_err().kind;
        assert_eq!(refused(context.fill(block + 4000, Pattern::U8(0), 200, stream)), ErrorKind::Other);
        assert_eq!(refused(context.fill(64, Pattern::U8(0), 1, stream)), ErrorKind::Other);
        assert_eq!(refused(context.free(block + 64)), ErrorKind::Other);
        context.free(block).unwrap();
        assert_eq!(refused(context.free(block)), ErrorKind::Other);
        assert_eq!(refused(context.fill(block, Pattern::U8(0), 1, stream)), ErrorKind::Other);
        context.close().unwrap();
    }
}

#[test]
fn allocations_are_counted_and_too_much_is_rejected() {
    for context in contexts() {
        let total_bytes = context.total_bytes().unwrap();
        assert_eq!(context.memory_info().unwrap().free_bytes, total_bytes);
        let block = context.alloc(1 << 20).unwrap();
        assert_eq!(context.memory_info().unwrap().free_bytes, total_bytes - (1 << 20));
        assert!(context.alloc(total_bytes).unwrap_err().is_out_of_memory());
        context.free(block).unwrap();
        assert_eq!(context.memory_info().unwrap().free_bytes, total_bytes);
        context.close().unwrap();
    }
}

#[test]
fn a_kernel_is_given_addresses_into_the_middle_of_a_block() {
    for context in contexts() {
        let stream = context.create_stream().unwrap();
        let kernel = context.kernel(load(&context), c"add").unwrap().unwrap();
        let block = context.alloc(64 << 10).unwrap();
        context.fill(block, Pattern::U8(0), 64 << 10, stream).unwrap();
        add(&context, kernel, block + 4096, 7, stream);
        add(&context, kernel, block + 4096, 1, stream);
        assert_eq!(download(&context, block + 4096, 100, stream), [8; 100]);
        assert_eq!(download(&context, block, 1024, stream), [0; 1024]);
        context.close().unwrap();
    }
}

#[test]
fn kernel_parameters_are_known_and_local_memory_is_not_an_argument() {
    for context in contexts() {
        let module = load(&context);
        let mut names = context.kernel_names(module).unwrap();
        names.sort();
        assert_eq!(names, ["add", "grouped", "slow"]);
        let four = Parameter { bytes: Some(4) };
        let eight = Parameter { bytes: Some(8) };
        let add = context.kernel(module, c"add").unwrap().unwrap();
        assert_eq!(context.parameters(add).unwrap(), [eight, four, four]);
        let grouped = context.kernel(module, c"grouped").unwrap().unwrap();
        assert_eq!(context.parameters(grouped).unwrap(), [eight]);
        assert_eq!(context.kernel(module, c"nothing").unwrap(), None);

        let stream = context.create_stream().unwrap();
        let mut to = context.alloc(4096).unwrap();
        let mut pointers = [(&raw mut to).cast::<c_void>()];
        let shape = LaunchConfig { shared_bytes: 64 * 4, ..LaunchConfig::linear(1, 64) };
        let arguments = Arguments { pointers: &mut pointers, kinds: &[ArgKind::Address] };
        // SAFETY: there is one argument, of eight bytes.
        unsafe { context.launch(grouped, shape, stream, arguments) }.unwrap();
        assert_eq!(download(&context, to, 1, stream), [64]);
        context.close().unwrap();
    }
}

#[test]
fn a_source_error_is_an_image_error_with_a_log() {
    for context in contexts() {
        let text = b"__kernel void f(__global int *x) { *x = unheard_of; }\0";
        // SAFETY: the text ends in a NUL.
        let failed = unsafe { context.load(ImageKind::OpenCl, text) }.unwrap_err();
        assert!(matches!(&failed, LoadError::Image { log, .. } if log.contains("unheard_of")), "{failed}");
        assert!(!context.supports(ImageKind::Ptx));
        context.close().unwrap();
    }
}

/// An amount of work that takes the device a while.
fn spin_count() -> u32 {
    at_effort(5_000_000, 20_000_000, 200_000_000)
}

/// Enqueues work that takes the device a while, and returns its stream.
fn busy(context: &TestContext, block: u64) -> Stream {
    let stream = context.create_stream().unwrap();
    let kernel = context.kernel(load(context), c"slow").unwrap().unwrap();
    let (mut x, mut turns) = (block, spin_count());
    let mut pointers = [(&raw mut x).cast::<c_void>(), (&raw mut turns).cast::<c_void>()];
    let passed = [ArgKind::Address, ArgKind::Value { bytes: 4 }];
    let arguments = Arguments { pointers: &mut pointers, kinds: &passed };
    // SAFETY: there are two arguments of these sizes.
    unsafe { context.launch(kernel, LaunchConfig::linear(1, 1), stream, arguments) }.unwrap();
    stream
}

#[test]
fn an_event_has_passed_when_what_was_put_in_before_it_is_done() {
    for context in contexts() {
        let block = context.alloc(4096).unwrap();
        let event = context.create_event().unwrap();
        assert!(context.is_complete(event).unwrap());
        let idle = context.create_stream().unwrap();
        context.record(event, idle).unwrap();
        assert!(context.is_complete(event).unwrap());
        let stream = busy(&context, block);
        context.record(event, stream).unwrap();
        context.wait(event).unwrap();
        assert!(context.is_complete(event).unwrap());
        assert!(context.is_idle(stream).unwrap());
        context.destroy_event(event).unwrap();
        assert_eq!(context.is_complete(event).unwrap_err().kind, ErrorKind::Other);
        context.close().unwrap();
    }
}

#[test]
fn a_stream_waits_on_the_device_for_an_event_of_another() {
    for context in contexts() {
        let (block, seen) = (context.alloc(4096).unwrap(), context.alloc(4096).unwrap());
        let other = context.create_stream().unwrap();
        upload(&context, block, &[1], other);
        let stream = busy(&context, block);
        let event = context.create_event().unwrap();
        context.record(event, stream).unwrap();
        context.stream_wait_event(other, event).unwrap();
        context.destroy_event(event).unwrap();
        context.copy(seen, block, 4, other).unwrap();
        let expected = (0..spin_count()).fold(1_u32, |value, _| value.wrapping_mul(1664525).wrapping_add(1013904223));
        assert_eq!(download(&context, seen, 1, other), [expected]);
        context.close().unwrap();
    }
}

#[test]
fn a_stream_that_is_destroyed_with_work_finishes_it_and_nothing_of_it_is_left() {
    for context in contexts() {
        let block = context.alloc(4096).unwrap();
        let stream = busy(&context, block);
        let event = context.create_event().unwrap();
        context.record(event, stream).unwrap();
        context.destroy_stream(stream).unwrap();
        context.wait(event).unwrap();
        assert_eq!(context.fill(block, Pattern::U8(0), 1, stream).unwrap_err().kind, ErrorKind::Other);
        context.synchronize().unwrap();
        context.close().unwrap();
    }
}

#[test]
fn times_between_events_are_those_of_the_work_between_them() {
    for context in contexts() {
        let timing = context.timing().unwrap();
        let block = context.alloc(4096).unwrap();
        let stream = busy(&context, block);
        let (from, to) = (timing.create_timed_event().unwrap(), timing.create_timed_event().unwrap());
        context.record(from, stream).unwrap();
        context.fill(block, Pattern::U8(1), 4096, stream).unwrap();
        context.record(to, stream).unwrap();
        context.wait_until_idle(stream).unwrap();
        // SAFETY: both are timed events.
        let elapsed = |from, to| unsafe { timing.elapsed_ms(from, to) }.unwrap();
        let elapsed_ms = elapsed(from, to);
        assert!(elapsed_ms >= 0.0, "{elapsed_ms} ms");
        assert_eq!(elapsed(to, from), -elapsed_ms);
        context.close().unwrap();
    }
}

#[test]
fn memory_of_the_host_is_written_read_and_given_back() {
    for context in contexts() {
        let stream = context.create_stream().unwrap();
        let block = context.alloc(4096).unwrap();
        let host = context.alloc_host(4096).unwrap();
        // SAFETY: the memory has 4096 bytes, and nothing else uses it.
        unsafe { host.write_bytes(0x5a, 4096) };
        // SAFETY: the memory is unchanged until the stream is idle.
        unsafe { context.upload(block, host.as_ptr(), 4096, stream) }.unwrap();
        assert_eq!(download(&context, block, 1024, stream), [0x5a5a_5a5a; 1024]);
        // SAFETY: the stream is idle, and the memory is no longer used.
        unsafe { context.free_host(host) }.unwrap();
        context.close().unwrap();
    }
}

#[test]
fn two_threads_launch_one_kernel_with_arguments_of_their_own() {
    for context in contexts() {
        let module = load(&context);
        let kernel = context.kernel(module, c"add").unwrap().unwrap();
        std::thread::scope(|scope| {
            for more in 1..=4_u32 {
                let context = &context;
                scope.spawn(move || {
                    let stream = context.create_stream().unwrap();
                    let block = context.alloc(4096).unwrap();
                    context.fill(block, Pattern::U8(0), 4096, stream).unwrap();
                    for _ in 0..50 {
                        add(context, kernel, block, more, stream);
                    }
                    assert_eq!(download(context, block, 100, stream), [50 * more; 100]);
                });
            }
        });
        context.close().unwrap();
    }
}
