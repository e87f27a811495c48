//! Attacks with malformed bytes, descriptors and words, and by not answering.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::Attacker;
use crate::harness::{until, until_is};
use crate::raw::{DESCRIPTORS_MAX, Raw, SLOTS, Slot, at, bytes_of, dial, hear, message, say, send};

const MALFORMED: u16 = 201;
const BAD_NAME: u16 = 203;
const NO_LEASE: u16 = 204;
const FULL: u16 = 212;
const HOST_QUOTA: u16 = 226;
const NOT_TAKEN: u16 = 215;

const NONE: [u64; 3] = [0; 3];

const TOTALS: u64 = 14;

/// Checks that the broker answers, and that this is still a tenant.
fn answers(raw: &mut Raw) {
    assert_eq!(raw.ask(message(TOTALS, &[]), b"", &[]).slot[0] as u16, 108);
}

/// A descriptor, repeated.
fn copies(of: BorrowedFd<'_>, count: usize) -> Vec<BorrowedFd<'_>> {
    std::iter::repeat_n(of, count).collect()
}

/// Too many descriptors end the connection, and allowed but useless ones are closed. Connections that send nothing are
/// closed to make room for those that do.
pub(super) fn descriptor_flood(attacker: &mut Attacker) {
    let file = File::open("/dev/null").expect("/dev/null opens");
    let totals = bytes_of(&message(TOTALS, &[]));
    for count in [5, 6, 7, 8, 100, DESCRIPTORS_MAX] {
        for _ in 0..5 {
            let raw = attacker.connect();
            assert!(say(&raw.socket, &totals, &copies(file.as_fd(), count)));
            attacker.ended(&raw);
        }
    }
    let mut raw = attacker.connect();
    for _ in 0..500 {
        let reply = raw.ask(message(TOTALS, &[]), b"", &copies(file.as_fd(), 4)).slot;
        assert_eq!(reply[0] as u16, 108, "unexpected descriptors are closed");
    }
    let silent: Vec<OwnedFd> = (0..100).map(|_| dial(&attacker.socket)).collect();
    answers(&mut attacker.connect());
    for socket in &silent[..20] {
        assert!(hear(socket).is_none(), "the oldest silent connections are closed first");
    }
}

/// The largest possible lengths and counts.
pub(super) fn giant_length(attacker: &mut Attacker) {
    for bytes in [4097, 4098, 8192, 65_536, 150_000] {
        let raw = attacker.connect();
        let mut giant = bytes_of(&message(10, &[]));
        giant.resize(bytes, b'a');
        assert!(say(&raw.socket, &giant, &[]));
        attacker.ended(&raw);
    }
    let mut raw = attacker.connect();
    attacker.refused(raw.ask(message(10, &[]), &[b'a'; 4032], &[]).slot, BAD_NAME, [1, 4032, 0]);
    for wanted in [u64::MAX, u64::MAX - 511, 1 << 63, (1 << 50) + 1] {
        let mut reply = raw.ask_ring(message(2, &[wanted]));
        // How much is free depends on the neighbour.
        reply[1] = 0;
        attacker.refused(reply, FULL, [0, 256 << 20, wanted]);
    }
    for wanted in [u64::MAX, (1 << 36) + 1] {
        attacker.refused(raw.ask(message(15, &[wanted]), b"giant", &[]).slot, HOST_QUOTA, [1 << 36, 0, wanted]);
    }
    // An id above every user, a count above every count.
    attacker.refused(raw.ask(message(13, &[1 << 32]), b"", &[]).slot, MALFORMED, NONE);
    for word in 1..8 {
        let mut slot = message(TOTALS, &[]);
        slot[word] = u64::MAX;
        attacker.refused(raw.ask(slot, b"", &[]).slot, MALFORMED, NONE);
    }
    answers(&mut raw);
}

/// Messages that are truncated or empty.
pub(super) fn half_a_message(attacker: &mut Attacker) {
    let whole = bytes_of(&message(TOTALS, &[]));
    for bytes in [0, 1, 8, 32, 63] {
        let raw = attacker.connect();
        assert!(say(&raw.socket, &whole[..bytes], &[]));
        attacker.ended(&raw);
        let socket = dial(&attacker.socket);
        assert!(say(&socket, &whole[..bytes], &[]));
        assert!(hear(&socket).is_none(), "half a hello is refused");
    }
    // A request that is counted but was never written, or only partly.
    let mut raw = attacker.connect();
    attacker.refused(raw.ask_ring([0; 8]), MALFORMED, NONE);
    attacker.refused(raw.ask_ring(message(3, &[0, 2])), MALFORMED, NONE);
    attacker.refused(raw.ask_ring(message(4 | 1 << 20, &[])), MALFORMED, NONE);
    attacker.refused(raw.ask(message(9, &[1, 0, 0, 3]), b"half", &[]).slot, MALFORMED, NONE);
    // Requests over the wrong channel.
    attacker.refused(raw.ask(message(2, &[512]), b"", &[]).slot, MALFORMED, NONE);
    attacker.refused(raw.ask(message(1, &[0x2_4448_5246]), b"", &[]).slot, MALFORMED, NONE);
    for kind in [0, 1, 7, 8, 11, 13, 14, 16, 17, 101, 102, 65_535] {
        attacker.refused(raw.ask_ring(message(kind, &[])), MALFORMED, NONE);
    }
    for kind in [9, 10, 12, 15] {
        attacker.refused(raw.ask_ring(message(kind, &[])), BAD_NAME, NONE);
    }
    answers(&mut raw);
}

/// Descriptors of every kind where none is expected.
pub(super) fn wrong_descriptor(attacker: &mut Attacker) {
    let (reader, writer) = std::io::pipe().expect("a pipe is created");
    let folder = File::open("/").expect("/ opens");
    let null = File::open("/dev/null").expect("/dev/null opens");
    let memory = rustix::fs::memfd_create("wrong", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd_create succeeds");
    let own = attacker.connect();
    let kinds = [reader.as_fd(), writer.as_fd(), folder.as_fd(), null.as_fd(), memory.as_fd(), own.socket.as_fd()];
    for kind in kinds {
        let mut raw = Raw::greet(&attacker.socket, &[kind]).expect("a hello with a descriptor is accepted");
        answers(&mut raw);
        let (lease, segment) = raw.reserve(512);
        assert_eq!(raw.ask(message(7, &[segment]), b"", &[kind]).slot[0] as u16, 107);
        assert_eq!(raw.ask(message(4, &[lease]), b"", &[kind, kind]).slot[0] as u16, 104);
        attacker.refused(raw.ask(message(4, &[lease]), b"", &[kind, kind]).slot, NO_LEASE, NONE);
        assert_eq!(raw.ask(message(16, &[]), b"", &[kind]).slot[0] as u16, 104);
    }
    drop(writer);
    // Nobody else has this end of the pipe: otherwise it would stay open.
    until("the broker has closed the pipe", || {
        let mut byte = [0];
        (rustix::io::read(&reader, &mut byte) == Ok(0)).then_some(())
    });
}

/// A child sends `Bye` over the socket of its parent, whose connection is not affected.
pub(super) fn inherited_socket(attacker: &mut Attacker) {
    let raw = attacker.connect();
    let (lease, _) = raw.reserve(512);
    for _ in 0..5 {
        let mut heir = Command::new(std::env::current_exe().expect("a program has a path"));
        let socket = raw.socket.try_clone().expect("the descriptor is duplicated");
        assert!(heir.arg("heir").stdin(Stdio::from(socket)).status().expect("this program runs").success());
        // The next message is the reply to the parent's own request.
        assert!(say(&raw.socket, &bytes_of(&message(TOTALS | 77 << 32, &[])), &[]));
        let next = hear(&raw.socket).expect("the broker answers").slot;
        assert_eq!(next[0], 77 << 32 | 108, "a child that inherited a socket is not answered");
        attacker.refused += 1;
    }
    assert_eq!(raw.ask_ring(message(4, &[lease]))[0] as u16, 104, "the parent still has its lease");
}

/// What the child sends.
pub(super) fn heir() {
    let socket = std::io::stdin();
    for kind in [TOTALS, 16, 11] {
        assert!(say(&socket, &bytes_of(&message(kind | 66 << 32, &[])), &[]));
    }
}

/// Names that are paths, terminal escape sequences, or not text.
pub(super) fn name_tricks(attacker: &mut Attacker) {
    let mut raw = attacker.connect();
    let (lease, _) = raw.reserve(512);
    let long = [b'a'; 201];
    // The rule, and where it is broken.
    let tricks: &[(&[u8], [u64; 3])] = &[
        (b"", [0, 0, 0]),
        (b"/etc/passwd", [2, 1, 0]),
        (b"../../etc/passwd", [4, 1, 0]),
        (b"a/../b", [4, 2, 0]),
        (b"a/.", [4, 2, 0]),
        (b"a//b", [2, 2, 0]),
        (b"a/", [2, 2, 0]),
        (b"-rf", [4, 1, 0]),
        (b"a\0b", [3, 1, 0]),
        (b"a\0", [3, 1, 0]),
        (b"a\tb", [3, 1, 0]),
        (b"a\nb\t1\t2", [3, 1, 0]),
        (b"\x1b[2J\x1b[1;31m", [3, 0, 0]),
        (b"ab\xff\xfe", [3, 2, 0]),
        (b"\xc0\xaf", [3, 0, 0]),
        ("na\u{308}me".as_bytes(), [3, 2, 0]),
        ("a\u{2215}b".as_bytes(), [3, 1, 0]),
        ("\u{202e}txt".as_bytes(), [3, 0, 0]),
        (b"a\\b", [3, 1, 0]),
        (b"$(id)", [3, 0, 0]),
        (&long, [1, 201, 0]),
        (&long[..65], [2, 1, 65]),
    ];
    for (text, numbers) in tricks {
        for request in [message(9, &[lease, 0, 0, 0]), message(10, &[]), message(12, &[]), message(15, &[4096])] {
            attacker.refused(raw.ask(request, text, &[]).slot, BAD_NAME, *numbers);
        }
        if !text.is_empty() {
            attacker.refused(raw.ask(message(11, &[]), text, &[]).slot, BAD_NAME, *numbers);
        }
    }
    assert_eq!(raw.ask_ring(message(4, &[lease]))[0] as u16, 104, "the lease was not published under any of them");
}

/// Sends large requests over the socket, and reads nothing.
pub(super) fn never_reads_socket(attacker: &mut Attacker) {
    for kind in [TOTALS, 11] {
        let raw = attacker.connect();
        let asked = bytes_of(&message(kind, &[]));
        let outcome = until("the broker closes the connection", || match send(&raw.socket, &asked, &[]) {
            Ok(()) | Err(Errno::AGAIN) => None,
            Err(error) => Some(error),
        });
        assert_eq!(outcome, Errno::PIPE);
        attacker.refused += 1;
    }
}

/// Sends requests over the ring, is given leases, and reads nothing.
pub(super) fn never_reads_ring(attacker: &mut Attacker) {
    let raw = attacker.connect();
    let no_lease = message(4, &[u64::MAX]);
    let served = SLOTS - 7;
    (0..served).for_each(|_| assert!(raw.put(no_lease).is_some(), "the ring has room for them"));
    until_is("the requests are served", served, || raw.ring.u32_at(at::TAKEN).load(Ordering::Acquire));
    // Requests without room for their reply are not served and stay in the ring, until it is full.
    let more = (0..).take_while(|_| raw.put(no_lease).is_some()).count() as u32;
    assert_eq!(more, SLOTS, "requests are served while their replies fit, and then the ring fills up");
    assert_eq!(raw.ring.u32_at(at::REPLIED).load(Ordering::Acquire), served);
    // A giver is told that the receiver does not read.
    let (giver, deaf) = (attacker.connect(), attacker.connect());
    let mut given = 0;
    loop {
        let (lease, _) = giver.reserve(512);
        let reply: Slot = giver.ask_ring(message(5, &[lease, 0, 0, deaf.tenant]));
        if reply[0] as u16 != 104 {
            attacker.refused(reply, NOT_TAKEN, [given, 0, 0]);
            break;
        }
        given += 1;
    }
    assert_eq!(given, 129);
    // A tenant that reads is served again.
    let mut replies = 0;
    until("all are answered", || {
        while let Some(reply) = raw.take() {
            attacker.refused(reply, NO_LEASE, NONE);
            replies += 1;
        }
        raw.wake();
        (replies == served + more).then_some(())
    });
}

/// Fences of invalid semaphores, and semaphores that go back, or anywhere.
pub(super) fn semaphore_garbage(attacker: &mut Attacker) {
    let mut raw = attacker.connect();
    let garbage = [4, 0, u64::MAX, 1 << 63, (1 << 62) + 1, 3];
    for _ in 0..20 {
        let (lease, _) = raw.reserve(512);
        for word in [512, 513, 65_535] {
            let when = word << 48 | 1;
            attacker.refused(raw.ask_ring(message(4, &[lease, 0, when])), MALFORMED, NONE);
            attacker.refused(raw.ask(message(9, &[lease, 0, when, 0]), b"late", &[]).slot, MALFORMED, NONE);
        }
        raw.semaphores.u64_at(8 * 3).store(attacker.random.below(u64::MAX), Ordering::Release);
        let later = message(4, &[lease, attacker.victim.tenant, 3 << 48 | 5]);
        assert_eq!(raw.ask_ring(later)[0] as u16, 104);
        attacker.refused(raw.ask_ring(later), NO_LEASE, NONE);
        for value in garbage {
            raw.semaphores.u64_at(8 * 3).store(value, Ordering::Release);
            answers(&mut raw);
        }
    }
    // A tenant that closes with corrupted semaphores is removed when its process ends.
    let (lease, _) = raw.reserve(512);
    raw.semaphores.u64_at(8 * 3).store(0, Ordering::Release);
    assert_eq!(raw.ask_ring(message(4, &[lease, 0, 3 << 48 | 5]))[0] as u16, 104);
    assert_eq!(raw.ask(message(16, &[]), b"", &[]).slot[0] as u16, 104);
}

/// Impossible counts, also in the words of the broker.
pub(super) fn ring_garbage(attacker: &mut Attacker) {
    for count in [SLOTS + 1, u32::MAX] {
        let raw = attacker.connect();
        // A word that is corrupted before the first reply is overwritten by that.
        attacker.refused(raw.ask_ring(message(4, &[u64::MAX])), NO_LEASE, NONE);
        until("the reply is counted", || (raw.ring.u32_at(at::REPLIED).load(Ordering::Acquire) == 1).then_some(()));
        raw.ring.u32_at(at::REPLIED).store(count, Ordering::Release);
        raw.wake();
        attacker.ended(&raw);
    }
    for ahead in [1, 1 << 31] {
        let raw = attacker.connect();
        // The count of replies read is only checked when there is little room.
        for _ in 0..SLOTS / 2 {
            until("the ring has room", || raw.put(message(4, &[u64::MAX])));
        }
        until("all are answered", || (raw.ring.u32_at(at::REPLIED).load(Ordering::Acquire) == SLOTS / 2).then_some(()));
        raw.ring.u32_at(at::READ).store(SLOTS / 2 + ahead, Ordering::Release);
        raw.wake();
        attacker.ended(&raw);
    }
    // Corrupting the broker's position only harms this tenant.
    for count in [1, u32::MAX - SLOTS] {
        let raw = attacker.connect();
        raw.ring.u32_at(at::TAKEN).store(count, Ordering::Release);
        raw.wake();
    }
    // The asleep words are only hints.
    let raw = attacker.connect();
    for garbage in [u32::MAX, 7, 0] {
        raw.ring.u32_at(at::BROKER_ASLEEP).store(garbage, Ordering::Release);
        raw.ring.u32_at(at::TENANT_ASLEEP).store(garbage, Ordering::Release);
        raw.wake();
        attacker.refused(raw.ask_ring(message(4, &[u64::MAX])), NO_LEASE, NONE);
    }
}
