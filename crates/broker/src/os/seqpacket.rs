//! Messages with descriptors over a `SOCK_SEQPACKET` socket: a message is read whole or not at all, and a hang-up of
//! the peer is detected.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use zerocopy::IntoBytes;

/// The fixed part of a message: eight words.
pub(crate) type Slot = [u64; SLOT_WORDS];

pub(crate) const SLOT_WORDS: usize = 8;

/// The longest text after a message, in bytes.
pub const TAIL_BYTES_MAX: usize = 4096 - 64;

/// The most descriptors in one message.
pub(crate) const DESCRIPTORS_MAX: usize = 4;

/// Control buffer of `recvmsg`: the credentials of the sender, and one descriptor more than allowed, so that an excess
/// is detected. Its start and size are multiples of 8. Otherwise the kernel may write a header whose aligned end lies
/// beyond the buffer; the iterator skips that one, and its descriptors leak.
#[repr(align(8))]
struct ControlBuffer([MaybeUninit<u8>; CONTROL_BYTES]);

const CONTROL_BYTES: usize = {
    const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
    let credentials = HEADER_BYTES + size_of::<libc::ucred>();
    let descriptors = HEADER_BYTES + (DESCRIPTORS_MAX + 1) * size_of::<libc::c_int>();
    credentials.next_multiple_of(8) + descriptors.next_multiple_of(8)
};

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) slot: Slot,
    pub(crate) tail: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
    /// The process that sent it, if the socket passes credentials.
    pub(crate) sender: Option<u32>,
}

/// Why no message was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReceiveError {
    /// The peer has closed the connection.
    Closed,
    /// No message is there, and the call does not wait.
    WouldBlock,
    /// Too short, too long, or with too many descriptors. The descriptors are closed.
    Malformed,
    System(Errno),
}

/// Creates a pair of `SOCK_SEQPACKET` sockets.
pub(crate) fn socket_pair() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message without waiting. [`Errno::AGAIN`] if the peer does not read.
pub(crate) fn send(socket: impl AsFd, slot: &Slot, tail: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let is_pushed = beside.push(SendAncillaryMessage::ScmRights(descriptors));
        assert!(is_pushed, "a message has at most {DESCRIPTORS_MAX} descriptors");
    }
    let parts = [IoSlice::new(slot.as_bytes()), IoSlice::new(tail)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &parts, &mut beside, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives the next message. With `RecvFlags::DONTWAIT` it does not wait for one.
pub(crate) fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Received, ReceiveError> {
    // One byte more than a message has, so that longer ones are detected.
    let mut bytes = [0; 64 + TAIL_BYTES_MAX + 1];
    let mut space = ControlBuffer([MaybeUninit::uninit(); CONTROL_BYTES]);
    let mut beside = RecvAncillaryBuffer::new(&mut space.0);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(&socket, &mut parts, &mut beside, flags | RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ReceiveError::WouldBlock),
            Err(Errno::CONNRESET) => return Err(ReceiveError::Closed),
            Err(error) => return Err(ReceiveError::System(error)),
        }
    };
    // Collected first: descriptors that are not taken would stay open.
    let (mut descriptors, mut sender) = (Vec::new(), None);
    for message in beside.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(rights) => descriptors.extend(rights),
            RecvAncillaryMessage::ScmCredentials(peer) => {
                sender = Some(peer.pid.as_raw_nonzero().get().cast_unsigned());
            }
            _ => {}
        }
    }
    if received.bytes == 0 {
        return Err(ReceiveError::Closed);
    }
    let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if is_cut || descriptors.len() > DESCRIPTORS_MAX || !(64..=64 + TAIL_BYTES_MAX).contains(&received.bytes) {
        return Err(ReceiveError::Malformed);
    }
    let mut slot = Slot::default();
    slot.as_mut_bytes().copy_from_slice(&bytes[..64]);
    Ok(Received { slot, tail: bytes[64..received.bytes].to_vec(), descriptors, sender })
}
