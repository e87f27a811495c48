//! Starts the program, and waits until it and every process that it started have ended. This process adopts the orphans among
//! them (`PR_SET_CHILD_SUBREAPER`), so each is in the end a child of this process, which no other process can reap: its number
//! is its own while it gets a signal.

use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use super::signals::{Received, Signals};

/// How long a program may take to end after SIGTERM, before SIGKILL, if somebody wants to know what it finds until then.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// How long the processes that a program leaves behind may run until the user is told that they are waited for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Its exit status, or the signal that ended it.
    pub(super) exit: Exit,
    /// Whether it was ended here because its time was up.
    pub(super) timed_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Status(u8),
    Signal(i32),
}

impl Outcome {
    /// The program's status as in shells: 128 and the number of the signal that ended it. Success of a program that was ended
    /// here would hide that it was not finished: then it is 124, as of `timeout`.
    pub(super) fn status(self) -> u8 {
        match self.exit {
            Exit::Status(0) if self.timed_out => 124,
            Exit::Status(status) => status,
            Exit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("failed to prepare for the program's signals and processes: {0}")]
    Prepare(io::Error),
    #[error("failed to wait for the program: {0}")]
    Wait(io::Error),
    #[error(transparent)]
    Start(io::Error),
}

/// Starts programs, one at a time.
pub(super) struct Starter {
    signals: Signals,
    was_signalled: Cell<bool>,
}

impl Starter {
    pub(super) fn new() -> Result<Self, ProgramError> {
        set_child_subreaper(Some(getpid())).map_err(|error| ProgramError::Prepare(error.into()))?;
        let signals = Signals::block().map_err(ProgramError::Prepare)?;
        Ok(Self { signals, was_signalled: Cell::new(false) })
    }

    /// Starts a program, and returns when it and the processes that it started have ended. `timeout` is for all of them; `grace` later
    /// they are killed.
    pub(super) fn run(
        &self,
        command: &mut Command,
        timeout: Option<Duration>,
        grace: Duration,
    ) -> Result<Outcome, ProgramError> {
        self.signals.restore_in(command);
        // A shell that became this process may have left it children of its own.
        let foreign = children();
        let started = command.spawn().map_err(ProgramError::Start)?;
        let program = Pid::from_child(&started);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let stage = Stage::Run { deadline };
        Processes { starter: self, program, foreign, exit: None, stage, grace, signals_after_exit: 0, notice: None }
            .wait(&self.signals)
            .map_err(ProgramError::Wait)
    }

    /// Returns whether a program was sent a signal.
    pub(super) fn was_signalled(&self) -> bool {
        self.was_signalled.get()
    }
}

/// The program, and the processes that it started.
struct Processes<'s> {
    starter: &'s Starter,
    program: Pid,
    /// Children of this process from before.
    foreign: HashSet<Pid>,
    exit: Option<Exit>,
    stage: Stage,
    grace: Duration,
    /// The signals that were received after the program had exited.
    signals_after_exit: u32,
    /// When to say that processes are waited for. `None` until the program has exited.
    notice: Option<Notice>,
}

enum Notice {
    At(Instant),
    Given,
}

enum Stage {
    Run {
        deadline: Option<Instant>,
    },
    /// SIGTERM was sent to those that are listed.
    Terminate {
        asked: HashSet<Pid>,
        deadline: Instant,
    },
    Kill,
}

impl Processes<'_> {
    fn wait(mut self, signals: &Signals) -> io::Result<Outcome> {
        loop {
            self.reap()?;
            let mut left = self.left();
            self.end(&mut left);
            // The first signal is for the processes. A second one says that the user does not want to wait.
            let is_over = left.is_empty() || self.signals_after_exit >= 2;
            if let Some(exit) = self.exit.filter(|_| is_over) {
                return Ok(Outcome { exit, timed_out: !matches!(self.stage, Stage::Run { .. }) });
            }
            self.tell(&left);
            self.sleep(signals)?;
            while let Some(received) = signals.try_take() {
                if !received.is_about_a_child() {
                    self.pass_on(received, &left);
                }
            }
        }
    }

    /// Collects the children that have ended.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) if process == self.program => {
                    let status = ExitStatus::from_raw(status.as_raw());
                    self.exit = Some(match (status.code(), status.signal()) {
                        (Some(code), _) => Exit::Status(code as u8),
                        (None, signal) => Exit::Signal(signal.expect("it exited, or was killed by a signal")),
                    });
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the processes that run: the program, and those that it left behind.
    fn left(&self) -> HashSet<Pid> {
        let mut left = &children() - &self.foreign;
        if self.exit.is_none() {
            left.insert(self.program);
        }
        left
    }

    /// Ends the processes when their time is up: each gets SIGTERM once, later SIGKILL. The children of one that has ended
    /// become children of this process, and follow.
    fn end(&mut self, left: &mut HashSet<Pid>) {
        let now = Instant::now();
        match &self.stage {
            Stage::Run { deadline: Some(deadline) } if now >= *deadline => {
                self.stage = Stage::Terminate { asked: HashSet::new(), deadline: now + self.grace };
            }
            Stage::Terminate { deadline, .. } if now >= *deadline => self.stage = Stage::Kill,
            _ => {}
        }
        match &mut self.stage {
            Stage::Run { .. } => {}
            Stage::Terminate { asked, .. } => {
                for &process in left.iter().filter(|process| !asked.contains(process)) {
                    send(process, Signal::TERM);
                }
                asked.extend(&*left);
            }
            // One that belongs to another user now cannot be ended.
            Stage::Kill => left.retain(|process| send(*process, Signal::KILL)),
        }
    }

    fn pass_on(&mut self, received: Received, left: &HashSet<Pid>) {
        let Some(signal) = Signal::from_named_raw(received.number) else { return };
        self.starter.was_signalled.set(true);
        let has_exited = self.exit.is_some();
        self.signals_after_exit += u32::from(has_exited);
        // The terminal sends a key's signal to the program too, and the program knows what it has sent to its group.
        if received.is_key || received.sender == self.program.as_raw_nonzero().get().unsigned_abs() {
            return;
        }
        let receivers = left.iter().filter(|process| has_exited || **process == self.program);
        for &process in receivers {
            send(process, signal);
        }
    }

    /// Says once which processes are waited for, if that takes long.
    fn tell(&mut self, left: &HashSet<Pid>) {
        match self.notice {
            None if self.exit.is_some() => self.notice = Some(Notice::At(Instant::now() + NOTICE_AFTER)),
            Some(Notice::At(at)) if Instant::now() >= at => {
                let mut numbers: Vec<String> =
                    left.iter().map(|process| process.as_raw_nonzero().to_string()).collect();
                numbers.sort_unstable();
                let numbers = numbers.join(", ");
                eprintln!("the program has exited; waiting for the processes that it started: {numbers}");
                self.notice = Some(Notice::Given);
            }
            _ => {}
        }
    }

    /// Waits for a signal, or until something is due.
    fn sleep(&self, signals: &Signals) -> io::Result<()> {
        let due = match self.stage {
            Stage::Run { deadline } => deadline,
            Stage::Terminate { deadline, .. } => Some(deadline),
            Stage::Kill => None,
        };
        let notice = match self.notice {
            Some(Notice::At(at)) => Some(at),
            _ => None,
        };
        let due = due.into_iter().chain(notice).min();
        let rest = due.map(|due| due.saturating_duration_since(Instant::now()));
        let rest = rest.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        retry_on_intr(|| poll(&mut [PollFd::new(signals, PollFlags::IN)], rest.as_ref()))?;
        Ok(())
    }
}

/// Sends a signal to a child that was not reaped. Returns whether it may be sent.
fn send(process: Pid, signal: Signal) -> bool {
    kill_process(process, signal).is_ok()
}

/// Returns the children of this process. Where the kernel does not list them, there is none: then only the program is waited for.
fn children() -> HashSet<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return HashSet::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_that_of_shells() {
        let status = |exit, timed_out| Outcome { exit, timed_out }.status();
        assert_eq!(status(Exit::Status(7), false), 7);
        assert_eq!(status(Exit::Signal(libc::SIGSEGV), false), 139);
        assert_eq!(status(Exit::Signal(libc::SIGTERM), true), 143);
        assert_eq!(status(Exit::Status(3), true), 3);
        assert_eq!(status(Exit::Status(0), true), 124);
    }
}
