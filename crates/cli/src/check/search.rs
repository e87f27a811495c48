//! Looks for a schedule that shows a race: one under which the program exits with another status, or prints something else, than
//! when each work runs in the call that submits it.
//!
//! The runs are those of `freehold run --device soft`, without the checker, so that the schedule can be replayed with it. Schedules
//! without a switch come first: they delay whole streams, which is enough for most races.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use freehold_check::Kind;
use serde::Serialize;

use super::program::{Exit, Outcome, ProgramError, Starter};
use crate::output::progress;
use crate::output::text::count;
use crate::run;
use freehold_lab::signal_name;

/// The order in which the software device runs work.
pub(super) const SCHEDULE: &str = "FREEHOLD_SOFT_SCHEDULE";

/// How many seeds are tried before the next number of switches.
const SEEDS: u64 = 16;

/// A run may take so many times as long as the first one, and so much longer.
const TIMES_MAX: u32 = 10;
const MORE_MAX: Duration = Duration::from_secs(10);

/// How much of a line of output is quoted.
const QUOTED: usize = 60;

/// Where a search ends.
pub(super) struct Limits {
    pub(super) runs: u64,
    pub(super) time: Duration,
    /// Of one run.
    pub(super) run_time: Option<Duration>,
}

/// What came of a search.
#[derive(Debug, Serialize)]
pub(super) struct Search {
    /// The runs under schedules, with those that confirm what is shown.
    pub(super) runs: u64,
    seconds: f64,
    pub(super) shown: Option<Shown>,
}

/// A schedule that shows a race.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    /// The value of `FREEHOLD_SOFT_SCHEDULE`.
    schedule: String,
    switches: u64,
    /// What is different.
    difference: String,
}

impl Search {
    /// Says what came of it, in one sentence.
    pub(super) fn sentence(&self) -> String {
        match &self.shown {
            Some(Shown { schedule, switches, difference }) => {
                let noun = if *switches == 1 { "switch" } else { "switches" };
                format!("shown by {}={schedule} ({switches} {noun}): {difference}", SCHEDULE)
            }
            None => format!("no other result in {} under other schedules", count(self.runs, "run")),
        }
    }

    /// Returns the command that shows it again.
    pub(super) fn replay(&self, program: &[String]) -> Option<String> {
        let Shown { schedule, .. } = self.shown.as_ref()?;
        let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
        Some(format!("{}={schedule} freehold run --device soft -- {}", SCHEDULE, words.join(" ")))
    }
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns whether another order of execution may show an error of this kind.
pub(super) fn can_show(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::StreamRace
            | Kind::ReuseRace
            | Kind::HostRace
            | Kind::SharedRace
            | Kind::GlobalRace
            | Kind::UseBeforeAllocation
            | Kind::FreeInUse
            | Kind::HostMemoryFreed
            | Kind::IpcClosed
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schedule {
    Eager,
    Switches { seed: u64, switches: u64 },
}

impl Schedule {
    fn nth(number: u64) -> Self {
        Self::Switches { seed: number, switches: number / SEEDS }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager => write!(f, "eager"),
            Self::Switches { seed, switches } => write!(f, "seed:{seed},switches:{switches}"),
        }
    }
}

/// How a run looks from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Behaviour {
    outcome: Outcome,
    printed: Vec<u8>,
}

/// Runs a program again and again.
pub(super) struct Searcher<'a> {
    pub(super) starter: &'a Starter,
    pub(super) words: &'a [OsString],
    /// Those of `freehold run`.
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// The file for what it prints.
    pub(super) printed: PathBuf,
    pub(super) limits: Limits,
}

impl Searcher<'_> {
    /// Searches. The program has no input, and what it prints is not shown.
    pub(super) fn search(&self) -> Result<Search, ProgramError> {
        let begun = Instant::now();
        let rest = || self.limits.time.saturating_sub(begun.elapsed());
        let mut search = Search { runs: 0, seconds: 0.0, shown: None };
        let first = self.run(Schedule::Eager, self.limits.run_time.unwrap_or(Duration::MAX).min(rest()))?;
        let longest = begun.elapsed().saturating_mul(TIMES_MAX).saturating_add(MORE_MAX);
        let longest = self.limits.run_time.unwrap_or(longest);
        // What differs from run to run says nothing.
        let is_same = self.run(Schedule::Eager, longest.min(rest()))?.printed == first.printed;
        let usual = Behaviour { printed: if is_same { first.printed } else { Vec::new() }, ..first };
        let mut differs = |schedule: Schedule, runs: &mut u64| -> Result<Option<String>, ProgramError> {
            *runs += 1;
            let mut behaviour = self.run(schedule, longest.min(rest()))?;
            if !is_same {
                behaviour.printed.clear();
            }
            Ok(difference(&usual, &behaviour))
        };
        let bar = progress::bar(self.limits.runs, progress::STEPS);
        for number in 0.. {
            if search.runs >= self.limits.runs || rest().is_zero() {
                break;
            }
            let schedule = Schedule::nth(number);
            bar.set_position(search.runs);
            bar.set_message(format!("runs: {schedule}"));
            let found = differs(schedule, &mut search.runs)?;
            if self.starter.was_signalled() {
                break;
            }
            let Some(found) = found else { continue };
            // A program with threads may be different only now and then.
            if differs(schedule, &mut search.runs)?.as_ref() != Some(&found) {
                continue;
            }
            search.shown = Some(self.shrunk(schedule, found, &mut search.runs, &mut differs)?);
            break;
        }
        bar.finish_and_clear();
        search.seconds = begun.elapsed().as_secs_f64();
        Ok(search)
    }

    /// Returns the schedule of the same seed with the fewest switches that shows a difference.
    fn shrunk(
        &self,
        schedule: Schedule,
        mut found: String,
        runs: &mut u64,
        differs: &mut impl FnMut(Schedule, &mut u64) -> Result<Option<String>, ProgramError>,
    ) -> Result<Shown, ProgramError> {
        let Schedule::Switches { seed, mut switches } = schedule else { unreachable!("only seeds are searched") };
        while switches > 0 {
            let Some(fewer) = differs(Schedule::Switches { seed, switches: switches - 1 }, runs)? else { break };
            (switches, found) = (switches - 1, fewer);
        }
        Ok(Shown { schedule: Schedule::Switches { seed, switches }.to_string(), switches, difference: found })
    }

    /// Runs it until it ends, or is killed when its time is up.
    fn run(&self, schedule: Schedule, time: Duration) -> Result<Behaviour, ProgramError> {
        let file = File::create(&self.printed).map_err(ProgramError::Prepare)?;
        let mut command = run::command(self.words);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(SCHEDULE, schedule.to_string());
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        let outcome = self.starter.run(&mut command, Some(time), Duration::ZERO)?;
        let printed = fs::read(&self.printed).map_err(|error: io::Error| ProgramError::Wait(error))?;
        Ok(Behaviour { outcome, printed })
    }
}

/// Says what is different from how the program usually behaves. A run that was ended here shows nothing.
fn difference(usual: &Behaviour, behaviour: &Behaviour) -> Option<String> {
    if usual.outcome.timed_out || behaviour.outcome.timed_out {
        return None;
    }
    let (before, after) = (usual.outcome.exit, behaviour.outcome.exit);
    if before != after {
        return Some(format!("{} instead of {}", exit(after), exit(before)));
    }
    let lines = |behaviour: &Behaviour| -> Vec<String> {
        String::from_utf8_lossy(&behaviour.printed).lines().map(str::to_owned).collect()
    };
    let (before, after) = (lines(usual), lines(behaviour));
    let line = (0..before.len().max(after.len())).find(|&line| before.get(line) != after.get(line))?;
    let shown = |lines: &[String]| {
        lines.get(line).map_or_else(|| "nothing".to_owned(), |line| format!("{:?}", shortened(line)))
    };
    Some(format!("line {} of standard output is {} instead of {}", line + 1, shown(&after), shown(&before)))
}

fn shortened(line: &str) -> String {
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn exit(exit: Exit) -> String {
    match exit {
        Exit::Status(status) => format!("exit status {status}"),
        Exit::Signal(signal) => format!("an end by {}", signal_name(signal)),
    }
}

/// The result of a search, for the tests of the reports.
#[cfg(test)]
pub(super) fn sample() -> Search {
    let difference = "exit status 1 instead of exit status 0".to_owned();
    let shown = Shown { schedule: "seed:18,switches:1".to_owned(), switches: 1, difference };
    Search { runs: 20, seconds: 1.5, shown: Some(shown) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaviour(exit: Exit, printed: &str) -> Behaviour {
        Behaviour { outcome: Outcome { exit, timed_out: false }, printed: printed.as_bytes().to_vec() }
    }

    #[test]
    fn the_first_difference_is_told() {
        let usual = behaviour(Exit::Status(0), "one\ntwo\n");
        let told = |exit, printed| difference(&usual, &behaviour(exit, printed));
        assert_eq!(told(Exit::Status(0), "one\ntwo\n"), None);
        assert_eq!(told(Exit::Status(3), "other").unwrap(), "exit status 3 instead of exit status 0");
        assert_eq!(told(Exit::Signal(11), "one\ntwo\n").unwrap(), "an end by SIGSEGV instead of exit status 0");
        let line = "line 2 of standard output is \"2\" instead of \"two\"";
        assert_eq!(told(Exit::Status(0), "one\n2\n").unwrap(), line);
        let line = "line 3 of standard output is \"three\" instead of nothing";
        assert_eq!(told(Exit::Status(0), "one\ntwo\nthree\n").unwrap(), line);
        let late = Behaviour { outcome: Outcome { exit: Exit::Signal(15), timed_out: true }, printed: Vec::new() };
        assert_eq!(difference(&usual, &late), None);
    }

    #[test]
    fn schedules_with_fewer_switches_come_first() {
        assert_eq!(Schedule::nth(0).to_string(), "seed:0,switches:0");
        assert_eq!(Schedule::nth(15).to_string(), "seed:15,switches:0");
        assert_eq!(Schedule::nth(16).to_string(), "seed:16,switches:1");
        assert_eq!(Schedule::Eager.to_string(), "eager");
    }

    #[test]
    fn the_sentence_has_the_schedule_and_the_command_replays_it() {
        let mut search = sample();
        let sentence =
            "shown by FREEHOLD_SOFT_SCHEDULE=seed:18,switches:1 (1 switch): exit status 1 instead of exit status 0";
        assert_eq!(search.sentence(), sentence);
        let program = ["./saxpy".to_owned(), "two words".to_owned(), "it's".to_owned()];
        let command =
            r"FREEHOLD_SOFT_SCHEDULE=seed:18,switches:1 freehold run --device soft -- ./saxpy 'two words' 'it'\''s'";
        assert_eq!(search.replay(&program).unwrap(), command);
        search.shown.as_mut().unwrap().switches = 2;
        assert!(search.sentence().contains("(2 switches)"), "{}", search.sentence());
        search.shown = None;
        assert_eq!(search.sentence(), "no other result in 20 runs under other schedules");
        assert_eq!(search.replay(&program), None);
    }
}
