//! A broker for one test of the command line, on its own software device.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use freehold_broker::{Link, Name, socket_path};
use freehold_testing::HANG_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::binary;

/// A broker in its own folder.
pub(crate) struct BrokerFixture {
    pub(crate) folder: PathBuf,
    pub(crate) machine: String,
    serve: Option<Child>,
}

impl BrokerFixture {
    pub(crate) fn new() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let machine = format!("broker-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("freehold-{machine}"));
        std::fs::create_dir_all(&folder).expect("the folder is new");
        let mut fixture = Self { folder, machine, serve: None };
        fixture.serve();
        fixture
    }

    /// Starts a broker.
    pub(crate) fn serve(&mut self) {
        let mut serve = command(&self.folder, &self.machine);
        serve.args(["serve", "--memory", "64MiB", "--device", "soft"]).stdout(Stdio::piped());
        serve.stderr(File::create(self.folder.join("said")).expect("the file is created"));
        let mut serve = serve.spawn().expect("the binary starts");
        let said = BufReader::new(serve.stdout.take().expect("the output is piped")).lines().nth(2);
        assert_eq!(
            said.expect("the broker prints three lines").expect("the output is UTF-8"),
            "stop it with Ctrl-C or `freehold stop`; published memory is then lost"
        );
        self.serve = Some(serve);
    }

    /// Sends a signal to the fd store that was started.
    pub(crate) fn signal(&self, signal: Signal) {
        let serve = self.serve.as_ref().expect("the broker was started");
        kill_process(Pid::from_child(serve), signal).expect("the fd store runs");
    }

    /// Waits until the fd store has ended. Returns its error output and its exit status.
    pub(crate) fn served(&mut self) -> (String, Option<i32>) {
        let status = self.serve.take().expect("the broker was started").wait().expect("it is a child of this process");
        (std::fs::read_to_string(self.folder.join("said")).expect("the file exists"), status.code())
    }

    /// Returns the processes of a role, found by their command lines.
    pub(crate) fn processes(&self, part: &str) -> Vec<Pid> {
        let socket = self.folder.join("broker");
        let is_ours = |process: &i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words.contains(&part.as_bytes()) && words.contains(&socket.as_os_str().as_encoded_bytes())
        };
        let all = std::fs::read_dir("/proc").expect("/proc is readable");
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter(is_ours).filter_map(Pid::from_raw).collect()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        command(&self.folder, &self.machine).args(words).output().expect("the binary starts")
    }

    /// Returns the output of a command that succeeds.
    pub(crate) fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    /// Returns the error and status of a command that fails.
    pub(crate) fn refused(&self, words: &[&str]) -> (String, Option<i32>) {
        let output = self.run(words);
        (text(&output.stderr).to_owned(), output.status.code())
    }

    /// Connects this process.
    pub(crate) fn link(&self) -> Link {
        Link::connect(&self.folder.join("broker")).expect("the broker answers")
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).expect("the file is written");
        path.to_str().expect("text").to_owned()
    }
}

impl Drop for BrokerFixture {
    fn drop(&mut self) {
        if let Some(mut serve) = self.serve.take() {
            kill_process(Pid::from_child(&serve), Signal::TERM).expect("the fd store runs");
            assert!(serve.wait().expect("it is a child of this process").success());
        }
        std::fs::remove_dir_all(&self.folder).expect("the folder is removed");
    }
}

/// Polls until there is a result.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG_TIMEOUT, "waited {HANG_TIMEOUT:?} until {what}");
        // Leaves the processor to the processes that are waited for.
        std::thread::park_timeout(Duration::from_micros(200));
    }
}

pub(crate) fn command(folder: &Path, machine: &str) -> Command {
    let mut command = Command::new(binary());
    command.env("FREEHOLD_BROKER", folder.join("broker")).env("FREEHOLD_SOFT_MACHINE", machine);
    command.env("FREEHOLD_DEVICE", "soft").stdin(Stdio::null());
    command
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("the name is valid")
}

/// Returns this user's name.
pub(crate) fn user() -> String {
    let user = rustix::process::getuid().as_raw();
    socket_path::user_name(user).unwrap_or_else(|| user.to_string())
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}
