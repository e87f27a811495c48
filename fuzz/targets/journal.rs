//! A journal of any words is recovered from, and who is found in it is served, and ended.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| freehold_broker::simulation::journal(choices));
