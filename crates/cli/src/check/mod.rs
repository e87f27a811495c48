//! `freehold check`: runs a program with `FREEHOLD_CHECK` naming a private file, to which each of its processes appends what it finds
//! (`FREEHOLD_CHECK_CALLS` if only its calls are watched, as on a GPU). When they have ended, reads the file and writes the report:
//! text, JSON, SARIF, a page.

mod describe;
mod drawing;
mod findings_file;
mod fold;
mod html;
mod json;
mod kinds;
mod markup;
mod program;
mod report;
#[cfg(test)]
mod samples;
mod sarif;
mod search;
mod signals;
mod source;
mod suppressions;
mod text;

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use freehold::open::{self, OpenError, Target};
use freehold_check::Kind;

use crate::output::file::{OutputFile, WriteError, is_dash};
use crate::output::size;
use crate::output::table::TableStyle;
use crate::run::{self, RunError};
use findings_file::FindingsFile;
use program::{GRACE, ProgramError, Starter};
use report::Report;
use search::{Limits, SCHEDULE, Searcher};
use suppressions::SuppressionError;

/// The file for findings, for the software device.
const CHECK: &str = "FREEHOLD_CHECK";

/// The same for the runtime, which sees the program's calls only.
const CHECK_CALLS: &str = "FREEHOLD_CHECK_CALLS";

/// Makes memory that is not freed a finding.
const LEAKS: &str = "FREEHOLD_CHECK_LEAKS";

/// Turns off that loads and stores of the host are watched.
const HOST: &str = "FREEHOLD_CHECK_HOST";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Device: soft, cuda or cuda:N; on a GPU only calls and their arguments are watched
    #[arg(long, default_value = "soft")]
    device: String,
    /// Watch calls and their arguments only, as on a GPU: loads and stores of kernels and of the host are not seen
    #[arg(long)]
    calls_only: bool,
    /// Write the findings as one JSON document; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the findings as SARIF 2.1.0, which code hosts and editors show; - is standard output
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write a page with a drawing of each race; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Do not report what a line kind:pattern of this file matches; may be repeated
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// Report only these kinds, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kinds::parse)]
    kinds: Vec<Kind>,
    /// Report memory that the program has not freed when it ends; so does --kinds with leak
    #[arg(long)]
    leaks: bool,
    /// Do not watch loads and stores of the host
    #[arg(long)]
    no_host: bool,
    /// Run the work of streams in a random order that is the same for the same number
    #[arg(long, value_name = "N", value_parser = size::parse_count::<u64>(0..=u64::MAX))]
    seed: Option<u64>,
    /// If order matters to what is found, run the program again under schedules until one shows another result
    #[arg(long)]
    search: bool,
    /// How many runs a search makes at most
    #[arg(long, value_name = "N", default_value_t = 64, requires = "search", value_parser = size::parse_count::<u64>(1..=u64::MAX))]
    search_runs: u64,
    /// How long a search goes on at most
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_seconds, requires = "search")]
    search_seconds: Duration,
    /// End the program after this time, and report what was found until then
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Show all findings as text, not only the first 20
    #[arg(long, conflicts_with = "quiet")]
    all: bool,
    /// Show only the summary as text
    #[arg(long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    words: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error("unsupported device {0:?}: expected soft, cuda or cuda:N")]
    Unsupported(String),
    #[error("--seed needs the software device: the order of work on a GPU cannot be chosen")]
    Seed,
    #[error("--search needs the software device: a GPU has no schedules")]
    Search,
    #[error("--leaks finds what --kinds leaves out: add leak to --kinds, or omit --leaks")]
    LeaksLeftOut,
    #[error("--no-host changes nothing where only calls are watched: omit it")]
    NoHost,
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Program(ProgramError),
    #[error(transparent)]
    Suppressions(#[from] SuppressionError),
    #[error("only one of --json, --sarif and --html can be written to standard output")]
    StandardOutput,
    #[error("only one of --json, --sarif and --html can be written to {}", .0.display())]
    SameFile(PathBuf),
    #[error(transparent)]
    Output(#[from] WriteError),
    #[error("failed to create the file of findings: {0}")]
    Create(io::Error),
    #[error("failed to read the file of findings: {0}")]
    Read(io::Error),
    #[error("standard output: {0}")]
    Print(io::Error),
}

impl CheckError {
    fn status(&self) -> u8 {
        match self {
            Self::Run(error) => error.status(),
            _ => 2,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match check(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.status())
        }
    }
}

/// Returns the exit status.
fn check(arguments: &Arguments) -> Result<u8, CheckError> {
    // First: looking for a GPU loads its driver.
    let starter = Starter::new().map_err(CheckError::Program)?;
    let file = FindingsFile::create().map_err(CheckError::Create)?;
    let variables = environment(arguments, file.path())?;
    let suppressions = suppressions::read(&arguments.suppressions)?;
    let outputs = Outputs::open(arguments)?;
    let mut command = run::command(&arguments.words);
    command.envs(variables);
    let outcome = starter.run(&mut command, arguments.timeout, GRACE).map_err(|error| match error {
        ProgramError::Start(error) => CheckError::Run(run::not_started(&command)(error)),
        error => CheckError::Program(error),
    })?;
    let lines = file.read().map_err(CheckError::Read)?;
    let program = arguments.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut report = Report::new(program, outcome, lines, suppressions, &arguments.kinds);
    let can_be_shown = report.findings.iter().any(|finding| search::can_show(finding.kind));
    if arguments.search && can_be_shown && !starter.was_signalled() {
        match searcher(arguments, &starter, &file)?.search() {
            Ok(search) => report.search = Some(search),
            // The findings are worth more than a schedule that shows them.
            Err(error) => eprintln!("the search for a schedule failed: {error}"),
        }
    }
    let extent = match (arguments.quiet, arguments.all) {
        (true, _) => text::Extent::Summary,
        (_, true) => text::Extent::All,
        _ => text::Extent::Some,
    };
    let shown = text::text(&report, extent, TableStyle::for_stderr());
    // The status and the files say the same, if nobody reads standard error any more.
    let _ = io::stderr().lock().write_all(shown.as_bytes());
    outputs.write(&report)?;
    Ok(report.status())
}

/// Returns what searches for a schedule that shows what was found.
fn searcher<'a>(
    arguments: &'a Arguments,
    starter: &'a Starter,
    file: &FindingsFile,
) -> Result<Searcher<'a>, CheckError> {
    let limits = Limits { runs: arguments.search_runs, time: arguments.search_seconds, run_time: arguments.timeout };
    let Target::Soft { ordinal } = open::target(Some(&arguments.device))? else { return Err(CheckError::Search) };
    let mut variables = run::soft_environment(ordinal, None)?;
    run::preload_driver(&mut variables)?;
    Ok(Searcher { starter, words: &arguments.words, variables, printed: file.path().with_file_name("printed"), limits })
}

/// Returns the environment variables of the program, with the file of findings.
fn environment(arguments: &Arguments, findings: &Path) -> Result<Vec<(&'static str, OsString)>, CheckError> {
    let device = arguments.device.as_str();
    if device.starts_with("opencl") {
        return Err(CheckError::Unsupported(device.to_owned()));
    }
    if device.starts_with("cuda") && arguments.seed.is_some() {
        return Err(CheckError::Seed);
    }
    if device.starts_with("cuda") && arguments.search {
        return Err(CheckError::Search);
    }
    if arguments.leaks && !arguments.kinds.is_empty() && !arguments.kinds.contains(&Kind::Leak) {
        return Err(CheckError::LeaksLeftOut);
    }
    if arguments.no_host && (arguments.calls_only || device.starts_with("cuda")) {
        return Err(CheckError::NoHost);
    }
    let mut variables = match open::target(Some(device))? {
        Target::Cuda { ordinal } => run::checked_gpu_environment(ordinal)?,
        Target::Soft { ordinal } => run::soft_environment(ordinal, None)?,
    };
    let is_on_gpu = !variables.iter().any(|(name, _)| *name == open::VARIABLE);
    if is_on_gpu || arguments.calls_only {
        variables.push((CHECK_CALLS, findings.into()));
    } else {
        run::preload_driver(&mut variables)?;
        variables.push((CHECK, findings.into()));
    }
    let are_leaks_asked = arguments.leaks || arguments.kinds.contains(&Kind::Leak);
    variables.extend(are_leaks_asked.then(|| (LEAKS, "1".into())));
    variables.extend(arguments.no_host.then(|| (HOST, "0".into())));
    variables.extend(arguments.seed.map(|seed| (SCHEDULE, format!("seed:{seed}").into())));
    Ok(variables)
}

/// Returns a time in seconds, which may be a fraction.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("expected a number of seconds such as 30 or 0.5, found {text:?}"))
}

/// The files that the report is written to.
struct Outputs<'a>(Vec<(Output<'a>, Form)>);

enum Output<'a> {
    Stdout,
    File(OutputFile<'a>),
}

#[derive(Clone, Copy)]
enum Form {
    Json,
    Sarif,
    Html,
}

impl<'a> Outputs<'a> {
    /// Opens the files before the program runs, so that an unwritable path fails at once.
    fn open(arguments: &'a Arguments) -> Result<Self, CheckError> {
        let Arguments { json, sarif, html, .. } = arguments;
        let requested = [(json, Form::Json), (sarif, Form::Sarif), (html, Form::Html)];
        let requested = requested.into_iter().filter_map(|(path, form)| Some((path.as_deref()?, form)));
        if requested.clone().filter(|(path, _)| is_dash(path)).count() > 1 {
            return Err(CheckError::StandardOutput);
        }
        let (mut outputs, mut files) = (Vec::new(), HashSet::new());
        for (path, form) in requested {
            let output = if is_dash(path) { Output::Stdout } else { Output::File(OutputFile::open(path)?) };
            if let Output::File(file) = &output
                && let Some(identity) = file.identity()?
                && !files.insert(identity)
            {
                return Err(CheckError::SameFile(path.to_owned()));
            }
            outputs.push((output, form));
        }
        Ok(Self(outputs))
    }

    fn write(self, report: &Report) -> Result<(), CheckError> {
        // Without a current folder, relative paths lead nowhere.
        let folder = env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        for (output, form) in self.0 {
            let text = match form {
                Form::Json => json::json(report),
                Form::Sarif => sarif::sarif(report, &folder),
                Form::Html => html::html(report, &folder),
            };
            match output {
                Output::Stdout => crate::output::text::print(text).map_err(CheckError::Print)?,
                Output::File(file) => file.write(&text)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_positive_number_of_seconds() {
        assert_eq!(parse_seconds("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "1s", "nan", "inf", "1e300"] {
            let expected = format!("expected a number of seconds such as 30 or 0.5, found {text:?}");
            assert_eq!(parse_seconds(text), Err(expected));
        }
    }
}
