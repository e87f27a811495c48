//! Every experiment on the software device agrees with the recorded hardware, in whatever order streams advance.

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use common::lab;

const SEEDS: u64 = 200;

/// Labs at once. Their experiments mostly wait, so there are more than cores.
const AT_ONCE: usize = 6;

/// Under a schedule, the lines of the experiments that differ.
fn differing(schedule: &str) -> Vec<String> {
    let output = lab().arg("--json").env("FREEHOLD_SOFT_SCHEDULE", schedule).output().expect("the binary starts");
    let lines = String::from_utf8(output.stdout).expect("the lab prints text");
    assert!(lines.lines().count() > 200, "the lab ran under {schedule}: {}", String::from_utf8_lossy(&output.stderr));
    let differs = |line: &&str| !line.contains(r#""agrees":true"#);
    lines.lines().filter(differs).map(|line| format!("FREEHOLD_SOFT_SCHEDULE={schedule}: {line}")).collect()
}

#[test]
fn every_experiment_agrees_with_a_thread_for_each_stream() {
    assert_eq!(differing("threads"), [""; 0]);
}

#[test]
fn every_experiment_agrees_with_work_at_once() {
    assert_eq!(differing("eager"), [""; 0]);
}

#[test]
fn every_experiment_agrees_under_200_seeds() {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let run = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS {
                return;
            }
            let differing = differing(&format!("seed:{seed}"));
            found.lock().expect("no thread panics").extend(differing);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(run);
        }
    });
    assert_eq!(found.into_inner().expect("no thread panics"), [""; 0]);
}
