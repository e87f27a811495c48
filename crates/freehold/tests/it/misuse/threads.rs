//! Concurrent programs: every block holds what its owner wrote, and a release happens once.

use std::sync::Barrier;
use std::thread;

use freehold::{Block, Result};

use crate::own::{N, Own, grid};

const THREADS: usize = 4;

#[test]
fn halves_of_a_block_are_written_at_once() {
    let own = Own::new();
    let [one, two] = own.streams();
    let mut x = one.zeros::<u32>(N).unwrap();
    {
        let (mut low, mut high) = x.view_mut(..).unwrap().split_at(N / 2).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| (0..50).for_each(|value| one.fill(&mut low, value).unwrap()));
            scope.spawn(|| (0..50).for_each(|value| two.fill(&mut high, 100 + value).unwrap()));
        });
    }
    assert_eq!(one.download(&x).unwrap(), [vec![49; N / 2], vec![149; N / 2]].concat());
}

#[test]
fn one_stream_serves_several_threads() {
    let own = Own::new();
    let [stream] = own.streams();
    thread::scope(|scope| {
        for number in 0..THREADS as u32 {
            let (stream, add) = (&stream, &own.kernels.add);
            scope.spawn(move || {
                for turn in 0..20 {
                    let mut x = stream.upload(&[number; N]).unwrap();
                    stream.launch(add, grid(), (&mut x, turn, N as u32)).unwrap();
                    assert_eq!(stream.download(&x).unwrap(), [number + turn; N]);
                }
            });
        }
    });
}

#[test]
fn a_shared_block_is_read_by_all_and_goes_with_the_last() {
    let own = Own::new();
    let [stream] = own.streams();
    let x = stream.upload(&[7_u32; N]).unwrap().share();
    thread::scope(|scope| {
        for number in 0..THREADS as u32 {
            let (x, device) = (x.clone(), &own.device);
            scope.spawn(move || {
                let own_stream = device.new_stream().unwrap();
                let mut y = own_stream.alloc::<u32>(N).unwrap();
                own_stream.copy(&x, &mut y).unwrap();
                drop(x);
                // After the copy, from memory that nobody else has.
                let z = own_stream.upload(&[number; N]).unwrap();
                assert_eq!(
                    (own_stream.download(&y).unwrap(), own_stream.download(&z).unwrap()),
                    (vec![7; N], vec![number; N])
                );
            });
        }
    });
    assert_eq!(x.into_block().unwrap().len(), N);
}

/// How many of several threads that do something at once succeed.
fn winners(act: impl Fn() -> Result<()> + Sync) -> usize {
    let barrier = Barrier::new(THREADS);
    let outcomes = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    act()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    outcomes.iter().filter(|outcome| outcome.is_ok()).count()
}

#[test]
fn an_address_is_released_once_by_whichever_thread() {
    let own = Own::new();
    let [stream] = own.streams();
    for _ in 0..50 {
        let at = stream.alloc::<u32>(N).unwrap().into_address();
        assert_eq!(winners(|| own.device.release(at)), 1);
    }
}

#[test]
fn an_address_is_claimed_once_by_whichever_thread() {
    let own = Own::new();
    let [stream] = own.streams();
    for turn in 0..50_u32 {
        let at = stream.upload(&[turn as u8; N]).unwrap().into_address();
        let kept = std::sync::Mutex::new(Vec::<Block<u8>>::new());
        assert_eq!(winners(|| own.device.claim(at).map(|block| kept.lock().unwrap().push(block))), 1);
        assert_eq!(stream.download(&kept.into_inner().unwrap()[0]).unwrap(), [turn as u8; N]);
    }
}

#[test]
fn blocks_that_go_round_threads_hold_what_was_put_there() {
    let own = Own::new();
    let (give, take) = std::sync::mpsc::channel::<(u32, Block<u32>)>();
    thread::scope(|scope| {
        for number in 0..THREADS as u32 {
            let (give, device) = (give.clone(), &own.device);
            scope.spawn(move || {
                let stream = device.new_stream().unwrap();
                for turn in 0..30 {
                    let value = number << 8 | turn;
                    let mut x = stream.alloc::<u32>(N).unwrap();
                    stream.fill(&mut x, value).unwrap();
                    give.send((value, x)).unwrap();
                    drop(stream.zeros::<u32>(N).unwrap());
                }
            });
        }
        drop(give);
        let stream = own.device.new_stream().unwrap();
        for (value, x) in take {
            assert_eq!(stream.download(&x).unwrap(), [value; N]);
        }
    });
}

#[test]
fn a_stream_that_is_dropped_by_another_thread_leaves_its_work() {
    let own = Own::new();
    let [reader] = own.streams();
    for turn in 0..20 {
        let stream = own.device.new_stream().unwrap();
        let mut x = stream.alloc::<u32>(N).unwrap();
        stream.fill(&mut x, turn).unwrap();
        thread::scope(|scope| {
            scope.spawn(move || drop(stream));
            scope.spawn(|| assert_eq!(reader.download(&x).unwrap(), [turn; N]));
        });
    }
}
