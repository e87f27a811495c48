//! Ranks of one machine with one device: each has memory of the device that the others have mapped, so that messages between them never
//! leave the device. Descriptors travel once, at the beginning, over sockets of the system's.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use freehold::{Block, Device, Exported, Imported, Permission};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr, socket_with,
};

use crate::error::Result;
use crate::raw::{Comm, Library};

/// Pieces of a message that are on their way at once, of all messages of a rank.
const SLOTS: usize = 4;

/// How long a rank tries to be heard by another.
const PATIENCE: Duration = Duration::from_secs(5);

const NONCE_BYTES: usize = 16;
const CARD_BYTES: usize = 64;

/// What a rank tells of itself: machine, device, and where it hears of descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Card {
    /// Of the machine, and of the namespace of its processes.
    realm: [u8; 8],
    device: [u8; 16],
    nonce: [u8; NONCE_BYTES],
    can_share: bool,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Memory of this rank's that others have mapped.
    own: Option<Own>,
    /// Memory of others, by rank.
    peers: Vec<Option<Peer>>,
    /// Who has mapped this rank's.
    reached: Vec<bool>,
    pub(crate) slot_bytes: usize,
}

#[derive(Debug)]
struct Own {
    block: Block<u8>,
    /// Slots that no message has.
    free: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Peer {
    memory: Imported,
    offset_bytes: u64,
}

impl Neighbours {
    pub(crate) fn none(ranks: i32) -> Self {
        let ranks = ranks as usize;
        Self { own: None, peers: (0..ranks).map(|_| None).collect(), reached: vec![false; ranks], slot_bytes: 0 }
    }

    /// Gets to know the ranks of this machine and device, with all ranks. Where memory cannot be shared, there are none.
    pub(crate) fn meet(library: &Library, comm: Comm, device: &Device, realm: u64, slot_bytes: usize) -> Result<Self> {
        let (rank, size) = library.rank_and_size(comm)?;
        let mine = exported(device, slot_bytes * SLOTS);
        let nonce = nonce();
        let ear = nonce.and_then(|nonce| hearing(&nonce));
        let card = Card {
            realm: realm.to_le_bytes(),
            device: device.uuid()?,
            nonce: nonce.unwrap_or_default(),
            can_share: mine.is_some() && ear.is_some(),
        };
        let cards: Vec<_> = library.gather_all(comm, &card.encode())?.iter().map(Card::decode).collect();
        let is_near = |other: &Card| other.realm == card.realm && other.device == card.device;
        let shares =
            |other: usize| other != rank as usize && card.can_share && cards[other].can_share && is_near(&cards[other]);
        let mut this = Self { slot_bytes, ..Self::none(size) };
        if let (Some(ear), Some((block, exported))) = (&ear, mine) {
            let near: Vec<usize> = (0..size as usize).filter(|&other| shares(other)).collect();
            for &other in &near {
                tell(ear, &cards[other].nonce, rank, &exported, || hear(ear, &card.nonce, device, &mut this.peers));
            }
            let began = Instant::now();
            while near.iter().any(|&other| this.peers[other].is_none()) && began.elapsed() < PATIENCE {
                hear(ear, &card.nonce, device, &mut this.peers);
                std::thread::yield_now();
            }
            this.own = Some(Own { block, free: Mutex::new((0..SLOTS).collect()) });
        }
        // Who has mapped whose.
        let mut mapped = [0; MAPPED_BYTES];
        for (other, peer) in this.peers.iter().enumerate().take(MAPPED_BYTES * 8) {
            mapped[other / 8] |= u8::from(peer.is_some()) << (other % 8);
        }
        let all = library.gather_all(comm, &mapped)?;
        let me = rank as usize;
        for (other, mapped) in all.iter().enumerate() {
            this.reached[other] = me < MAPPED_BYTES * 8 && mapped[me / 8] >> (me % 8) & 1 == 1;
        }
        if !this.reached.contains(&true) {
            this.own = None;
        }
        Ok(this)
    }

    /// Whether messages to a rank can go through memory of this one's.
    pub(crate) fn reaches(&self, rank: i32) -> bool {
        self.reached[rank as usize]
    }

    pub(crate) fn any(&self) -> bool {
        self.reached.contains(&true)
    }

    /// A slot of this rank's that no message has: its number and its address.
    pub(crate) fn take_slot(&self) -> Option<(usize, u64)> {
        let own = self.own.as_ref()?;
        let slot = own.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some((slot, own.block.address() + (slot * self.slot_bytes) as u64))
    }

    pub(crate) fn give_back(&self, slot: usize) {
        let own = self.own.as_ref().expect("a slot that was taken is there");
        own.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    /// Where a slot of another rank's lies here.
    pub(crate) fn slot_of(&self, rank: i32, slot: usize) -> Option<u64> {
        let peer = self.peers[rank as usize].as_ref().filter(|_| slot < SLOTS)?;
        Some(peer.memory.address() + peer.offset_bytes + (slot * self.slot_bytes) as u64)
    }
}

/// Ranks beyond these share nothing; a machine has not so many with one device.
const MAPPED_BYTES: usize = 32;

impl Card {
    fn encode(self) -> [u8; CARD_BYTES] {
        let mut bytes = [0; CARD_BYTES];
        bytes[..8].copy_from_slice(&self.realm);
        bytes[8..24].copy_from_slice(&self.device);
        bytes[24..40].copy_from_slice(&self.nonce);
        bytes[40] = u8::from(self.can_share);
        bytes
    }

    fn decode(bytes: &[u8; CARD_BYTES]) -> Self {
        let part = |start: usize| std::array::from_fn(|index| bytes[start + index]);
        let realm = std::array::from_fn(|index| bytes[index]);
        Self { realm, device: part(8), nonce: part(24), can_share: bytes[40] == 1 }
    }
}

/// Memory for others, where the device can share any.
fn exported(device: &Device, bytes: usize) -> Option<(Block<u8>, Exported)> {
    let stream = device.stream().ok()?;
    let block = stream.alloc_shareable::<u8>(bytes).ok()?;
    let exported = block.export().ok()?;
    Some((block, exported))
}

fn nonce() -> Option<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut nonce));
    read.ok().map(|()| nonce)
}

/// The name of the socket that a nonce stands for. Who does not know the nonce does not find it.
fn name(nonce: &[u8; NONCE_BYTES]) -> Option<SocketAddrUnix> {
    let text: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("freehold-mpi-{text}").as_bytes()).ok()
}

fn hearing(nonce: &[u8; NONCE_BYTES]) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ear = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    bind(&ear, &name(nonce)?).ok()?;
    Some(ear)
}

/// Tells another rank of this one's memory, and hears others meanwhile: each can be told of few at a time.
fn tell(ear: &OwnedFd, to: &[u8; NONCE_BYTES], rank: i32, exported: &Exported, mut meanwhile: impl FnMut()) {
    let Some(to_name) = name(to) else { return };
    let mut text = [0; 40];
    text[..16].copy_from_slice(to);
    text[16..24].copy_from_slice(&(rank as u64).to_le_bytes());
    text[24..32].copy_from_slice(&exported.chunk_bytes.to_le_bytes());
    text[32..].copy_from_slice(&exported.offset_bytes.to_le_bytes());
    let began = Instant::now();
    loop {
        let descriptors = [exported.descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one descriptor");
        let sent = sendmsg_addr(ear, &to_name, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL);
        let is_full = matches!(sent, Err(rustix::io::Errno::AGAIN));
        if !is_full || began.elapsed() > PATIENCE {
            // Whoever cannot be told finds no memory of this rank's, and says so.
            return;
        }
        meanwhile();
    }
}

/// Maps the memory of ranks that have told of it.
fn hear(ear: &OwnedFd, nonce: &[u8; NONCE_BYTES], device: &Device, peers: &mut [Option<Peer>]) {
    loop {
        let mut text = [0; 40];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = recvmsg(ear, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        if got.is_err() {
            return;
        }
        let descriptor = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| text[at + index]));
        let (rank, chunk_bytes, offset_bytes) = (word(16) as usize, word(24), word(32));
        if text[..16] != nonce[..] || rank >= peers.len() {
            continue;
        }
        let Some(descriptor) = descriptor else { continue };
        let memory = device.import(descriptor.as_fd(), chunk_bytes, Permission::Read).ok();
        peers[rank] = memory.map(|memory| Peer { memory, offset_bytes });
    }
}
