//! Attacks with numbers: guessed and stale ids, ids of another tenant, and more memory than the user's quota.

use super::Attacker;
use crate::harness::until_is;
use crate::raw::{Raw, message};

const NO_LEASE: u16 = 204;
const NO_NAME: u16 = 205;
const NO_SEGMENT: u16 = 209;
const USER_QUOTA: u16 = 211;
const TOO_MANY: u16 = 213;
const NO_TENANT: u16 = 214;

const NONE: [u64; 3] = [0; 3];

/// Guesses the id of an object that never existed: no process lives long enough for that many.
pub(super) fn guessed(attacker: &mut Attacker) {
    let mut raw = attacker.connect();
    for _ in 0..200 {
        let guess = attacker.random.below(1 << 31) << 32 | 1 << 63 | attacker.random.below(64);
        let me = raw.tenant;
        attacker.refused(raw.ask_ring(message(4, &[guess])), NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(5, &[guess, 0, 0, me])), NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(3, &[guess, 1])), NO_NAME, NONE);
        attacker.refused(raw.ask_ring(message(6, &[guess])), NO_SEGMENT, NONE);
        attacker.refused(raw.ask(message(7, &[guess]), b"", &[]).slot, NO_SEGMENT, NONE);
        attacker.refused(raw.ask(message(8, &[guess]), b"", &[]).slot, NO_TENANT, NONE);
        attacker.refused(raw.ask(message(9, &[guess, 0, 0, 0]), b"guessed", &[]).slot, NO_LEASE, NONE);
    }
    // Indexes of existing objects, with every generation that they can have had by now.
    for guess in 0..2000 {
        attacker.refused(raw.ask_ring(message(4, &[((guess / 8) << 32) | (guess % 8)])), NO_LEASE, NONE);
    }
}

/// Repeats requests that were valid once.
pub(super) fn replayed(attacker: &mut Attacker) {
    let mut raw = attacker.connect();
    for _ in 0..200 {
        let (lease, segment) = raw.reserve(512);
        assert_eq!(raw.ask(message(7, &[segment]), b"", &[]).slot[0] as u16, 107);
        let over = message(4, &[lease]);
        assert_eq!(raw.ask_ring(over)[0] as u16, 104);
        attacker.refused(raw.ask_ring(over), NO_LEASE, NONE);
        // Possibly at the same index, with another id.
        let (next, _) = raw.reserve(512);
        assert_ne!(next, lease);
        attacker.refused(raw.ask_ring(over), NO_LEASE, NONE);
        attacker.refused(raw.ask(over, b"", &[]).slot, NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(5, &[lease, 0, 0, raw.tenant])), NO_LEASE, NONE);
        attacker.refused(raw.ask(message(9, &[lease, 0, 0, 0]), b"replayed", &[]).slot, NO_LEASE, NONE);
        // As if a broker had died: what has ended stays ended, and nothing else ends.
        assert_eq!(raw.ask(message(4 | 1 << 16, &[lease]), b"", &[]).slot[0] as u16, 104);
        assert_eq!(raw.ask_ring(message(4, &[next]))[0] as u16, 104, "the existing lease was not ended");
        assert_eq!(raw.ask_ring(message(6, &[segment]))[0] as u16, 104);
        attacker.refused(raw.ask_ring(message(6, &[segment])), NO_SEGMENT, NONE);
    }
    assert_eq!(raw.ask(message(16, &[]), b"", &[]).slot[0] as u16, 104);
}

/// Returns, gives and publishes the neighbour's lease, and attaches and detaches its segment, without having either.
pub(super) fn someone_elses(attacker: &mut Attacker) {
    let mut raw = attacker.connect();
    let victim = attacker.victim;
    for _ in 0..200 {
        let me = raw.tenant;
        attacker.refused(raw.ask_ring(message(4, &[victim.lease])), NO_LEASE, NONE);
        attacker.refused(raw.ask(message(4, &[victim.lease]), b"", &[]).slot, NO_LEASE, NONE);
        // A tenant cannot name another one's semaphores.
        attacker.refused(raw.ask_ring(message(4, &[victim.lease, victim.tenant, 7])), NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(5, &[victim.lease, 0, 0, me])), NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(5, &[victim.lease, victim.tenant, 0, victim.tenant])), NO_LEASE, NONE);
        attacker.refused(raw.ask(message(9, &[victim.lease, 0, 0, 0]), b"mine", &[]).slot, NO_LEASE, NONE);
        attacker.refused(raw.ask_ring(message(6, &[victim.segment])), NO_SEGMENT, NONE);
        attacker.refused(raw.ask(message(6, &[victim.segment]), b"", &[]).slot, NO_SEGMENT, NONE);
        attacker.refused(raw.ask(message(7, &[victim.segment]), b"", &[]).slot, NO_SEGMENT, NONE);
    }
}

/// Takes the whole quota of a user over many connections, and more; and more connections than a user may have.
pub(super) fn quota(attacker: &mut Attacker) {
    const QUOTA_BYTES: u64 = 64 << 20;
    const SEGMENT_BYTES: u64 = 2 << 20;
    let user = u64::from(rustix::process::getuid().as_raw());
    let mut first = attacker.connect();
    // The neighbour's two, and this one: what an earlier attacker had is back.
    until_is("only these tenants are left", (3, 0), || {
        let stats = first.ask(message(14, &[]), b"", &[]).slot;
        (stats[6] as u32, stats[5])
    });
    let before = first.ask(message(13, &[user]), b"", &[]).slot;
    assert_eq!(first.ask(message(13, &[user, 0, 1, QUOTA_BYTES]), b"", &[]).slot[1], QUOTA_BYTES);
    let mut others: Vec<Raw> = Vec::new();
    loop {
        let raw = attacker.connect();
        let reply = raw.ask_ring(message(2, &[SEGMENT_BYTES]));
        others.push(raw);
        if reply[0] as u16 != 102 {
            attacker.refused(reply, USER_QUOTA, [QUOTA_BYTES, QUOTA_BYTES, SEGMENT_BYTES]);
            break;
        }
    }
    assert_eq!(others.len() as u64 - 1, (QUOTA_BYTES - before[2]) / SEGMENT_BYTES, "the whole quota was used");
    for _ in 0..20 {
        let raw = attacker.connect();
        attacker.refused(
            raw.ask_ring(message(2, &[SEGMENT_BYTES])),
            USER_QUOTA,
            [QUOTA_BYTES, QUOTA_BYTES, SEGMENT_BYTES],
        );
        others.push(raw);
    }
    loop {
        match Raw::greet(&attacker.socket, &[]) {
            Ok(raw) => others.push(raw),
            Err(reply) => {
                attacker.refused(reply, TOO_MANY, [256, 0, 0]);
                break;
            }
        }
    }
    // The neighbour's two, the first, and all others.
    assert_eq!(others.len(), 256 - 3);
    assert_eq!(first.ask(message(13, &[user, 0, 1, before[1]]), b"", &[]).slot[1], before[1]);
}
