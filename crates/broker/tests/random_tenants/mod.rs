//! What tenants do until they are killed, and what must be left then.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use freehold_broker::wire::{Access, Fence, Id, Policy, Reply, Request, RequestError};
use freehold_broker::{Granted, Link, LinkError, Name};
use freehold_testing::at_effort;

use crate::harness::{self, Harness, Random, stats, until};

/// What a tenant is about to do, or has just done: a letter for each state of the protocol.
pub(crate) const STATES: &[u8] = b"CWRrAaPpFfLlGgXxDdB";

/// A tenant that prints its state.
struct RandomTenant {
    random: Random,
    /// The state in which it kills itself, and at which occurrence.
    last: u8,
    times: u64,
}

impl RandomTenant {
    fn say(&mut self, state: u8) {
        let mut out = std::io::stdout().lock();
        if out.write_all(&[state]).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
        if state == self.last {
            self.times -= 1;
            if self.times == 0 {
                harness::kill(std::process::id());
            }
        }
    }

    /// Whether it says `Bye` now: soon, if that ends it, and never, if it is killed.
    fn is_over(&mut self) -> bool {
        self.last == b'B' && self.random.below(20) == 0
    }
}

/// Reserves, publishes, leases, gives and returns until it is killed.
pub(crate) fn tenant(words: &[OsString]) -> ExitCode {
    let text = |at: usize| words[at].to_str().expect("an argument is text");
    let number = |at: usize| text(at).parse().expect("a number");
    let mut player = RandomTenant { random: Random::new(number(1)), last: text(2).as_bytes()[0], times: number(3) };
    player.say(b'C');
    let mut link = Link::connect(Path::new(&words[0])).expect("a broker serves");
    player.say(b'W');
    let (mut held, mut attached) = (Vec::new(), Vec::new());
    loop {
        player.step(&mut link, &mut held, &mut attached);
        if player.is_over() {
            player.say(b'B');
            link.close().expect("a broker serves");
            // This time it did not reach its state, and dies the next time.
            link = Link::connect(Path::new(&words[0])).expect("a broker serves");
            held.clear();
            attached.clear();
        }
    }
}

impl RandomTenant {
    fn step(&mut self, link: &mut Link, held: &mut Vec<Granted>, attached: &mut Vec<Id>) {
        match self.random.below(9) {
            0 | 1 => {
                self.say(b'R');
                if let Ok(granted) = link.reserve(1 + self.random.below(3 << 20)) {
                    held.push(granted);
                }
                self.say(b'r');
            }
            2 => {
                if let Some(granted) = held.last() {
                    self.say(b'A');
                    // SAFETY: nothing imports the descriptor.
                    unsafe { link.attach(granted.segment) }.expect("a segment of a lease");
                    attached.push(granted.segment);
                    self.say(b'a');
                }
            }
            3 => {
                if let Some(granted) = held.last() {
                    self.say(b'P');
                    let policy = if self.random.below(2) == 0 { Policy::Restore } else { Policy::Drop };
                    let (lease, fence, name) = (granted.lease, Fence::default(), self.name());
                    // The name may be taken.
                    let _ = link.call(Request::Publish { lease, policy, fence, name });
                    self.say(b'p');
                }
            }
            4 => self.find(link, held),
            5 => {
                if let Some(granted) = held.pop() {
                    self.say(b'G');
                    match link.give(granted.lease, link.tenant(), Fence::default()) {
                        Ok(()) => held.push(link.wait_given().expect("it was given to itself").granted),
                        Err(_) => held.push(granted),
                    }
                    self.say(b'g');
                }
            }
            6 => {
                while let Some(segment) = link.next_unmap().or_else(|| attached.pop()) {
                    self.say(b'D');
                    link.detach(segment).expect("a broker serves");
                    self.say(b'd');
                }
            }
            _ => {
                if !held.is_empty() {
                    self.say(b'X');
                    let granted = held.swap_remove(self.random.below(held.len() as u64) as usize);
                    link.return_lease(granted.lease, Fence::default()).expect("a broker serves");
                    self.say(b'x');
                }
            }
        }
    }

    fn name(&mut self) -> Name {
        Name::parse(&format!("storm/{}", self.random.below(4))).expect("a name")
    }

    fn find(&mut self, link: &mut Link, held: &mut Vec<Granted>) {
        self.say(b'F');
        let name = self.name();
        let found = link.call(Request::Find { name: name.clone() });
        self.say(b'f');
        if let Ok(answer) = found
            && let Reply::Number { id, .. } = answer.reply
        {
            self.say(b'L');
            let access = if self.random.below(3) == 0 { Access::Write } else { Access::Read };
            if let Ok(granted) = link.lease(id, access) {
                held.push(granted);
            }
            self.say(b'l');
        }
        if self.random.below(6) == 0 {
            // It may be gone.
            let _ = link.call(Request::Drop { name });
        }
    }
}

/// Starts such a tenant.
pub(crate) fn start(socket: &Path, seed: u64, last: char, times: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a program has a path"));
    command.arg("tenant").arg(socket).arg(seed.to_string()).arg(last.to_string()).arg(times.to_string());
    command.stdout(Stdio::piped()).spawn().expect("this program runs")
}

/// Waits until a tenant is connected, and reads its output from then on, so that it does not block.
pub(crate) fn read_on(tenant: &mut Child) -> JoinHandle<std::io::Result<u64>> {
    let mut words = tenant.stdout.take().expect("it is piped");
    let mut first = [0; 2];
    words.read_exact(&mut first).expect("it connects");
    assert_eq!(&first, b"CW");
    std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()))
}

pub(crate) fn a_lease_comes_and_goes(harness: &Harness) {
    let mut link = harness.link();
    let granted = link.reserve(1000).unwrap();
    assert_eq!((granted.bytes, granted.offset, granted.access), (1000, 0, Access::Write));
    // SAFETY: nothing imports the descriptor.
    let (_descriptor, bytes) = unsafe { link.attach(granted.segment) }.unwrap();
    assert_eq!(bytes, 2 << 20);
    assert_eq!(stats(&mut link).leased_bytes, 1000);
    link.return_lease(granted.lease, Fence::default()).unwrap();
    until("the lease has ended", || (stats(&mut link).leases == 0).then_some(()));
    link.return_lease(granted.lease, Fence::default()).unwrap();
    let refused = until("the second return is refused", || link.take_errors().pop());
    assert_eq!(refused.to_string(), "no such lease: it was returned, given away, or never belonged to this process");
}

pub(crate) fn many_leases_come_at_once_or_not_at_all(harness: &Harness) {
    let mut link = harness.link();
    let granted = link.reserve_all(&[5000; 200]).unwrap();
    let mut places: Vec<_> = granted.iter().map(|granted| (granted.segment, granted.offset)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!((granted.len(), places.len()), (200, 200));
    for granted in granted {
        link.return_lease(granted.lease, Fence::default()).unwrap();
    }
    let refused = link.reserve_all(&[5000, 5000, u64::MAX, 5000]).unwrap_err();
    assert!(matches!(refused, LinkError::Request { error: RequestError::OutOfMemory { .. }, .. }), "{refused}");
    until("all leases have ended", || (stats(&mut link).leases == 0).then_some(()));
    assert_eq!(link.reserve_all(&[]).unwrap(), []);
}

/// A broker that dies leaves many requests in the ring, and the next one answers each of them once.
pub(crate) fn many_requests_are_answered_once_across_brokers(harness: &Harness) {
    let mut link = harness.link();
    let first = link.reserve(5000).unwrap();
    harness.descriptors(&mut link, "serve");
    let rounds = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            for round in 0..at_effort(3, 10, 50) {
                // Killing a broker that has served nothing would test nothing.
                while rounds.load(Ordering::Acquire) <= round {
                    std::hint::spin_loop();
                }
                harness.kill("broker");
            }
        });
        while !killer.is_finished() {
            let granted = link.reserve_all(&[5000; 100]).unwrap();
            for granted in granted {
                link.return_lease(granted.lease, Fence::default()).unwrap();
            }
            rounds.fetch_add(1, Ordering::Release);
        }
    });
    assert_eq!(link.take_errors(), []);
    until("all other leases have ended", || (stats(&mut link).leases == 1).then_some(()));
    link.return_lease(first.lease, Fence::default()).unwrap();
    until("all leases have ended", || (stats(&mut link).leases == 0).then_some(()));
}

fn publish(link: &mut Link, name: &str, bytes: u64) {
    let granted = link.reserve(bytes).unwrap();
    let name = Name::parse(name).unwrap();
    let (policy, fence) = (Policy::Restore, Fence::default());
    link.call(Request::Publish { lease: granted.lease, policy, fence, name }).unwrap();
}

pub(crate) fn published_outlives_all(harness: &Harness) {
    let mut link = harness.link();
    publish(&mut link, "kept", 4096);
    link.close().unwrap();
    for part in ["broker", "serve", "broker", "fdstore", "broker", "fdstore"] {
        let before = harness.processes(part);
        assert!(harness.kill(part), "{part}");
        until("another broker serves", || {
            let now = harness.processes(if part == "broker" { "broker" } else { "fdstore" });
            (!now.is_empty() && !now.iter().any(|process| before.contains(process))).then_some(())
        });
        let mut link = harness.link();
        let listed = link.call(Request::List { after: None }).unwrap().text;
        assert!(listed.starts_with("kept\t4096\t"), "after the death of the {part}: {listed:?}");
    }
}

/// The broker is killed while one tenant sends requests without pause: each reply belongs to its own request, and no
/// lease is granted twice.
pub(crate) fn a_request_is_answered_once(harness: &Harness) {
    let mut link = harness.link();
    let first = link.reserve(512).unwrap();
    for _ in 0..at_effort(3, 10, 50) {
        harness.kill("broker");
        for _ in 0..50 {
            let granted = link.reserve(512).unwrap();
            assert_ne!(granted.lease, first.lease);
            link.return_lease(granted.lease, Fence::default()).unwrap();
        }
    }
    assert_eq!(link.take_errors(), []);
    until("one lease is left", || (stats(&mut link).leases == 1).then_some(()));
    assert_eq!(stats(&mut link).leased_bytes, 512);
}

/// Drops the names that tenants of [`tenant`] have published.
pub(crate) fn drop_all(link: &mut Link) {
    loop {
        let text = link.call(Request::List { after: None }).unwrap().text;
        let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
        let Some(name) = names.iter().find(|name| name.starts_with("storm/")) else { return };
        let _ = link.call(Request::Drop { name: Name::parse(name).unwrap() });
    }
}
