//! `freehold check` on random programs: it reports nothing if they wait for all they need, and finds the race if one wait is
//! removed; and some schedule shows the wrong result.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod execute;
mod generate;
mod labels;
mod order;
mod process;
mod program;
mod values;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::{env, thread};

use freehold_check::{Access, Finding, Kind};
use freehold_driver::cuda::Api;
use freehold_testing::{Random, child, print_seed, report_covered, seeds};

use generate::program;
use order::{Deed, Order, Place, Reading};
use process::Outcome;
use program::{Effect, Program, Removal};
use values::Values;

/// How many schedules are tried for a wrong result.
const SCHEDULES_MAX: u64 = 400;

/// Two accesses and the kind of their race.
type Race = (Kind, [Place; 2]);

/// Names the seeds of a batch: the first and the last.
const BATCH: &str = "FREEHOLD_RANDOM_BATCH";

#[test]
fn a_program_that_waits_for_all_it_needs_has_no_findings_and_the_right_result() {
    const NAME: &str = "a_program_that_waits_for_all_it_needs_has_no_findings_and_the_right_result";
    if let Some(seeds) = batch() {
        let api = process::driver();
        let wrong = seeds.filter(|seed| !is_clean(&api, *seed)).count();
        return child::report_line(&wrong.to_string());
    }
    let seeds = seeds(20, 300, 10_000);
    let count = seeds.clone().count();
    let [wrong] = in_batches(NAME, seeds);
    report_covered(count as u64, "correct random programs checked");
    assert_eq!(wrong, 0, "programs that wait for all they need have no findings and the right result");
}

#[test]
fn a_removed_wait_is_found_in_one_run_and_shown_by_a_schedule() {
    const NAME: &str = "a_removed_wait_is_found_in_one_run_and_shown_by_a_schedule";
    if let Some(seeds) = batch() {
        let api = process::driver();
        let mut totals = Totals::default();
        seeds.for_each(|seed| totals.add(&api, seed));
        let Totals { broken, found, unexpected, visible, shown, tries } = totals;
        return child::report_line(&format!("{broken} {found} {unexpected} {visible} {shown} {tries}"));
    }
    let [broken, found, unexpected, visible, shown, tries] = in_batches(NAME, seeds(20, 300, 10_000));
    Totals { broken, found, unexpected, visible, shown, tries }.report();
}

/// Returns the seeds that this process is for, if it is a child.
fn batch() -> Option<RangeInclusive<u64>> {
    let text = env::var(BATCH).ok()?;
    let (first, last) = text.split_once('-').expect("a batch is two numbers");
    Some(first.parse().expect("a seed is a number")..=last.parse().expect("a seed is a number"))
}

/// Runs a test in one process for each processor, with a part of the seeds each. Returns the sums of the numbers that they report.
fn in_batches<const N: usize>(name: &str, seeds: RangeInclusive<u64>) -> [u64; N] {
    let (first, count) = (*seeds.start(), seeds.end() - seeds.start() + 1);
    let processors = thread::available_parallelism().map_or(1, |number| number.get() as u64).min(count);
    let bound = |number: u64| first + count * number / processors;
    let mut sums = [0; N];
    thread::scope(|scope| {
        let children: Vec<_> = (0..processors)
            .map(|number| format!("{}-{}", bound(number), bound(number + 1) - 1))
            .map(|batch| scope.spawn(move || child::run(name, &[(BATCH, &batch)])))
            .collect();
        for child in children {
            let outcome = child.join().expect("a child ends");
            assert!(outcome.passed(), "{}", outcome.output);
            if outcome.output.contains("FREEHOLD_SEED=") {
                // What is wrong with which program.
                print!("{}", outcome.output);
            }
            let numbers = outcome.reported.iter().flat_map(|line| line.split(' '));
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number.parse::<u64>().expect("a number"));
        }
    });
    sums
}

/// Checks a program that waits for all it needs, and says what is wrong.
fn is_clean(api: &Api, seed: u64) -> bool {
    let (program, schedule) = (program(seed), schedule(seed));
    let (outcome, findings) = process::check(api, &program, &schedule);
    let is_clean = outcome == Outcome::Right && findings.is_empty();
    if !is_clean {
        print_seed(seed);
        println!("under {schedule}: {outcome:?}, {}\n{}", lines(&findings), program.listing());
    }
    is_clean
}

/// What came of the programs without one wait.
#[derive(Debug, Default)]
struct Totals {
    broken: u64,
    found: u64,
    /// How many have findings that are none of their races, or did not end.
    unexpected: u64,
    /// The races that can change a result, those for which a schedule did, and how many schedules were tried for them.
    visible: u64,
    shown: u64,
    tries: u64,
}

impl Totals {
    fn add(&mut self, api: &Api, seed: u64) {
        let Some(Broken { program, races, is_visible }) = broken(seed) else { return };
        self.broken += 1;
        let schedule = schedule(seed);
        let (outcome, findings) = process::check(api, &program, &schedule);
        let unexpected: Vec<&Finding> = findings.iter().filter(|finding| !is_expected(finding, &races)).collect();
        let is_right = unexpected.is_empty() && !matches!(outcome, Outcome::Broken(_));
        let is_found = findings.iter().any(|finding| race(finding).is_some_and(|race| races.contains(&race)));
        if !is_right || !is_found {
            print_seed(seed);
            println!("under {schedule}: {outcome:?}, expected {races:?}, found {}", lines(&findings));
            println!("{}", program.listing());
        }
        self.unexpected += u64::from(!is_right);
        self.found += u64::from(is_found);
        if is_visible {
            self.visible += 1;
            self.show(api, seed, &program, &races);
        }
    }

    /// Looks for a schedule under which the program has a wrong result.
    fn show(&mut self, api: &Api, seed: u64, program: &Program, races: &BTreeSet<Race>) {
        let shows = |number: &u64| process::run(api, program, &candidate(*number)) != Outcome::Right;
        match (0..SCHEDULES_MAX).find(shows) {
            Some(number) => {
                self.shown += 1;
                self.tries += number + 1;
            }
            None => {
                print_seed(seed);
                println!("no schedule of {SCHEDULES_MAX} shows one of {races:?} in\n{}", program.listing());
            }
        }
    }

    fn report(&self) {
        let Self { broken, found, unexpected, visible, shown, tries } = *self;
        report_covered(broken, "random programs without a wait checked");
        report_covered(found, "races of random programs found in one run");
        report_covered(visible, "races of random programs that can change a result");
        report_covered(shown, "races of random programs shown by a schedule");
        report_covered(tries, "schedules tried for them");
        assert_eq!(unexpected, 0, "what is found is what is missing");
        assert!(found * 100 >= broken * 99, "at least 99 of 100 are found: {found} of {broken}");
        assert!(shown * 100 >= visible * 99, "at least 99 of 100 are shown: {shown} of {visible}");
    }
}

/// Returns the schedule that a program is checked under.
fn schedule(seed: u64) -> String {
    match seed % 4 {
        0 => "threads".to_owned(),
        1 => "eager".to_owned(),
        2 => format!("seed:{seed}"),
        _ => format!("seed:{seed},switches:1"),
    }
}

/// Returns one of the schedules that are tried for a wrong result, those with few switches first. Without a limit, work also stops
/// in the middle while the host goes on.
fn candidate(number: u64) -> String {
    match number {
        0..40 => format!("seed:{number},switches:0"),
        _ if number % 2 == 0 => format!("seed:{number},switches:{}", number / 40),
        _ => format!("seed:{number}"),
    }
}

/// A program without a wait that it needs.
struct Broken {
    program: Program,
    /// What nothing orders any more.
    races: BTreeSet<Race>,
    /// Whether some order of execution changes what the program computes.
    is_visible: bool,
}

/// Removes one wait of a program, at random among those that something needs.
fn broken(seed: u64) -> Option<Broken> {
    let whole = program(seed);
    let mut random = Random::new(seed ^ 0xb0b0);
    let mut waits: Vec<Removal> = whole.waits();
    while !waits.is_empty() {
        let wait = waits.swap_remove(random.below(waits.len() as u64) as usize);
        let program = whole.without(wait);
        let possible = Order::of(&program, Reading::Possible);
        let unordered = possible.races(0);
        if unordered.is_empty() {
            continue;
        }
        let order = Order::of(&program, Reading::Promised);
        let races = order.races(0).into_iter().map(|(first, second)| race_of(&order, first, second)).collect();
        let expected = Values::after(&program, &order, 0..order.points.len());
        let is_visible = unordered.iter().any(|&(first, _)| delayed(&program, &possible, first) != expected);
        return Some(Broken { program, races, is_visible });
    }
    None
}

/// Returns what the program computes if one point comes as late as it can.
fn delayed(program: &Program, order: &Order, point: usize) -> Values {
    let all = 0..order.points.len();
    let is_late = |other: &usize| *other == point || order.points[*other].is_after(point);
    let early = all.clone().filter(|other| !is_late(other));
    Values::after(program, order, early.chain(all.filter(is_late)))
}

/// Returns how the checker names a race.
fn race_of(order: &Order, first: usize, second: usize) -> Race {
    let (first, second) = (&order.points[first], &order.points[second]);
    let frees = |deed: &Deed| matches!(deed, Deed::Free(_));
    let kind = match () {
        () if frees(&second.deed) => Kind::FreeInUse,
        () if first.accesses.iter().any(|(_, effect)| *effect == Effect::Allocate) => Kind::UseBeforeAllocation,
        () if first.is_of_host() || second.is_of_host() => Kind::HostRace,
        () => Kind::StreamRace,
    };
    (kind, sorted([first.place, second.place]))
}

fn sorted(mut places: [Place; 2]) -> [Place; 2] {
    places.sort();
    places
}

/// Returns whether a finding is one of the races, or follows from one.
fn is_expected(finding: &Finding, races: &BTreeSet<Race>) -> bool {
    let place = finding.access.as_ref().and_then(place);
    let is_in_race = races.iter().any(|(_, places)| place.is_some_and(|place| places.contains(&place)));
    // What is written before its allocation is undefined afterwards, for all that read it. The memory of a block that is freed too
    // early, or allocated too late, has another owner meanwhile.
    let is_of_pool = races.iter().any(|(kind, _)| matches!(kind, Kind::UseBeforeAllocation | Kind::FreeInUse));
    match finding.kind {
        Kind::UninitializedRead => is_in_race || is_of_pool,
        Kind::UseAfterFree if finding.other.is_none() => is_in_race,
        _ => race(finding).is_some_and(|race| races.contains(&race) || is_of_pool && shares_a_place(&race, races)),
    }
}

fn shares_a_place((_, places): &Race, races: &BTreeSet<Race>) -> bool {
    races.iter().any(|(_, racing)| racing.iter().any(|place| places.contains(place)))
}

/// Returns the race that a finding is about.
fn race(finding: &Finding) -> Option<Race> {
    let places = [place(finding.access.as_ref()?)?, place(finding.other.as_ref()?)?];
    Some((finding.kind, sorted(places)))
}

/// Returns where an access is, by the name of the function that makes it.
fn place(access: &Access) -> Option<Place> {
    access.location.stack.iter().filter_map(|frame| frame.function.as_deref()).find_map(|function| {
        let number = |name: &str| {
            let (_, rest) = function.split_once(name)?;
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        };
        number("labels::host_function_").map(Place::HostFunction).or_else(|| number("labels::step_").map(Place::Step))
    })
}

fn lines(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let places = [&finding.access, &finding.other].map(|access| access.as_ref().and_then(place));
        format!("{:?} {places:?}: {}", finding.kind, finding.message)
    };
    format!("{:#?}", findings.iter().map(line).collect::<Vec<_>>())
}
