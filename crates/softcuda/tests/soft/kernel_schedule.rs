//! Kernels under the schedules of the software driver: no kernel blocks a call, blocks that wait for each other make
//! progress, the same seed gives the same order, and some seed exposes a missing wait.

use crate::common;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

use common::schedules::{schedules, under};
use common::{Context, at, child};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{CUstream, context, copy, event, fill, memory, module, stream};
use freehold_testing::{at_effort, env_seed, print_seed, seeds};

/// Runs the body of the test `name` under each schedule, each in its own process.
fn under_each(name: &str, body: impl FnOnce()) {
    if child::is_child(name) {
        return body();
    }
    schedules(1, 3, 100).for_each(|schedule| drop(under(name, &schedule)));
}

#[test]
fn a_kernel_that_waits_for_the_host_hangs_no_call() {
    under_each("a_kernel_that_waits_for_the_host_hangs_no_call", || {
        let own = Context::create();
        let (wait, words) = (own.kernel(c"wait"), own.pinned(4096));
        words.fill(0);
        let (blocked, other) = (own.stream(), own.stream());
        let (word, done) = (words.address(), at(words.address(), 4));
        let more = at_effort(8, 16, 40);
        for blocks in [1, more] {
            own.run(wait, LaunchConfig::linear(blocks, 64), blocked, &[word.0.into(), done.0.into()]).unwrap();
        }
        let api = &own.api;
        for _ in 0..20 {
            let block = memory::alloc_async(api, 4096, other).unwrap();
            fill::d8_async(api, block, 7, 4096, other).unwrap();
            memory::free_async(api, block, other).unwrap();
            stream::synchronize(api, other).unwrap();
        }
        assert_eq!(stream::query(api, blocked), Ok(false));
        assert_eq!(words.word(1), 0);
        words.words()[0].store(1, Ordering::SeqCst);
        own.finish(blocked);
        assert_eq!(words.word(1), (1 + more) * 64);
    });
}

#[test]
fn blocks_of_a_plain_launch_that_wait_for_each_other_meet() {
    under_each("blocks_of_a_plain_launch_that_wait_for_each_other_meet", || {
        let own = Context::create();
        let (gather, arrived) = (own.kernel(c"gather"), own.block(4));
        // More than run at once.
        let blocks = at_effort(100_u32, 300, 300);
        own.write(arrived, &[0; 4]);
        own.run(gather, LaunchConfig::linear(blocks, 1), CUstream::NULL, &[arrived.0.into()]).unwrap();
        own.finish(CUstream::NULL);
        assert_eq!(own.read(arrived, 4), blocks.to_le_bytes());
    });
}

#[test]
fn kernels_that_wait_for_each_other_across_streams_meet() {
    under_each("kernels_that_wait_for_each_other_across_streams_meet", || {
        let own = Context::create();
        let (meet, words) = (own.kernel(c"meet"), own.block(1024));
        own.write(words, &[0; 1024]);
        let streams: Vec<_> = (0..8).map(|_| own.stream()).collect();
        for (index, stream) in (0u64..).zip(&streams) {
            let (mine, next) = (words.0 + index * 4, words.0 + (index + 1) % 8 * 4);
            own.run(meet, LaunchConfig::linear(3, 33), *stream, &[mine.into(), next.into()]).unwrap();
        }
        context::synchronize(&own.api).unwrap();
    });
}

/// Every block takes a ticket and writes its number there.
const TICKETS: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 next = 0;
.visible .global .align 4 .b8 order[256];
.visible .entry take()
{
    .reg .b64 %at<4>;
    .reg .b32 %r<3>;
    mov.u32 %r1, %ctaid.x;
    atom.global.add.u32 %r2, [next], 1;
    mov.u64 %at1, order;
    mul.wide.u32 %at2, %r2, 4;
    add.u64 %at3, %at1, %at2;
    st.global.u32 [%at3], %r1;
    ret;
}
";

#[test]
fn the_same_seed_gives_blocks_the_same_order() {
    let name = "the_same_seed_gives_blocks_the_same_order";
    if child::is_child(name) {
        let own = Context::create();
        let loaded = own.load(TICKETS).unwrap();
        own.run(own.function(loaded, c"take"), LaunchConfig::linear(64, 1), CUstream::NULL, &[]).unwrap();
        let order = module::global(&own.api, loaded, c"order").unwrap();
        return child::report_line(&format!("{:?}", own.read(order.base, 256)));
    }
    let mut orders = BTreeSet::new();
    for seed in seeds(2, 6, 100) {
        print_seed(seed);
        let [first, second] = [(); 2].map(|()| under(name, &format!("seed:{seed}")));
        assert_eq!(first, second, "seed {seed} gives the same order twice");
        orders.insert(first);
    }
    assert!(orders.len() > 1 || env_seed().is_some(), "all seeds give one order");
}

/// Returns whether a copy in one stream sees everything that a kernel in another wrote, with or without the wait that
/// it needs.
fn sees_all(own: &Context, waits: bool) -> bool {
    const WORDS: u32 = 64 * 32;
    let (store, from, to) = (own.kernel(c"store"), own.block(4 * WORDS as usize), own.block(4 * WORDS as usize));
    own.write(from, &[0; 4 * WORDS as usize]);
    let (writer, reader) = (own.stream(), own.stream());
    own.run(store, LaunchConfig::linear(64, 32), writer, &[from.0.into(), 1u32.into()]).unwrap();
    if waits {
        let event = event::create(&own.api, 0).unwrap();
        event::record(&own.api, event, writer).unwrap();
        stream::wait_event(&own.api, reader, event, 0).unwrap();
    }
    copy::device_to_device_async(&own.api, to, from, 4 * WORDS as usize, reader).unwrap();
    context::synchronize(&own.api).unwrap();
    own.read(to, 4 * WORDS as usize).chunks_exact(4).zip(1u32..).all(|(word, value)| word == value.to_le_bytes())
}

#[test]
fn a_copy_that_does_not_wait_for_a_kernel_is_caught_by_some_seed() {
    let name = "a_copy_that_does_not_wait_for_a_kernel_is_caught_by_some_seed";
    if child::is_child(name) {
        let own = Context::create();
        return child::report_line(&format!("{} {}", sees_all(&own, true), sees_all(&own, false)));
    }
    let (mut caught, seeds) = (0, seeds(2, 10, 200));
    let last = *seeds.end();
    // It may take more seeds than the test effort requires.
    let more = (last + 1..last + 200).take_while(|_| env_seed().is_none());
    for seed in seeds.chain(more) {
        if seed > last && caught > 0 {
            break;
        }
        print_seed(seed);
        let answer = &under(name, &format!("seed:{seed}"))[0];
        assert!(answer.starts_with("true"), "seed {seed}: {answer}");
        caught += usize::from(answer.ends_with("false"));
    }
    assert!(caught > 0 || env_seed().is_some(), "no seed shows the missing wait");
}
