//! Contexts: work of one with memory of another, releases on any thread, and closing.

use crate::own;

use std::thread;

use freehold::{Adoption, CloseError, Error, Image};
use freehold_driver::cuda::{Api, CUcontext, CUerror, CUresult, Function, context};
use own::{Kernels, N, Own, grid, opened};

#[test]
fn a_kernel_of_one_context_uses_a_block_of_another_in_order() {
    let own = Own::new();
    let (one, two) = (own.device.new_context().unwrap(), own.device.new_context().unwrap());
    let kernels = [Kernels::load(&one), Kernels::load(&two)];
    let (a, b) = (one.new_stream().unwrap(), two.new_stream().unwrap());
    let mut x = a.upload(&[1_u32; N]).unwrap();
    a.synchronize().unwrap();
    let gate = own.gate();
    kernels[0].hold(&a, &gate);
    a.launch(&kernels[0].add, grid(), (&mut x, 6_u32, N as u32)).unwrap();
    b.launch(&kernels[1].add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    let done = b.event().unwrap();
    own.pass_by();
    assert!(!done.is_complete().unwrap());
    gate.open();
    assert_eq!(b.download(&x).unwrap(), [8; N]);
    let address = x.address();
    drop(x);
    assert_eq!(a.alloc::<u32>(N).unwrap().address(), address, "the memory is still its context's");
}

#[test]
fn a_block_is_released_by_a_thread_with_no_context_and_with_another_one() {
    let own = Own::new();
    let one = own.device.new_context().unwrap();
    let other = own.device.new_context().unwrap();
    let stream = one.new_stream().unwrap();
    let x = stream.upload(&[1_u32; N]).unwrap();
    let address = x.address();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(context::current(&own.api), Ok(CUcontext::NULL));
            x.close().unwrap();
            assert_eq!(context::current(&own.api), Ok(CUcontext::NULL));
        });
    });
    assert!(own::comes_back(&stream, address));
    let y = stream.alloc::<u32>(N).unwrap();
    let address = y.address();
    let far = other.new_stream().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            context::push_current(&own.api, own.primary).unwrap();
            y.release_now().unwrap();
            assert_eq!(own.device.owner_of(address), None);
            let z = far.alloc::<u32>(N).unwrap();
            drop(z);
            assert_eq!(context::current(&own.api), Ok(own.primary));
            context::pop_current(&own.api).unwrap();
        });
    });
}

/// Makes calls of every sort, after each of which `check` is called with its name.
fn all_calls(own: &Own, check: impl Fn(&str)) {
    let context = own.device.new_context().unwrap();
    check("context");
    let stream = context.new_stream().unwrap();
    check("stream");
    let module = context.module(&Image::ptx(include_str!("../../examples/kernels.ptx")).unwrap()).unwrap();
    check("module");
    let add = crate::own::kernel(&module, "add").unwrap();
    check("kernel");
    module.variable("counter").unwrap();
    check("variable");
    crate::own::kernel(&module, "none").unwrap_err();
    check("no kernel");
    let twin = module.duplicate().unwrap();
    check("duplicate");
    let mut x = stream.upload(&[1_u32; N]).unwrap();
    check("upload");
    stream.launch(&add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
    check("launch");
    assert_eq!(stream.download(&x).unwrap(), [2; N]);
    check("download");
    stream.event().unwrap().synchronize().unwrap();
    check("event");
    let address = x.into_address();
    own.device.release(address).unwrap();
    check("release");
    let y = stream.alloc::<u32>(N).unwrap();
    y.release_now().unwrap();
    check("release_now");
    own.device.free_bytes().unwrap();
    check("free_bytes");
    drop(own.device.adopt(1 << 20, 4096, Adoption::Foreign, "others").unwrap());
    check("adopt");
    twin.close();
    check("module closed");
    own.device.trim().unwrap();
    check("trim");
    own.device.synchronize().unwrap();
    check("synchronize");
    context.synchronize().unwrap();
    check("context synchronized");
    stream.close().unwrap();
    check("stream closed");
    context.close().unwrap();
    check("context closed");
    drop((add, module));
    own.device.tidy().unwrap();
    check("tidy");
}

#[test]
fn the_current_context_is_the_same_after_every_call() {
    let own = Own::new();
    let opened = opened();
    thread::scope(|scope| {
        scope.spawn(|| {
            all_calls(&own, |call| assert_eq!(context::current(&own.api), Ok(CUcontext::NULL), "{call}"));
            context::push_current(&own.api, own.primary).unwrap();
            all_calls(&own, |call| assert_eq!(context::current(&own.api), Ok(own.primary), "{call}"));
            context::pop_current(&own.api).unwrap();
            let mine = context::create(&own.api, opened.device, 0).unwrap();
            all_calls(&own, |call| assert_eq!(context::current(&own.api), Ok(mine), "{call}"));
            context::destroy(&own.api, mine).unwrap();
        });
    });
}

#[test]
fn a_context_is_not_destroyed_while_another_uses_its_memory() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let [b] = own.streams();
    for takes_blocks_along in [false, true] {
        let one = own.device.new_context().unwrap();
        let a = one.new_stream().unwrap();
        let mut x = a.upload(&[1_u32; N]).unwrap();
        let mut y = b.zeros::<u32>(N).unwrap();
        a.synchronize().unwrap();
        let before = faults.calls_of(Function::cuCtxDestroy_v2);
        let gate = own.gate();
        own.hold(&b, &gate);
        b.launch(&own.kernels.add, grid(), (&mut x, 1_u32, N as u32)).unwrap();
        b.copy(&x, &mut y).unwrap();
        if takes_blocks_along {
            one.close_with_blocks().unwrap();
            let Err(Error::ContextClosed { .. }) = b.download(&x) else { panic!("the block went with its context") };
        } else {
            drop((x, a, one));
        }
        own.device.tidy().unwrap();
        assert_eq!(faults.calls_of(Function::cuCtxDestroy_v2), before);
        gate.open();
        assert_eq!(b.download(&y).unwrap(), [2; N]);
        own.device.synchronize().unwrap();
        assert_eq!(faults.calls_of(Function::cuCtxDestroy_v2), before + 1);
    }
}

#[test]
fn a_context_lives_as_long_as_what_lives_in_it() {
    let opened = opened();
    let (faults, own) = Own::counted(&opened);
    let one = own.device.new_context().unwrap();
    let stream = one.new_stream().unwrap();
    let x = stream.upload(&[1_u32; N]).unwrap();
    drop((one, stream));
    own.device.tidy().unwrap();
    assert_eq!(faults.calls_of(Function::cuCtxDestroy_v2), 0);
    let [b] = own.streams();
    assert_eq!(b.download(&x).unwrap(), [1; N]);
    drop(x);
    own.device.synchronize().unwrap();
    assert_eq!(faults.calls_of(Function::cuCtxDestroy_v2), 1);
}

#[test]
fn a_context_with_live_blocks_is_closed_only_with_them() {
    let own = Own::new();
    let one = own.device.new_context().unwrap();
    let (id, stream) = (one.id(), one.new_stream().unwrap());
    let x = stream.alloc_tagged::<u32>(N, "table").unwrap();
    let CloseError { value: one, error } = one.close().unwrap_err();
    let Error::ContextInUse { context, blocks } = error else { panic!("{error}") };
    assert_eq!(context, id);
    assert_eq!(blocks.iter().map(|owner| (owner.base, owner.bytes)).collect::<Vec<_>>(), [(x.address(), 4000)]);
    one.close_with_blocks().unwrap();
    let CloseError { value: x, error } = x.close().unwrap_err();
    let Error::ContextClosed { context } = error else { panic!("{error}") };
    assert_eq!(context, id);
    drop(x);
    let Err(Error::ContextClosed { .. }) = stream.synchronize() else { panic!("the stream went with its context") };
    assert!(own.device.drop_errors().is_empty());
}

unsafe extern "C" fn pops_nothing(_: *mut CUcontext) -> CUresult {
    Err(CUerror::INVALID_CONTEXT)
}

#[test]
fn a_context_that_the_driver_does_not_pop_is_not_an_error_of_the_call() {
    let opened = opened();
    thread::scope(|scope| {
        // In a thread of its own: contexts stay current in it.
        scope.spawn(|| {
            let own = Own::over(Api { cuCtxPopCurrent_v2: pops_nothing, ..opened.api }, &opened);
            // The library's context stays current after a call; each step begins without one.
            let forget = || context::set_current(&opened.api, CUcontext::NULL).unwrap();
            forget();
            let stream = own.device.new_stream().unwrap();
            forget();
            let x = stream.upload(&[7_u32; N]).unwrap();
            forget();
            assert_eq!(stream.download(&x).unwrap(), [7; N]);
            forget();
            drop(x);
            forget();
            assert!(own.device.trim().unwrap() > 0);
            forget();
            assert_eq!(stream.download(&stream.upload(&[8_u32; N]).unwrap()).unwrap(), [8; N]);
            forget();
            drop(stream);
            assert_eq!(own.device.drop_errors().len(), 0);
        });
    });
}
