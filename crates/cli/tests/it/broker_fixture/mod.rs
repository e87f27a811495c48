//! A broker of its own for one test of the command line, on a software device of its own.

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

/// A broker of its own, in a folder of its own.
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
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        let mut fixture = Self { folder, machine, serve: None };
        fixture.serve();
        fixture
    }

    /// Starts a broker.
    pub(crate) fn serve(&mut self) {
        let mut serve = command(&self.folder, &self.machine);
        serve.args(["serve", "--memory", "64MiB", "--device", "soft"]).stdout(Stdio::piped());
        serve.stderr(File::create(self.folder.join("said")).expect("a file for what the processes say"));
        let mut serve = serve.spawn().expect("the binary starts");
        let said = BufReader::new(serve.stdout.take().expect("it is piped")).lines().nth(2);
        assert_eq!(
            said.expect("it says more").expect("it says text"),
            "stop it with Ctrl-C or `freehold stop`; what it holds is gone then"
        );
        self.serve = Some(serve);
    }

    /// Sends a signal to the keeper that was started.
    pub(crate) fn signal(&self, signal: Signal) {
        let serve = self.serve.as_ref().expect("a broker was started");
        kill_process(Pid::from_child(serve), signal).expect("the keeper is there");
    }

    /// Waits until the keeper that was started has ended: what it said to whoever watches it, and its exit status.
    pub(crate) fn served(&mut self) -> (String, Option<i32>) {
        let status = self.serve.take().expect("a broker was started").wait().expect("it is this process's");
        (std::fs::read_to_string(self.folder.join("said")).expect("the file is there"), status.code())
    }

    /// The processes of a part, by what they were told.
    pub(crate) fn processes(&self, part: &str) -> Vec<Pid> {
        let socket = self.folder.join("broker");
        let is_ours = |process: &i32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words.contains(&part.as_bytes()) && words.contains(&socket.as_os_str().as_encoded_bytes())
        };
        let all = std::fs::read_dir("/proc").expect("there are processes");
        let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        numbers.filter(is_ours).filter_map(Pid::from_raw).collect()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        command(&self.folder, &self.machine).args(words).output().expect("the binary starts")
    }

    /// What a command printed, which went well.
    pub(crate) fn said(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        text(&output.stdout).to_owned()
    }

    /// What a command was refused with.
    pub(crate) fn refused(&self, words: &[&str]) -> (String, Option<i32>) {
        let output = self.run(words);
        (text(&output.stderr).to_owned(), output.status.code())
    }

    /// A connection of this process.
    pub(crate) fn link(&self) -> Link {
        Link::connect(&self.folder.join("broker")).expect("a broker serves")
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).expect("a file of the test's");
        path.to_str().expect("text").to_owned()
    }
}

impl Drop for BrokerFixture {
    fn drop(&mut self) {
        if let Some(mut serve) = self.serve.take() {
            kill_process(Pid::from_child(&serve), Signal::TERM).expect("the keeper is there");
            assert!(serve.wait().expect("it is this process's").success());
        }
        std::fs::remove_dir_all(&self.folder).expect("the test's folder goes");
    }
}

/// Looks again and again until there is something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < HANG_TIMEOUT, "waited {HANG_TIMEOUT:?} until {what}");
        // The processor is left to those that are waited for.
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
    Name::parse(text).expect("a name")
}

/// This user's name.
pub(crate) fn user() -> String {
    let user = rustix::process::getuid().as_raw();
    socket_path::user_name(user).unwrap_or_else(|| user.to_string())
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text was printed")
}
