//! A call that does not wait by CUDA's rules takes no lock that another stream's work holds: while the work of one
//! stream is blocked, every such call on another stream returns.

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::{Context, until};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{context, copy, event, fill, function, memory, pointer, stream};

#[test]
fn calls_return_while_another_stream_is_blocked() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static GO: AtomicBool = AtomicBool::new(false);
    let busy = Context::create();
    let blocked = busy.stream();
    busy.launch(blocked, || {
        BEGUN.store(true, Ordering::SeqCst);
        until(|| GO.load(Ordering::SeqCst));
    });
    until(|| BEGUN.load(Ordering::SeqCst));

    // In the same context: all calls except those that wait for the whole context.
    let api = &busy.api;
    let (own, event) = (stream::create(api, 1).unwrap(), event::create(api, 0).unwrap());
    let (from, to) = (memory::alloc(api, 4096).unwrap(), memory::alloc(api, 4096).unwrap());
    assert_eq!(context::current(api), Ok(busy.handle));
    assert_eq!(pointer::context(api, from), Ok(busy.handle));
    memory::info(api).unwrap();
    fill::d8_async(api, from, 7, 4096, own).unwrap();
    copy::device_to_device_async(api, to, from, 4096, own).unwrap();
    let pooled = memory::alloc_async(api, 4096, own).unwrap();
    memory::free_async(api, pooled, own).unwrap();
    event::record(api, event, own).unwrap();
    event::synchronize(api, event).unwrap();
    assert_eq!(event::query(api, event), Ok(true));
    assert_eq!(stream::query(api, own), Ok(true));
    event::destroy(api, event).unwrap();
    stream::destroy(api, own).unwrap();

    // In another context: those calls too.
    let other = Context::create();
    let block = memory::alloc(api, 4096).unwrap();
    memory::free(api, block).unwrap();
    context::synchronize(api).unwrap();
    drop(other);

    assert_eq!(stream::query(api, blocked), Ok(false));
    GO.store(true, Ordering::SeqCst);
    busy.enter();
    busy.finish(blocked);
}

#[test]
fn calls_go_on_while_a_kernel_spins() {
    let own = Context::create();
    let words = own.words();
    let (word, done) = (common::address(&words[0]), common::address(&words[1]));
    let (loaded, second, blocked) = (own.module(), own.module(), own.stream());
    let wait = own.function(loaded, c"wait");
    own.run(wait, LaunchConfig::linear(200, 64), blocked, &[word.0.into(), done.0.into()]).unwrap();

    let api = &own.api;
    let (free, other) = (own.block(4096), own.stream());
    own.run(own.function(loaded, c"store"), LaunchConfig::linear(8, 32), other, &[free.0.into(), 1u32.into()]).unwrap();
    stream::synchronize(api, other).unwrap();
    fill::d8_async(api, free, 7, 4096, other).unwrap();
    stream::synchronize(api, other).unwrap();
    memory::alloc(api, 4096).unwrap();
    assert_eq!(function::module(api, own.function(second, c"nothing")), Ok(second));
    assert_eq!(stream::query(api, blocked), Ok(false));
    words[0].store(1, Ordering::SeqCst);
    own.finish(blocked);
    assert_eq!(words[1].load(Ordering::SeqCst), 200 * 64);
}
