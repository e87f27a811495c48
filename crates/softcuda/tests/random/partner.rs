//! The partner of a run: a process that shares memory and events in every way, and dies during the run.

use std::collections::BTreeMap;
use std::env;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

use super::known::Shared;
use crate::peer::{End, Kind, Peer, parse};

/// The shared objects of a run's partner.
#[derive(Debug)]
pub(crate) struct Partner {
    peer: Mutex<Option<Peer>>,
    tokens: BTreeMap<Shared, Vec<[u8; 64]>>,
    descriptors: Vec<(Shared, OwnedFd)>,
    /// The address of its block in its own process.
    pub(crate) address: u64,
}

impl Partner {
    /// Starts a process on this one's machine.
    pub(crate) fn start() -> Self {
        let machine = env::var("FREEHOLD_SOFT_MACHINE").expect("a run has a machine of its own");
        let peer = Peer::start(&machine, &[("FREEHOLD_SOFT_SCHEDULE", "threads")]);
        peer.ask("start");
        let mut tokens = BTreeMap::<Shared, Vec<[u8; 64]>>::new();
        let mut descriptors = Vec::new();
        // The event is the last, so that the peer can be asked to record it.
        for (kind, token, descriptor) in [
            (Kind::Descriptor, None, Some(Shared::Allocation)),
            (Kind::Pool, Some(Shared::PoolBlock), Some(Shared::Pool)),
            (Kind::Legacy, Some(Shared::Memory), None),
            (Kind::Event, Some(Shared::Event), None),
        ] {
            let mut made = peer.ask_with(format!("make {kind:?} 1"), &[]);
            if let Some(shared) = token {
                tokens.entry(shared).or_default().push(parse(&made.text).expect("a peer spells tokens"));
            }
            if let Some(shared) = descriptor {
                descriptors.push((shared, made.descriptors.remove(0)));
            }
        }
        // Small blocks, which lie side by side in the same memory.
        for _ in 0..3 {
            let token = parse(&peer.ask("name 4096")).expect("a peer spells tokens");
            tokens.entry(Shared::Memory).or_default().push(token);
        }
        peer.ask("record");
        let address = peer.ask("address").parse().expect("an address is a number");
        Self { peer: Mutex::new(Some(peer)), tokens, descriptors, address }
    }

    pub(crate) fn tokens(&self, kind: Shared) -> &[[u8; 64]] {
        self.tokens.get(&kind).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn descriptors(&self, kind: Shared) -> impl Iterator<Item = i32> {
        let of_kind = self.descriptors.iter().filter(move |(shared, _)| *shared == kind);
        of_kind.map(|(_, descriptor)| descriptor.as_raw_fd())
    }

    /// Kills the process, with the event recorded after work that will never complete.
    pub(crate) fn kill(&self) {
        let peer = self.peer.lock().expect("no holder panics").take();
        if let Some(peer) = peer {
            peer.ask("record-behind-gate");
            peer.end(End::Kill);
        }
    }
}
