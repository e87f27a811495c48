//! Child processes: a test binary that starts itself again for one of its tests, where the test spoils its process, looks at
//! what all of a process shares, or chooses what a driver reads when it starts.

use std::env;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::HANG_TIMEOUT;

/// Names, in a child, the test that it was started for.
const CHILD: &str = "FREEHOLD_TEST_CHILD";

/// After this a child that has not ended is killed: later than what it waits for itself.
const CHILD_STUCK: Duration = Duration::from_secs(4 * HANG_TIMEOUT.as_secs());

/// What a child has left behind.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// The lines that it printed with [`report_line`].
    pub reported: Vec<String>,
    /// All that it printed.
    pub output: String,
}

impl Outcome {
    /// Whether the child ran its test, which passed.
    pub fn passed(&self) -> bool {
        self.status.success() && self.output.contains("1 passed")
    }

    /// Prints what the child has covered, and its seeds, as this process's own.
    pub fn report(&self) {
        for line in self.output.lines() {
            // The harness leaves its own line open before a test.
            if let Some(start) = line.find("covered: ").or_else(|| line.find("FREEHOLD_SEED=")) {
                println!("{}", &line[start..]);
            }
        }
    }
}

/// Whether this process is the child for the test `name`.
pub fn is_child(name: &str) -> bool {
    env::var_os(CHILD).is_some_and(|child| child == name)
}

/// Prints a line of a child's for its parent.
pub fn report_line(line: &str) {
    // The harness leaves its own line open before a test.
    println!("\n|{line}");
}

/// Runs the test `name` of this binary in a process of its own, with variables of the environment.
///
/// # Panics
/// Where the process does not end.
pub fn run(name: &str, variables: &[(&str, &str)]) -> Outcome {
    let mut command = command_for_test(name);
    command.env(CHILD, name).envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the test binary starts again");
    let printed = read_all(child.stdout.take().expect("the output is piped"));
    let complained = read_all(child.stderr.take().expect("the output is piped"));
    let mut texts = [printed, complained].map(|news| {
        news.recv_timeout(CHILD_STUCK).unwrap_or_else(|_| {
            let killed = child.kill();
            panic!("{name} does not end in a process of its own: {killed:?}")
        })
    });
    let status = child.wait().expect("a child can be waited for");
    let said = texts[0].lines().filter_map(|line| line.strip_prefix('|')).map(str::to_owned).collect();
    Outcome { status, reported: said, output: std::mem::take(&mut texts[0]) + &texts[1] }
}

/// All that comes out of a pipe, once it is closed.
fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (done, news) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        // Nobody listens any more where the test has given up.
        drop(done.send(String::from_utf8_lossy(&bytes).into_owned()));
    });
    news
}

/// Runs the body of the test `name` in a process of its own.
///
/// # Panics
/// Where the body does.
#[track_caller]
pub fn run_in_child(name: &str, body: impl FnOnce()) {
    run_in_child_with(name, &[], body);
}

/// [`run_in_child`] with variables of the environment.
///
/// # Panics
/// Where the body does.
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

/// A command that runs one test of this binary and shows what it prints. `name` is the test's function: no two tests of a
/// binary that are started this way share a name.
///
/// # Panics
/// Where the binary does not have exactly one such test.
pub fn command_for_test(name: &str) -> Command {
    let mut command = this_binary();
    command.args(["--exact", &path_of(name), "--nocapture", "--test-threads=1"]).stdin(Stdio::null());
    command
}

fn this_binary() -> Command {
    Command::new(env::current_exe().expect("a running program has a path"))
}

/// The path of a test, as the test harness spells it. A process that was started for one test has it among its arguments.
fn path_of(name: &str) -> String {
    let is_path = |path: &str| path == name || path.strip_suffix(name).is_some_and(|modules| modules.ends_with("::"));
    let is_exact = env::args().any(|argument| argument == "--exact");
    if let Some(path) = env::args().skip(1).find(|path| is_exact && is_path(path)) {
        return path;
    }
    let listed = this_binary().args(["--list", "--format", "terse"]).output().expect("a running program starts again");
    let listed = String::from_utf8(listed.stdout).expect("names of tests are text");
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
        let (process, greeting) = outcome.reported[0].split_once(' ').expect("the child says two words");
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
