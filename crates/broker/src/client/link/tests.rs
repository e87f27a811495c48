//! A connection whose other side is this test.

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, socket_with, socketpair,
};

use super::*;
use crate::ring::{RING_BYTES, Served};

/// A connection, and the broker's side of its ring and its socket.
fn connected() -> (Link, Served, OwnedFd) {
    let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let served = Shared::create("ring", RING_BYTES).unwrap();
    let ring = served.shared_file().try_clone().unwrap();
    let clock = Shared::create("clock", CLOCK_WORDS as usize * 8).unwrap().shared_file().try_clone().unwrap();
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let mut link = Link::over(socket, Id(1), 0, [ring, clock, bell]).unwrap();
    link.patience = Patience::For(Duration::ZERO);
    (link, Served::new(served), theirs)
}

fn tell(served: &Served, number: u32, message: Reply) {
    let slot = Framed { number, is_again: false, message }.encode();
    served.reply(&slot);
}

fn given(lease: u64) -> Reply {
    let (segment, point, from) = (Id(7), Point::default(), Id(2));
    Reply::Given { lease: Id(lease), segment, offset: 0, bytes: 512, point, from }
}

#[test]
fn what_was_given_and_taken_is_not_given_again() {
    let (mut link, served, _theirs) = connected();
    tell(&served, 0, given(5));
    assert_eq!(link.given().unwrap().granted.lease, Id(5));
    tell(&served, 0, given(5));
    assert_eq!(link.given(), None);
    tell(&served, 0, given(6));
    assert_eq!(link.given().unwrap().granted.lease, Id(6), "another one is");
}

#[test]
fn what_was_returned_is_not_given_again_before_the_broker_has_heard_of_it() {
    let (mut link, served, _theirs) = connected();
    tell(&served, 0, given(5));
    link.given().unwrap();
    link.give_back(Id(5), Point::default()).unwrap();
    tell(&served, 0, given(5));
    assert_eq!(link.given(), None);
    tell(&served, 0, Reply::Done);
    assert_eq!(link.given(), None);
    assert!(link.taken.is_empty() && link.ended.is_empty(), "nothing is remembered of what is over");
}

#[test]
fn refusals_that_nobody_asks_for_are_forgotten_one_by_one() {
    let (mut link, served, _theirs) = connected();
    for number in 0..100 {
        tell(&served, number, Reply::Refused(Refusal::TooMany { limit: u64::from(number) }));
    }
    let refused = link.take_refused();
    assert_eq!(refused.len(), 64);
    assert_eq!((&refused[0], &refused[63]), (&Refusal::TooMany { limit: 36 }, &Refusal::TooMany { limit: 99 }));
    assert_eq!(link.take_refused(), []);
}

/// A socket of its own at which somebody listens.
struct Place {
    folder: PathBuf,
    listener: OwnedFd,
}

impl Place {
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

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

#[test]
fn a_broker_of_another_version_is_named_with_what_to_do() {
    let place = Place::new("version");
    std::thread::scope(|scope| {
        let broker = scope.spawn(|| {
            let socket = accept(&place.listener).unwrap();
            let heard = socket::receive(&socket, RecvFlags::empty()).unwrap();
            let message = Reply::Refused(Refusal::Version { theirs: 1 });
            socket::send(&socket, &Framed { number: 0, is_again: false, message }.encode(), &[], &[]).unwrap();
            heard.slot[1] >> 32
        });
        let refused = Link::connect(&place.path()).unwrap_err().to_string();
        let sentence = "the broker speaks version 1 of the protocol, and this program 3: update the older of the two";
        assert_eq!((refused.as_str(), broker.join().unwrap()), (sentence, 3));
    });
}

#[test]
fn a_broker_that_does_not_answer_is_not_waited_for_longer_than_was_wanted() {
    let place = Place::new("silent");
    let refused = Link::connect_within(&place.path(), Duration::from_millis(10)).unwrap_err();
    assert_eq!(refused, LinkError::Silent);
    assert_eq!(
        refused.to_string(),
        "the broker does not answer: its processes, which `pgrep -af freehold` lists, are stopped or hang"
    );
}
