//! The cleaner, as the broker knows it: what it was given, and what to do when it dies.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::RecvFlags;

use crate::part::{Config, Part};
use crate::post::Kept;
use crate::ring::Slot;
use crate::socket::{self, NotReceived};
use crate::state::Dirty;
use crate::wire::Id;

/// A segment at which so many cleaners have died is not given to another.
const TRIES_MAX: u32 = 3;

/// Bytes of a segment that are to be zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stain {
    pub(super) segment: Id,
    /// Of the segment.
    pub(super) whole_bytes: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
pub(super) struct Helper {
    socket: OwnedFd,
    /// What it was given and has not answered, and how often it was given.
    given: BTreeMap<Dirty, (Stain, u32)>,
}

impl Helper {
    pub(super) fn start(config: &Config) -> io::Result<Self> {
        let (_child, socket) = config.start(Part::Cleaner)?;
        Ok(Self { socket, given: BTreeMap::new() })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn clean(&mut self, what: Dirty, stain: Stain, descriptor: &OwnedFd) {
        let (_, tries) = self.given.entry(what).or_insert((stain, 0));
        *tries += 1;
        let mut slot = Slot::default();
        slot[..2].copy_from_slice(&words(what));
        slot[2..5].copy_from_slice(&[stain.whole_bytes, stain.offset, stain.bytes]);
        // A cleaner that cannot be told is one that is dead, and that is heard of.
        let _ = socket::send(&self.socket, &slot, &[], &[descriptor.as_fd()]);
    }

    /// What it has cleaned, or could not.
    pub(super) fn hear(&mut self) -> Result<Option<(Dirty, bool)>, NotReceived> {
        match socket::receive(&self.socket, RecvFlags::DONTWAIT) {
            Ok(received) => {
                let told = [received.slot[0], received.slot[1]];
                let what = self.given.keys().copied().find(|&what| words(what) == told);
                Ok(what.filter(|what| self.given.remove(what).is_some()).map(|what| (what, received.slot[2] == 1)))
            }
            Err(NotReceived::Nothing) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Starts another, and gives it what the last one had. Those that none can clean are returned.
    pub(super) fn restart(&mut self, config: &Config, held: &BTreeMap<Kept, OwnedFd>) -> io::Result<Vec<Dirty>> {
        let given = std::mem::take(&mut self.given);
        let (_child, socket) = config.start(Part::Cleaner)?;
        self.socket = socket;
        let mut lost = Vec::new();
        for (what, (stain, tries)) in given {
            match held.get(&Kept::Segment(stain.segment)).filter(|_| tries < TRIES_MAX) {
                Some(descriptor) => {
                    self.given.insert(what, (stain, tries));
                    self.clean(what, stain, descriptor);
                }
                None => lost.push(what),
            }
        }
        Ok(lost)
    }
}

/// How the cleaner is told of it, and tells of it.
fn words(what: Dirty) -> [u64; 2] {
    match what {
        Dirty::Segment(id) => [1, id.0],
        Dirty::Block(id) => [2, id.0],
    }
}
