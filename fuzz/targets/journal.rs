//! Recovers from a journal of arbitrary words, then serves and ends the clients found in it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|choices: &[u8]| freehold_broker::simulation::journal(choices));
