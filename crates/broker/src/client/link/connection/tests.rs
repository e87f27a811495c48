//! Tests of a connection; the test plays the broker.

use std::path::PathBuf;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with, socketpair,
};

use super::*;
use crate::protocol::ring::{BrokerRing, RING_BYTES};

/// A connection, and the broker's side of its ring and its socket.
fn connected() -> (Link, BrokerRing, OwnedFd) {
    let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let served = SharedMemory::create("ring", RING_BYTES).unwrap();
    let ring = served.shared_fd().try_clone().unwrap();
    let semaphores =
        SharedMemory::create("semaphores", SEMAPHORES as usize * 8).unwrap().shared_fd().try_clone().unwrap();
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut link = Link::from_parts(socket, Id(1), 0, [ring, semaphores, doorbell]).unwrap();
    link.spin_policy = SpinPolicy::For(Duration::ZERO);
    (link, BrokerRing::new(served), theirs)
}

fn tell(served: &BrokerRing, number: u32, message: Reply) {
    let slot = Frame { number, is_retry: false, message }.encode();
    served.push_reply(&slot);
}

fn given(lease: u64) -> Reply {
    let (segment, fence, from) = (Id(7), Fence::default(), Id(2));
    Reply::Given { lease: Id(lease), segment, offset: 0, bytes: 512, fence, from }
}

#[test]
fn what_was_given_and_taken_is_not_given_again() {
    let (mut link, served, _theirs) = connected();
    tell(&served, 0, given(5));
    assert_eq!(link.next_given().unwrap().granted.lease, Id(5));
    tell(&served, 0, given(5));
    assert_eq!(link.next_given(), None);
    tell(&served, 0, given(6));
    assert_eq!(link.next_given().unwrap().granted.lease, Id(6), "a new lease is given");
}

#[test]
fn a_returned_lease_is_not_received_again_before_the_broker_has_taken_the_return() {
    let (mut link, served, _theirs) = connected();
    tell(&served, 0, given(5));
    link.next_given().unwrap();
    link.return_lease(Id(5), Fence::default()).unwrap();
    tell(&served, 0, given(5));
    assert_eq!(link.next_given(), None);
    tell(&served, 0, Reply::Done);
    assert_eq!(link.next_given(), None);
    assert!(link.received.is_empty() && link.returned.is_empty(), "ended leases are forgotten");
}

#[test]
fn errors_that_are_not_taken_are_forgotten_oldest_first() {
    let (mut link, served, _theirs) = connected();
    for number in 0..100 {
        tell(&served, number, Reply::Error(RequestError::TooMany { limit: u64::from(number) }));
    }
    let refused = link.take_errors();
    assert_eq!(refused.len(), 64);
    assert_eq!(
        (&refused[0], &refused[63]),
        (&RequestError::TooMany { limit: 36 }, &RequestError::TooMany { limit: 99 })
    );
    assert_eq!(link.take_errors(), []);
}

/// A socket of its own with a listener.
struct TestSocket {
    folder: PathBuf,
    listener: OwnedFd,
}

impl TestSocket {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("freehold-link-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(folder.join("broker")).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        Self { folder, listener }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("broker")
    }
}

impl Drop for TestSocket {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[test]
fn a_broker_of_another_version_is_named_with_what_to_do() {
    let test_socket = TestSocket::new("version");
    std::thread::scope(|scope| {
        let broker = scope.spawn(|| {
            let socket = accept(&test_socket.listener).unwrap();
            let heard = seqpacket::receive(&socket, RecvFlags::empty()).unwrap();
            let message = Reply::Error(RequestError::Version { theirs: 1 });
            seqpacket::send(&socket, &Frame { number: 0, is_retry: false, message }.encode(), &[], &[]).unwrap();
            heard.slot[1] >> 32
        });
        let refused = Link::connect(&test_socket.path()).unwrap_err().to_string();
        let sentence = "the broker speaks protocol version 1, this program version 4: update the older one";
        assert_eq!((refused.as_str(), broker.join().unwrap()), (sentence, 4));
    });
}

#[test]
fn a_broker_that_does_not_answer_is_not_waited_for_longer_than_was_wanted() {
    let test_socket = TestSocket::new("silent");
    let refused = Link::connect_timeout(&test_socket.path(), Duration::from_millis(10)).unwrap_err();
    assert_eq!(refused, LinkError::TimedOut);
    assert_eq!(
        refused.to_string(),
        "the broker does not answer: its processes are stopped or hang, see `pgrep -af freehold`"
    );
}
