//! Messages of text and descriptors over a Unix socket, between a test and its peers.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The longest text of a message: tokens are the most of it.
const TEXT_BYTES: usize = 4096;

/// What comes with one message.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Both ends of a new socket. Neither is inherited by a process that another thread starts.
pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("the system has room for sockets")
}

/// Sets the timeout of [`receive`].
pub(crate) fn limit(socket: impl AsFd, longest: Duration) {
    set_socket_timeout(socket, Timeout::Recv, Some(longest)).expect("a socket takes a limit");
}

/// Sends a message whole.
pub(crate) fn send(socket: impl AsFd, text: &str, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    assert!(text.len() < TEXT_BYTES, "the message is short");
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "a message has room for 4 descriptors");
    }
    sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives the next message, or `None` if the other end is closed.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Message>, Errno> {
    let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut text = [0; TEXT_BYTES];
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let bytes = match received {
        // A process that is killed with messages unread resets its socket.
        Ok(message) if message.bytes == 0 => return Ok(None),
        Err(Errno::CONNRESET) => return Ok(None),
        Ok(message) => message.bytes,
        Err(error) => return Err(error),
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let text = str::from_utf8(&text[..bytes]).expect("messages are text").to_owned();
    Ok(Some(Message { text, descriptors }))
}
