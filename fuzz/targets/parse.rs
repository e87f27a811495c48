//! Any text is read, or refused with a mistake that lies within it.

#![no_main]

use freehold_ptx::syntax;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Err(error) = syntax::parse(text) else { return };
    let line = text.split('\n').nth(error.at.line as usize - 1).expect("the mistake is in a line of the text");
    assert!((1..=line.len() as u32 + 1).contains(&error.at.column), "{error} is not in its line");
    let instruction = error.instruction.strip_suffix("...").unwrap_or(&error.instruction);
    assert!(text.contains(instruction), "{error} has an instruction that is not in the text");
    assert!(error.message.len() < 500, "{error} says too much");
});
