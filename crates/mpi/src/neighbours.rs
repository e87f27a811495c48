//! Ranks of one machine: each has memory that the others have mapped. Where they have one device it is the device's, so that messages
//! between them never leave it; else it is the host's, registered with the devices of both, so that no processor copies them.
//! Descriptors travel once, at the beginning, over sockets of the system's.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use freehold::{Block, Device, HostMemory, Imported, Permission};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr, socket_with,
};

use crate::copies::Place;
use crate::error::Result;
use crate::raw::{Comm, Library};

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

/// Which memory they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// The device's, between ranks that have the same.
    Device,
    /// The host's.
    Host,
}

/// What a rank shares: places for pieces of messages, of all its messages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) bytes: usize,
    pub(crate) count: usize,
}

#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Memory of this rank's that others have mapped.
    own: Option<Own>,
    /// Memory of others, by rank.
    peers: Vec<Option<Peer>>,
    /// Who has mapped this rank's.
    reached: Vec<bool>,
    /// Ranks of this machine.
    near: Vec<bool>,
    slots: Slots,
}

#[derive(Debug)]
struct Own {
    memory: Memory,
    /// Slots that no message has.
    free: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct Peer {
    memory: Memory,
    count: usize,
}

#[derive(Debug)]
enum Memory {
    Own(Block<u8>),
    /// From where on it is used.
    Mapped(Imported, u64),
    Host(HostMemory),
}

/// What another process needs to map memory.
#[derive(Debug)]
struct Exported {
    descriptor: OwnedFd,
    bytes: u64,
    offset_bytes: u64,
    count: usize,
}

impl Memory {
    fn place(&self, offset_bytes: usize) -> Place {
        match self {
            Self::Own(block) => Place::Device(block.address() + offset_bytes as u64),
            Self::Mapped(memory, from) => Place::Device(memory.address() + from + offset_bytes as u64),
            Self::Host(memory) => {
                // Writable, though behind a shared reference: the memory is atomics.
                let start = memory.words().as_ptr().cast_mut().cast::<u8>();
                Place::Host(start.wrapping_add(offset_bytes))
            }
        }
    }
}

impl Neighbours {
    pub(crate) fn none(ranks: i32) -> Self {
        let ranks = ranks as usize;
        let peers = (0..ranks).map(|_| None).collect();
        let slots = Slots { bytes: 0, count: 0 };
        Self { own: None, peers, reached: vec![false; ranks], near: vec![false; ranks], slots }
    }

    /// Gets to know the ranks of this machine, and of this device where its memory is to be shared, with all ranks. Where memory cannot
    /// be shared, there are none; and without a realm, which is that of the machine.
    pub(crate) fn meet(
        library: &Library,
        comm: Comm,
        device: &Device,
        realm: Option<u64>,
        (ground, slots): (Ground, Slots),
    ) -> Result<Self> {
        let (rank, size) = library.rank_and_size(comm)?;
        let mine = realm.and_then(|_| exported(device, ground, slots));
        let nonce = nonce();
        let ear = nonce.and_then(|nonce| hearing(&nonce));
        let card = Card {
            realm: realm.unwrap_or(0).to_le_bytes(),
            device: if ground == Ground::Device { device.uuid()? } else { [0; 16] },
            nonce: nonce.unwrap_or_default(),
            can_share: mine.is_some() && ear.is_some(),
        };
        let cards: Vec<_> = library.gather_all(comm, &card.encode())?.iter().map(Card::decode).collect();
        let mut this = Self { slots, ..Self::none(size) };
        for (other, theirs) in cards.iter().enumerate() {
            this.near[other] = other != rank as usize && realm.is_some() && theirs.realm == card.realm;
        }
        let shares = |other: usize| card.can_share && cards[other].can_share && cards[other].device == card.device;
        if let (Some(ear), Some((memory, exported))) = (&ear, mine) {
            let near: Vec<usize> = (0..size as usize).filter(|&other| this.near[other] && shares(other)).collect();
            let mut hearing = || hear(ear, &card.nonce, (device, ground, slots), &mut this.peers);
            for &other in &near {
                tell(ear, &cards[other].nonce, rank, &exported, &mut hearing);
            }
            let began = Instant::now();
            while near.iter().any(|&other| this.peers[other].is_none()) && began.elapsed() < PATIENCE {
                hear(ear, &card.nonce, (device, ground, slots), &mut this.peers);
                std::thread::yield_now();
            }
            this.own = Some(Own { memory, free: Mutex::new((0..slots.count).rev().collect()) });
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
        if me >= MAPPED_BYTES * 8 {
            // Nobody knows that they are mapped.
            this.peers.fill_with(|| None);
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

    /// Whether all ranks of this machine are reached.
    pub(crate) fn are_all(&self) -> bool {
        self.near.iter().zip(&self.reached).all(|(&is_near, &is_reached)| is_reached || !is_near)
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.bytes
    }

    /// A slot of this rank's that no message has: its number, and where it lies.
    pub(crate) fn take_slot(&self) -> Option<(usize, Place)> {
        let own = self.own.as_ref()?;
        let slot = own.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some((slot, own.memory.place(slot * self.slots.bytes)))
    }

    pub(crate) fn give_back(&self, slot: usize) {
        let own = self.own.as_ref().expect("a slot that was taken is there");
        own.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    /// Where a slot of another rank's lies here.
    pub(crate) fn slot_of(&self, rank: i32, slot: usize) -> Option<Place> {
        let peer = self.peers[rank as usize].as_ref().filter(|peer| slot < peer.count)?;
        Some(peer.memory.place(slot * self.slots.bytes))
    }
}

/// For a bit of each rank. Ranks beyond these share nothing.
const MAPPED_BYTES: usize = 512;

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
fn exported(device: &Device, ground: Ground, slots: Slots) -> Option<(Memory, Exported)> {
    let (bytes, count) = (slots.bytes * slots.count, slots.count);
    if ground == Ground::Host {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("freehold-mpi", flags).ok()?;
        ftruncate(&descriptor, bytes as u64).ok()?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW).ok()?;
        let memory = device.host_memory(descriptor.as_fd(), bytes as u64).ok()?;
        return Some((Memory::Host(memory), Exported { descriptor, bytes: bytes as u64, offset_bytes: 0, count }));
    }
    let stream = device.stream().ok()?;
    let block = stream.alloc_shareable::<u8>(bytes).ok()?;
    let freehold::Exported { descriptor, chunk_bytes, offset_bytes, .. } = block.export().ok()?;
    Some((Memory::Own(block), Exported { descriptor, bytes: chunk_bytes, offset_bytes, count }))
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

const TOLD_BYTES: usize = 48;

/// Tells another rank of this one's memory, and hears others meanwhile: each can be told of few at a time.
fn tell(ear: &OwnedFd, to: &[u8; NONCE_BYTES], rank: i32, exported: &Exported, mut meanwhile: impl FnMut()) {
    let Some(to_name) = name(to) else { return };
    let mut text = [0; TOLD_BYTES];
    text[..16].copy_from_slice(to);
    text[16..24].copy_from_slice(&(rank as u64).to_le_bytes());
    text[24..32].copy_from_slice(&exported.bytes.to_le_bytes());
    text[32..40].copy_from_slice(&exported.offset_bytes.to_le_bytes());
    text[40..].copy_from_slice(&(exported.count as u64).to_le_bytes());
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
fn hear(
    ear: &OwnedFd,
    nonce: &[u8; NONCE_BYTES],
    (device, ground, slots): (&Device, Ground, Slots),
    peers: &mut [Option<Peer>],
) {
    loop {
        let mut text = [0; TOLD_BYTES];
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
        let (rank, bytes, offset_bytes, count) = (word(16) as usize, word(24), word(32), word(40) as usize);
        // All its slots lie within it.
        let room_bytes = bytes.saturating_sub(offset_bytes);
        let fits = count.checked_mul(slots.bytes).is_some_and(|needed_bytes| needed_bytes as u64 <= room_bytes);
        if text[..16] != nonce[..] || rank >= peers.len() || !fits {
            continue;
        }
        let Some(descriptor) = descriptor else { continue };
        let memory = match ground {
            Ground::Host => device.host_memory(descriptor.as_fd(), bytes).ok().map(Memory::Host),
            Ground::Device => {
                let mapped = device.import(descriptor.as_fd(), bytes, Permission::Read).ok();
                mapped.map(|memory| Memory::Mapped(memory, offset_bytes))
            }
        };
        peers[rank] = memory.map(|memory| Peer { memory, count });
    }
}
