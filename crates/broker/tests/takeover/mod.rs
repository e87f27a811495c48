//! The first request that a broker finds when it takes over. The previous broker may have executed it and died before
//! it replied: then what is done already is not an error, and nothing is done twice. For any other request it is an
//! error.

use freehold_broker::wire::BrokerStats;

use crate::harness::{self, Harness, stats, until};
use crate::raw::{Raw, message};

const RESERVE: u64 = 2;
const RETURN: u64 = 4;
const GRANTED: u16 = 102;
const DONE: u16 = 104;
const NO_LEASE: u16 = 204;

/// Kills the broker. It is stopped when `before` is called.
fn kill_behind(harness: &Harness, before: impl FnOnce()) {
    let broker = harness.processes("broker")[0];
    harness::stop(broker);
    before();
    harness::kill(broker);
}

fn next_reply(raw: &Raw) -> [u64; 8] {
    until("the next broker answers", || raw.take())
}

fn leases(harness: &Harness) -> u32 {
    let BrokerStats { leases, .. } = stats(&mut harness.link());
    leases
}

pub(crate) fn what_was_carried_out_and_not_answered_is_answered_and_not_done_again(harness: &Harness) {
    let raw = Raw::connect(&harness.socket());
    let granted = raw.ask_ring(message(RESERVE, &[1000]));
    assert_eq!(granted[0] as u16, GRANTED);
    kill_behind(harness, || raw.forget_reply());
    assert_eq!(next_reply(&raw), granted, "the same lease");
    assert_eq!(leases(harness), 1);
    let done = raw.ask_ring(message(RETURN, &[granted[1]]));
    assert_eq!(done[0] as u16, DONE);
    kill_behind(harness, || raw.forget_reply());
    assert_eq!(next_reply(&raw), done);
    assert_eq!(leases(harness), 0);
    // Only that one was repeated.
    assert_eq!(raw.ask_ring(message(RETURN, &[granted[1]]))[0] as u16, NO_LEASE);
}

pub(crate) fn a_request_that_comes_behind_a_takeover_was_never_asked_before(harness: &Harness) {
    let raw = Raw::connect(&harness.socket());
    let (lease, _) = raw.reserve(1000);
    assert_eq!(raw.ask_ring(message(RETURN, &[lease]))[0] as u16, DONE);
    kill_behind(harness, || {});
    // The next broker has seen the ring empty: it serves others.
    assert_eq!(leases(harness), 0);
    assert_eq!(raw.ask_ring(message(RETURN, &[lease]))[0] as u16, NO_LEASE);
}
