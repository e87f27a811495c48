//! A failed transfer names its rank, tag and bytes. Blocks are unchanged, or reads of them fail, and everything else
//! continues.

use crate::launcher;

use freehold_mpi::{ANY, Error, Op, World};
use launcher::{
    APART, DIRECT, RankConfig, SHARED, STAGED, Transport, done, end_when_wrong, is_rank, launched, ranks, values,
};

const STAGED_4K_CHUNKS: &[(&str, &str)] = &[("FREEHOLD_MPI", "staged"), ("FREEHOLD_MPI_CHUNK", "4096")];

#[test]
fn a_message_that_does_not_fit_is_refused_and_the_next_one_arrives() {
    let name = "a_message_that_does_not_fit_is_refused_and_the_next_one_arrives";
    let wanted = [
        RankConfig::new(2, Transport::Memory, STAGED_4K_CHUNKS),
        RankConfig::new(2, Transport::Tcp, STAGED),
        RankConfig::new(2, Transport::Memory, SHARED),
        RankConfig::new(2, Transport::Memory, DIRECT),
    ];
    ranks(name, &wanted, |world, device| {
        let stream = device.new_stream().unwrap();
        let is_direct = world.path_choice().transfers == freehold_mpi::Path::Direct;
        // One message of a single chunk, one of many chunks.
        for len in [100, 30_000] {
            let x = stream.upload(&values::<u32>(0, len, 1)).unwrap();
            if world.rank() == 0 {
                world.send(&stream, &x, 1, 5).unwrap();
                world.send(&stream, &x, 1, 6).unwrap();
                continue;
            }
            let mut short = stream.upload(&vec![3_u32; len - 1]).unwrap();
            let error = world.recv(&stream, &mut short, ANY, ANY).unwrap_err();
            let length = if is_direct { String::new() } else { format!(" of {} bytes", len * 4) };
            assert_eq!(
                error.to_string(),
                format!(
                    "a message{length} from rank 0 with tag 5 does not fit into {} bytes: receive into a larger block, or send less",
                    (len - 1) * 4
                )
            );
            if is_direct {
                let refused = stream.download(&short).unwrap_err();
                assert!(matches!(refused, freehold::Error::Undefined { .. }), "{refused}");
            } else {
                assert_eq!(stream.download(&short).unwrap(), vec![3; len - 1]);
            }
            stream.fill_bytes(&mut short, 0).unwrap();
            assert_eq!(stream.download(&short).unwrap(), vec![0; len - 1]);
            let mut y = stream.zeros::<u32>(len).unwrap();
            world.recv(&stream, &mut y, 0, 6).unwrap();
            assert_eq!(stream.download(&y).unwrap(), values::<u32>(0, len, 1));
        }
        world.barrier().unwrap();
    });
}

/// Rank 1 dies; the transfers that the others wait for fail with an error that names it.
#[test]
fn a_rank_that_dies_is_named_with_tag_and_bytes() {
    let name = "a_rank_that_dies_is_named_with_tag_and_bytes";
    if is_rank() {
        end_when_wrong();
        let device = freehold::open().unwrap();
        let world = World::new(&device).unwrap();
        outlives(&world);
        done(&world);
        return;
    }
    for variables in [STAGED, APART, SHARED, DIRECT] {
        let wanted = RankConfig { outlive: true, ..RankConfig::new(3, Transport::Memory, variables) };
        let launched = launched(name, &wanted);
        assert_eq!(launched.done, [0, 2], "{wanted:?}: {launched}");
    }
}

fn outlives(world: &World) {
    let device = world.device();
    let stream = device.new_stream().unwrap();
    let mut x = stream.upload(&values::<u32>(world.rank(), 50_000, 1)).unwrap();
    world.barrier().unwrap();
    if world.rank() == 1 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    }
    // The receive fails while the rank dies, or after.
    let error = world.recv(&stream, &mut x, 1, 7).unwrap_err();
    assert_eq!(error.to_string(), "receiving 200000 bytes, rank 1, tag 7 failed: rank 1 has died");
    let held = stream.download(&x);
    match held {
        // Nothing of the message arrived.
        Ok(held) => assert_eq!(held, values::<u32>(world.rank(), 50_000, 1)),
        Err(refused) => assert!(matches!(refused, freehold::Error::Undefined { .. }), "{refused}"),
    }
    stream.write(&mut x, &values::<u32>(world.rank(), 50_000, 1)).unwrap();
    let error = world.isend(&stream, &x, 1, 8).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "sending 200000 bytes, rank 1, tag 8 failed: rank 1 has died");
    assert_eq!(stream.download(&x).unwrap(), values::<u32>(world.rank(), 50_000, 1));
    let mut y = stream.zeros::<u32>(50_000).unwrap();
    let error = world.allreduce(&stream, &x, &mut y, Op::Sum).unwrap_err();
    assert!(matches!(error, Error::RankDied(_)), "{error}");
    assert_eq!(error.to_string(), "reducing 200000 bytes, rank 1 failed: rank 1 has died");
    // The others still reach each other.
    let other = 2 - world.rank();
    let received = world.sendrecv(&stream, (&x, other, 1), (&mut y, Some(other), Some(1))).unwrap();
    assert_eq!(received.len::<u32>(), 50_000);
    assert_eq!(stream.download(&y).unwrap(), values::<u32>(other, 50_000, 1));
}
