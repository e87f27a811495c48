//! Messages of more than 2^31 bytes, which do not fit into an MPI count.

use crate::launcher;

use freehold_testing::at_effort;
use launcher::{APART, DIRECT, RankConfig, STAGED, Transport, ranks};

const BYTES: usize = (1 << 31) + 4097;

#[test]
fn more_than_two_to_the_31_bytes_arrive() {
    let paths: &[_] = at_effort(&[STAGED], &[STAGED], &[STAGED, APART, DIRECT]);
    let wanted: Vec<_> = paths.iter().map(|variables| RankConfig::new(2, Transport::Memory, variables)).collect();
    ranks("more_than_two_to_the_31_bytes_arrive", &wanted, |world, device| {
        let stream = device.new_stream().unwrap();
        let mut x = stream.zeros::<u8>(BYTES).unwrap();
        // Distinct values at the ends, at the limits of counts and of pieces, and next to each.
        let places = [0, 1, (1 << 30) - 1, 1 << 30, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, BYTES - 1];
        if world.rank() == 0 {
            for (mark, &place) in places.iter().enumerate() {
                stream.write(&mut x.view_mut(place..=place).unwrap(), &[mark as u8 + 1]).unwrap();
            }
            world.send(&stream, &x, 1, 0).unwrap();
        } else {
            stream.fill_bytes(&mut x, 0xee).unwrap();
            let received = world.recv(&stream, &mut x, 0, 0).unwrap();
            assert_eq!(received.bytes, BYTES);
            let mut piece = vec![0; 64 << 20];
            let zeros = vec![0_u8; piece.len()];
            for start in (0..BYTES).step_by(piece.len()) {
                let end = BYTES.min(start + piece.len());
                let piece = &mut piece[..end - start];
                stream.read(&x.view(start..end).unwrap(), piece).unwrap();
                for (mark, &place) in places.iter().enumerate().filter(|&(_, place)| (start..end).contains(place)) {
                    assert_eq!(std::mem::take(&mut piece[place - start]), mark as u8 + 1, "at {place}");
                }
                assert!(*piece == zeros[..piece.len()], "a byte from {start} on is not zero");
            }
        }
        world.barrier().unwrap();
    });
}
