//! Runs each experiment in its own process, a new start of this program, so that none affects another's process or
//! device state.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::child::NOT_STARTED;
use super::experiment::ExperimentInfo;
use super::id::Id;
use super::runtime;
use super::target::Target;
use super::trace::{ExperimentTrace, Trace, TraceError};

const EXPERIMENT_TIMEOUT: Duration = Duration::from_secs(240);

/// Why experiments could not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("experiment {id} did not start: {said}")]
    NotBegun { id: Id, said: String },
    #[error("failed to start the experiments: {0}")]
    Start(io::Error),
}

/// The CUDA runtime under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeLibrary {
    pub path: PathBuf,
    /// Environment variables of the experiments' processes.
    pub variables: Vec<(&'static str, OsString)>,
}

/// Returns the answer of each experiment, in order. `progress` has as many steps as there are experiments.
pub fn answers(
    experiments: &[ExperimentInfo],
    target: &Target,
    runtime: Option<&RuntimeLibrary>,
    trace: Option<&Trace>,
    progress: &ProgressBar,
) -> Result<Vec<String>, RunError> {
    let program = std::env::current_exe().map_err(RunError::Start)?;
    let workers = target.parallelism.min(experiments.len());
    let device = &target.selector;
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(vec![String::new(); experiments.len()]);
    let work = || -> Result<(), RunError> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(experiment) = experiments.get(at) else { return Ok(()) };
            progress.set_message(format!("{} {}", experiment.id, experiment.did));
            let part = trace.map(Trace::new_experiment).transpose()?;
            let path = part.as_ref().map(ExperimentTrace::path);
            let runtime = runtime.filter(|_| experiment.id.0 == runtime::QUESTION);
            let answer = answer(&program, *experiment, device, runtime, path.as_deref())?;
            if let (Some(trace), Some(part)) = (trace, part) {
                trace.add(at, *experiment, &answer, part)?;
            }
            answers.lock().expect("no worker panics")[at] = answer;
            progress.inc(1);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    progress.finish_and_clear();
    Ok(answers.into_inner().expect("no worker panics"))
}

/// Returns what the experiment's process printed, or how it ended.
fn answer(
    program: &Path,
    experiment: ExperimentInfo,
    device: &str,
    runtime: Option<&RuntimeLibrary>,
    part: Option<&Path>,
) -> Result<String, RunError> {
    let ended = process(program, experiment, device, runtime, part).map_err(RunError::Start)?;
    ended.map_err(|said| RunError::NotBegun { id: experiment.id, said })
}

/// The same, or why the experiment did not start.
fn process(
    program: &Path,
    experiment: ExperimentInfo,
    device: &str,
    runtime: Option<&RuntimeLibrary>,
    part: Option<&Path>,
) -> io::Result<Result<String, String>> {
    let mut command = Command::new(program);
    command.arg("experiment").arg(experiment.id.to_string()).arg("--device").arg(device);
    if let Some(part) = part {
        command.arg("--trace").arg(part);
    }
    if let Some(runtime) = runtime {
        command.arg("--runtime").arg(&runtime.path).envs(runtime.variables.iter().cloned());
    }
    command.env("FREEHOLD_SOFT_MACHINE", soft_machine_name(experiment));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn()?;
    let Some(status) = wait_timeout(&mut child, EXPERIMENT_TIMEOUT)? else {
        kill_group(&child);
        child.wait()?;
        return Ok(Ok("hung".to_owned()));
    };
    let mut printed = String::new();
    child.stdout.take().expect("the output is piped").read_to_string(&mut printed)?;
    Ok(outcome(status, printed.trim()))
}

/// Returns a name shared by the processes of this experiment in this run only: processes that name the same machine
/// share the software device's memory.
fn soft_machine_name(experiment: ExperimentInfo) -> String {
    format!("lab-{}-{}", std::process::id(), experiment.id)
}

/// Returns how the process ended, if it did in time.
fn wait_timeout(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    let ready = retry_on_intr(|| poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&patience)))?;
    if ready == 0 { Ok(None) } else { child.wait().map(Some) }
}

/// Kills an experiment that still runs, and its child processes.
fn kill_group(child: &Child) {
    let group = i32::try_from(child.id()).expect("a process id is positive");
    // SAFETY: the call takes two numbers. The group was created for this child, which has not been waited for, so no
    // other process has its id.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}

fn outcome(status: ExitStatus, printed: &str) -> Result<String, String> {
    Ok(match (status.code(), status.signal()) {
        (Some(0), _) => printed.to_owned(),
        (Some(code), _) if code == i32::from(NOT_STARTED) => return Err(printed.to_owned()),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("killed by {}", signal_name(signal)),
        (None, None) => "ended in an unknown way".to_owned(),
    })
}

/// Returns the name of a signal, or its number.
pub fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGABRT => "SIGABRT".to_owned(),
        libc::SIGBUS => "SIGBUS".to_owned(),
        libc::SIGFPE => "SIGFPE".to_owned(),
        libc::SIGHUP => "SIGHUP".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGINT => "SIGINT".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGPIPE => "SIGPIPE".to_owned(),
        libc::SIGQUIT => "SIGQUIT".to_owned(),
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGTERM => "SIGTERM".to_owned(),
        libc::SIGTRAP => "SIGTRAP".to_owned(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_was_printed() {
        assert_eq!(outcome(ExitStatus::from_raw(0), "SUCCESS").unwrap(), "SUCCESS");
    }

    #[test]
    fn a_process_that_dies_of_a_signal_answers_with_its_name() {
        assert_eq!(outcome(ExitStatus::from_raw(libc::SIGSEGV), "").unwrap(), "killed by SIGSEGV");
        assert_eq!(outcome(ExitStatus::from_raw(libc::SIGUSR1), "").unwrap(), "killed by signal 10");
    }

    #[test]
    fn a_panic_is_its_exit_status() {
        assert_eq!(outcome(ExitStatus::from_raw(101 << 8), "half an ans").unwrap(), "ended with status 101");
    }

    #[test]
    fn what_did_not_begin_has_no_answer() {
        assert_eq!(outcome(ExitStatus::from_raw(2 << 8), "no such device").unwrap_err(), "no such device");
    }

    #[test]
    fn a_process_that_does_not_end_in_time_is_seen_as_running() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).process_group(0).spawn().unwrap();
        assert!(wait_timeout(&mut child, Duration::from_millis(20)).unwrap().is_none());
        kill_group(&child);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}
