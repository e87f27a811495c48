//! Every experiment on the software device agrees with the recorded hardware, in any order in which streams advance.
//!
//! To repeat a failure: `FREEHOLD_SOFT_SCHEDULE=seed:N freehold lab --device soft --only ID`.

use crate::common;

use freehold_testing::{Effort, at_effort, env_seed, print_seed, report_covered, seeds};
use serde_json::Value;

use common::lab;

/// The questions on ownership and on which call waits. One seed in [`ALL_EVERY`] also runs the others, on processes,
/// images and mappings.
const OWNERS: &str = "0,2,3";
const ALL_EVERY: u64 = 10;

/// At quick effort one experiment of this many runs, different ones for each schedule.
const SAMPLED: usize = 12;

/// Experiments that wait for seconds, left to other efforts.
const SLOW: [&str; 2] = ["1.11.13", "1.11.14"];

/// Returns the ids of all experiments with a recorded answer.
fn recorded() -> Vec<String> {
    let reference: Value =
        serde_json::from_str(include_str!("../../../lab/reference/h200.json")).expect("the record is JSON");
    reference["answers"].as_object().expect("it has answers").keys().cloned().collect()
}

/// Returns every n-th experiment, starting at `first`: some of each question.
fn sample(first: u64) -> String {
    let ids = recorded().into_iter().filter(|id| !SLOW.contains(&id.as_str()));
    let ids: Vec<String> = ids.skip(first as usize % SAMPLED).step_by(SAMPLED).collect();
    ids.join(",")
}

/// Checks that no answer under a schedule differs from the recorded one. `only` selects experiments; if empty, all run.
fn agrees(schedule: &str, only: &str) {
    let mut lab = lab();
    lab.arg("--json").env("FREEHOLD_SOFT_SCHEDULE", schedule);
    if !only.is_empty() {
        lab.args(["--only", only]);
    }
    let output = lab.output().expect("the binary starts");
    let lines = String::from_utf8(output.stdout).expect("the lab prints text");
    let findings: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(findings.len() > 50, "{} under {schedule}", String::from_utf8_lossy(&output.stderr));
    let differs = findings.iter().filter(|finding| finding["agrees"] != true);
    let differing: Vec<_> = differs
        .map(|f| format!("{schedule}: {} answers {}, recorded is {}", f["id"], f["here"], f["reference"]))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    report_covered(findings.len() as u64, "experiments compared with a recorded H200");
}

/// Runs all experiments, or a sample below an effort.
fn all_agree_from(effort: Effort, schedule: &str, first: u64) {
    agrees(schedule, &if Effort::current() < effort { sample(first) } else { String::new() });
}

fn all_agree(schedule: &str, first: u64) {
    all_agree_from(Effort::Moderate, schedule, first);
}

#[test]
fn experiments_agree_with_a_thread_for_each_stream() {
    // This is the default: at moderate effort, `cargo xtask test` runs all of them in its step `lab`.
    all_agree_from(Effort::Soak, "threads", 0);
}

#[test]
fn experiments_agree_with_work_at_once() {
    all_agree("eager", 1);
}

#[test]
fn experiments_agree_under_seeds() {
    for (number, seed) in (0..).zip(seeds(1, 2, 200)) {
        print_seed(seed);
        let schedule = format!("seed:{seed}");
        // When soaking, some seeds run all experiments; a replayed seed runs all of them.
        let is_for_all = env_seed().is_some() || at_effort(true, false, (number as u64).is_multiple_of(ALL_EVERY));
        if is_for_all { all_agree(&schedule, 2 + seed) } else { agrees(&schedule, OWNERS) }
    }
}
