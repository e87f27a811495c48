//! Compares this arithmetic with the results of an H200.
//!
//! `h200.txt` has a line for each operation and operands (`L add.rn.f32 3f800000 3f800000 = 40000000`), and one for
//! each operation with the hash of the results of pseudo-random operands (`H add.rn.f32 16384 = …`), which [`draw`]
//! generates again.

mod operation;

use freehold_testing::{at_effort, report_covered};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use operation::{Kind, evaluate, operands, tolerance};

const RECORD: &str = include_str!("hardware/h200.txt");

#[test]
fn the_answers_to_corner_values_are_the_hardwares() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in RECORD.lines().filter_map(|line| line.strip_prefix("L ")) {
        let (question, expected) = line.split_once(" = ").expect("a result");
        let mut words = question.split(' ');
        let name = words.next().expect("a name");
        let mut values = [0; 3];
        for (value, word) in values.iter_mut().zip(words) {
            *value = hexadecimal(word);
        }
        let expected = hexadecimal(expected);
        let ours = evaluate(name, values).unwrap_or_else(|| panic!("unknown operation {name}"));
        count += 1;
        if ours != expected && !tolerance(name).is_some_and(|of| of.holds(name, values, ours, expected)) {
            wrong.push(format!("{line}, here {ours:x}"));
        }
    }
    assert!(count > 1000, "{count} lines");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_answers_to_random_values_are_the_hardwares() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let lines = RECORD.lines().filter_map(|line| line.strip_prefix("H "));
    assert!(lines.clone().count() > 500, "{} lines", lines.count());
    // The hash of a line covers all its results: at low effort, only some of the lines are checked.
    for line in lines.step_by(at_effort(16, 4, 1)) {
        let (question, expected) = line.split_once(" = ").expect("a hash");
        let (name, draws) = question.split_once(' ').expect("a count");
        let kinds = operands(name).unwrap_or_else(|| panic!("unknown operation {name}"));
        count += 1;
        if hash(name, kinds, draws.parse().expect("a number")) != hexadecimal(expected) {
            wrong.push(name);
        }
    }
    report_covered(count, "operations held against hardware");
    assert!(wrong.is_empty(), "{} of {count}: {}", wrong.len(), wrong.join(" "));
}

fn hexadecimal(word: &str) -> u64 {
    u64::from_str_radix(word, 16).unwrap_or_else(|_| panic!("{word} is not a number"))
}

/// FNV-1a over the bytes of the results.
fn hash(name: &str, kinds: [Kind; 3], draws: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for i in 0..draws {
        let seed = 1_000_003 + i * 3;
        let values = [0, 1, 2].map(|operand: usize| draw(kinds[operand], mix(seed + operand as u64)));
        let result = evaluate(name, values).unwrap_or_else(|| panic!("unknown operation {name}"));
        for byte in result.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    hash
}

/// The first number of splitmix64, as the program that recorded `h200.txt` computed it.
fn mix(seed: u64) -> u64 {
    SplitMix64::seed_from_u64(seed).next_u64()
}

/// Returns a pseudo-random operand: a corner value, near one (also with few bits set), small, or anything.
fn draw(kind: Kind, seed: u64) -> u64 {
    let body = mix(seed);
    let (exponent_bits, fraction_bits) = kind.bits();
    let width = if exponent_bits == 0 { fraction_bits } else { 1 + exponent_bits + fraction_bits };
    let top = 1 << (width - 1);
    let all = top | (top - 1);
    let choice = seed & 7;
    if exponent_bits == 0 {
        let corners = [0, 1, all, top, top - 1, width.into(), u64::from(width) - 1, 0x7f];
        return match choice {
            0 => corners[(body % 8) as usize],
            1 | 2 => body & 0xff,
            _ => body & all,
        };
    }
    let fractions = (1 << fraction_bits) - 1;
    let bias = (1 << (exponent_bits - 1)) - 1;
    let infinity = ((1 << exponent_bits) - 1) << fraction_bits;
    let corners = [
        0,
        1,
        fractions,
        fractions + 1,
        bias << fraction_bits,
        infinity - 1,
        infinity,
        infinity | (fractions / 2 + 1),
        infinity | 1,
    ];
    let (sign, exponent) = (body & top, mix(body.wrapping_add(2)));
    let sparse = if choice == 3 { mix(body) & mix(body.wrapping_add(1)) } else { u64::MAX };
    let fraction = body & fractions & sparse;
    match choice {
        0 => sign | corners[((body >> 8 & 0xffff) % 9) as usize],
        1..=3 => sign | (bias + exponent % 17 - 8) << fraction_bits | fraction,
        4 => sign | (exponent & 3) << fraction_bits | fraction,
        _ => body & all,
    }
}
