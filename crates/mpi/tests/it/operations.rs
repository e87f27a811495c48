//! Every operation, for every element type, length, view and number of ranks, gives what one process computes from the
//! same numbers, on all paths and both transports. On a real device, a selection that takes about a minute.

use crate::launcher;

use std::time::Instant;

use freehold::{Device, Grid, Image, Stream};
use freehold_mpi::{ANY, Edge, Element, Error, Op, Received, Rows, World};
use freehold_testing::Effort;
use launcher::{APART, DIRECT, Number, RankConfig, SHARED, STAGED, Transport, is_mpich, is_real, ranks, values};

/// Short chunks, so that messages of many chunks are short too.
const STAGED_4K_CHUNKS: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_CHUNK", "4096")];
/// Longer chunks for a real device.
const STAGED_16K_CHUNKS: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_CHUNK", "16384")];
const ISOLATED_16K_CHUNKS: &[(&str, &str)] =
    &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_APART", "1"), ("FREEHOLD_MPI_CHUNK", "16384")];
const SERIALIZED_THREADS: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_THREADS", "serialized")];

/// One, odd, and more than several chunks. Two of them on a real device, where the ranks' copies take turns.
fn lengths() -> &'static [usize] {
    if is_real() { &[1, 9973] } else { &[1, 1001, 9973] }
}

fn all_configurations() -> Vec<RankConfig> {
    if is_real() {
        return vec![
            RankConfig::new(2, Transport::Memory, STAGED_16K_CHUNKS),
            RankConfig::new(2, Transport::Memory, ISOLATED_16K_CHUNKS),
            RankConfig::new(2, Transport::Memory, SHARED),
            RankConfig::new(2, Transport::Memory, DIRECT),
        ];
    }
    let mut wanted = vec![
        RankConfig::new(2, Transport::Memory, STAGED_4K_CHUNKS),
        RankConfig::new(4, Transport::Tcp, STAGED_4K_CHUNKS),
        RankConfig::new(4, Transport::Memory, SHARED),
        RankConfig::new(2, Transport::Tcp, DIRECT),
        RankConfig::new(2, Transport::Memory, SERIALIZED_THREADS),
        RankConfig::new(1, Transport::Memory, STAGED),
    ];
    if Effort::current() == Effort::Soak {
        wanted.extend([
            RankConfig::new(4, Transport::Memory, STAGED_4K_CHUNKS),
            RankConfig::new(2, Transport::Tcp, STAGED),
            RankConfig::new(2, Transport::Tcp, SHARED),
            RankConfig::new(4, Transport::Memory, DIRECT),
        ]);
    }
    if is_mpich() {
        // Over TCP, MPICH 4.0 with UCX 1.13 sometimes hangs in MPI_Finalize: two ranks wait for connections to close,
        // while the other two have entered a barrier in which they make no progress.
        wanted.retain(|wanted| wanted.transport == Transport::Memory);
    }
    wanted
}

/// Repeats for each element type; on a real device, for one type of each size.
macro_rules! for_each_element {
    ($check:ident($($argument:expr),*)) => {
        $check::<u8>($($argument),*);
        $check::<i16>($($argument),*);
        $check::<f32>($($argument),*);
        $check::<u64>($($argument),*);
        if !is_real() {
            $check::<u16>($($argument),*);
            $check::<u32>($($argument),*);
            $check::<i8>($($argument),*);
            $check::<i32>($($argument),*);
            $check::<i64>($($argument),*);
            $check::<f64>($($argument),*);
        }
    };
}

#[test]
fn every_operation_equals_one_process() {
    ranks("every_operation_equals_one_process", &all_configurations(), |world, device| {
        let asked = std::env::var("FREEHOLD_MPI").unwrap();
        // A single rank shares memory with no other.
        assert!(world.path_choice().transfers.name() == asked || world.size() == 1, "{:?}", world.path_choice());
        let (stream, began) = (device.new_stream().unwrap(), Instant::now());
        // Shown if ranks are late or fail.
        let done = |what: &str| println!("rank {}: {what} by {:.1} s", world.rank(), began.elapsed().as_secs_f64());
        for_each_element!(messages(world, &stream));
        done("messages");
        for_each_element!(reductions(world, &stream));
        done("reductions");
        for_each_element!(gathers_and_scatters(world, &stream));
        done("redistributions");
        parts(world, &stream);
        wildcards(world, &stream);
        nothing(world, &stream);
        to_itself(world, &stream);
        done("views, wildcards, empty messages, to itself");
        in_order(world, device);
        without_waiting(world, device);
        done("in order, without waiting");
        edges(world, &stream);
        windows(world, &stream);
        invalid_calls(world, &stream);
        done("edges, windows, invalid calls");
        world.barrier().unwrap();
        assert_eq!(device.drop_errors().len(), 0);
    });
}

/// Chunks that wait for a free buffer of their receiver are not mistaken for those of the next message.
#[test]
fn chunks_of_messages_one_behind_the_other_do_not_mix() {
    const ONE_AT_A_TIME: &[(&str, &str)] = &[
        ("FREEHOLD_MPI", "staged"),
        ("FREEHOLD_MPI_APART", "1"),
        ("FREEHOLD_MPI_CHUNK", "4096"),
        ("FREEHOLD_MPI_DEPTH", "1"),
    ];
    let transports = if is_mpich() { vec![Transport::Memory] } else { vec![Transport::Tcp, Transport::Memory] };
    let wanted: Vec<_> = transports.into_iter().map(|transport| RankConfig::new(2, transport, ONE_AT_A_TIME)).collect();
    ranks("chunks_of_messages_one_behind_the_other_do_not_mix", &wanted, |world, device| {
        let (stream, len, messages) = (device.new_stream().unwrap(), 20_000, 12);
        if world.rank() == 0 {
            for salt in 0..messages {
                world.send(&stream, &stream.upload(&values::<u32>(0, len, salt)).unwrap(), 1, 3).unwrap();
            }
        } else {
            let mut arrivals: Vec<_> = (0..messages).map(|_| stream.zeros::<u32>(len).unwrap()).collect();
            let begun: Vec<_> = arrivals.iter_mut().map(|y| world.irecv(&stream, y, 0, 3).unwrap()).collect();
            for request in begun {
                request.wait().unwrap();
            }
            for (salt, y) in arrivals.iter().enumerate() {
                assert_eq!(stream.download(y).unwrap(), values::<u32>(0, len, salt as u64), "message {salt}");
            }
        }
        world.barrier().unwrap();
    });
}

/// One message stays pending while as many are sent after it as the smallest library has tags. Those received before it
/// are the ones that were sent.
#[test]
fn a_pending_message_is_distinguished_from_later_ones() {
    let wanted = [STAGED, APART].map(|variables| RankConfig::new(2, Transport::Memory, variables));
    ranks("a_pending_message_is_distinguished_from_later_ones", &wanted, |world, device| {
        let (stream, len, tags) = (device.new_stream().unwrap(), 50_000, 32_768);
        if world.rank() == 0 {
            let [first, last] = [0, 1].map(|salt| stream.upload(&values::<u32>(0, len, salt)).unwrap());
            let waiting = world.isend(&stream, &first, 1, 0).unwrap();
            (1..tags).for_each(|_| world.signal(1, 9).unwrap());
            world.send(&stream, &last, 1, 1).unwrap();
            waiting.wait().unwrap();
        } else {
            let mut y = stream.zeros::<u32>(len).unwrap();
            for _ in 1..tags {
                assert_eq!(world.recv(&stream, &mut y, 0, 9).unwrap().bytes, 0);
            }
            for tag in [1, 0] {
                world.recv(&stream, &mut y, 0, tag).unwrap();
                assert_eq!(stream.download(&y).unwrap(), values::<u32>(0, len, tag as u64));
            }
        }
        world.barrier().unwrap();
    });
}

/// Returns the previous and the next rank in a ring.
fn neighbours(world: &World) -> (i32, i32) {
    let (rank, size) = (world.rank(), world.size());
    ((rank + size - 1) % size, (rank + 1) % size)
}

fn messages<T: Number>(world: &World, stream: &Stream) {
    let (before, after) = neighbours(world);
    for &len in lengths() {
        let x = stream.upload(&values::<T>(world.rank(), len, 1)).unwrap();
        let mut y = stream.zeros::<T>(len).unwrap();
        let received = world.sendrecv(stream, (&x, after, 3), (&mut y, Some(before), Some(3))).unwrap();
        assert_eq!(received, Received { source: before, tag: 3, bytes: len * size_of::<T>() });
        assert_eq!(stream.download(&y).unwrap(), values::<T>(before, len, 1));
        if world.size() == 1 {
            continue;
        }
        // Blocking calls: even ranks send first, odd ones receive first.
        stream.fill_bytes(&mut y, 0).unwrap();
        if world.rank() % 2 == 0 {
            world.send(stream, &x, after, 4).unwrap();
            world.recv(stream, &mut y, before, 4).unwrap();
        } else {
            world.recv(stream, &mut y, before, 4).unwrap();
            world.send(stream, &x, after, 4).unwrap();
        }
        assert_eq!(stream.download(&y).unwrap(), values::<T>(before, len, 1));
    }
}

/// Computes in one process what all ranks should get.
fn combined<T: Number>(world: &World, len: usize, op: Op) -> Vec<T> {
    let all: Vec<Vec<u64>> = (0..world.size()).map(|rank| values::<u64>(rank, len, 2)).collect();
    let with = |a: u64, b: u64| match op {
        Op::Sum => a + b,
        Op::Product => a * b,
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
    };
    (0..len).map(|index| T::of(all.iter().map(|values| values[index]).reduce(with).unwrap())).collect()
}

fn reductions<T: Number + Element>(world: &World, stream: &Stream) {
    for (turn, &len) in lengths().iter().enumerate() {
        let x = stream.upload(&values::<T>(world.rank(), len, 2)).unwrap();
        let mut y = stream.zeros::<T>(len).unwrap();
        let root = turn as i32 % world.size();
        for op in [Op::Sum, Op::Product, Op::Min, Op::Max, Op::And, Op::Or, Op::Xor] {
            if !T::IS_INTEGER && matches!(op, Op::And | Op::Or | Op::Xor) {
                let refused = world.allreduce(stream, &x, &mut y, op).unwrap_err();
                assert!(matches!(refused, Error::UnsupportedOperation { .. }), "{refused}");
                continue;
            }
            stream.fill_bytes(&mut y, 0xff).unwrap();
            world.allreduce(stream, &x, &mut y, op).unwrap();
            // Sums and products of bytes wrap.
            let wanted = combined::<T>(world, len, op);
            assert_eq!(stream.download(&y).unwrap(), wanted, "{op} of {} {}s", len, T::NAME);
            stream.fill_bytes(&mut y, 0xff).unwrap();
            let is_root = world.rank() == root;
            world.reduce(stream, &x, is_root.then_some(&mut y), op, root).unwrap();
            if is_root {
                assert_eq!(stream.download(&y).unwrap(), wanted);
            }
        }
    }
}

fn gathers_and_scatters<T: Number>(world: &World, stream: &Stream) {
    let (rank, size) = (world.rank(), world.size() as usize);
    for (turn, &len) in lengths().iter().enumerate() {
        let root = turn as i32 % world.size();
        let is_root = rank == root;
        let mine = stream.upload(&values::<T>(rank, len, 3)).unwrap();
        let all: Vec<T> = (0..world.size()).flat_map(|rank| values::<T>(rank, len, 3)).collect();

        let mut copy = stream.upload(&values::<T>(rank, len, 3)).unwrap();
        world.broadcast(stream, &mut copy, root).unwrap();
        assert_eq!(stream.download(&copy).unwrap(), values::<T>(root, len, 3));

        let mut gathered = stream.zeros::<T>(len * size).unwrap();
        world.gather(stream, &mine, is_root.then_some(&mut gathered), root).unwrap();
        if is_root {
            assert_eq!(stream.download(&gathered).unwrap(), all);
        }

        let whole = stream.upload(&all).unwrap();
        let mut part = stream.zeros::<T>(len).unwrap();
        world.scatter(stream, is_root.then_some(&whole), &mut part, root).unwrap();
        assert_eq!(stream.download(&part).unwrap(), values::<T>(rank, len, 3));

        let outgoing: Vec<T> = (0..size).flat_map(|to| values::<T>(rank, len, to as u64)).collect();
        let incoming: Vec<T> = (0..world.size()).flat_map(|from| values::<T>(from, len, rank as u64)).collect();
        let outgoing = stream.upload(&outgoing).unwrap();
        let mut arrived = stream.zeros::<T>(len * size).unwrap();
        world.alltoall(stream, &outgoing, &mut arrived).unwrap();
        assert_eq!(stream.download(&arrived).unwrap(), incoming);
    }
}

/// Views of blocks are sent, and the elements around them are unchanged.
fn parts(world: &World, stream: &Stream) {
    let (before, after) = neighbours(world);
    let x = stream.upload(&values::<u16>(world.rank(), 3000, 4)).unwrap();
    let mut y = stream.upload(&vec![9_u16; 3000]).unwrap();
    let from = x.view(7..2008).unwrap();
    {
        let mut to = y.view_mut(3..2500).unwrap();
        let received = world.sendrecv(stream, (&from, after, 0), (&mut to, Some(before), None)).unwrap();
        // Shorter than the capacity.
        assert_eq!(received.len::<u16>(), 2001);
    }
    let mut wanted = vec![9_u16; 3000];
    wanted[3..2004].copy_from_slice(&values::<u16>(before, 3000, 4)[7..2008]);
    assert_eq!(stream.download(&y).unwrap(), wanted);
}

fn wildcards(world: &World, stream: &Stream) {
    // Messages of other checks must not match.
    world.barrier().unwrap();
    let mut x = stream.zeros::<u32>(500).unwrap();
    if world.rank() > 0 {
        stream.write(&mut x, &values::<u32>(world.rank(), 500, 5)).unwrap();
        world.send(stream, &x, 0, 20 + world.rank()).unwrap();
    } else {
        let mut seen = vec![false; world.size() as usize];
        for _ in 1..world.size() {
            let received = world.recv(stream, &mut x, ANY, ANY).unwrap();
            assert_eq!(received.tag, 20 + received.source);
            assert_eq!(stream.download(&x).unwrap(), values::<u32>(received.source, 500, 5));
            assert!(!std::mem::replace(&mut seen[received.source as usize], true), "a rank was received from twice");
        }
    }
    world.barrier().unwrap();
}

/// An empty message.
fn nothing(world: &World, stream: &Stream) {
    let (before, after) = neighbours(world);
    let mut x = stream.upload(&[5_u8; 8]).unwrap();
    let message = world.irecv(stream, &mut x, before, 6).unwrap();
    world.signal(after, 6).unwrap();
    assert_eq!(message.wait().unwrap(), Received { source: before, tag: 6, bytes: 0 });
    assert_eq!(stream.download(&x).unwrap(), [5; 8]);
}

fn to_itself(world: &World, stream: &Stream) {
    let rank = world.rank();
    let x = stream.upload(&values::<f64>(rank, 7000, 6)).unwrap();
    let mut y = stream.zeros::<f64>(7000).unwrap();
    let sent = world.isend(stream, &x, rank, 8).unwrap();
    let received = world.recv(stream, &mut y, rank, ANY).unwrap();
    assert_eq!(received, Received { source: rank, tag: 8, bytes: 56_000 });
    sent.wait().unwrap();
    assert_eq!(stream.download(&y).unwrap(), values::<f64>(rank, 7000, 6));
}

/// A transfer waits for earlier work on its block, and later work waits for the transfer; the host waits for neither.
fn in_order(world: &World, device: &Device) {
    let module = device.module(&Image::ptx(include_str!("../../../freehold/examples/kernels.ptx")).unwrap()).unwrap();
    // SAFETY: `add` writes the first `n` elements of its block, which has as many in every launch below; `spend` writes nothing.
    let [add, spend] = ["add", "spend"].map(|name| unsafe { module.kernel(name) }.unwrap());
    let (before, after) = neighbours(world);
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let n = 3000_u32;
    let mut x = stream.upload(&vec![world.rank() as u32; n as usize]).unwrap();
    let mut y = other.zeros::<u32>(n as usize).unwrap();
    stream.launch(&spend, Grid::line(1, 1), (3_000_000_u64,)).unwrap();
    stream.launch(&add, Grid::cover(n, 256), (&mut x, 100_u32, n)).unwrap();
    // Received before it is sent: neither call waits.
    let arrived = world.irecv(&other, &mut y, before, 9).unwrap();
    let sent = world.isend(&stream, &x, after, 9).unwrap();
    stream.launch(&add, Grid::cover(n, 256), (&mut x, 1000_u32, n)).unwrap();
    other.launch(&add, Grid::cover(n, 256), (&mut y, 5_u32, n)).unwrap();
    drop(x);
    assert_eq!(other.download(&y).unwrap(), vec![before as u32 + 105; n as usize]);
    sent.wait().unwrap();
    arrived.wait().unwrap();
}

/// Many transfers and collective calls at once, waited for in any order.
fn without_waiting(world: &World, device: &Device) {
    let stream = device.new_stream().unwrap();
    let (before, after) = neighbours(world);
    let blocks: Vec<_> = (0..10).map(|salt| stream.upload(&values::<i32>(world.rank(), 900, salt)).unwrap()).collect();
    let mut targets: Vec<_> = (0..10).map(|_| stream.zeros::<i32>(900).unwrap()).collect();
    // All with one tag: they arrive in the order in which they were sent.
    let arrivals: Vec<_> = targets.iter_mut().map(|y| world.irecv(&stream, y, before, 1).unwrap()).collect();
    let sent: Vec<_> = blocks.iter().map(|x| world.isend(&stream, x, after, 1).unwrap()).collect();
    let mut sums: Vec<_> = (0..3).map(|_| stream.zeros::<i32>(900).unwrap()).collect();
    let reduced: Vec<_> =
        sums.iter_mut().zip(&blocks).map(|(to, x)| world.iallreduce(&stream, x, to, Op::Max).unwrap()).collect();
    let mut copy = stream.upload(&values::<i32>(world.rank(), 900, 50)).unwrap();
    let copied = world.ibroadcast(&stream, &mut copy, 0).unwrap();
    // The transfer of a dropped request continues.
    drop(copied);
    drop(blocks);
    for (salt, y) in targets.iter().enumerate() {
        assert_eq!(stream.download(y).unwrap(), values::<i32>(before, 900, salt as u64));
    }
    for (salt, sum) in sums.iter().enumerate() {
        let all: Vec<_> = (0..world.size()).map(|rank| values::<i32>(rank, 900, salt as u64)).collect();
        let wanted: Vec<_> = (0..900).map(|index| all.iter().map(|of| of[index]).max().unwrap()).collect();
        assert_eq!(stream.download(sum).unwrap(), wanted);
    }
    assert_eq!(stream.download(&copy).unwrap(), values::<i32>(0, 900, 50));
    for request in sent.into_iter().chain(reduced) {
        request.wait().unwrap();
    }
    for (arrival, _) in arrivals.into_iter().zip(0..) {
        assert_eq!(arrival.wait().unwrap().source, before);
    }
}

/// A field of 40 rows of 50 elements in a ring of columns: each rank owns columns 1 to 48, with its neighbours' on
/// either side.
fn edges(world: &World, stream: &Stream) {
    let (before, after) = neighbours(world);
    let (rows, pitch) = (40, 50);
    let own = |rank: i32, row: usize, column: usize| (rank as u32 + 1) * 10_000 + (row * pitch + column) as u32;
    let mine: Vec<_> = (0..rows * pitch).map(|index| own(world.rank(), index / pitch, index % pitch)).collect();
    let mut field = stream.upload(&mine).unwrap();
    let column = |start| Rows { start, row_len: 1, rows, pitch };
    let to_the_left = Edge { rank: before, send: column(1), send_tag: 0, recv: column(0), recv_tag: 1 };
    let to_the_right = Edge { rank: after, send: column(48), send_tag: 1, recv: column(49), recv_tag: 0 };
    let mut view = field.view_mut(..).unwrap();
    world.exchange(stream, &mut view, &[to_the_left, to_the_right]).unwrap();
    let mut wanted = mine;
    for row in 0..rows {
        wanted[row * pitch] = own(before, row, 48);
        wanted[row * pitch + 49] = own(after, row, 1);
    }
    assert_eq!(stream.download(&field).unwrap(), wanted);
    let mut view = field.view_mut(..).unwrap();
    let overlapping = Edge { send: Rows { start: 0, row_len: 3, rows: 2, pitch: 2 }, ..to_the_left };
    let refused = world.exchange(stream, &mut view, &[overlapping]).unwrap_err().to_string();
    assert_eq!(refused, "rows of 3 elements overlap at a pitch of 2: the pitch must be at least the row length");
    let outside = Edge { recv: Rows { start: 1990, row_len: 11, rows: 1, pitch: 1 }, ..to_the_left };
    let refused = world.exchange(stream, &mut view, &[outside]).unwrap_err().to_string();
    assert_eq!(refused, "range 1990..2001 is outside a block of 2000 elements");
}

/// Ranks read and write each other's blocks, and the owners use them again afterwards.
fn windows(world: &World, stream: &Stream) {
    let (rank, size, len) = (world.rank(), world.size(), 3000);
    let all = len * size as usize;
    let mut window = world.window(stream.upload(&vec![rank; all]).unwrap()).unwrap();
    for turn in 0..2 {
        // The window opens after this fill, in the order of the block's uses.
        stream.fill_bytes(&mut window.view_mut(), 0).unwrap();
        let mine = stream.upload(&values::<i32>(rank, len, turn)).unwrap();
        let epoch = window.open(stream).unwrap();
        for other in 0..size {
            epoch.put(stream, &mine, other, rank as usize * len).unwrap();
        }
        let said = epoch.put(stream, &mine, 0, all - len + 1).unwrap_err().to_string();
        let start = all - len + 1;
        assert_eq!(
            said,
            format!("range {start}..{} is outside the window of rank 0, which has {all} elements", start + 3000)
        );
        epoch.close().unwrap();
        let wanted: Vec<i32> = (0..size).flat_map(|rank| values::<i32>(rank, len, turn)).collect();
        assert_eq!(stream.download(window.block()).unwrap(), wanted);
    }
    let mut got = stream.zeros::<i32>(len).unwrap();
    let (before, _) = neighbours(world);
    let epoch = window.open(stream).unwrap();
    epoch.get(stream, &mut got, before, rank as usize * len).unwrap();
    epoch.close().unwrap();
    assert_eq!(stream.download(&got).unwrap(), values::<i32>(rank, len, 1));
    let block = window.close().unwrap();
    assert_eq!(block.len(), all);
}

/// Invalid calls fail before anything starts, and say what was expected.
fn invalid_calls(world: &World, stream: &Stream) {
    let (size, rank) = (world.size(), world.rank());
    let mut x = stream.upload(&[7_u32; 10]).unwrap();
    let said = |result: freehold_mpi::Result<()>| result.unwrap_err().to_string();
    assert_eq!(said(world.send(stream, &x, size, 0)), format!("invalid rank {size}: expected 0 to {}", size - 1));
    assert!(said(world.send(stream, &x, 0, -1)).starts_with("invalid tag -1: expected 0 to "));
    assert_eq!(
        said(world.recv(stream, &mut x, -5, 0).map(drop)),
        format!("invalid rank -5: expected 0 to {}", size - 1)
    );
    let mut short = stream.zeros::<u32>(9).unwrap();
    assert_eq!(
        said(world.allreduce(stream, &x, &mut short, Op::Sum)),
        "the target of the reduction has 9 elements, expected 10: pass a view of that length"
    );
    // The root passes none, and the others pass one.
    let whole = (rank != 0).then_some(&mut short);
    assert_eq!(
        said(world.reduce(stream, &x, whole, Op::Sum, 0)),
        "the root, rank 0, must pass a block to write to, and every other rank `None`"
    );
    assert_eq!(stream.download(&x).unwrap(), [7; 10]);
}
