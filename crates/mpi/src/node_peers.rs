//! Memory that ranks of one machine share: each rank maps the slots of the others. Ranks of one device share device
//! memory, so messages between them never leave the device; other ranks share host memory registered with both devices,
//! so no processor copies messages. Descriptors are exchanged once, at start, over Unix sockets.

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

use crate::error::Result;
use crate::raw::{Comm, Library};
use crate::settings::Slots;
use crate::staging::SharedAddress;

/// How long a rank tries to send its descriptor to another.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

const NONCE_BYTES: usize = 16;
const CARD_BYTES: usize = 64;

/// The data that a rank sends to the others: its machine, its device, and the nonce of its socket.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PeerCard {
    /// Identifies the machine and its process namespace.
    node_id: [u8; 8],
    device: [u8; 16],
    nonce: [u8; NONCE_BYTES],
    can_share: bool,
}

/// Which memory ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedMemoryKind {
    /// Device memory, between ranks of one device.
    Device,
    /// Host memory.
    Host,
}

#[derive(Debug)]
pub(crate) struct NodePeers {
    /// This rank's memory, which others have mapped.
    own: Option<OwnSlots>,
    /// Mapped memory of other ranks, by rank.
    peers: Vec<Option<PeerSlots>>,
    /// Which ranks have mapped this rank's memory.
    is_reachable: Vec<bool>,
    /// Which ranks run on this machine.
    same_node: Vec<bool>,
    slots: Slots,
}

#[derive(Debug)]
struct OwnSlots {
    memory: SlotMemory,
    /// Slots that no message uses.
    free: Mutex<Vec<usize>>,
}

#[derive(Debug)]
struct PeerSlots {
    memory: SlotMemory,
    count: usize,
}

#[derive(Debug)]
enum SlotMemory {
    Own(Block<u8>),
    /// The mapping, and the offset of the first slot.
    Mapped(Imported, u64),
    Host(HostMemory),
}

/// The data that another process needs to map the memory.
#[derive(Debug)]
struct Exported {
    descriptor: OwnedFd,
    bytes: u64,
    offset_bytes: u64,
    count: usize,
}

impl SlotMemory {
    fn address(&self, offset_bytes: usize) -> SharedAddress {
        match self {
            Self::Own(block) => SharedAddress::Device(block.address() + offset_bytes as u64),
            Self::Mapped(memory, from) => SharedAddress::Device(memory.address() + from + offset_bytes as u64),
            Self::Host(memory) => {
                // Writable through a shared reference, because the memory consists of atomics.
                let start = memory.words().as_ptr().cast_mut().cast::<u8>();
                SharedAddress::Host(start.wrapping_add(offset_bytes))
            }
        }
    }
}

impl NodePeers {
    pub(crate) fn none(ranks: i32) -> Self {
        let ranks = ranks as usize;
        let peers = (0..ranks).map(|_| None).collect();
        let slots = Slots { bytes: 0, count: 0 };
        Self { own: None, peers, is_reachable: vec![false; ranks], same_node: vec![false; ranks], slots }
    }

    /// Exchanges memory with the ranks of this machine; for device memory, with the ranks of this device. All ranks
    /// call this. The result is empty if memory cannot be shared, or if `node_id` is `None`.
    pub(crate) fn exchange(
        library: &Library,
        comm: Comm,
        device: &Device,
        node_id: Option<u64>,
        (kind, slots): (SharedMemoryKind, Slots),
    ) -> Result<Self> {
        let (rank, size) = library.rank_and_size(comm)?;
        let mine = node_id.and_then(|_| exported(device, kind, slots));
        let nonce = nonce();
        let ear = nonce.and_then(|nonce| listen(&nonce));
        let card = PeerCard {
            node_id: node_id.unwrap_or(0).to_le_bytes(),
            device: if kind == SharedMemoryKind::Device { device.uuid()? } else { [0; 16] },
            nonce: nonce.unwrap_or_default(),
            can_share: mine.is_some() && ear.is_some(),
        };
        let cards: Vec<_> = library.allgather(comm, &card.encode())?.iter().map(PeerCard::decode).collect();
        let mut this = Self { slots, ..Self::none(size) };
        for (other, theirs) in cards.iter().enumerate() {
            this.same_node[other] = other != rank as usize && node_id.is_some() && theirs.node_id == card.node_id;
        }
        let shares = |other: usize| card.can_share && cards[other].can_share && cards[other].device == card.device;
        if let (Some(ear), Some((memory, exported))) = (&ear, mine) {
            let near: Vec<usize> = (0..size as usize).filter(|&other| this.same_node[other] && shares(other)).collect();
            let mut hearing = || recv_descriptors(ear, &card.nonce, (device, kind, slots), &mut this.peers);
            for &other in &near {
                send_descriptor(ear, &cards[other].nonce, rank, &exported, &mut hearing);
            }
            let began = Instant::now();
            while near.iter().any(|&other| this.peers[other].is_none()) && began.elapsed() < EXCHANGE_TIMEOUT {
                recv_descriptors(ear, &card.nonce, (device, kind, slots), &mut this.peers);
                std::thread::yield_now();
            }
            this.own = Some(OwnSlots { memory, free: Mutex::new((0..slots.count).rev().collect()) });
        }
        // Exchanges which rank has mapped which memory.
        let mut mapped = [0; MAPPED_BYTES];
        for (other, peer) in this.peers.iter().enumerate().take(MAPPED_BYTES * 8) {
            mapped[other / 8] |= u8::from(peer.is_some()) << (other % 8);
        }
        let all = library.allgather(comm, &mapped)?;
        let me = rank as usize;
        for (other, mapped) in all.iter().enumerate() {
            this.is_reachable[other] = me < MAPPED_BYTES * 8 && mapped[me / 8] >> (me % 8) & 1 == 1;
        }
        if !this.is_reachable.contains(&true) {
            this.own = None;
        }
        if me >= MAPPED_BYTES * 8 {
            // Ranks beyond the bitmap share nothing.
            this.peers.fill_with(|| None);
        }
        Ok(this)
    }

    /// Returns whether messages to a rank can use this rank's slots.
    pub(crate) fn reaches(&self, rank: i32) -> bool {
        self.is_reachable[rank as usize]
    }

    pub(crate) fn has_any(&self) -> bool {
        self.is_reachable.contains(&true)
    }

    /// Returns whether messages to every other rank of this machine can use this rank's slots.
    pub(crate) fn reaches_all(&self) -> bool {
        self.same_node.iter().zip(&self.is_reachable).all(|(&is_near, &is_reached)| is_reached || !is_near)
    }

    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.bytes
    }

    /// Takes a free slot of this rank. Returns its index and address.
    pub(crate) fn alloc_slot(&self) -> Option<(usize, SharedAddress)> {
        let own = self.own.as_ref()?;
        let slot = own.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some((slot, own.memory.address(slot * self.slots.bytes)))
    }

    pub(crate) fn free_slot(&self, slot: usize) {
        let own = self.own.as_ref().expect("a rank without memory has no free slots");
        own.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    /// Returns the local address of another rank's slot.
    pub(crate) fn peer_slot(&self, rank: i32, slot: usize) -> Option<SharedAddress> {
        let peer = self.peers[rank as usize].as_ref().filter(|peer| slot < peer.count)?;
        Some(peer.memory.address(slot * self.slots.bytes))
    }
}

/// One bit per rank. Further ranks share nothing.
const MAPPED_BYTES: usize = 512;

impl PeerCard {
    fn encode(self) -> [u8; CARD_BYTES] {
        let mut bytes = [0; CARD_BYTES];
        bytes[..8].copy_from_slice(&self.node_id);
        bytes[8..24].copy_from_slice(&self.device);
        bytes[24..40].copy_from_slice(&self.nonce);
        bytes[40] = u8::from(self.can_share);
        bytes
    }

    fn decode(bytes: &[u8; CARD_BYTES]) -> Self {
        let part = |start: usize| std::array::from_fn(|index| bytes[start + index]);
        let node_id = std::array::from_fn(|index| bytes[index]);
        Self { node_id, device: part(8), nonce: part(24), can_share: bytes[40] == 1 }
    }
}

/// Allocates memory for other ranks to map, if the device can share memory.
fn exported(device: &Device, kind: SharedMemoryKind, slots: Slots) -> Option<(SlotMemory, Exported)> {
    let (bytes, count) = (slots.bytes * slots.count, slots.count);
    if kind == SharedMemoryKind::Host {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("freehold-mpi", flags).ok()?;
        ftruncate(&descriptor, bytes as u64).ok()?;
        fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW).ok()?;
        let memory = device.host_memory(descriptor.as_fd(), bytes as u64).ok()?;
        return Some((SlotMemory::Host(memory), Exported { descriptor, bytes: bytes as u64, offset_bytes: 0, count }));
    }
    let stream = device.new_stream().ok()?;
    let block = stream.alloc_shareable::<u8>(bytes).ok()?;
    let freehold::Exported { descriptor, chunk_bytes, offset_bytes, .. } = block.export().ok()?;
    Some((SlotMemory::Own(block), Exported { descriptor, bytes: chunk_bytes, offset_bytes, count }))
}

fn nonce() -> Option<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut nonce));
    read.ok().map(|()| nonce)
}

/// Returns the socket name for a nonce. Processes that do not know the nonce cannot find the socket.
fn socket_name(nonce: &[u8; NONCE_BYTES]) -> Option<SocketAddrUnix> {
    let text: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    SocketAddrUnix::new_abstract_name(format!("freehold-mpi-{text}").as_bytes()).ok()
}

fn listen(nonce: &[u8; NONCE_BYTES]) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ear = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
    bind(&ear, &socket_name(nonce)?).ok()?;
    Some(ear)
}

const DESCRIPTOR_MESSAGE_BYTES: usize = 48;

/// Sends this rank's descriptor to another rank, and keeps receiving: a socket's queue holds few messages.
fn send_descriptor(ear: &OwnedFd, to: &[u8; NONCE_BYTES], rank: i32, exported: &Exported, mut meanwhile: impl FnMut()) {
    let Some(to_name) = socket_name(to) else { return };
    let mut text = [0; DESCRIPTOR_MESSAGE_BYTES];
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
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "the buffer holds one descriptor");
        let sent = sendmsg_addr(ear, &to_name, &[IoSlice::new(&text)], &mut ancillary, SendFlags::NOSIGNAL);
        let is_full = matches!(sent, Err(rustix::io::Errno::AGAIN));
        if !is_full || began.elapsed() > EXCHANGE_TIMEOUT {
            // A rank that the descriptor does not reach reports that it has mapped nothing.
            return;
        }
        meanwhile();
    }
}

/// Maps the memory of ranks whose descriptors have arrived.
fn recv_descriptors(
    ear: &OwnedFd,
    nonce: &[u8; NONCE_BYTES],
    (device, kind, slots): (&Device, SharedMemoryKind, Slots),
    peers: &mut [Option<PeerSlots>],
) {
    loop {
        let mut text = [0; DESCRIPTOR_MESSAGE_BYTES];
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
        // All slots must lie within the mapping.
        let room_bytes = bytes.saturating_sub(offset_bytes);
        let fits = count.checked_mul(slots.bytes).is_some_and(|needed_bytes| needed_bytes as u64 <= room_bytes);
        if text[..16] != nonce[..] || rank >= peers.len() || !fits {
            continue;
        }
        let Some(descriptor) = descriptor else { continue };
        let memory = match kind {
            SharedMemoryKind::Host => device.host_memory(descriptor.as_fd(), bytes).ok().map(SlotMemory::Host),
            SharedMemoryKind::Device => {
                let mapped = device.import(descriptor.as_fd(), bytes, Permission::Read).ok();
                mapped.map(|memory| SlotMemory::Mapped(memory, offset_bytes))
            }
        };
        peers[rank] = memory.map(|memory| PeerSlots { memory, count });
    }
}
