//! Tenants, brokers and fdstores that are killed at any point: what is left is consistent, their memory comes back, and
//! how long that takes is printed.

mod observer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use freehold_broker::wire::{BrokerStats, Fence};
use freehold_broker::{Granted, Link, LinkError};
use freehold_testing::{at_effort, report_covered};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::harness::{self, Harness, MEMORY_BYTES, Random, stats, until, until_is};
use crate::random_tenants::{self, STATES};

use observer::Observer;
pub(crate) use observer::observer;

/// How many processes are killed.
struct Counts {
    tenants: usize,
    /// Of these, at least this many in each state.
    each_state: usize,
    /// Tenants with very many leases.
    hoarders: u32,
    brokers: usize,
    fdstores: usize,
}

/// The number of tenants is a multiple of twice the number of states: every second one is killed in a listed state, the
/// others anywhere. Of five other kills, one is of an fdstore.
fn counts() -> Counts {
    at_effort(
        Counts { tenants: 38, each_state: 1, hoarders: 2, brokers: 4, fdstores: 1 },
        Counts { tenants: 190, each_state: 5, hoarders: 8, brokers: 16, fdstores: 4 },
        Counts { tenants: 1026, each_state: 20, hoarders: 20, brokers: 200, fdstores: 50 },
    )
}

const HOARD_LEASES: u32 = 1000;

/// Limit of the median time until the memory of a dead tenant is free, and until a broker answers again. On an idle
/// machine it is milliseconds.
const MEDIAN_MAX: Duration = Duration::from_secs(10);

/// Durations.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Prints the median, the 99th percentile and the maximum. Returns the median.
    fn tell(mut self, what: &str) -> Duration {
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)];
        println!(
            "{what}: median {:.2?}, 99th percentile {:.2?}, longest {:.2?} of {}",
            at(50),
            at(99),
            at(100),
            self.0.len()
        );
        at(50)
    }
}

/// Kills a process, and waits until it is dead. Returns when the signal was sent.
fn kill(process: u32) -> Instant {
    let number = Pid::from_raw(process.cast_signed()).expect("a process has a number");
    let Ok(descriptor) = pidfd_open(number, PidfdFlags::empty()) else { return Instant::now() };
    let killed = Instant::now();
    harness::kill(process);
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).expect("the process can be polled");
    killed
}

/// Waits until only the observer and names hold memory.
fn until_free(link: &mut Link) {
    until_is("all leases of dead tenants have ended, and their memory is zeroed", (1, 0), || {
        let BrokerStats { leases, reclaiming_bytes, .. } = stats(link);
        (leases, reclaiming_bytes)
    });
}

/// What must be unchanged when all names of dead tenants are dropped: leased and named bytes, and descriptors.
fn standing(harness: &Harness, link: &mut Link, fdstore: &str) -> (u64, u64, [usize; 2]) {
    random_tenants::drop_all(link);
    until_free(link);
    let descriptors = harness.descriptors(link, fdstore);
    let BrokerStats { leased_bytes, named_bytes, .. } = stats(link);
    (leased_bytes, named_bytes, descriptors)
}

/// The state of a dead tenant: the last one that it printed.
fn last_state(words: &mut impl Read, heard: u8) -> u8 {
    let mut rest = Vec::new();
    words.read_to_end(&mut rest).expect("the pipe can be read");
    rest.last().copied().unwrap_or(heard)
}

/// Runs a tenant until it kills itself in a state.
fn kill_in_state(harness: &Harness, random: &mut Random, state: u8) -> u8 {
    // It connects once.
    let times = if b"CW".contains(&state) { 1 } else { 1 + random.below(3) };
    let mut tenant = random_tenants::start(&harness.socket(), random.next(), state as char, times);
    let last = last_state(&mut tenant.stdout.take().expect("it is piped"), 0);
    tenant.wait().expect("it was started");
    last
}

/// Kills a tenant after it has printed this much, and a moment. Returns its state, and when.
fn kill_anywhere(harness: &Harness, random: &mut Random) -> (u8, Instant) {
    let mut tenant = random_tenants::start(&harness.socket(), random.next(), '-', 1);
    let mut words = tenant.stdout.take().expect("it is piped");
    let mut heard = [0];
    for _ in 0..=random.below(300) {
        words.read_exact(&mut heard).expect("it runs until it is killed");
    }
    let moment = Instant::now();
    let while_ns = u128::from(random.below(100_000));
    while moment.elapsed().as_nanos() < while_ns {
        std::hint::spin_loop();
    }
    let killed = kill(tenant.id());
    tenant.wait().expect("it was started");
    (last_state(&mut words, heard[0]), killed)
}

pub(crate) fn killed_tenants(harness: &Harness) {
    let mut random = Random::new(freehold_testing::seed());
    let mut link = harness.link();
    let mut witness = Observer::start(harness);
    let before = standing(harness, &mut link, "serve");
    let wanted = counts();
    let mut counts: BTreeMap<u8, usize> = STATES.iter().map(|&state| (state, 0)).collect();
    let mut free = Times::default();
    for turn in 0..wanted.tenants {
        let state = if turn % 2 == 0 {
            let state = kill_in_state(harness, &mut random, STATES[turn / 2 % STATES.len()]);
            until_free(&mut link);
            state
        } else {
            let (state, killed) = kill_anywhere(harness, &mut random);
            until_free(&mut link);
            free.0.push(killed.elapsed());
            state
        };
        *counts.get_mut(&state).expect("a known state") += 1;
        random_tenants::drop_all(&mut link);
        witness.check();
        if turn % 100 == 99 {
            until_is("everything is as before", before, || standing(harness, &mut link, "serve"));
        }
    }
    let told: String = counts.iter().map(|(&state, count)| format!(" {}:{count}", state as char)).collect();
    println!("{} tenants were killed, by state:{told}", wanted.tenants);
    assert!(free.tell("memory was free again after") <= MEDIAN_MAX);
    report_covered(wanted.tenants as u64, "killed tenants");
    for (state, count) in counts {
        assert!(count >= wanted.each_state, "{count} were killed in state {}", state as char);
    }
}

/// A process that takes very many leases, prints a line, and waits to be killed.
pub(crate) fn hoarder(words: &[OsString]) -> ExitCode {
    let seed = words[1].to_str().and_then(|word| word.parse().ok()).expect("a number");
    let mut random = Random::new(seed);
    let mut link = Link::connect(Path::new(&words[0])).expect("a broker serves");
    let leases: Vec<Granted> =
        (0..HOARD_LEASES).map(|_| link.reserve(1 + random.below(8 << 10)).expect("there is memory")).collect();
    // SAFETY: nothing imports the descriptor.
    unsafe { link.attach(leases[0].segment) }.expect("it has a lease there");
    println!("{}", leases.len());
    // The parent closes this only when the process is dead.
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input can be read");
    ExitCode::FAILURE
}

pub(crate) fn killed_hoarders(harness: &Harness) {
    let mut random = Random::new(freehold_testing::seed());
    let mut link = harness.link();
    let mut witness = Observer::start(harness);
    let before = standing(harness, &mut link, "serve");
    let mut free = Times::default();
    let wanted = counts().hoarders;
    for _ in 0..wanted {
        let words = ["hoarder".into(), harness.socket().into(), random.next().to_string().into()];
        let mut hoarder = harness.start(&words);
        let mut line = String::new();
        let output = hoarder.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it prints how many it has");
        assert_eq!(line.trim_end(), "1000");
        // The observer returns a lease now and then.
        until_is("all leases are counted", 1001, || stats(&mut link).leases);
        let killed = kill(hoarder.id());
        hoarder.wait().expect("it was started");
        until_free(&mut link);
        free.0.push(killed.elapsed());
        witness.check();
    }
    until_is("everything is as before", before, || standing(harness, &mut link, "serve"));
    let median = free.tell("memory of a tenant with 1000 leases was free again after");
    assert!(median <= MEDIAN_MAX);
    report_covered(wanted.into(), "killed tenants with 1,000 leases");
}

/// The fdstore: the process that was started first, or its replacement.
fn fdstore(harness: &Harness) -> Option<(&'static str, u32)> {
    let of = |part| harness.processes(part).first().map(|&process| (part, process));
    of("serve").or_else(|| of("fdstore"))
}

/// Kills broker or fdstore, and waits until it is replaced. Returns how long it took until a broker answered.
fn kill_and_replace(harness: &Harness, link: &mut Link, part: &str) -> Duration {
    let find = || match part {
        "broker" => harness.processes(part).first().copied(),
        _ => fdstore(harness).map(|(_, process)| process),
    };
    let old = until("both are running", find);
    let killed = kill(old);
    assert_eq!(stats(link).budget_bytes, MEMORY_BYTES);
    let back = killed.elapsed();
    until("it was replaced", || find().filter(|&process| process != old));
    // A broker that answers now has sent everything to the current fdstore: before that, the death of both loses
    // everything.
    stats(link);
    back
}

pub(crate) fn killed_brokers(harness: &Harness) {
    let mut random = Random::new(freehold_testing::seed());
    let mut link = harness.link();
    let mut witness = Observer::start(harness);
    let before = standing(harness, &mut link, "serve");
    let leases: Vec<Granted> = (0..100).map(|_| link.reserve(700).expect("there is memory")).collect();
    let mut tenants: Vec<Child> =
        (0..2).map(|_| random_tenants::start(&harness.socket(), random.next(), '-', 1)).collect();
    // They are connected before the first broker dies.
    let readers: Vec<_> = tenants.iter_mut().map(random_tenants::read_on).collect();
    let (mut brokers, mut fdstores) = (Times::default(), Times::default());
    let wanted = counts();
    for turn in 0..wanted.brokers + wanted.fdstores {
        let part = if turn % 5 == 4 { "fdstore" } else { "broker" };
        let back = kill_and_replace(harness, &mut link, part);
        if part == "broker" {
            brokers.0.push(back)
        } else {
            fdstores.0.push(back)
        }
        for _ in 0..random.below(20) {
            let granted = link.reserve(100).expect("there is memory");
            link.return_lease(granted.lease, Fence::default()).expect("a broker serves");
        }
        witness.check();
        for tenant in &mut tenants {
            assert_eq!(tenant.try_wait().expect("it was started"), None, "a tenant lost its broker at turn {turn}");
        }
    }
    assert_eq!((brokers.0.len(), fdstores.0.len()), (wanted.brokers, wanted.fdstores));
    let median = brokers.tell("a broker was back and answered after");
    fdstores.tell("a broker that had lost its fdstore answered after");
    assert!(median <= MEDIAN_MAX);
    report_covered(wanted.brokers as u64, "killed brokers");
    report_covered(wanted.fdstores as u64, "killed fdstores");
    for tenant in &mut tenants {
        kill(tenant.id());
        tenant.wait().expect("it was started");
    }
    readers.into_iter().for_each(|reader| drop(reader.join().expect("the reading thread does not panic")));
    leases.into_iter().for_each(|granted| link.return_lease(granted.lease, Fence::default()).expect("a broker serves"));
    let (part, _) = fdstore(harness).expect("an fdstore is running");
    let after = until("no byte and no descriptor is lost", || {
        let after = standing(harness, &mut link, part);
        let is_none_lost = after.2.iter().zip(before.2).all(|(&after, before)| after <= before);
        ((after.0, after.1) == (before.0, before.1) && is_none_lost).then_some(after)
    });
    println!("descriptors of broker and fdstore without segments: {:?} at first, {:?} at last", before.2, after.2);
    assert_eq!(link.take_errors(), []);
    witness.end();
    until_is("everything has ended", (0, 0), || {
        let BrokerStats { leases, reclaiming_bytes, .. } = stats(&mut link);
        (leases, reclaiming_bytes)
    });
}

/// Kills brokers while a process connects over and over.
pub(crate) fn connects_while_brokers_die(harness: &Harness) {
    let mut link = harness.link();
    let is_over = AtomicBool::new(false);
    let connected = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            let mut connected = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                let link = Link::connect(&harness.socket()).expect("a broker serves, or the next one does");
                match link.close() {
                    // The reply of a broker that dies after it has removed a tenant is lost.
                    Ok(()) | Err(LinkError::Closed) => {}
                    Err(error) => panic!("{error}"),
                }
                connected += 1;
            }
            connected
        });
        for _ in 0..counts().brokers {
            if connecting.is_finished() {
                break;
            }
            kill_and_replace(harness, &mut link, "broker");
        }
        is_over.store(true, Ordering::Relaxed);
        connecting.join().expect("every connection succeeds")
    });
    report_covered(connected, "connections while brokers were killed");
    until_is("only this tenant is left", 1, || stats(&mut link).tenants);
}

/// Sends a line to a process and reads one line.
fn ask(child: &mut Child, output: &mut impl BufRead) -> String {
    let input = child.stdin.as_mut().expect("it is piped");
    input.write_all(b"\n").and_then(|()| input.flush()).expect("it reads its standard input");
    let mut line = String::new();
    output.read_line(&mut line).expect("it answers");
    line
}
