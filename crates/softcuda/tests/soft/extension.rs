//! The software driver's extension of CUDA: it looks up blocks when a kernel is launched, and reports the fault of a
//! kernel.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::{Context, Gate, Refused, at, child, driver};
use freehold_driver::cuda::extension::{self, Extension};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUstreamCaptureMode, Function, capture, context, driver, graph, memory, stream,
};
use freehold_driver::{BlockBounds, BlockLookupFn};

/// The offset and the length of the one block that is reported for memory of 4096 bytes.
const BLOCK: (u64, u64) = (512, 16);

fn extension(own: &Context) -> Extension {
    extension::find(&own.api).expect("the software driver has it")
}

/// Returns a look-up function that reports one block.
fn one_block(start: CUdeviceptr) -> BlockLookupFn {
    let base = start.0 + BLOCK.0;
    Box::new(move |address| {
        let is_there = address.wrapping_sub(base) < 512;
        is_there.then_some(BlockBounds { base, bytes: BLOCK.1, is_live: true })
    })
}

/// Launches `count` threads, each of which writes a word from an address on, and waits.
fn store(own: &Context, to: CUdeviceptr, count: u32) -> Result<(), CUerror> {
    let (kernel, stream) = (own.kernel(c"store"), own.stream());
    own.run(kernel, LaunchConfig::linear(1, count), stream, &[to.0.into(), 1_u32.into()]).unwrap();
    stream::synchronize(&own.api, stream).map_err(|error| error.code)
}

#[test]
fn the_extension_is_found_by_its_name_and_version() {
    let (api, _) = driver();
    let found = driver::proc_address(&api, extension::NAME, 12_000, 0).unwrap();
    // SAFETY: the function of this name is an `Entry`.
    let entry = unsafe { std::mem::transmute::<*mut std::ffi::c_void, extension::Entry>(found.function) };
    // SAFETY: the function takes a number.
    let tables = [extension::VERSION, extension::VERSION + 1].map(|version| unsafe { entry(version) });
    assert!(!tables[0].is_null() && tables[1].is_null());
    assert!(driver::proc_address(&api, c"freeholdOther", 12_000, 0).unwrap().function.is_null());
}

/// As NVIDIA's driver.
#[test]
fn a_driver_that_does_not_know_the_name_has_no_extension() {
    let (api, _) = driver();
    let without = freehold_driver::cuda::faults::Faults::plan(
        &api,
        freehold_driver::cuda::faults::Fault {
            function: Some(Function::cuGetProcAddress_v2),
            nth: 1,
            code: CUerror::NOT_SUPPORTED,
        },
    );
    assert!(extension::find(without.api()).is_none());
    assert!(extension::find(&api).is_some());
}

#[test]
fn a_kernel_that_leaves_an_annotated_block_faults() {
    child::run_in_child("a_kernel_that_leaves_an_annotated_block_faults", || {
        let own = Context::create();
        let memory = own.block(4096);
        let block = at(memory, BLOCK.0);
        let _described = extension(&own).annotate_blocks(memory.0, 4096, one_block(memory)).unwrap();
        assert_eq!(store(&own, block, 4), Ok(()));
        assert_eq!(extension(&own).fault(), None);
        assert_eq!(store(&own, block, 5), Err(CUerror::ILLEGAL_ADDRESS));
        let told = extension(&own).fault().expect("the driver knows");
        assert_eq!((&*told.kernel, told.block, told.thread), ("store", [0; 3], [4, 0, 0]));
        assert_eq!(told.address, Some(block.0 + 16));
        let end = format!(": 4 bytes past the end of a block of 16 bytes at {:#x}", block.0);
        assert!(told.message.ends_with(&end), "{}", told.message);
    });
}

#[test]
fn memory_that_was_forgotten_or_never_described_has_the_bounds_of_its_allocation() {
    let own = Context::create();
    let memory = own.block(4096);
    drop(extension(&own).annotate_blocks(memory.0, 4096, one_block(memory)).unwrap());
    assert_eq!(store(&own, at(memory, BLOCK.0), 5), Ok(()));
    let _elsewhere = extension(&own).annotate_blocks(memory.0 + (1 << 30), 4096, one_block(memory)).unwrap();
    assert_eq!(store(&own, at(memory, BLOCK.0), 5), Ok(()));
}

#[test]
fn where_no_block_is_known_the_allocation_bounds_an_access() {
    let own = Context::create();
    let memory = own.block(4096);
    let _described = extension(&own).annotate_blocks(memory.0, 4096, one_block(memory)).unwrap();
    assert_eq!(store(&own, at(memory, 2048), 100), Ok(()));
}

#[test]
fn a_block_has_the_bounds_of_the_moment_of_the_launch() {
    let own = Context::create();
    let (memory, stream, kernel) = (own.block(4096), own.stream(), own.kernel(c"store"));
    let bytes = Arc::new(AtomicU64::new(400));
    let (asked, base) = (bytes.clone(), memory.0);
    let look_up: BlockLookupFn =
        Box::new(move |_| Some(BlockBounds { base, bytes: asked.load(Ordering::SeqCst), is_live: true }));
    let _described = extension(&own).annotate_blocks(memory.0, 4096, look_up).unwrap();
    let gate = Gate::closed(&own);
    gate.hold(&own.api, stream);
    let launch = |count| own.run(kernel, LaunchConfig::linear(1, count), stream, &[memory.0.into(), 1_u32.into()]);
    launch(100).unwrap();
    bytes.store(4, Ordering::SeqCst);
    launch(1).unwrap();
    gate.opened_during(|| own.finish(stream));
}

#[test]
fn each_launch_of_a_graph_has_the_bounds_of_its_capture() {
    child::run_in_child("each_launch_of_a_graph_has_the_bounds_of_its_capture", || {
        let own = Context::create();
        let (memory, stream, kernel) = (own.block(4096), own.stream(), own.kernel(c"store"));
        let block = at(memory, BLOCK.0);
        let described = extension(&own).annotate_blocks(memory.0, 4096, one_block(memory)).unwrap();
        let graph_of = |count| {
            capture::begin(&own.api, stream, CUstreamCaptureMode::RELAXED).unwrap();
            own.run(kernel, LaunchConfig::linear(1, count), stream, &[block.0.into(), 1_u32.into()]).unwrap();
            let graph = capture::end(&own.api, stream).unwrap();
            graph::instantiate(&own.api, graph, 0).unwrap()
        };
        let launch = |exec| {
            // SAFETY: the kernel of the graph reaches memory of the device alone.
            unsafe { graph::launch(&own.api, exec, stream) }.unwrap();
        };
        let (good, bad) = (graph_of(4), graph_of(5));
        drop(described);
        launch(good);
        launch(good);
        own.finish(stream);
        launch(bad);
        assert_eq!(stream::synchronize(&own.api, stream).code(), CUerror::ILLEGAL_ADDRESS);
    });
}

#[test]
fn only_words_of_arguments_that_addresses_come_from_are_looked_up() {
    let own = Context::create();
    let memory = own.block(4096);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let list = asked.clone();
    let look_up: BlockLookupFn = Box::new(move |address| {
        list.lock().unwrap().push(address);
        None
    });
    let _described = extension(&own).annotate_blocks(memory.0, 4096, look_up).unwrap();
    assert_eq!(store(&own, at(memory, 64), 1), Ok(()));
    memory::info(&own.api).unwrap();
    context::synchronize(&own.api).unwrap();
    // The address itself, and the byte before it, where a block may end.
    assert_eq!(*asked.lock().unwrap(), [memory.0 + 64, memory.0 + 63]);
}
