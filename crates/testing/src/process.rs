//! The state of another process, from `/proc`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::HANG_TIMEOUT;

/// Waits until all threads of a process are stopped, or the process has ended. `SIGSTOP` alone does not wait: a thread that runs on another
/// processor, or that is inside a system call, goes on for a while.
///
/// # Panics
/// If it still runs after [`HANG_TIMEOUT`].
pub fn wait_stopped(process: u32) {
    let begun = Instant::now();
    while !is_stopped(process) {
        assert!(begun.elapsed() < HANG_TIMEOUT, "process {process} is not stopped after {HANG_TIMEOUT:?}");
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

fn is_stopped(process: u32) -> bool {
    // A process or a thread without a file has ended.
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return true };
    let files: Vec<PathBuf> = threads.flatten().map(|thread| thread.path().join("stat")).collect();
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).all(|stat| is_stopped_state(&stat))
}

/// Whether a line of `/proc/PID/stat` says that the thread is stopped, or has ended and was not waited for. The state
/// follows the name, which may contain parentheses.
fn is_stopped_state(stat: &str) -> bool {
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 'Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_state_follows_the_last_parenthesis_of_the_name() {
        assert!(is_stopped_state("7 (a) T) T 1 7"));
        assert!(!is_stopped_state("7 (a) T) S 1 7"));
    }

    #[test]
    fn a_process_that_stops_itself_is_waited_for() {
        let mut child = Command::new("sh").args(["-c", "kill -STOP $$"]).stdin(Stdio::null()).spawn().unwrap();
        wait_stopped(child.id());
        assert!(!is_stopped(std::process::id()), "this process runs");
        child.kill().unwrap();
        child.wait().unwrap();
        wait_stopped(child.id());
    }
}
