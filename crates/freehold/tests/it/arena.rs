//! The driver calls that an arena makes. The contract tests cover how slices are used.

use crate::own;

use freehold::Arena;
use freehold_driver::cuda::Function;
use freehold_driver::cuda::faults::Faults;
use own::{N, Own, opened};

/// Room for some pieces of `N` elements.
const ARENA_BYTES: usize = 1 << 20;

#[test]
fn the_same_addresses_in_the_same_stream_need_no_wait_and_no_call() {
    let opened = opened();
    let api = *Faults::count(&opened.api).api();
    let own = Own::over(api, &opened);
    let [stream] = own.streams();
    let mut arena = Arena::new(&stream, ARENA_BYTES).unwrap();
    let faults = Faults::count(&opened.api);
    for round in 0..10_u8 {
        arena.scope(|scope| {
            let mut x = scope.alloc::<u32>(N).unwrap();
            stream.fill_bytes(&mut x, round).unwrap();
        });
    }
    let mut calls = faults.record();
    drop(faults);
    // A fill has its context current.
    let currents = [Function::cuCtxGetCurrent, Function::cuCtxPushCurrent_v2, Function::cuCtxPopCurrent_v2];
    calls.retain(|call| !currents.contains(call));
    assert_eq!(calls, [Function::cuMemsetD8Async; 10]);
}
