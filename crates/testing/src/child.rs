//! Child processes: a test binary that starts itself again for one of its tests.

use std::env;
use std::process::{Command, Stdio};

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
    #[should_panic = "this binary has no test a_test_that_is_not_there"]
    fn a_name_that_no_test_has_is_refused() {
        path_of("a_test_that_is_not_there");
    }
}
