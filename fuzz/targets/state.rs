//! Any bytes are read as requests and events, and every rule of the broker's state holds after each.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| freehold_broker::simulation::state(choices));
