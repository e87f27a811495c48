//! The cleaner, as the broker knows it: what it was given, and what to do when it dies.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::RecvFlags;

use crate::part::{Config, Part};
use crate::post::Kept;
use crate::ring::Slot;
use crate::socket::{self, NotReceived};
use crate::wire::Id;

/// A segment at which so many cleaners have died is not given to another.
const TRIES_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Helper {
    socket: OwnedFd,
    /// What it was given and has not answered: bytes, and how often.
    given: BTreeMap<Id, (u64, u32)>,
}

impl Helper {
    pub(super) fn start(config: &Config) -> io::Result<Self> {
        let (_child, socket) = config.start(Part::Cleaner)?;
        Ok(Self { socket, given: BTreeMap::new() })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(super) fn clean(&mut self, segment: Id, bytes: u64, descriptor: &OwnedFd) {
        let (_, tries) = self.given.entry(segment).or_insert((bytes, 0));
        *tries += 1;
        let mut slot = Slot::default();
        (slot[0], slot[1]) = (segment.0, bytes);
        // A cleaner that cannot be told is one that is dead, and that is heard of.
        let _ = socket::send(&self.socket, &slot, &[], &[descriptor.as_fd()]);
    }

    /// What it has cleaned, or could not.
    pub(super) fn hear(&mut self) -> Result<Option<(Id, bool)>, NotReceived> {
        match socket::receive(&self.socket, RecvFlags::DONTWAIT) {
            Ok(received) => {
                let segment = Id(received.slot[0]);
                Ok(self.given.remove(&segment).map(|_| (segment, received.slot[1] == 1)))
            }
            Err(NotReceived::Nothing) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Starts another, and gives it what the last one had. Those that none can clean are returned.
    pub(super) fn restart(&mut self, config: &Config, held: &BTreeMap<Kept, OwnedFd>) -> io::Result<Vec<Id>> {
        let given = std::mem::take(&mut self.given);
        let (_child, socket) = config.start(Part::Cleaner)?;
        self.socket = socket;
        let mut lost = Vec::new();
        for (segment, (bytes, tries)) in given {
            match held.get(&Kept::Segment(segment)).filter(|_| tries < TRIES_MAX) {
                Some(descriptor) => {
                    self.given.insert(segment, (bytes, tries));
                    self.clean(segment, bytes, descriptor);
                }
                None => lost.push(segment),
            }
        }
        Ok(lost)
    }
}
