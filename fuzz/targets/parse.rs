//! Parses an arbitrary text, or rejects it with an error whose position is in the text.

#![no_main]

use freehold_ptx::syntax;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Err(error) = syntax::parse(text) else { return };
    let line = text.split('\n').nth(error.at.line as usize - 1).expect("the error is in a line of the text");
    assert!((1..=line.len() as u32 + 1).contains(&error.at.column), "the column of {error} is outside its line");
    let instruction = error.instruction.strip_suffix("...").unwrap_or(&error.instruction);
    assert!(text.contains(instruction), "the instruction of {error} is not in the text");
    assert!(error.message.len() < 500, "the message of {error} is too long");
});
