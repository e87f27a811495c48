//! Attacks on a broker, one process each, while a neighbour keeps working. Each attack is refused as the protocol says
//! and does no damage, and the latency of the neighbour's requests is printed with and without the attack.
//!
//! An attacker is a process of the same user. What processes of one user may do to each other's names and quotas is not
//! an attack.

mod device;
mod handles;
mod modules;
mod neighbour;
mod shapes;
mod workers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::raw::{Raw, Slot};
use freehold_testing::{report_covered, seed};

use crate::harness::{Harness, Random, SHORT_LAUNCH};

use neighbour::Neighbour;

/// An attack and its name.
type Attack = (&'static str, fn(&mut Attacker));

const ATTACKS: &[Attack] = &[
    ("guessed-handles", handles::guessed),
    ("replay-after-release", handles::replayed),
    ("someone-elses-free", handles::someone_elses),
    ("quota-by-connections", handles::quota),
    ("descriptor-flood", shapes::descriptor_flood),
    ("giant-length", shapes::giant_length),
    ("half-a-message", shapes::half_a_message),
    ("wrong-descriptor", shapes::wrong_descriptor),
    ("inherited-socket", shapes::inherited_socket),
    ("name-tricks", shapes::name_tricks),
    ("never-reads-socket", shapes::never_reads_socket),
    ("never-reads-ring", shapes::never_reads_ring),
    ("semaphore-garbage", shapes::semaphore_garbage),
    ("ring-garbage", shapes::ring_garbage),
    ("write-to-read-lease", device::write_to_read_lease),
    ("forged-launch-count", workers::forged_launch_count),
    ("forged-run-time", workers::forged_run_time),
    ("forged-waiting", workers::forged_waiting),
    ("forged-heartbeat", workers::forged_heartbeat),
    ("variables-put-and-dropped", modules::put_and_dropped),
    ("variables-loaded-often", modules::loaded_often),
    ("variables-many-and-small", modules::many_and_small),
];

/// Attacks on the time limit of kernels, at a broker with a short limit.
const ON_TIME: &[&str] = &["forged-run-time", "forged-waiting", "forged-heartbeat"];

/// What the neighbour has. An attacker may know it: ids are not secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Victim {
    pub(super) tenant: u64,
    pub(super) lease: u64,
    pub(super) segment: u64,
    pub(super) name: u64,
}

/// A process that attacks.
pub(super) struct Attacker {
    pub(super) socket: PathBuf,
    pub(super) victim: Victim,
    pub(super) random: Random,
    refused: u32,
}

impl Attacker {
    pub(super) fn connect(&self) -> Raw {
        Raw::connect(&self.socket)
    }

    /// Expects an error reply of a kind with these numbers.
    pub(super) fn refused(&mut self, reply: Slot, kind: u16, numbers: [u64; 3]) {
        let [first, second, third] = numbers;
        let said = (reply[0] as u16, &reply[1..]);
        assert_eq!(said, (kind, [first, second, third, 0, 0, 0, 0].as_slice()));
        self.refused += 1;
    }

    /// Expects that the broker has closed the connection, which is the answer to a malformed message.
    pub(super) fn ended(&mut self, raw: &Raw) {
        raw.hear_end();
        self.refused += 1;
    }
}

/// Attacks once, and prints how often it was refused.
pub(crate) fn attacker(words: &[OsString]) -> ExitCode {
    let text = |at: usize| words[at].to_str().expect("an argument is text");
    let number = |at: usize| text(at).parse().expect("a number");
    let victim = Victim { tenant: number(3), lease: number(4), segment: number(5), name: number(6) };
    let mut attacker =
        Attacker { socket: PathBuf::from(&words[0]), victim, random: Random::new(number(2)), refused: 0 };
    let (_, attack) = ATTACKS.iter().find(|(name, _)| *name == text(1)).expect("a known attack");
    attack(&mut attacker);
    println!("{}", attacker.refused);
    ExitCode::SUCCESS
}

/// A process that has inherited the socket of a tenant, as its standard input.
pub(crate) fn heir() -> ExitCode {
    shapes::heir();
    ExitCode::SUCCESS
}

/// Attacks until the neighbour has done its work. Returns how often, and how often it was refused.
fn attack(harness: &Harness, name: &str, victim: Victim, seed: u64, is_enough: impl Fn() -> bool) -> (u32, u32) {
    let (mut times, mut refused) = (0, 0);
    loop {
        let numbers = [seed.wrapping_add(times.into()), victim.tenant, victim.lease, victim.segment, victim.name];
        let mut words: Vec<OsString> = vec!["attacker".into(), harness.socket().into(), name.into()];
        words.extend(numbers.map(|number| OsString::from(number.to_string())));
        let said = harness.process(&words).unwrap_or_else(|| panic!("the attack {name} failed"));
        refused += said.parse::<u32>().expect("the number of refusals");
        times += 1;
        if is_enough() {
            return (times, refused);
        }
    }
}

/// The tests: one for each attack.
pub(crate) fn names() -> impl Iterator<Item = (String, &'static str)> {
    ATTACKS.iter().map(|&(name, _)| (format!("attack_is_refused_and_no_neighbour_loses_anything::{name}"), name))
}

pub(crate) fn is_refused(name: &'static str) {
    let harness = &if ON_TIME.contains(&name) { Harness::with_launches_of(SHORT_LAUNCH) } else { Harness::new() };
    let seed = seed();
    let mut neighbour = Neighbour::new(harness);
    let before = neighbour.standing(harness);
    let quiet = neighbour.work(|times| times.is_enough());
    let (victim, is_done) = (neighbour.victim(), AtomicBool::new(false));
    let (times, refused, attacked) = std::thread::scope(|scope| {
        let done = || is_done.load(Ordering::Relaxed);
        let attack = scope.spawn(move || attack(harness, name, victim, seed, done));
        let attacked = neighbour.work(|times| {
            if times.is_enough() {
                is_done.store(true, Ordering::Relaxed);
            }
            attack.is_finished()
        });
        let (times, refused) = attack.join().expect("the attacking thread does not panic");
        (times, refused, attacked)
    });
    assert!(attacked.is_enough(), "the neighbour keeps working during {name}");
    neighbour.keeps(harness, name, before);
    println!(
        "latency of a neighbour's requests in microseconds: median / 99th percentile, without and with the attack"
    );
    println!(
        "lease and return: {}, {}; hand over: {}, {}",
        quiet.pairs(),
        attacked.pairs(),
        quiet.hand_overs(),
        attacked.hand_overs()
    );
    report_covered(times.into(), "attacks");
    report_covered(refused.into(), "refused requests of attackers");
}
