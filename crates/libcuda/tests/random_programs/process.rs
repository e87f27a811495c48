//! A process for each run of a program: the driver reads its schedule, and whether it checks, when it starts.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::{env, process};

use freehold_check::{Finding, STARTED};
use freehold_driver::cuda::{Api, load};

use super::execute;
use super::order::{Order, Reading};
use super::program::Program;
use super::values::Values;

/// A run that takes longer hangs.
const SECONDS_MAX: u32 = 120;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Right,
    /// A wrong value, or an error of a call.
    Wrong(String),
    /// It did not end as a run does.
    Broken(String),
}

/// Returns the driver, which starts in the processes that run programs.
pub(crate) fn driver() -> Api {
    let test = env::current_exe().expect("cannot find the test's executable");
    let path = test.parent().expect("a file is in a folder").join(freehold_libcuda::LIBRARY_FILE);
    // SAFETY: the library is the software driver, and the programs keep its rules but for the waits that they lack.
    unsafe { load::load(&path) }.expect("cargo built the library beside the test")
}

/// Runs a program under a schedule.
pub(crate) fn run(api: &Api, program: &Program, schedule: &str) -> Outcome {
    forked(|| play(api, program, &[("FREEHOLD_SOFT_SCHEDULE", schedule)]))
}

/// Runs a program with the checker, and returns its findings too.
pub(crate) fn check(api: &Api, program: &Program, schedule: &str) -> (Outcome, Vec<Finding>) {
    let file = PathBuf::from(format!("{}/freehold-random-{}", env::temp_dir().display(), process::id()));
    let path = file.to_str().expect("the folder for temporary files has a plain name");
    let outcome = forked(|| play(api, program, &[("FREEHOLD_SOFT_SCHEDULE", schedule), ("FREEHOLD_CHECK", path)]));
    let text = fs::read_to_string(&file).unwrap_or_default();
    // The file of the next run is another one.
    let _ = fs::remove_file(&file);
    let finding = |line: &str| Finding::from_line(line).unwrap_or_else(|| panic!("{line} is not a finding"));
    (outcome, text.split_inclusive('\n').filter(|line| *line != STARTED).map(finding).collect())
}

/// Runs a program in this process, and says what is wrong.
fn play(api: &Api, program: &Program, variables: &[(&str, &str)]) -> String {
    for (name, value) in variables {
        // SAFETY: this process has one thread, the child of a fork.
        unsafe { env::set_var(name, value) };
    }
    execute::set_host_work(program);
    let order = Order::of(program, Reading::Promised);
    let expected = Values::after(program, &order, 0..order.points.len());
    match execute::run(api, program) {
        Ok(values) => expected.difference(&values).unwrap_or_default(),
        Err(error) => error.to_string(),
    }
}

/// Calls a function in a process of its own, and returns what it says: nothing if all is right.
fn forked(run: impl FnOnce() -> String) -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: `ends` outlives the call, which writes two descriptors to it.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0, "the system has room for a pipe");
    // SAFETY: the call has just opened both for this process, and nothing else knows of them.
    let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // SAFETY: no other thread of this process runs: the child finds no lock taken.
    match unsafe { libc::fork() } {
        -1 => panic!("the system has room for a process"),
        0 => {
            drop(reader);
            // SAFETY: the call takes a number of seconds.
            unsafe { libc::alarm(SECONDS_MAX) };
            let said = run();
            let told = File::from(writer).write_all(said.as_bytes());
            // SAFETY: ends the child without the handlers of its parent.
            unsafe { libc::_exit(if told.is_ok() { 0 } else { 1 }) }
        }
        child => {
            drop(writer);
            let mut said = String::new();
            File::from(reader).read_to_string(&mut said).expect("the pipe can be read");
            let mut status = 0;
            // SAFETY: `status` outlives the call, which writes one `i32` to it.
            let waited = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(waited, child);
            match (status, said.is_empty()) {
                (0, true) => Outcome::Right,
                (0, false) => Outcome::Wrong(said),
                _ => Outcome::Broken(format!("it ended with {status:#x} {said}")),
            }
        }
    }
}
