//! Every experiment on the software device agrees with the recorded hardware, in whatever order streams advance.

use crate::common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use common::lab;

/// Seeds for the questions that are about who owns what and which call waits for what.
const SEEDS: u64 = 200;

/// One in so many of them is for the other questions, too, where processes, images and mappings are asked about.
const ALL_EVERY: u64 = 10;

/// Labs at once. Their experiments mostly wait, so there are more than cores.
const AT_ONCE: usize = 6;

/// Under a schedule, what differs: the answers here and those recorded, by id.
fn differing(schedule: &str, selection: &[&str]) -> Vec<String> {
    let output = lab()
        .arg("--json")
        .args(selection)
        .env("FREEHOLD_SOFT_SCHEDULE", schedule)
        .output()
        .expect("the binary starts");
    let lines = String::from_utf8(output.stdout).expect("the lab prints text");
    let findings: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(findings.len() > 200, "{} under {schedule}", String::from_utf8_lossy(&output.stderr));
    let differs = findings.iter().filter(|finding| finding["agrees"] != true);
    differs.map(|f| format!("{schedule}: {} answers {}, recorded is {}", f["id"], f["here"], f["reference"])).collect()
}

/// To repeat what failed: `FREEHOLD_SOFT_SCHEDULE=seed:N freehold lab --device soft --only ID`.
fn assert_none(differing: &[String]) {
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn every_experiment_agrees_with_a_thread_for_each_stream() {
    assert_none(&differing("threads", &[]));
}

#[test]
fn every_experiment_agrees_with_work_at_once() {
    assert_none(&differing("eager", &[]));
}

#[test]
fn every_experiment_agrees_under_seeds() {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return;
            }
            let selection: &[&str] = if seed.is_multiple_of(ALL_EVERY) { &[] } else { &["--only", "0,2,3"] };
            let differing = differing(&format!("seed:{seed}"), selection);
            if !differing.is_empty() {
                next.store(SEEDS, Ordering::Relaxed);
                found.lock().expect("no thread panics").extend(differing);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(run);
        }
    });
    assert_none(&found.into_inner().expect("no thread panics"));
}
