//! Interprets arbitrary bytes as requests and events, and checks every invariant of the broker's state after each.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| freehold_broker::simulation::state(choices));
