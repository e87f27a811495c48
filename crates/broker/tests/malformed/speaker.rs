//! One process that sends malformed messages over many connections, and checks that each is answered.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use freehold_broker::wire::{Frame, QuotaChange, Request};

use crate::harness::{Random, until};
use crate::raw::{DESCRIPTORS_MAX, Raw, Slot, at, bytes_of, dial, hear, receive, say};

/// Every valid message, with its text.
const GOLDEN: &[(&[u64], &[u8])] = &[
    (&[1, 0x2_4448_5246], b""),
    (&[2, 4096], b""),
    (&[3, 11, 1], b""),
    (&[4, 12, 3, 5 << 48 | 9], b""),
    (&[5, 12, 3, 5 << 48 | 9, 13], b""),
    (&[6, 14], b""),
    (&[7, 14], b""),
    (&[8, 3], b""),
    (&[9, 12, 3, 5 << 48 | 9, 2], b"model/weights"),
    (&[10], b"model/weights"),
    (&[11], b""),
    (&[11], b"model/weights"),
    (&[12], b"model/weights"),
    (&[13, 1000, 1, 1, 1 << 30], b""),
    (&[14], b""),
    (&[15, 4096], b"model/weights"),
    (&[16], b""),
    (&[17, 1], b""),
];

/// Unread replies of one socket: with some more the broker would close it.
const UNREAD_MAX: u32 = 4;

/// Connections of one process, and how many of them end before it does.
const CONNECTIONS: u64 = 8;
const ENDINGS_MAX: u64 = 90;

const TEXT_BYTES_MAX: u64 = 4032;

#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) malformed: u64,
    pub(super) over_ring: u64,
    pub(super) with_descriptors: u64,
    pub(super) endings: u64,
    pub(super) by_chance: u64,
}

pub(super) struct Speaker {
    path: PathBuf,
    random: Random,
    connections: Vec<(Raw, u32)>,
    null: File,
    pub(super) counts: Counts,
}

impl Speaker {
    pub(super) fn new(path: PathBuf, seed: u64) -> Self {
        let connections = (0..CONNECTIONS).map(|_| (Raw::connect(&path), 0)).collect();
        let null = File::open("/dev/null").expect("/dev/null opens");
        // Neighbouring seeds differ from the first word on.
        let random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        Self { path, random, connections, null, counts: Counts::default() }
    }

    /// Sends one message over some channel.
    pub(super) fn speak(&mut self) {
        match self.random.below(1000) {
            0..500 => self.over_ring(),
            500..960 => self.over_socket(),
            960..990 => self.greet(),
            _ if self.counts.endings < ENDINGS_MAX => self.end_one(),
            _ => {}
        }
    }

    /// A changed or random message, and its text.
    fn message(&mut self) -> (Slot, Vec<u8>) {
        let random = &mut self.random;
        let (words, text) = GOLDEN[random.below(GOLDEN.len() as u64) as usize];
        let mut slot = [0; 8];
        slot[..words.len()].copy_from_slice(words);
        let mut text = text.to_vec();
        for _ in 0..=random.below(3) {
            let word = random.below(8) as usize;
            match random.below(12) {
                0 => slot[word] ^= 1 << random.below(64),
                1 => slot[word] = random.below(u64::MAX),
                2 => slot[word] = random.below(16),
                3 => slot[word] = u64::MAX - random.below(3),
                4 => slot[0] = random.below(1 << 16),
                5 => slot[0] ^= 1 << (16 + random.below(16)),
                6 => slot = std::array::from_fn(|_| random.below(u64::MAX)),
                7 => slot[1] = random.below(8) << 32 | random.below(8),
                8 => text = (0..random.below(TEXT_BYTES_MAX + 1)).map(|_| b'a').collect(),
                9 => text = (0..random.below(64)).map(|_| random.below(256) as u8).collect(),
                10 => text.push(b"/.-\0\x1b\xff a"[random.below(8) as usize]),
                _ => text.clear(),
            }
        }
        text.truncate(TEXT_BYTES_MAX as usize);
        (slot, text)
    }

    /// Whether it is a valid message, and then one that takes nothing from others.
    fn harmless(&mut self, slot: &mut Slot, text: &[u8], is_served: fn(&Request) -> bool) {
        if let Ok(framed) = Frame::<Request>::decode(slot, text)
            && is_served(&framed.message)
        {
            let takes = match framed.message {
                Request::Quota { change, .. } => change != QuotaChange::Keep,
                Request::Host { bytes, .. } => bytes > 0,
                Request::Drop { .. } | Request::Publish { .. } | Request::Bye | Request::Stop { .. } => true,
                _ => false,
            };
            if !takes {
                self.counts.by_chance += 1;
                return;
            }
            slot[0] |= 1 << 31;
        }
        self.counts.malformed += 1;
    }

    fn over_ring(&mut self) {
        let (mut slot, _) = self.message();
        self.harmless(&mut slot, b"", |request| {
            use Request as Is;
            matches!(
                request,
                Is::Reserve { .. } | Is::Lease { .. } | Is::Return { .. } | Is::Give { .. } | Is::Detach { .. }
            )
        });
        self.counts.over_ring += 1;
        let at = self.random.below(CONNECTIONS) as usize;
        let (raw, _) = &self.connections[at];
        until("the ring has room", || {
            while raw.take().is_some() {}
            raw.put(slot)
        });
    }

    fn over_socket(&mut self) {
        let (mut slot, text) = self.message();
        self.harmless(&mut slot, &text, |request| {
            use Request as Is;
            !matches!(request, Is::Hello { .. } | Is::Reserve { .. } | Is::Lease { .. } | Is::Give { .. })
        });
        let mut bytes = bytes_of(&slot);
        bytes.extend(text);
        let count = if self.random.below(8) == 0 { self.random.below(5) as usize } else { 0 };
        self.counts.with_descriptors += u64::from(count > 0);
        let at = self.random.below(CONNECTIONS) as usize;
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::repeat_n(self.null.as_fd(), count).collect();
        let (raw, unread) = &mut self.connections[at];
        while let Ok(heard) = receive(&raw.socket) {
            assert!(heard.is_some(), "a message that is answered does not end the connection");
            *unread -= 1;
        }
        while *unread >= UNREAD_MAX {
            assert!(hear(&raw.socket).is_some(), "a message that is answered does not end the connection");
            *unread -= 1;
        }
        assert!(say(&raw.socket, &bytes, &descriptors), "a message that is answered does not end the connection");
        *unread += 1;
    }

    /// Bytes of any length.
    fn bytes(&mut self, count: u64) -> Vec<u8> {
        let (slot, text) = self.message();
        let mut bytes = bytes_of(&slot);
        bytes.extend(text);
        bytes.resize(count as usize, self.random.below(256) as u8);
        bytes
    }

    /// A first message that is not a hello.
    fn greet(&mut self) {
        let count = self.random.below(8193);
        let mut bytes = self.bytes(count);
        if let Some(first) = bytes.get_mut(2) {
            *first |= 2;
        }
        let socket = dial(&self.path);
        let count = self.random.below(4) as usize * self.random.below(80) as usize;
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::repeat_n(self.null.as_fd(), count).collect();
        assert!(say(&socket, &bytes, &descriptors), "the broker listens");
        self.counts.malformed += 1;
        self.counts.with_descriptors += u64::from(count > 0);
        // Possibly an error, and then the end.
        while hear(&socket).is_some() {}
    }

    /// Too short, too long, or with too many descriptors: it ends the connection, and another takes its place.
    fn end_one(&mut self) {
        let (count, descriptors) = match self.random.below(3) {
            0 => (self.random.below(64), 0),
            1 => (4097 + self.random.below(4096), 0),
            _ => (64, 5 + self.random.below(DESCRIPTORS_MAX as u64 - 4) as usize),
        };
        let bytes = self.bytes(count);
        self.counts.malformed += 1;
        self.counts.endings += 1;
        self.counts.with_descriptors += u64::from(descriptors > 0);
        let at = self.random.below(CONNECTIONS) as usize;
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::repeat_n(self.null.as_fd(), descriptors).collect();
        let (raw, _) = &self.connections[at];
        assert!(say(&raw.socket, &bytes, &descriptors), "the connection is open");
        raw.hear_end();
        self.connections[at] = (Raw::connect(&self.path), 0);
    }

    /// Receives every outstanding answer.
    pub(super) fn end(self) -> Counts {
        for (raw, unread) in &self.connections {
            for _ in 0..*unread {
                assert!(hear(&raw.socket).is_some(), "every message is answered");
            }
            until("all requests are answered", || {
                while raw.take().is_some() {}
                let [asked, taken] = [at::REQUESTED, at::TAKEN].map(|at| raw.ring.u32_at(at));
                let load = std::sync::atomic::Ordering::Acquire;
                (asked.load(load) == taken.load(load)).then_some(())
            });
        }
        self.counts
    }
}
