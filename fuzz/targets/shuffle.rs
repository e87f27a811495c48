//! Mutations that leave most of a text valid: lines and words change places. Mutations of single bytes seldom get past
//! the parser.

use libfuzzer_sys::fuzzer_mutate;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Mutates the first `size` bytes of `data`, which has room for `max_size`, and returns the new size.
pub fn change(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = SplitMix64::seed_from_u64(seed.into());
    let changed = match std::str::from_utf8(&data[..size]) {
        Ok(text) if below(&mut random, 4) != 0 => match below(&mut random, 4) {
            0 => move_line(text, &mut random),
            _ => replace_word(text, &mut random),
        },
        _ => None,
    };
    match changed {
        Some(text) if text.len() <= max_size.min(data.len()) => {
            data[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
        _ => fuzzer_mutate(data, size, max_size),
    }
}

/// Moves, copies or removes a line.
fn move_line(text: &str, random: &mut SplitMix64) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let from = below(random, lines.len());
    let line = *lines.get(from)?;
    if below(random, 2) == 0 {
        lines.remove(from);
    }
    if below(random, 4) != 0 {
        lines.insert(below(random, lines.len() + 1), line);
    }
    Some(lines.join("\n"))
}

/// Replaces a word by another of the text, or by one that is often a corner case.
fn replace_word(text: &str, random: &mut SplitMix64) -> Option<String> {
    const CORNERS: &[&str] = &[
        "0",
        "1",
        "-1",
        "31",
        "32",
        "63",
        "64",
        "255",
        "0x7fffffff",
        "0x80000000",
        "0xffffffff",
        "0x8000000000000000",
        "0xffffffffffffffff",
        "0f7fc00000",
        "0fff800000",
        "0f00000001",
        "0d7ff8000000000000",
        "0d8000000000000000",
        "s8",
        "u8",
        "b8",
        "s16",
        "u16",
        "b16",
        "f16",
        "bf16",
        "f16x2",
        "bf16x2",
        "s32",
        "u32",
        "b32",
        "f32",
        "s64",
        "u64",
        "b64",
        "b128",
        "f64",
        "pred",
        "v2",
        "v4",
        "sat",
        "ftz",
        "rn",
        "rz",
        "rm",
        "rp",
        "rni",
        "rzi",
        "shared",
        "global",
        "local",
        "param",
        "const",
        "sync",
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "sys",
        "gpu",
        "cta",
        "hi",
        "lo",
        "wide",
        "cc",
        "add",
        "sub",
        "mul",
        "mad",
        "fma",
        "div",
        "rem",
        "min",
        "max",
        "and",
        "or",
        "xor",
        "shl",
        "shr",
        "shf",
        "cvt",
        "setp",
        "set",
        "slct",
        "selp",
        "atom",
        "red",
        "ld",
        "st",
        "mov",
        "abs",
        "neg",
        "sqrt",
        "rcp",
        "sin",
        "lg2",
        "ex2",
        "tanh",
        "clz",
        "popc",
        "brev",
        "bfind",
        "bfe",
        "bfi",
        "prmt",
        "lop3",
        "sad",
        "mul24",
        "mad24",
        "dp4a",
        "copysign",
        "testp",
        "shfl",
        "vote",
        "match",
        "redux",
        "bar",
        "barrier",
        "membar",
        "fence",
        "bra",
        "ret",
        "exit",
    ];
    let words = words(text);
    let (start, end) = *words.get(below(random, words.len()))?;
    let other = match below(random, 3) {
        0 => CORNERS[below(random, CORNERS.len())],
        _ => words.get(below(random, words.len())).map(|(start, end)| &text[*start..*end])?,
    };
    Some(format!("{}{other}{}", &text[..start], &text[end..]))
}

/// Returns the start and the end of each word.
fn words(text: &str) -> Vec<(usize, usize)> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'-');
    let mut words = Vec::new();
    let mut start = None;
    for (index, byte) in text.bytes().chain([b' ']).enumerate() {
        match start {
            None if is_word(byte) => start = Some(index),
            Some(first) if !is_word(byte) => {
                words.push((first, index));
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// Returns a number below `bound`; zero if `bound` is zero.
fn below(random: &mut SplitMix64, bound: usize) -> usize {
    random.next_u64() as usize % bound.max(1)
}
