//! A broker for one test of the command line, on its own software device.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use freehold_broker::{Link, Name, socket_path};
use freehold_testing::process::{self, Sandbox};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{binary, text};

/// A broker in its own folder.
pub(crate) struct BrokerFixture {
    pub(crate) sandbox: Sandbox,
    serve: Option<Child>,
}

impl BrokerFixture {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// Starts a broker with more options.
    pub(crate) fn with(options: &[&str]) -> Self {
        let mut fixture = Self { sandbox: Sandbox::new("broker"), serve: None };
        fixture.serve(options);
        fixture
    }

    /// Starts a broker.
    pub(crate) fn serve(&mut self, options: &[&str]) {
        let mut serve = self.command();
        serve.args(["serve", "--memory", "64MiB", "--device", "soft"]).args(options);
        let (serve, line) = self.sandbox.start(&mut serve, 3);
        assert_eq!(line, "stop it with Ctrl-C or `freehold stop`; published memory is then lost");
        self.serve = Some(serve);
    }

    pub(crate) fn command(&self) -> Command {
        command(&self.sandbox.folder, &self.sandbox.machine)
    }

    /// Sends a signal to the fdstore that was started.
    pub(crate) fn signal(&self, signal: Signal) {
        let serve = self.serve.as_ref().expect("the broker was started");
        kill_process(Pid::from_child(serve), signal).expect("the fdstore runs");
    }

    /// Whether the fdstore that was started has ended.
    pub(crate) fn has_exited(&mut self) -> bool {
        let serve = self.serve.as_mut().expect("the broker was started");
        serve.try_wait().expect("it is a child of this process").is_some()
    }

    /// Waits until the fdstore has ended. Returns its error output and its exit status.
    pub(crate) fn served(&mut self) -> (String, Option<i32>) {
        let status = self.serve.take().expect("the broker was started").wait().expect("it is a child of this process");
        (self.sandbox.stderr(), status.code())
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().expect("the binary starts")
    }

    /// Returns the output of a command that succeeds.
    pub(crate) fn stdout_of(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)), "{words:?}");
        text(&output.stdout).to_owned()
    }

    /// Returns the error and status of a command that fails.
    pub(crate) fn error_of(&self, words: &[&str]) -> (String, Option<i32>) {
        let output = self.run(words);
        (text(&output.stderr).to_owned(), output.status.code())
    }

    /// Connects this process.
    pub(crate) fn link(&self) -> Link {
        Link::connect(&self.sandbox.socket()).expect("the broker answers")
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        self.sandbox.file(name, bytes).to_str().expect("text").to_owned()
    }
}

impl Drop for BrokerFixture {
    fn drop(&mut self) {
        if let Some(mut serve) = self.serve.take() {
            assert!(process::terminate(&mut serve));
        }
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
