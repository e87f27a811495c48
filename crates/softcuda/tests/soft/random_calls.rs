//! Random calls of the software driver with valid, dead, foreign and wild arguments: no crash, no hang, and no internal
//! error of the driver.

use crate::random;

use freehold_testing::at_effort;
use random::Run;

#[test]
fn random_calls_of_one_thread_neither_crash_nor_hang() {
    let name = "random_calls_of_one_thread_neither_crash_nor_hang";
    Run { name, schedule: "threads", threads: 1, calls: at_effort(2000, 40_000, 800_000) }.check();
}

#[test]
fn random_calls_of_four_threads_neither_crash_nor_hang() {
    let name = "random_calls_of_four_threads_neither_crash_nor_hang";
    Run { name, schedule: "threads", threads: 4, calls: at_effort(4000, 40_000, 1_000_000) }.check();
}

#[test]
fn random_calls_under_a_seed_neither_crash_nor_hang() {
    let name = "random_calls_under_a_seed_neither_crash_nor_hang";
    Run { name, schedule: "seed:11", threads: 1, calls: at_effort(2000, 20_000, 500_000) }.check();
}

#[test]
fn random_calls_of_two_threads_run_eagerly_neither_crash_nor_hang() {
    let name = "random_calls_of_two_threads_run_eagerly_neither_crash_nor_hang";
    Run { name, schedule: "eager", threads: 2, calls: at_effort(2000, 20_000, 500_000) }.check();
}
