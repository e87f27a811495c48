//! What tenants do until they are killed, and what must be left then.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use freehold_broker::wire::{Access, Point, Policy, Reply, Request};
use freehold_broker::{Granted, Link, Name};

use crate::stage::{self, MEMORY_BYTES, Random, Stage, seed, start_tenant, sums, until};

/// What a tenant is about to do, or has just done: a letter for each state of the protocol.
const STATES: &[u8] = b"CWRrAaPpFfLlGgXxDdB";

/// Tells whoever started this process where it is.
fn say(state: u8) {
    let mut out = std::io::stdout().lock();
    if out.write_all(&[state]).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Reserves, publishes, leases, gives and returns until it is killed.
pub(crate) fn tenant(socket: &OsStr, seed: u64) -> ExitCode {
    let mut random = Random(seed);
    say(b'C');
    let Ok(mut link) = Link::connect(Path::new(socket)) else { return ExitCode::FAILURE };
    say(b'W');
    let mut held: Vec<Granted> = Vec::new();
    let me = link.tenant();
    loop {
        match random.below(8) {
            0 | 1 => {
                say(b'R');
                if let Ok(granted) = link.reserve(1 + random.below(3 << 20)) {
                    held.push(granted);
                }
                say(b'r');
            }
            2 => {
                if let Some(granted) = held.last() {
                    say(b'A');
                    link.attach(granted.segment).expect("a segment of a lease");
                    say(b'a');
                }
            }
            3 => {
                if let Some(granted) = held.last() {
                    say(b'P');
                    let name = Name::parse(&format!("storm/{}", random.below(4))).expect("a name");
                    let policy = if random.below(2) == 0 { Policy::Restore } else { Policy::Drop };
                    let request = Request::Publish { lease: granted.lease, policy, point: Point::default(), name };
                    let _ = link.call(request);
                    say(b'p');
                }
            }
            4 => {
                say(b'F');
                let name = Name::parse(&format!("storm/{}", random.below(4))).expect("a name");
                let found = link.call(Request::Find { name: name.clone() });
                say(b'f');
                if let Ok(answer) = found
                    && let Reply::Number { id, .. } = answer.reply
                {
                    say(b'L');
                    let access = if random.below(3) == 0 { Access::Write } else { Access::Read };
                    if let Ok(granted) = link.lease(id, access) {
                        held.push(granted);
                    }
                    say(b'l');
                }
                if random.below(6) == 0 {
                    let _ = link.call(Request::Drop { name });
                }
            }
            5 => {
                if let Some(granted) = held.pop() {
                    say(b'G');
                    match link.give(granted.lease, me, Point::default()) {
                        Ok(()) => held.push(link.wait_given().expect("it was given to itself").granted),
                        Err(_) => held.push(granted),
                    }
                    say(b'g');
                }
            }
            _ => {
                if !held.is_empty() {
                    say(b'X');
                    let granted = held.swap_remove(random.below(held.len() as u64) as usize);
                    link.give_back(granted.lease, Point::default()).expect("a broker serves");
                    say(b'x');
                }
                while let Some(segment) = link.to_leave() {
                    say(b'D');
                    link.detach(segment).expect("a broker serves");
                    say(b'd');
                }
            }
        }
        if random.below(200) == 0 {
            say(b'B');
            return if link.close().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
}

pub(crate) fn a_lease_comes_and_goes(stage: &Stage) {
    let mut link = stage.link();
    let granted = link.reserve(1000).unwrap();
    assert_eq!((granted.bytes, granted.offset, granted.access), (1000, 0, Access::Write));
    let (_descriptor, bytes) = link.attach(granted.segment).unwrap();
    assert_eq!(bytes, 2 << 20);
    assert_eq!(sums(&mut link).leased_bytes, 1000);
    link.give_back(granted.lease, Point::default()).unwrap();
    until("the lease is over", || (sums(&mut link).leases == 0).then_some(()));
    link.give_back(granted.lease, Point::default()).unwrap();
    let refused = until("the second return is refused", || link.take_refused().pop());
    assert_eq!(refused.to_string(), "there is no such lease: it was returned, given away, or never this process's");
}

fn publish(link: &mut Link, name: &str, bytes: u64) {
    let granted = link.reserve(bytes).unwrap();
    let name = Name::parse(name).unwrap();
    let (policy, point) = (Policy::Restore, Point::default());
    link.call(Request::Publish { lease: granted.lease, policy, point, name }).unwrap();
}

pub(crate) fn published_outlives_all(stage: &Stage) {
    let mut link = stage.link();
    publish(&mut link, "kept", 4096);
    link.close().unwrap();
    for part in ["broker", "serve", "broker", "keeper", "broker", "keeper"] {
        let before = stage.processes(part);
        assert!(stage.kill(part), "{part}");
        until("another serves", || {
            let now = stage.processes(if part == "broker" { "broker" } else { "keeper" });
            (!now.is_empty() && !now.iter().any(|process| before.contains(process))).then_some(())
        });
        let mut link = stage.link();
        let listed = link.call(Request::List { after: None }).unwrap().text;
        assert!(listed.starts_with("kept\t4096\t"), "after the death of the {part}: {listed:?}");
    }
}

/// The broker is killed while one tenant asks and asks: each reply is the reply to its own request, and no lease is had twice.
pub(crate) fn a_request_is_answered_once(stage: &Stage) {
    let mut link = stage.link();
    let first = link.reserve(512).unwrap();
    for _ in 0..20 {
        stage.kill("broker");
        for _ in 0..50 {
            let granted = link.reserve(512).unwrap();
            assert_ne!(granted.lease, first.lease);
            link.give_back(granted.lease, Point::default()).unwrap();
        }
    }
    assert_eq!(link.take_refused(), []);
    until("one lease is left", || (sums(&mut link).leases == 1).then_some(()));
    assert_eq!(sums(&mut link).leased_bytes, 512);
}

/// What is left when nobody has anything.
fn is_empty(link: &mut Link) -> bool {
    let sums = sums(link);
    sums.tenants == 1 && sums.leases == 0 && sums.leaving_bytes == 0
}

fn drop_all(link: &mut Link) {
    loop {
        let text = link.call(Request::List { after: None }).unwrap().text;
        let names: Vec<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
        let Some(name) = names.iter().find(|name| name.starts_with("storm/")) else { return };
        let _ = link.call(Request::Drop { name: Name::parse(name).unwrap() });
    }
}

pub(crate) fn killed_tenants(stage: &Stage) {
    let mut random = Random(seed());
    let mut link = stage.link();
    publish(&mut link, "survivor", 1 << 20);
    let mut counts: BTreeMap<u8, u32> = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    // A tenant that is killed at its n-th word is in the state that the word tells of.
    let mut descriptors = None;
    for turn in 0..400 {
        let mut tenant = start_tenant(&stage.socket(), random.below(u64::MAX - 1) + 1);
        let mut words = tenant.stdout.take().unwrap();
        let wanted = STATES[turn % STATES.len()];
        let mut seen = 0;
        let last = loop {
            let mut word = [0];
            if words.read(&mut word).unwrap() == 0 {
                break b'B';
            }
            seen += 1;
            if (word[0] == wanted && random.below(3) == 0) || seen == 400 {
                break word[0];
            }
        };
        *counts.entry(last).or_default() += 1;
        stage::kill(tenant.id());
        let killed = Instant::now();
        tenant.wait().unwrap();
        drop_all(&mut link);
        until("the dead tenant's memory is free", || {
            (sums(&mut link).leases == 1 && sums(&mut link).leaving_bytes == 0).then_some(())
        });
        slowest = slowest.max(killed.elapsed());
        let now = stage.held("broker").others;
        let first = *descriptors.get_or_insert(now);
        assert!(now <= first + 64, "descriptors stay: {first} at first, {now} now");
    }
    println!(
        "killed in each state: {}",
        counts.iter().map(|(&state, count)| format!("{}:{count} ", state as char)).collect::<String>()
    );
    println!("memory was free again after {slowest:?} at the most");
    let listed = link.call(Request::List { after: None }).unwrap().text;
    assert!(listed.starts_with("survivor\t1048576\t"), "{listed:?}");
    assert!(sums(&mut link).made_bytes <= MEMORY_BYTES);
}

pub(crate) fn killed_brokers(stage: &Stage) {
    let mut random = Random(seed());
    let mut link = stage.link();
    publish(&mut link, "survivor", 1 << 20);
    let leases: Vec<Granted> = (0..100).map(|_| link.reserve(700).unwrap()).collect();
    let mut tenants: Vec<_> = (0..2).map(|_| start_tenant(&stage.socket(), random.below(u64::MAX - 1) + 1)).collect();
    // They are read from, so that they go on.
    let readers: Vec<_> = tenants
        .iter_mut()
        .map(|tenant| {
            let mut words = tenant.stdout.take().unwrap();
            std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()))
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for turn in 0..60 {
        let part = if turn % 5 == 4 { "keeper" } else { "broker" };
        if part == "keeper" && stage.processes("keeper").is_empty() {
            stage.kill("serve");
        } else {
            stage.kill(part);
        }
        let killed = Instant::now();
        assert_eq!(sums(&mut link).budget_bytes, MEMORY_BYTES);
        slowest = slowest.max(killed.elapsed());
        for _ in 0..random.below(20) {
            let granted = link.reserve(100).unwrap();
            link.give_back(granted.lease, Point::default()).unwrap();
        }
        until("both are there", || {
            let keepers = stage.processes("keeper").len() + stage.processes("serve").len();
            (keepers > 0 && !stage.processes("broker").is_empty()).then_some(())
        });
        // A broker that answers now has given everything to the keeper that is there: before, the death of both loses all.
        sums(&mut link);
    }
    println!("a broker answered after {slowest:?} at the most");
    for tenant in &mut tenants {
        stage::kill(tenant.id());
        tenant.wait().unwrap();
    }
    readers.into_iter().for_each(|reader| drop(reader.join().unwrap()));
    drop_all(&mut link);
    until("only this one has leases", || (sums(&mut link).leases == 101).then_some(()));
    leases.into_iter().for_each(|granted| link.give_back(granted.lease, Point::default()).unwrap());
    until("all are over", || (sums(&mut link).leases == 1 && sums(&mut link).leaving_bytes == 0).then_some(()));
    assert_eq!(link.take_refused(), []);
    let mut other = stage.link();
    let listed = other.call(Request::List { after: None }).unwrap().text;
    assert!(listed.starts_with("survivor\t1048576\t"), "{listed:?}");
    drop(link);
    until("the first is gone too", || is_empty(&mut other).then_some(()));
}
