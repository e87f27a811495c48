//! A tenant without the library: bytes over a socket and words of a ring, as `docs/protocol.md` specifies or forbids.
//! Independent of the code of the library.

mod session;

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use freehold_testing::HANG_TIMEOUT;

use crate::harness::until;

pub(crate) use self::session::{RawCall, RawSession};

pub(crate) type Slot = [u64; 8];

/// Offsets of the words of a ring.
pub(crate) mod at {
    /// This tenant's own count: the broker does not read it.
    pub(crate) const REQUESTED: usize = 0;
    pub(crate) const TAKEN: usize = 128;
    pub(crate) const BROKER_ASLEEP: usize = 256;
    pub(crate) const REPLIED: usize = 384;
    pub(crate) const READ: usize = 512;
    pub(crate) const TENANT_ASLEEP: usize = 640;
    pub(super) const REQUESTS: usize = 4096;
    pub(super) const REPLIES: usize = 20_480;
}

const RING_BYTES: usize = 36_864;
const CLOCK_BYTES: usize = 4096;
pub(crate) const SLOTS: u32 = 256;

/// The phase bit in the first word of a slot.
const PHASE: u64 = 1 << 17;

fn phase(count: u32) -> u64 {
    if (count / SLOTS).is_multiple_of(2) { PHASE } else { 0 }
}

/// The most descriptors that the system sends with one message.
pub(crate) const DESCRIPTORS_MAX: usize = 253;

/// `FRHD`, and version 4.
const HELLO: u64 = 4 << 32 | 0x4448_5246;

/// A message of a kind, without a number.
pub(crate) fn message(kind: u64, words: &[u64]) -> Slot {
    let mut slot = [0; 8];
    slot[0] = kind;
    slot[1..=words.len()].copy_from_slice(words);
    slot
}

pub(crate) fn bytes_of(slot: &Slot) -> Vec<u8> {
    slot.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Memory that is shared with the broker.
pub(crate) struct SharedWords {
    start: NonNull<u8>,
    bytes: usize,
}

impl SharedWords {
    fn map(file: &OwnedFd, bytes: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so no other mapping is touched.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        let start = NonNull::new(start.expect("the memfd is mapped").cast()).expect("a mapping is not null");
        Self { start, bytes }
    }

    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes);
        // SAFETY: the offset lies in the mapping, which lives as long as `self`.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: the mapping starts at a page, so the word is aligned; every access to it is atomic.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: the offset lies in the mapping, which lives as long as `self`.
        let word = unsafe { self.start.add(offset) };
        // SAFETY: the mapping starts at a page, so the word is aligned; every access to it is atomic.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: `map` created the mapping, and it is no longer borrowed.
        unsafe { munmap(self.start.as_ptr().cast(), self.bytes) }.expect("munmap of an own mapping succeeds");
    }
}

/// A message from a socket.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) slot: Slot,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A connection over which nothing was sent.
pub(crate) fn dial(path: &Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket is created");
    let address = SocketAddrUnix::new(path).expect("the path fits into an address");
    connect(&socket, &address).expect("a broker listens");
    socket
}

/// Sends any bytes with any descriptors. [`Errno::AGAIN`] if there is no room.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags).map(drop)
}

/// Sends bytes when there is room. Returns whether the connection is open.
pub(crate) fn say(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    loop {
        match send(&socket, bytes, descriptors) {
            Ok(()) => return true,
            Err(Errno::AGAIN) => wait_for(&socket, PollFlags::OUT),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return false,
            Err(error) => panic!("cannot send: {error}"),
        }
    }
}

/// Receives the next message. `None` if the broker has closed the connection.
pub(crate) fn hear(socket: impl AsFd) -> Option<ReceivedMessage> {
    wait_for(&socket, PollFlags::IN);
    receive(socket).expect("a message or the end came")
}

/// Receives a message or the end of the connection, if either is there.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<ReceivedMessage>, Errno> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags) {
        Ok(received) => received.bytes,
        Err(Errno::CONNRESET) => 0,
        Err(error) => return Err(error),
    };
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received == 0 {
        return Ok(None);
    }
    let mut slot = [0; 8];
    for (word, chunk) in slot.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("a chunk is eight bytes"));
    }
    Ok(Some(ReceivedMessage { slot, descriptors }))
}

fn wait_for(socket: impl AsFd, what: PollFlags) {
    let longest = Timespec { tv_sec: HANG_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&socket, what)], Some(&longest)).expect("the socket can be polled");
    assert!(ready > 0, "waited {HANG_TIMEOUT:?} for the broker");
}

/// A tenant.
pub(crate) struct Raw {
    pub(crate) socket: OwnedFd,
    pub(crate) ring: SharedWords,
    pub(crate) semaphores: SharedWords,
    doorbell: OwnedFd,
    pub(crate) tenant: u64,
    number: u64,
}

impl Raw {
    pub(crate) fn connect(path: &Path) -> Self {
        Self::greet(path, &[]).expect("the hello is accepted")
    }

    /// Connects, with descriptors beside the hello. On failure returns what the broker sent instead of a welcome.
    pub(crate) fn greet(path: &Path, descriptors: &[BorrowedFd<'_>]) -> Result<Self, Slot> {
        let socket = dial(path);
        assert!(say(&socket, &bytes_of(&message(1, &[HELLO])), descriptors));
        let ReceivedMessage { slot, descriptors } = hear(&socket).expect("the hello is answered");
        if slot[0] as u16 != 101 {
            return Err(slot);
        }
        let [ring, semaphores, doorbell] =
            <[OwnedFd; 3]>::try_from(descriptors).expect("ring, semaphores and doorbell");
        let (ring, semaphores) = (SharedWords::map(&ring, RING_BYTES), SharedWords::map(&semaphores, CLOCK_BYTES));
        Ok(Self { socket, ring, semaphores, doorbell, tenant: slot[1], number: 0 })
    }

    pub(crate) fn wake(&self) {
        match rustix::io::write(&self.doorbell, &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => panic!("cannot ring the doorbell: {error}"),
        }
    }

    /// Sends a request over the socket and returns its reply. Other messages are skipped.
    pub(crate) fn ask(&mut self, slot: Slot, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> ReceivedMessage {
        self.number += 1;
        let mut bytes = bytes_of(&slot);
        bytes[4..8].copy_from_slice(&(self.number as u32).to_le_bytes());
        bytes.extend_from_slice(text);
        assert!(say(&self.socket, &bytes, descriptors), "the connection is open");
        loop {
            let heard = hear(&self.socket).expect("a request is answered");
            if heard.slot[0] >> 32 == self.number {
                return heard;
            }
        }
    }

    /// Puts a request into the ring, if there is room. Returns its number.
    pub(crate) fn put(&self, mut slot: Slot) -> Option<u32> {
        let requested = self.ring.u32_at(at::REQUESTED).load(Ordering::Relaxed);
        if requested.wrapping_sub(self.ring.u32_at(at::TAKEN).load(Ordering::Acquire)) >= SLOTS {
            return None;
        }
        slot[0] = slot[0] & 0xffff_ffff & !PHASE | phase(requested) | u64::from(requested) << 32;
        let start = at::REQUESTS + (requested % SLOTS) as usize * 64;
        for (index, &word) in slot.iter().enumerate().rev() {
            self.ring.u64_at(start + 8 * index).store(word, Ordering::Release);
        }
        self.ring.u32_at(at::REQUESTED).store(requested.wrapping_add(1), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.ring.u32_at(at::BROKER_ASLEEP).load(Ordering::Relaxed) != 0 {
            self.wake();
        }
        Some(requested)
    }

    /// Takes the oldest reply from the ring.
    pub(crate) fn take(&self) -> Option<Slot> {
        let read = self.ring.u32_at(at::READ).load(Ordering::Relaxed);
        let start = at::REPLIES + (read % SLOTS) as usize * 64;
        let mut slot: Slot = std::array::from_fn(|word| self.ring.u64_at(start + 8 * word).load(Ordering::Acquire));
        if slot[0] & PHASE != phase(read) {
            return None;
        }
        slot[0] &= !PHASE;
        self.ring.u32_at(at::READ).store(read.wrapping_add(1), Ordering::Release);
        Some(slot)
    }

    /// Sends a request over the ring and returns its reply. Notifications are skipped.
    pub(crate) fn ask_ring(&self, slot: Slot) -> Slot {
        let number = until("the ring has room", || self.put(slot));
        until("the broker answers", || {
            self.take()
                .filter(|reply| reply[0] >> 32 == u64::from(number) && !matches!(reply[0] as u16, 109 | 110 | 116))
        })
    }

    /// Sets the ring to the state after a broker that has executed the last request and died before it replied. No
    /// broker runs.
    pub(crate) fn forget_reply(&self) {
        for count in [at::TAKEN, at::REPLIED, at::READ] {
            self.ring.u32_at(count).fetch_sub(1, Ordering::Relaxed);
        }
        let replied = self.ring.u32_at(at::REPLIED).load(Ordering::Relaxed);
        self.ring.u64_at(at::REPLIES + (replied % SLOTS) as usize * 64).fetch_xor(PHASE, Ordering::Release);
    }

    /// Leases new memory. Returns the ids of the lease and of its segment.
    pub(crate) fn reserve(&self, bytes: u64) -> (u64, u64) {
        let granted = self.ask_ring(message(2, &[bytes]));
        assert_eq!(granted[0] as u16, 102, "{granted:x?}");
        (granted[1], granted[2])
    }

    /// Waits until the broker has closed the connection, whatever it sends before.
    pub(crate) fn hear_end(&self) {
        while hear(&self.socket).is_some() {}
    }
}
