//! Runs cases, several at a time, each in a process of its own: a test that ruins its process, hangs or aborts does not
//! affect another.
//!
//! A case is a test of a test binary, or any other command that must succeed. Its output is shown only if it fails.
//! Tests print lines for this program (`freehold_testing`): `FREEHOLD_SEED=N` and `covered: COUNT WHAT`.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, Permissions};
use std::io::{self, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::command::{Failure, target};
use crate::cpu::{self, Meter};

/// A command or a function that must succeed.
pub(crate) struct Case {
    /// Unique among the cases of a run.
    pub(crate) name: String,
    /// The shell command that runs it again, without effort and seed.
    pub(crate) rerun: String,
    pub(crate) work: Work,
    /// What its processor time is counted under: the step or the test program that it comes from.
    pub(crate) group: String,
}

pub(crate) enum Work {
    Command(Command),
    Call(Box<dyn Fn() -> Result<(), Failure> + Send + Sync>),
}

impl Case {
    pub(crate) fn command(name: impl Into<String>, rerun: impl Into<String>, command: Command) -> Self {
        Self { name: name.into(), rerun: rerun.into(), work: Work::Command(command), group: String::new() }
    }

    pub(crate) fn call(
        name: &str,
        rerun: impl Into<String>,
        call: impl Fn() -> Result<(), Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.to_owned(), rerun: rerun.into(), work: Work::Call(Box::new(call)), group: String::new() }
    }
}

/// The settings of a run.
pub(crate) struct Settings {
    /// `FREEHOLD_EFFORT` of all cases.
    pub(crate) effort: &'static str,
    /// The time limit of a case; a longer one is killed, and fails.
    pub(crate) limit: Duration,
    /// The time from which no case is started.
    pub(crate) until: Option<Instant>,
}

/// The result of one case.
pub(crate) struct Outcome {
    pub(crate) name: String,
    rerun: String,
    pub(crate) group: String,
    took: Duration,
    /// The processor time of its processes.
    pub(crate) used: Duration,
    failure: Option<Failure>,
    printed: String,
}

impl Outcome {
    /// Returns the lines that a test printed for this program, after a word.
    fn lines<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.printed.lines().filter_map(move |line| line.trim_start_matches('|').strip_prefix(word))
    }

    /// Returns the command that runs a failed case again, with its last seed.
    fn replay(&self, effort: &str) -> String {
        let seed = self.lines("FREEHOLD_SEED=").last().and_then(|text| text.split_whitespace().next());
        let seed = seed.map_or_else(String::new, |seed| format!("FREEHOLD_SEED={seed} "));
        format!("FREEHOLD_EFFORT={effort} {seed}{}", self.rerun)
    }

    /// Returns whether it draws random numbers, so that another run tries something new.
    pub(crate) fn is_random(&self) -> bool {
        self.lines("FREEHOLD_SEED=").next().is_some() || self.lines("seeds ").next().is_some()
    }
}

/// The results of a run.
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    effort: &'static str,
    /// The number of cases that were not started before the time was up.
    pub(crate) not_started: usize,
}

/// Runs the cases, the longest of an earlier run first. If the time is bounded, every other slot starts with the
/// shortest, so that both many cases and long ones are covered.
pub(crate) fn run(mut cases: Vec<Case>, settings: &Settings) -> Report {
    let times = load_times();
    // An unknown case may be the longest of all.
    cases.sort_by_cached_key(|case| std::cmp::Reverse(times.get(&case.name).copied().unwrap_or(u64::MAX)));
    let (total, slots) = (cases.len(), thread::available_parallelism().map_or(2, usize::from) + 2);
    let queue = Mutex::new(VecDeque::from(cases));
    let outcomes = Mutex::new(Vec::with_capacity(total));
    let running = Mutex::new(BTreeMap::new());
    let progress = Progress::new(total);
    thread::scope(|scope| {
        for slot in 0..slots.min(total) {
            let (queue, outcomes, running, progress) = (&queue, &outcomes, &running, &progress);
            scope.spawn(move || {
                loop {
                    if settings.until.is_some_and(|until| Instant::now() >= until) {
                        return;
                    }
                    let is_from_the_end = settings.until.is_some() && slot % 2 == 1;
                    let next =
                        |queue: &mut VecDeque<_>| if is_from_the_end { queue.pop_back() } else { queue.pop_front() };
                    let Some(case) = next(&mut queue.lock().expect("no slot panics")) else { return };
                    running.lock().expect("no slot panics").insert(case.name.clone(), Instant::now());
                    let name = case.name.clone();
                    let outcome = run_case(case, slot, settings);
                    let mut running = running.lock().expect("no slot panics");
                    running.remove(&name);
                    let mut outcomes = outcomes.lock().expect("no slot panics");
                    outcomes.push(outcome);
                    progress.step(&outcomes, &running);
                }
            });
        }
    });
    progress.end();
    let not_started = queue.into_inner().expect("no slot panics").len();
    let outcomes = outcomes.into_inner().expect("no slot panics");
    let report = Report { outcomes, effort: settings.effort, not_started };
    report.save_times(times);
    report
}

/// Runs one case. Its output goes to a file, which processes that it leaves behind may keep open.
fn run_case(case: Case, slot: usize, settings: &Settings) -> Outcome {
    let Case { name, rerun, work, group } = case;
    let (start, meter) = (Instant::now(), Meter::default());
    let (failure, printed) = meter.during(|| match work {
        Work::Call(call) => (call().err(), String::new()),
        Work::Command(command) => {
            let path = folder().join(format!("slot-{}-{slot}", std::process::id()));
            let failure =
                CaseSandbox::new().and_then(|apart| run_process(apart.command(command), &path, settings)).err();
            let printed = fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
            let _ = fs::remove_file(&path);
            (failure, printed)
        }
    });
    Outcome { name, rerun, group, took: start.elapsed(), used: meter.used(), failure, printed }
}

/// The private environment of a case: a folder for temporary files, and a software machine, so that no other process
/// uses its devices.
struct CaseSandbox {
    folder: PathBuf,
}

impl CaseSandbox {
    fn new() -> Result<Self, Failure> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Sockets are created there, whose paths must be short.
        let temporary = std::env::temp_dir();
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let folder = temporary.join(format!("freehold-{}-{number}", std::process::id()));
            match fs::create_dir(&folder) {
                // In some tests, processes of other users write there.
                Ok(()) => fs::set_permissions(&folder, Permissions::from_mode(0o1777))
                    .map_err(|error| io_failure(&folder, &error))?,
                // Left over from a run that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(io_failure(&folder, &error)),
            }
            return Ok(Self { folder });
        }
    }

    fn command(&self, mut command: Command) -> Command {
        let machine = "FREEHOLD_SOFT_MACHINE";
        if command.get_envs().all(|(name, _)| name != machine) {
            command.env(machine, self.folder.file_name().expect("a temporary folder has a name"));
        }
        command.env("TMPDIR", &self.folder);
        command
    }
}

impl Drop for CaseSandbox {
    fn drop(&mut self) {
        // A process of the case may still write there; leftovers do no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn io_failure(path: &Path, error: &io::Error) -> Failure {
    format!("{}: {error}", path.display())
}

fn run_process(mut command: Command, log: &PathBuf, settings: &Settings) -> Result<(), Failure> {
    let file = File::create(log).map_err(|error| io_failure(log, &error))?;
    let copy = file.try_clone().map_err(|error| io_failure(log, &error))?;
    command.stdin(Stdio::null()).stdout(file).stderr(copy).process_group(0);
    let child = command
        .env("FREEHOLD_EFFORT", settings.effort)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    let process = Pid::from_child(&child);
    let ended = wait_timeout(process, settings.limit);
    if !matches!(ended, Ok(true)) {
        kill_group(process);
    }
    let status = cpu::wait(child).map_err(|error| format!("cannot wait for it: {error}"))?;
    kill_group(process);
    match ended {
        Ok(true) if status.success() => Ok(()),
        Ok(true) => Err(status.to_string()),
        Ok(false) => Err(format!("killed: timed out after {} s", settings.limit.as_secs())),
        Err(error) => Err(format!("cannot wait for it: {error}")),
    }
}

/// Returns whether a child ends by itself in time. The caller still has to wait for it.
fn wait_timeout(process: Pid, limit: Duration) -> rustix::io::Result<bool> {
    let descriptor = pidfd_open(process, PidfdFlags::empty())?;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("the limit fits a Timespec");
        match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ended => return Ok(ended? > 0),
        }
    }
}

/// Kills the remaining processes that a case has started.
fn kill_group(group: Pid) {
    // Usually none is left.
    let _ = kill_process_group(group, Signal::KILL);
}

/// The progress of a run: a bar on a terminal, else an occasional line.
struct Progress {
    bar: ProgressBar,
    total: usize,
    last_printed: Mutex<Instant>,
}

impl Progress {
    const PRINT_INTERVAL: Duration = Duration::from_secs(15);

    fn new(total: usize) -> Self {
        let style = ProgressStyle::with_template("{pos}/{len} {elapsed} {wide_msg}").expect("the template is valid");
        let bar = match io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr()).with_style(style),
            false => ProgressBar::hidden(),
        };
        Self { bar, total, last_printed: Mutex::new(Instant::now()) }
    }

    fn step(&self, outcomes: &[Outcome], running: &BTreeMap<String, Instant>) {
        let longest = running.iter().min_by_key(|(_, since)| **since);
        let longest =
            longest.map_or_else(String::new, |(name, since)| format!("{name} ({} s)", since.elapsed().as_secs()));
        self.bar.set_position(outcomes.len() as u64);
        self.bar.set_message(longest.clone());
        if let Some(Outcome { name, failure: Some(failure), .. }) = outcomes.last() {
            self.bar.suspend(|| println!("FAILED {name}: {failure}"));
        }
        let mut told = self.last_printed.lock().expect("no slot panics");
        if self.bar.is_hidden() && told.elapsed() > Self::PRINT_INTERVAL {
            *told = Instant::now();
            println!("   {} of {}, longest running: {longest}", outcomes.len(), self.total);
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Report {
    pub(crate) fn failed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()
    }

    /// Prints the slowest cases, then each failure with its output and the command that repeats it, then the totals.
    pub(crate) fn print(&self) {
        let mut longest: Vec<_> = self.outcomes.iter().collect();
        longest.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
        println!("\nThe ten slowest:");
        for outcome in longest.iter().take(10) {
            let (took, used) = (outcome.took.as_secs_f64(), outcome.used.as_secs_f64());
            println!("{took:8.1} s {used:8.1} CPU s  {}", outcome.name);
        }
        for outcome in &self.outcomes {
            let Some(failure) = &outcome.failure else { continue };
            println!("\n-- FAILED: {}\n{}\n{failure}", outcome.name, outcome.printed.trim_end());
            println!("-- To repeat it: {}", outcome.replay(self.effort));
        }
        println!("\n{} passed, {} failed", self.outcomes.len() - self.failed(), self.failed());
    }

    /// Returns what the cases covered, by their own words.
    pub(crate) fn covered(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        let lines = self.outcomes.iter().flat_map(|outcome| outcome.lines("covered: "));
        for (count, what) in lines.filter_map(|line| line.split_once(' ')) {
            *sums.entry(what.to_owned()).or_default() += count.parse::<u64>().unwrap_or(0);
        }
        sums
    }

    /// Returns the seeds of the cases that drew any.
    pub(crate) fn seeds(&self) -> impl Iterator<Item = (&str, String)> {
        self.outcomes.iter().filter(|outcome| outcome.is_random()).map(|outcome| {
            let mut seeds: Vec<_> = outcome.lines("FREEHOLD_SEED=").chain(outcome.lines("seeds ")).collect();
            seeds.dedup();
            (outcome.name.as_str(), seeds.join(", "))
        })
    }

    /// Stores how long each case took, for the order of the next run.
    fn save_times(&self, mut times: BTreeMap<String, u64>) {
        times.extend(self.outcomes.iter().map(|outcome| (outcome.name.clone(), outcome.took.as_millis() as u64)));
        let lines: String = times.iter().map(|(name, ms)| format!("{ms} {name}\n")).collect();
        // Without it, only the order of the next run differs.
        let _ = fs::write(folder().join("times"), lines);
    }
}

/// Returns the duration in milliseconds of each case's last run on this machine.
fn load_times() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(folder().join("times")).unwrap_or_default();
    let line = |line: &str| line.split_once(' ').and_then(|(ms, name)| Some((name.to_owned(), ms.parse().ok()?)));
    text.lines().filter_map(line).collect()
}

/// Returns the folder for this program's own files.
pub(crate) fn folder() -> PathBuf {
    let folder = target().join("xtask");
    let _ = fs::create_dir_all(&folder);
    folder
}
