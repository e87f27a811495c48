//! Injected failures of calls on the software driver: a program that handles them leaves nothing behind.

use crate::common;

use common::kernels::{TEXT, pointers};
use common::{Context, child};
use freehold_driver::cuda::faults::{Fault, Faults};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{
    Api, CUcontext, CUdeviceptr, CUerror, CUevent, CUjitInputType, CUlibrary, CUlinkState, CUmemPoolProps,
    CUmemoryPool, CUmodule, CUstream, DriverError, Function, context, copy, event, fill, host, library, link, memory,
    module, pool, stream,
};
use freehold_testing::report_covered;

const MIB: usize = 1 << 20;

/// The objects of a program, released in reverse order. Releases use the driver directly, so that only the program's
/// own calls fail.
struct Held<'d> {
    direct: &'d Api,
    things: Vec<Thing>,
}

#[derive(Clone, Copy)]
enum Thing {
    Context(CUcontext),
    Block(CUdeviceptr),
    Pinned(usize),
    Stream(CUstream),
    Event(CUevent),
    Pool(CUmemoryPool),
    PoolBlock(CUdeviceptr),
    Module(CUmodule),
    Library(CUlibrary),
    Link(CUlinkState),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let api = self.direct;
        while let Some(thing) = self.things.pop() {
            match thing {
                Thing::Context(context) => context::destroy(api, context),
                Thing::Block(block) => memory::free(api, block),
                // SAFETY: nothing but the program, which is over, uses the memory.
                Thing::Pinned(start) => unsafe { host::free(api, start as *mut _) },
                Thing::Stream(stream) => stream::destroy(api, stream),
                Thing::Event(event) => event::destroy(api, event),
                Thing::Pool(pool) => pool::destroy(api, pool),
                Thing::PoolBlock(block) => memory::free_async(api, block, CUstream::LEGACY),
                Thing::Module(loaded) => module::unload(api, loaded),
                Thing::Library(loaded) => library::unload(api, loaded),
                Thing::Link(state) => link::destroy(api, state),
            }
            .unwrap();
        }
    }
}

/// Allocates ten blocks and writes each.
fn ten_blocks(api: &Api, held: &mut Held<'_>) -> Result<(), DriverError> {
    for bytes in (1..=10).map(|step| step * 700_000) {
        let block = memory::alloc(api, bytes)?;
        held.things.push(Thing::Block(block));
        fill::d8(api, block, 1, bytes)?;
    }
    Ok(())
}

/// Makes calls of every kind.
fn everything(api: &Api, held: &mut Held<'_>, own: &Context) -> Result<(), DriverError> {
    let handle = context::create(api, own.device, 0)?;
    held.things.push(Thing::Context(handle));
    let made = pool::create(api, &CUmemPoolProps::on_device(own.device))?;
    held.things.push(Thing::Pool(made));
    for _ in 0..3 {
        let work = stream::create(api, 0)?;
        held.things.push(Thing::Stream(work));
        let done = event::create(api, 0)?;
        held.things.push(Thing::Event(done));
        let block = memory::alloc(api, MIB)?;
        held.things.push(Thing::Block(block));
        let pooled = memory::alloc_from_pool_async(api, MIB, made, work)?;
        held.things.push(Thing::PoolBlock(pooled));
        let pinned = host::alloc(api, MIB)?;
        held.things.push(Thing::Pinned(pinned as usize));
        fill::d8_async(api, pooled, 7, MIB, work)?;
        copy::device_to_device_async(api, block, pooled, MIB, work)?;
        // SAFETY: the memory is freed after the stream is waited for, or by the driver with the context.
        unsafe { copy::device_to_host_async(api, pinned, block, MIB, work) }?;
        event::record(api, done, work)?;
        stream::wait_event(api, CUstream::LEGACY, done, 0)?;
        event::synchronize(api, done)?;
    }
    context::synchronize(api)
}

/// Loads images in every way and launches kernels of them.
fn kernels(api: &Api, held: &mut Held<'_>, own: &Context) -> Result<(), DriverError> {
    let handle = context::create(api, own.device, 0)?;
    held.things.push(Thing::Context(handle));
    // SAFETY: the text ends in a NUL.
    let loaded = unsafe { module::load(api, TEXT.as_ptr().cast()) }?;
    held.things.push(Thing::Module(loaded));
    let multiply = module::function(api, loaded, c"multiply")?;
    let counter = module::global(api, loaded, c"counter")?;
    // SAFETY: the text ends in a NUL, and there are no options.
    let shared = unsafe { library::load(api, TEXT.as_ptr().cast(), &mut Options::new()) }?;
    held.things.push(Thing::Library(shared));
    let gather = library::kernel(api, shared, c"gather")?;
    // SAFETY: there are no options.
    let state = unsafe { link::create(api, &mut Options::new()) }?;
    held.things.push(Thing::Link(state));
    // SAFETY: there are no options.
    unsafe { link::add(api, state, CUjitInputType::PTX, TEXT.to_bytes_with_nul(), c"text", &mut Options::new()) }?;
    let linked = link::complete(api, state)?;
    // SAFETY: the image lives until the link is destroyed.
    let second = unsafe { module::load(api, linked.start) }?;
    held.things.push(Thing::Module(second));
    // SAFETY: the kernel has no parameters.
    unsafe { launch::kernel(api, multiply, LaunchConfig::linear(1, 1), CUstream::LEGACY, &mut []) }?;
    fill::d32(api, counter.base, 0, 1)?;
    let mut arguments = [counter.base.0.into()];
    let mut arguments = pointers(&mut arguments);
    // SAFETY: the argument is the one that the kernel has.
    unsafe { launch::cooperative(api, gather.into(), LaunchConfig::linear(8, 8), CUstream::LEGACY, &mut arguments) }?;
    context::synchronize(api)
}

/// Returns the free memory when all work is done.
fn free_bytes(own: &Context) -> usize {
    own.enter();
    context::synchronize(&own.api).unwrap();
    memory::info(&own.api).unwrap().free_bytes
}

#[test]
fn for_every_n_the_nth_alloc_fails_and_nothing_leaks() {
    child::run_in_child("for_every_n_the_nth_alloc_fails_and_nothing_leaks", || {
        let own = Context::create();
        let before = free_bytes(&own);
        for nth in 1..=11 {
            let fault = Fault { function: Some(Function::cuMemAlloc_v2), nth, code: CUerror::OUT_OF_MEMORY };
            let faults = Faults::plan(&own.api, fault);
            let mut held = Held { direct: &own.api, things: Vec::new() };
            let outcome = ten_blocks(faults.api(), &mut held);
            let wanted = DriverError { call: Function::cuMemAlloc_v2, code: CUerror::OUT_OF_MEMORY };
            assert_eq!(outcome, if nth <= 10 { Err(wanted) } else { Ok(()) }, "call {nth} fails");
            assert_eq!(faults.has_fired(), nth <= 10);
            assert_eq!(held.things.len(), (nth - 1) as usize);
            drop(held);
            assert_eq!(free_bytes(&own), before, "call {nth} fails");
        }
    });
}

#[test]
fn for_every_n_the_nth_call_fails_and_nothing_leaks() {
    child::run_in_child("for_every_n_the_nth_call_fails_and_nothing_leaks", || {
        let own = Context::create();
        let before = free_bytes(&own);
        let mut nth = 1;
        loop {
            let faults = Faults::plan(&own.api, Fault { function: None, nth, code: CUerror::UNKNOWN });
            let mut held = Held { direct: &own.api, things: Vec::new() };
            let outcome = everything(faults.api(), &mut held, &own);
            if !faults.has_fired() {
                assert_eq!(outcome, Ok(()));
                assert_eq!(faults.calls(), nth - 1);
                break;
            }
            let call = faults.record().pop().unwrap();
            assert_eq!(outcome, Err(DriverError { call, code: CUerror::UNKNOWN }));
            drop(held);
            assert_eq!(free_bytes(&own), before, "call {nth} of {call} fails");
            nth += 1;
        }
        assert_eq!(nth, 37);
        report_covered(nth - 1, "failed calls");
        assert_eq!(free_bytes(&own), before);
    });
}

#[test]
fn for_every_n_the_nth_call_for_a_kernel_fails_and_nothing_leaks() {
    child::run_in_child("for_every_n_the_nth_call_for_a_kernel_fails_and_nothing_leaks", || {
        let own = Context::create();
        let before = free_bytes(&own);
        let mut nth = 1;
        loop {
            let faults = Faults::plan(&own.api, Fault { function: None, nth, code: CUerror::UNKNOWN });
            let mut held = Held { direct: &own.api, things: Vec::new() };
            let outcome = kernels(faults.api(), &mut held, &own);
            drop(held);
            assert_eq!(free_bytes(&own), before, "call {nth} fails");
            if !faults.has_fired() {
                assert_eq!(outcome, Ok(()));
                break;
            }
            let call = faults.record().pop().unwrap();
            assert_eq!(outcome, Err(DriverError { call, code: CUerror::UNKNOWN }));
            nth += 1;
        }
        assert_eq!(nth, 15);
        report_covered(nth - 1, "failed calls");
    });
}

#[test]
fn a_program_that_forgets_a_block_is_seen_to_leak() {
    child::run_in_child("a_program_that_forgets_a_block_is_seen_to_leak", || {
        let own = Context::create();
        let before = free_bytes(&own);
        let mut held = Held { direct: &own.api, things: Vec::new() };
        ten_blocks(&own.api, &mut held).unwrap();
        held.things.pop();
        drop(held);
        assert_eq!(before - free_bytes(&own), 8 * MIB);
    });
}
