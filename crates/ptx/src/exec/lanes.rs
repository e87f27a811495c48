//! Communication between lanes of a warp: shuffles, votes, matches and reductions. The lanes that take part are those
//! of one group.

use super::frame::{Frame, lanes_of};
use super::map::{Lanes, map3};
use crate::ir::{Op, ReduceOp, ShuffleMode, VoteMode};
use crate::memory::LANES;

/// Executes an instruction across the active lanes.
pub(super) fn execute(frame: &mut Frame, op: &Op, active: u32) {
    match *op {
        Op::Shuffle { mode, to, valid, a, b, c, members } => {
            let file = &frame.narrow;
            let (a, b, c) = (file[a as usize], file[b as usize], file[c as usize]);
            let members = members.map_or([u32::MAX; LANES], |members| file[members as usize].0);
            // One loop for each mode, which the compiler vectorizes.
            let sources = match mode {
                ShuffleMode::Up => map3(&LANE, &b, &c, |lane, b, c| source_lane(ShuffleMode::Up, lane, b, c)),
                ShuffleMode::Down => map3(&LANE, &b, &c, |lane, b, c| source_lane(ShuffleMode::Down, lane, b, c)),
                ShuffleMode::Butterfly => {
                    map3(&LANE, &b, &c, |lane, b, c| source_lane(ShuffleMode::Butterfly, lane, b, c))
                }
                ShuffleMode::Index => map3(&LANE, &b, &c, |lane, b, c| source_lane(ShuffleMode::Index, lane, b, c)),
            };
            let (mut inside, mut values) = (0, [0; LANES]);
            for (lane, &source) in sources.iter().enumerate() {
                inside |= u32::from(source & OUTSIDE == 0) << lane;
                // The ISA leaves the value of a lane that does not take part open. Reductions over less than a warp
                // rely on zero, as those of NVIDIA's samples do.
                let present = active & members[lane] & (1 << (source & 0x1f)) != 0;
                values[lane] = if present { a[(source & 0x1f) as usize] } else { 0 };
            }
            frame.write_narrow(to, active, values);
            if let Some(valid) = valid {
                frame.set_predicate(valid, active, inside);
            }
        }
        Op::Vote { mode, to, predicate, negated, members } => {
            let holds = frame.holds(predicate, negated);
            let members = members.map_or([u32::MAX; LANES], |members| frame.narrow[members as usize].0);
            let votes = |lane: usize| (active & members[lane], holds & active & members[lane]);
            match mode {
                VoteMode::Ballot => {
                    let values = std::array::from_fn(|lane| votes(lane).1);
                    frame.write_narrow(to, active, values);
                }
                _ => {
                    let bits = lanes_of(active).fold(0, |bits, lane| {
                        let (all, yes) = votes(lane);
                        let outcome = match mode {
                            VoteMode::All => yes == all,
                            VoteMode::Any => yes != 0,
                            VoteMode::Uniform | VoteMode::Ballot => yes == all || yes == 0,
                        };
                        bits | u32::from(outcome) << lane
                    });
                    frame.set_predicate(to, active, bits);
                }
            }
        }
        Op::Match { all, to, valid, from, members } => {
            let (values, members) = (frame.read(from), frame.narrow[members as usize]);
            let mut agree = 0;
            let masks = std::array::from_fn(|lane| {
                let peers = active & members[lane];
                let same =
                    lanes_of(peers).filter(|&peer| values[peer] == values[lane]).fold(0, |mask, peer| mask | 1 << peer);
                if !all {
                    return same;
                }
                agree |= u32::from(same == peers) << lane;
                if same == peers { peers } else { 0 }
            });
            frame.write_narrow(to, active, masks);
            if let Some(valid) = valid {
                frame.set_predicate(valid, active, agree);
            }
        }
        Op::Reduce { op, to, from, members } => {
            let (values, members) = (frame.narrow[from as usize], frame.narrow[members as usize]);
            let results = std::array::from_fn(|lane| {
                lanes_of(active & members[lane]).map(|peer| values[peer]).reduce(|a, b| reduce(op, a, b)).unwrap_or(0)
            });
            frame.write_narrow(to, active, results);
        }
        Op::Elect { to, elected, members } => {
            let members = frame.narrow[members as usize];
            let leader = |lane: usize| (active & members[lane]).trailing_zeros();
            let bits = lanes_of(active).fold(0, |bits, lane| bits | u32::from(leader(lane) == lane as u32) << lane);
            let leaders = std::array::from_fn(leader);
            frame.set_predicate(elected, active, bits);
            if let Some(to) = to {
                frame.write_narrow(to, active, leaders);
            }
        }
        _ => unreachable!("not an instruction across lanes"),
    }
}

/// The number of each lane.
const LANE: Lanes<u32> = {
    let mut lanes = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        lanes[lane] = lane as u32;
        lane += 1;
    }
    lanes
};

/// A bit above the number of a lane.
const OUTSIDE: u32 = LANES as u32;

/// Returns the lane that a shuffle reads from: its own one, with the bit `OUTSIDE`, if the other is not in the segment.
#[inline(always)]
fn source_lane(mode: ShuffleMode, lane: u32, b: u32, c: u32) -> u32 {
    let (b, clamp, segment) = (b & 0x1f, c & 0x1f, c >> 8 & 0x1f);
    let highest = lane & segment | clamp & !segment;
    let lowest = lane & segment;
    let (source, valid) = match mode {
        ShuffleMode::Up => (lane.wrapping_sub(b), lane.wrapping_sub(b).cast_signed() >= highest.cast_signed()),
        ShuffleMode::Down => (lane + b, lane + b <= highest),
        ShuffleMode::Butterfly => (lane ^ b, lane ^ b <= highest),
        ShuffleMode::Index => {
            let source = lowest | b & !segment;
            (source, source <= highest)
        }
    };
    if valid { source & 0x1f } else { lane | OUTSIDE }
}

fn reduce(op: ReduceOp, a: u32, b: u32) -> u32 {
    match op {
        ReduceOp::Add => a.wrapping_add(b),
        ReduceOp::MinUnsigned => a.min(b),
        ReduceOp::MinSigned => a.cast_signed().min(b.cast_signed()).cast_unsigned(),
        ReduceOp::MaxUnsigned => a.max(b),
        ReduceOp::MaxSigned => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
    }
}
