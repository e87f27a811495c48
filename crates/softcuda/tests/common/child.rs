//! Processes of a test's own: the test binary starts itself again for one test.

use std::env;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use freehold_testing::command_for_test;

use super::STUCK;

/// Names, in a child, the test that it was started for.
const CHILD: &str = "FREEHOLD_TEST_CHILD";

/// What a child has left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    /// The lines that it printed with [`say`].
    pub(crate) said: Vec<String>,
    /// All that it printed.
    pub(crate) output: String,
}

/// Whether this process is the child for the test `name`.
pub(crate) fn is_child(name: &str) -> bool {
    env::var_os(CHILD).is_some_and(|child| child == name)
}

/// Prints a line of a child's for its parent.
pub(crate) fn say(line: &str) {
    // The harness leaves its own line open before a test.
    println!("\n|{line}");
}

/// Starts the test `name` of this binary in a process of its own.
pub(crate) fn start(name: &str, variables: &[(&str, &str)]) -> Outcome {
    let mut command = command_for_test(name);
    command.env(CHILD, name).envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the test binary starts again");
    let process = child.id();
    let (done, news) = mpsc::channel();
    let waiter = thread::spawn(move || done.send(child.wait_with_output()));
    let output = news.recv_timeout(10 * STUCK).unwrap_or_else(|_| {
        // SAFETY: the child was not waited for yet, so the number is still its own.
        unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
        panic!("{name} does not end in a process of its own")
    });
    waiter.join().expect("the waiter does not panic").expect("the answer was awaited");
    let output = output.expect("a child can be waited for");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = printed.lines().filter_map(|line| line.strip_prefix('|')).map(str::to_owned).collect();
    Outcome { status: output.status, said, output: printed + &String::from_utf8_lossy(&output.stderr) }
}

/// Runs the body of the test `name` in a process of its own.
#[track_caller]
pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    alone_with(name, &[], body);
}

/// [`alone`] with variables of the environment.
#[track_caller]
pub(crate) fn alone_with(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let outcome = start(name, variables);
    assert!(outcome.status.success(), "in a process of its own:\n{}", outcome.output);
    assert!(outcome.output.contains("1 passed"), "no test is named {name}");
}
