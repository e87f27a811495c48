//! Blocks that move between threads, each with its own streams: a block holds what its owners wrote, wherever its
//! memory was before and whichever thread released it.

use crate::own;

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use freehold::{Block, Context, Stream};
use freehold_testing::at_effort;
use own::{Kernels, N, Own, grid};

const THREADS: usize = 4;

/// A block on its way, and the value that it is full of.
type OwnedBlock = (Block<u32>, u32);

/// One thread's part: blocks come in, are worked on, and go on to the next thread or are dropped here.
fn wander(number: usize, context: &Context, kernels: &Kernels, news: &Receiver<OwnedBlock>, next: &Sender<OwnedBlock>) {
    let mut streams: VecDeque<Stream> = (0..2).map(|_| context.new_stream().unwrap()).collect();
    for step in 0..at_effort(20, 150, 2000) {
        streams.rotate_left(1);
        let first = number as u32 * 1000 + step;
        let mut blocks: Vec<OwnedBlock> = vec![(streams[0].upload(&[first; N]).unwrap(), first)];
        blocks.extend(news.try_iter().take(3));
        for (mut block, value) in blocks {
            streams[1].launch(&kernels.add, grid(), (&mut block, 1_u32, N as u32)).unwrap();
            match (value + step) % 5 {
                0 => drop(block),
                1 => assert_eq!(streams[0].download(&block).unwrap(), [value + 1; N], "step {step} of {number}"),
                // A thread that has come to its end takes no more.
                _ => drop(next.send((block, value + 1))),
            }
        }
        if step % 40 == 39 {
            streams[0] = context.new_stream().unwrap();
        }
    }
}

#[test]
fn blocks_hold_what_their_owners_put_there_whichever_threads_those_are() {
    let own = Own::new();
    let created = own.device.new_context().unwrap();
    let contexts = [own.device.primary(), &created];
    let kernels = contexts.map(Kernels::load);
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel()).unzip();
    senders.rotate_left(1);
    let left: Vec<OwnedBlock> = thread::scope(|scope| {
        let threads: Vec<_> = receivers
            .drain(..)
            .zip(senders.drain(..))
            .enumerate()
            .map(|(number, (news, next))| {
                let (context, kernels) = (contexts[number % 2], &kernels[number % 2]);
                scope.spawn(move || {
                    wander(number, context, kernels, &news, &next);
                    drop(next);
                    news.iter().collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let stream = own.device.new_stream().unwrap();
    for (block, value) in left {
        assert_eq!(stream.download(&block).unwrap(), [value; N]);
    }
    created.synchronize().unwrap();
    own.device.synchronize().unwrap();
    assert_eq!(own.device.blocks().len(), 0);
    assert!(own.device.drop_errors().is_empty());
}
