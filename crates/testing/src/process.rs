//! Tests that start and kill processes.
//!
//! A [`Sandbox`] is the folder and the software machine of one test, which all its processes share. The processes are a
//! program of the workspace, or the test program itself: a program without the standard harness selects by its first
//! argument which of the processes it is, and [`run_tests`] if there is none.

use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal};

use crate::effort::HANG_TIMEOUT;

/// Names the software machine: processes of one machine share its memory.
pub const MACHINE: &str = "FREEHOLD_SOFT_MACHINE";

/// Returns the device of all processes: the software device, unless `FREEHOLD_DEVICE` names another.
pub fn device() -> String {
    std::env::var("FREEHOLD_DEVICE").unwrap_or_else(|_| "soft".to_owned())
}

/// The folder and the software machine of one test.
///
/// Dropping it removes the folder. It panics if a process wrote to the error file that it panicked, and prints that
/// file if the test has failed.
#[derive(Debug)]
pub struct Sandbox {
    /// The folder, for files of the test.
    pub folder: PathBuf,
    /// The machine.
    pub machine: String,
}

impl Sandbox {
    /// Creates a folder. `kind` says whose it is.
    ///
    /// # Panics
    /// If the folder cannot be created.
    pub fn new(kind: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let machine = format!("{kind}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("freehold-{machine}"));
        fs::create_dir_all(&folder).expect("the folder is created");
        Self { folder, machine }
    }

    /// Returns the path for the socket of a broker.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("broker")
    }

    /// Returns a command that runs a program on the machine.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(MACHINE, &self.machine);
        command
    }

    /// Returns a command that runs this test program on the machine.
    pub fn own_command(&self) -> Command {
        self.command(this_program())
    }

    /// Writes a file, and returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, bytes).expect("the file is written");
        path
    }

    /// Starts a process with the error file as its standard error, and waits until it has printed this many lines.
    /// Returns the last of them too.
    ///
    /// # Panics
    /// If the process does not start, or ends before.
    pub fn start(&self, command: &mut Command, lines: usize) -> (Child, String) {
        let stderr = File::create(self.stderr_path()).expect("the error file is created");
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the program starts");
        let mut output = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
        let line = output.nth(lines - 1).unwrap_or_else(|| panic!("the process has ended: {}", self.stderr()));
        (child, line.expect("the output is text"))
    }

    /// Opens the error file for another process.
    ///
    /// # Panics
    /// If no process was [started](Self::start).
    pub fn stderr_file(&self) -> File {
        File::options().append(true).open(self.stderr_path()).expect("the error file exists")
    }

    /// Returns what is in the error file.
    pub fn stderr(&self) -> String {
        fs::read_to_string(self.stderr_path()).unwrap_or_default()
    }

    fn stderr_path(&self) -> PathBuf {
        self.folder.join("stderr")
    }

    /// Returns the processes of the broker in this folder that have `role` among their arguments.
    pub fn processes(&self, role: &str) -> Vec<u32> {
        processes(&self.socket(), role)
    }

    /// Kills the processes of a role, without waiting until they are dead. Returns whether there were any.
    pub fn kill(&self, role: &str) -> bool {
        let processes = self.processes(role);
        processes.iter().for_each(|&process| kill(process));
        !processes.is_empty()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let stderr = self.stderr();
        let removed = fs::remove_dir_all(&self.folder);
        if std::thread::panicking() {
            eprintln!("{stderr}");
            return;
        }
        assert!(!stderr.contains("panicked"), "a process panicked:\n{stderr}");
        removed.expect("the folder is removed");
    }
}

/// Returns the path of this test program.
///
/// # Panics
/// If the system does not know it.
pub fn this_program() -> PathBuf {
    std::env::current_exe().expect("a program has a path")
}

/// Returns the processes that have the path of a socket and a role among their arguments.
///
/// # Panics
/// If `/proc` cannot be listed.
pub fn processes(socket: &Path, role: &str) -> Vec<u32> {
    let is_one = |process: &u32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.contains(&role.as_bytes()) && words.contains(&socket.as_os_str().as_encoded_bytes())
    };
    let all = fs::read_dir("/proc").expect("/proc can be listed");
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

/// Kills a process, which may be gone already.
///
/// # Panics
/// If the number is not one of a process.
pub fn kill(process: u32) {
    let process = Pid::from_raw(process.cast_signed()).expect("a process has a number");
    let _ = rustix::process::kill_process(process, Signal::KILL);
}

/// Ends a child as Ctrl-C or a service manager would. Returns whether it succeeded.
///
/// # Panics
/// If it is not running.
pub fn terminate(child: &mut Child) -> bool {
    rustix::process::kill_process(Pid::from_child(child), Signal::TERM).expect("the process runs");
    child.wait().expect("it is a child of this process").success()
}

/// Polls until there is a value.
///
/// # Panics
/// After [`HANG_TIMEOUT`].
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG_TIMEOUT, "waited {HANG_TIMEOUT:?} until {what}");
        pause();
    }
}

/// Polls until the value is the wanted one.
///
/// # Panics
/// After [`HANG_TIMEOUT`].
pub fn until_is<T: PartialEq + Debug>(what: &str, wanted: T, mut look: impl FnMut() -> T) {
    let begun = Instant::now();
    loop {
        let seen = look();
        if seen == wanted {
            return;
        }
        let is_late = begun.elapsed() >= HANG_TIMEOUT;
        assert!(!is_late, "waited {HANG_TIMEOUT:?} until {what}: expected {wanted:?}, got {seen:?}");
        pause();
    }
}

/// Between two polls: leaves the processor to the processes that are waited for.
fn pause() {
    std::thread::park_timeout(Duration::from_micros(200));
}

/// Returns a test of a program without the standard harness.
pub fn test(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, || {
        body();
        Ok(())
    })
}

/// Runs the tests that the arguments of this program select.
pub fn run_tests(tests: impl IntoIterator<Item = Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), tests.into_iter().collect()).exit_code()
}

/// Prints the error of a process that ends with one.
pub fn exit_code(outcome: io::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Parses an argument of a process.
///
/// # Panics
/// If it is not a number.
pub fn number(word: &OsString) -> u64 {
    word.to_str().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("expected a number, got {word:?}"))
}

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

    fn sh(sandbox: &Sandbox, script: &str) -> Command {
        let mut command = sandbox.command("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_has_started_when_it_has_printed_its_lines() {
        let sandbox = Sandbox::new("lines");
        let script = "echo one; echo $FREEHOLD_SOFT_MACHINE; echo trouble >&2; cat";
        let (mut child, line) = sandbox.start(sh(&sandbox, script).stdin(Stdio::piped()), 2);
        assert_eq!(line, sandbox.machine);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(sandbox.stderr(), "trouble\n");
    }

    #[test]
    #[should_panic = "the process has ended: no device\n"]
    fn a_process_that_ends_before_its_lines_fails_the_test() {
        let sandbox = Sandbox::new("ended");
        sandbox.start(&mut sh(&sandbox, "echo one; echo no device >&2"), 2);
    }

    #[test]
    #[should_panic = "a process panicked"]
    fn a_process_that_panicked_fails_the_test() {
        let sandbox = Sandbox::new("panicked");
        let (mut child, _) = sandbox.start(&mut sh(&sandbox, "echo \"thread 'main' panicked\" >&2; echo"), 1);
        child.wait().unwrap();
    }

    #[test]
    fn processes_are_found_by_socket_and_role_and_are_killed() {
        let sandbox = Sandbox::new("roles");
        let mut command = sh(&sandbox, "echo; read line");
        command.arg("worker").arg(sandbox.socket()).stdin(Stdio::piped());
        let (mut child, _) = sandbox.start(&mut command, 1);
        assert_eq!(sandbox.processes("worker"), [child.id()]);
        assert_eq!((sandbox.processes("broker"), processes(Path::new("/other"), "worker")), (vec![], vec![]));
        assert!(sandbox.kill("worker"));
        assert_eq!(child.wait().unwrap().code(), None);
        assert!(!sandbox.kill("worker"));
    }

    #[test]
    fn a_child_is_terminated() {
        let sandbox = Sandbox::new("terminated");
        let script = "trap 'exit 0' TERM; echo; while :; do read line; done";
        let (mut child, _) = sandbox.start(sh(&sandbox, script).stdin(Stdio::piped()), 1);
        assert!(terminate(&mut child));
    }

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
