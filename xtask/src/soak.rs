//! `cargo xtask soak`: runs random tests and fuzz targets with fresh seeds, repeatedly until the time is up.
//!
//! The first round runs every test at full effort, later ones those that draw random numbers, and each round fuzzes. A
//! failure does not stop the run: it is reported at the end with the seed that replays it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::command::Failure;
use crate::runner::{self, Report, Settings};
use crate::{checked, corpus, fuzz, mpi, programs, publish, steps};

/// The fraction of a round's time for fuzzing, and its minimum.
const FUZZ_TIME_DIVISOR: u32 = 8;
const FUZZ_TIME_MIN: Duration = Duration::from_secs(20);

pub(crate) fn run(time: Duration, only: &str) -> Result<(), Failure> {
    let start = Instant::now();
    programs::build()?;
    let until = Instant::now() + time;
    let (mut reports, mut random) = (Vec::new(), None::<BTreeSet<String>>);
    while Instant::now() < until {
        let mut cases = steps::tests()?;
        cases.extend(mpi::open_mpi()?);
        if random.is_none() {
            cases.extend(corpus::cases()?);
            cases.extend(publish::builds()?);
            cases.extend(checked::cases(checked::Extent::All)?);
        }
        cases.retain(|case| random.as_ref().is_none_or(|random| random.contains(&case.name)));
        cases.extend(fuzz::fresh_cases((time / FUZZ_TIME_DIVISOR).max(FUZZ_TIME_MIN))?);
        cases.retain(|case| case.name.contains(only));
        if cases.is_empty() {
            return Err(format!("no test or fuzz target has a name that contains {only:?}"));
        }
        println!("== round {}: {} cases", reports.len() + 1, cases.len());
        let settings = Settings { effort: "soak", limit: Duration::from_secs(7200), until: Some(until) };
        let report = runner::run(cases, &settings);
        random.get_or_insert_with(|| {
            let drawn = report.outcomes.iter().filter(|outcome| outcome.is_random());
            drawn.map(|outcome| outcome.name.clone()).collect()
        });
        reports.push(report);
    }
    summary(&reports, start.elapsed())
}

/// Prints the seeds, what was covered, and what failed.
fn summary(reports: &[Report], took: Duration) -> Result<(), Failure> {
    println!("\nSeeds:");
    for report in reports {
        report.seeds().for_each(|(name, seeds)| println!("  {name}: {seeds}"));
    }
    let mut covered = BTreeMap::<String, u64>::new();
    for (what, count) in reports.iter().flat_map(Report::covered) {
        *covered.entry(what).or_default() += count;
    }
    println!("\nCovered:");
    covered.iter().for_each(|(what, count)| println!("{count:>12} {what}"));
    reports.iter().for_each(Report::print);
    let (cases, failed) = (
        reports.iter().map(|report| report.outcomes.len()).sum::<usize>(),
        reports.iter().map(Report::failed).sum::<usize>(),
    );
    let not_started: usize = reports.iter().map(|report| report.not_started).sum();
    if not_started > 0 {
        println!("{not_started} cases were not started: the time was up");
    }
    println!("{cases} cases in {} rounds and {:.0} s, {failed} failed", reports.len(), took.as_secs_f64());
    if failed == 0 { Ok(()) } else { Err(format!("{failed} cases failed; the commands above repeat them")) }
}
