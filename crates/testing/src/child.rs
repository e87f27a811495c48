//! Child processes: a test binary that starts itself again for one of its tests, because the test ruins its process,
//! inspects state that is shared in a process, or chooses what a driver reads when it starts.

use std::env;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::effort::HANG_TIMEOUT;

/// In a child, the name of the test that it was started for.
const CHILD: &str = "FREEHOLD_TEST_CHILD";

/// A child that has not ended after this is killed; longer than the child's own timeout.
const CHILD_STUCK: Duration = Duration::from_secs(4 * HANG_TIMEOUT.as_secs());

/// The result of a child.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// The lines that it printed with [`report_line`].
    pub reported: Vec<String>,
    /// All of its output.
    pub output: String,
}

impl Outcome {
    /// Returns whether the child ran its test, and the test passed.
    pub fn passed(&self) -> bool {
        self.status.success() && self.output.contains("1 passed")
    }

    /// Prints what the child has covered, and its seeds, as those of this process.
    pub fn report(&self) {
        for line in self.output.lines() {
            // The harness does not end its own line before a test.
            if let Some(start) = line.find("covered: ").or_else(|| line.find("FREEHOLD_SEED=")) {
                println!("{}", &line[start..]);
            }
        }
    }
}

/// Returns whether this process is the child for the test `name`.
pub fn is_child(name: &str) -> bool {
    env::var_os(CHILD).is_some_and(|child| child == name)
}

/// Prints a line of a child for its parent.
pub fn report_line(line: &str) {
    // The harness does not end its own line before a test.
    println!("\n|{line}");
}

/// Runs the test `name` of this binary in a process of its own, with environment variables.
///
/// # Panics
/// If the process does not end.
pub fn run(name: &str, variables: &[(&str, &str)]) -> Outcome {
    let mut command = command_for_test(name);
    command.env(CHILD, name).envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cannot start the test binary");
    let printed = read_all(child.stdout.take().expect("the output is piped"));
    let complained = read_all(child.stderr.take().expect("the output is piped"));
    let mut texts = [printed, complained].map(|news| {
        news.recv_timeout(CHILD_STUCK).unwrap_or_else(|_| {
            let killed = child.kill();
            panic!("{name} timed out in a process of its own: {killed:?}")
        })
    });
    let status = child.wait().expect("cannot wait for the child");
    let said = texts[0].lines().filter_map(|line| line.strip_prefix('|')).map(str::to_owned).collect();
    Outcome { status, reported: said, output: std::mem::take(&mut texts[0]) + &texts[1] }
}

/// Reads a pipe until it is closed.
fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (done, news) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("cannot read the pipe");
        // The receiver is gone if the test has timed out.
        drop(done.send(String::from_utf8_lossy(&bytes).into_owned()));
    });
    news
}

/// Runs the body of the test `name` in a process of its own.
///
/// # Panics
/// If the body panics.
#[track_caller]
pub fn run_in_child(name: &str, body: impl FnOnce()) {
    run_in_child_with(name, &[], body);
}

/// [`run_in_child`] with environment variables.
///
/// # Panics
/// If the body panics.
#[track_caller]
pub fn run_in_child_with(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    if is_child(name) {
        return body();
    }
    let outcome = run(name, variables);
    assert!(outcome.status.success(), "in a process of its own:\n{}", outcome.output);
    assert!(outcome.passed(), "no test is named {name}");
    outcome.report();
}

/// Returns a command that runs one test of this binary and shows its output. `name` is the test's function: tests that
/// are started this way have unique names in their binary.
///
/// # Panics
/// If the binary does not have exactly one such test.
pub fn command_for_test(name: &str) -> Command {
    let mut command = this_binary();
    command.args(["--exact", &path_of(name), "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command
}

fn this_binary() -> Command {
    Command::new(env::current_exe().expect("cannot find the test binary"))
}

/// Returns the path of a test, as the test harness spells it. A process that was started for one test has it among its
/// arguments.
fn path_of(name: &str) -> String {
    let is_path = |path: &str| path == name || path.strip_suffix(name).is_some_and(|modules| modules.ends_with("::"));
    let is_exact = env::args().any(|argument| argument == "--exact");
    if let Some(path) = env::args().skip(1).find(|path| is_exact && is_path(path)) {
        return path;
    }
    let listed = this_binary().args(["--list", "--format", "terse"]).output().expect("cannot start the test binary");
    let listed = String::from_utf8(listed.stdout).expect("names of tests are UTF-8");
    let mut found = listed.lines().filter_map(|line| line.strip_suffix(": test")).filter(|path| is_path(path));
    let path = found.next().unwrap_or_else(|| panic!("this binary has no test {name}"));
    assert_eq!(found.next(), None, "this binary has several tests {name}");
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_found_by_the_name_of_its_function() {
        assert_eq!(
            path_of("a_test_is_found_by_the_name_of_its_function"),
            "child::tests::a_test_is_found_by_the_name_of_its_function"
        );
    }

    #[test]
    fn a_child_is_another_process_and_reports_lines() {
        const NAME: &str = "a_child_is_another_process_and_reports_lines";
        if is_child(NAME) {
            return report_line(&format!("{} {:?}", std::process::id(), env::var("FREEHOLD_TEST_GREETING")));
        }
        let outcome = run(NAME, &[("FREEHOLD_TEST_GREETING", "hello")]);
        assert!(outcome.passed(), "{}", outcome.output);
        let (process, greeting) = outcome.reported[0].split_once(' ').expect("the child prints two words");
        assert_eq!(greeting, "Ok(\"hello\")");
        assert_ne!(process, std::process::id().to_string());
    }

    #[test]
    #[should_panic = "in a process of its own"]
    fn a_child_that_fails_fails_its_test() {
        run_in_child("a_child_that_fails_fails_its_test", || std::process::exit(3));
    }

    #[test]
    #[should_panic = "this binary has no test a_test_that_is_not_there"]
    fn a_name_that_no_test_has_is_refused() {
        path_of("a_test_that_is_not_there");
    }
}
