//! The lab: experiments that say what a driver does, beside what a recorded device did.
//!
//! This file owns the command: what is selected, what is compared, what is printed. It calls no driver: each
//! experiment runs in a process of its own (`runner` starts it, `child` is it).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use freehold::open::{self, Kind, OpenError, Opened};
use freehold_driver::cuda::{CUerror, device, driver};
use serde::Serialize;

use self::answers::error_name;
use self::experiment::{Experiment, QUESTIONS};
use self::id::{Id, Part};
use self::reference::{Record, Reference, ReferenceError};
use self::table::{Look, Table};
use self::trace::{Trace, TraceError};

pub(crate) mod child;
pub(crate) mod table;

mod answers;
mod ask;
mod bench;
mod captured;
mod experiment;
mod gate;
mod host;
mod id;
mod kernels;
mod level;
mod mapped;
mod partner;
mod reference;
mod runner;
mod shared;
mod trace;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Only these experiments: an id, or the front of some (2, 2.2, 2.2.1)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// The device: soft, cuda or cuda:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
    #[arg(long)]
    device: Option<String>,
    /// Write the answers of this device to FILE, as a reference
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Compare with the answers in FILE, not with those built in
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Write every driver call of every experiment to FILE, which ui.perfetto.dev opens
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Why the lab did not do what it was asked to. Exit status 2.
#[derive(Debug, thiserror::Error)]
enum LabError {
    #[error(transparent)]
    Device(#[from] OpenError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("no experiment has the id {text:?}: {hint}")]
    UnknownId { text: String, hint: String },
    #[error("the experiments cannot be started: {0}")]
    Start(io::Error),
    #[error("the answers cannot be printed: {0}")]
    Print(io::Error),
}

/// One experiment with its answers, as `--json` prints it.
#[derive(Serialize)]
struct Finding<'a> {
    id: Id,
    question: &'static str,
    did: &'static str,
    here: &'a str,
    reference: Option<&'a str>,
    agrees: bool,
    /// It agrees because it reports a wrong access that hardware lets pass.
    #[serde(skip)]
    is_stricter: bool,
}

/// Exit status 0 when all agree, 1 when one differs, 2 when the lab could not do what it was asked to.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match compare(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all that was selected agrees.
fn compare(arguments: &Arguments) -> Result<bool, LabError> {
    let selected = select(&arguments.only)?;
    let reference = match &arguments.reference {
        Some(path) => Reference::read(path)?,
        None => Reference::built_in(),
    };
    let opened = open::open(arguments.device.as_deref())?;
    let record = arguments.record.as_deref().map(Record::create).transpose()?;

    let trace = arguments.trace.as_deref().map(Trace::create).transpose()?;

    let answers = runner::answers(&selected, &opened, trace.as_ref())?;

    if let Some(trace) = trace {
        trace.finish()?;
    }
    if let Some(record) = record {
        let answers = selected.iter().zip(&answers).map(|(experiment, answer)| (experiment.id, answer.clone()));
        record.finish(&recorded(&opened, answers.collect()))?;
    }
    let findings = findings(&selected, &answers, &reference);
    let text = if arguments.json { json(&findings) } else { table(&findings, &opened, &reference) };
    print(&text).map_err(LabError::Print)?;
    Ok(findings.iter().all(|finding| finding.agrees))
}

/// The experiments that `only` names, all where it names none.
fn select(only: &[String]) -> Result<Vec<&'static Experiment>, LabError> {
    let parts = only.iter().map(|text| part(text)).collect::<Result<Vec<_>, _>>()?;
    let wanted = |experiment: &&Experiment| parts.is_empty() || parts.iter().any(|part| part.holds(experiment.id));
    Ok(experiments().filter(wanted).collect())
}

fn experiments() -> impl Iterator<Item = &'static Experiment> {
    experiment::all().into_iter()
}

/// The part that `text` names, where it holds an experiment.
fn part(text: &str) -> Result<Part, LabError> {
    let unknown = |hint: String| LabError::UnknownId { text: text.to_owned(), hint };
    let Ok(part) = text.parse::<Part>() else {
        return Err(unknown("ids look like 2, 2.2 or 2.2.1".to_owned()));
    };
    if experiments().any(|experiment| part.holds(experiment.id)) {
        return Ok(part);
    }
    let mut above = part.above();
    while let Some(near) = above {
        let ids: Vec<Id> = experiments().map(|experiment| experiment.id).filter(|&id| near.holds(id)).collect();
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            return Err(unknown(format!("{near} goes from {first} to {last}")));
        }
        above = near.above();
    }
    Err(unknown(format!("the questions are {}", questions_asked().join(", "))))
}

/// The questions that have an experiment.
fn questions_asked() -> Vec<String> {
    let mut questions: Vec<u8> = experiments().map(|experiment| experiment.id.0).collect();
    questions.sort_unstable();
    questions.dedup();
    questions.iter().map(u8::to_string).collect()
}

fn findings<'a>(selected: &[&'static Experiment], answers: &'a [String], reference: &'a Reference) -> Vec<Finding<'a>> {
    selected
        .iter()
        .zip(answers)
        .map(|(experiment, here)| {
            let reference = reference.answers.get(&experiment.id).map(String::as_str);
            let question = QUESTIONS[usize::from(experiment.id.0)];
            let is_stricter = experiment::is_unchecked(experiment.id)
                && reference.is_some_and(|recorded| is_stricter(here, recorded));
            let agrees = is_stricter || reference.is_some_and(|recorded| agrees(here, recorded));
            Finding { id: experiment.id, question, did: experiment.did, here, reference, agrees, is_stricter }
        })
        .collect()
}

/// Whether an answer agrees with the recorded one.
///
/// Where the recorded driver crashed, CUDA leaves open what the call does: a driver that refuses it agrees too.
fn agrees(here: &str, recorded: &str) -> bool {
    let crashed = |answer: &str| answer.starts_with("killed by ");
    let refused = here
        .split([' ', ','])
        .next_back()
        .is_some_and(|last| CUerror::ALL.iter().any(|&code| error_name(code) == last));
    here == recorded || crashed(recorded) && !crashed(here) && refused
}

/// Whether an answer is a fault where the recorded one is none. Of an experiment whose wrong access hardware does not
/// check, that agrees: a device that checks every access has to report it.
fn is_stricter(here: &str, recorded: &str) -> bool {
    let faults = [CUerror::ILLEGAL_ADDRESS, CUerror::INVALID_ADDRESS_SPACE, CUerror::LAUNCH_FAILED];
    recorded == "SUCCESS" && faults.iter().any(|&fault| error_name(fault) == here)
}

fn json(findings: &[Finding<'_>]) -> String {
    let line = |finding| serde_json::to_string(finding).expect("a finding holds nothing but text");
    findings.iter().map(|finding| line(finding) + "\n").collect()
}

fn table(findings: &[Finding<'_>], opened: &Opened, reference: &Reference) -> String {
    let ids: Vec<String> = findings.iter().map(|finding| finding.id.to_string()).collect();
    let id_columns = ids.iter().map(String::len).max().unwrap_or(0).max("id".len());
    let mut table = Table::new(Look::of_stdout(), id_columns);
    table.paragraph(&opened.why);
    let mut question = None;
    for (finding, id) in findings.iter().zip(&ids) {
        if question != Some(finding.id.0) {
            question = Some(finding.id.0);
            table.heading(&format!("{}  {}", finding.id.0, finding.question));
            table.names(["id", "what was done", "what happened here", "on the recorded hardware", ""]);
        }
        let there = finding.reference.unwrap_or("not recorded");
        if finding.is_stricter {
            table.agreeing([id, finding.did, finding.here, there, "strict"]);
        } else if finding.agrees {
            table.agreeing([id, finding.did, finding.here, there, "agree"]);
        } else {
            table.differing([id, finding.did, finding.here, there, "differ"]);
        }
    }
    table.heading(&summary(findings, opened, reference));
    table.into_text()
}

fn summary(findings: &[Finding<'_>], opened: &Opened, reference: &Reference) -> String {
    let agree = findings.iter().filter(|finding| finding.agrees).count();
    let differ = findings.len() - agree;
    let stricter = match findings.iter().filter(|finding| finding.is_stricter).count() {
        0 => String::new(),
        count => format!(" ({count} as a fault that the hardware does not see)"),
    };
    let Reference { device, driver, .. } = reference;
    format!("{agree} agree{stricter}, {differ} differ; {}; recorded on {device}, driver {driver}", opened.why)
}

/// A reader that has seen enough and closes the pipe is no failure.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The answers of this device as a reference.
fn recorded(opened: &Opened, answers: BTreeMap<Id, String>) -> Reference {
    let release = match opened.kind {
        Kind::Soft => env!("CARGO_PKG_VERSION").to_owned(),
        Kind::Cuda => kernel_driver().unwrap_or_else(|| "unknown".to_owned()),
    };
    let device = device::name(&opened.api, opened.device).unwrap_or_else(|error| error.to_string());
    let cuda = driver::version(&opened.api)
        .map_or_else(|error| error.to_string(), |version| format!("{}.{}", version / 1000, version % 1000 / 10));
    Reference { device, driver: release, cuda, answers }
}

/// The release of NVIDIA's kernel module, the number that `nvidia-smi` calls the driver's.
fn kernel_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let release = text
        .split_whitespace()
        .find(|word| word.contains('.') && word.split('.').all(|number| number.parse::<u32>().is_ok()))?;
    Some(release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(texts: &[&str]) -> Result<Vec<String>, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let selected = select(&texts).map_err(|error| error.to_string())?;
        Ok(selected.iter().map(|experiment| experiment.id.to_string()).collect())
    }

    #[test]
    fn an_answer_agrees_with_the_same_answer() {
        assert!(agrees("SUCCESS", "SUCCESS"));
        assert!(agrees("killed by SIGSEGV", "killed by SIGSEGV"));
        assert!(!agrees("SUCCESS", "INVALID_VALUE"));
    }

    #[test]
    fn a_refusal_agrees_with_a_recorded_crash_and_nothing_else_does() {
        assert!(agrees("INVALID_HANDLE", "killed by SIGSEGV"));
        assert!(agrees("SUCCESS, then INVALID_HANDLE", "killed by SIGSEGV"));
        assert!(!agrees("SUCCESS", "killed by SIGSEGV"));
        assert!(!agrees("hung", "killed by SIGSEGV"));
        assert!(!agrees("killed by SIGABRT", "killed by SIGSEGV"));
        assert!(!agrees("killed by SIGSEGV", "INVALID_HANDLE"));
    }

    #[test]
    fn a_fault_is_stricter_than_a_recorded_success_and_than_nothing_else() {
        assert!(is_stricter("ILLEGAL_ADDRESS", "SUCCESS"));
        assert!(is_stricter("LAUNCH_FAILED", "SUCCESS"));
        assert!(!is_stricter("SUCCESS", "ILLEGAL_ADDRESS"));
        assert!(!is_stricter("SUCCESS", "SUCCESS"));
        assert!(!is_stricter("INVALID_VALUE", "SUCCESS"));
        assert!(!is_stricter("ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS"));
        assert!(!is_stricter("failed at cuMemFree_v2 with ILLEGAL_ADDRESS", "SUCCESS"));
    }

    #[test]
    fn only_an_experiment_that_says_so_may_be_stricter() {
        let reference = |id| Reference {
            device: String::new(),
            driver: String::new(),
            cuda: String::new(),
            answers: BTreeMap::from([(id, "SUCCESS".to_owned())]),
        };
        let agrees = |id| {
            let experiment = experiment::with_id(id).unwrap();
            findings(&[experiment], &["ILLEGAL_ADDRESS".to_owned()], &reference(id))[0].agrees
        };
        assert!(agrees(Id(5, 3, 3)));
        assert!(!agrees(Id(5, 3, 1)));
    }

    #[test]
    fn ids_ascend_so_that_no_two_experiments_share_one() {
        let ids: Vec<Id> = experiments().map(|experiment| experiment.id).collect();
        for pair in ids.windows(2) {
            assert!(pair[0] < pair[1], "{} comes before {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn every_experiment_belongs_to_one_of_the_seven_questions() {
        assert_eq!(questions_asked(), ["0", "1", "2", "3", "4", "5", "6"]);
        assert_eq!(QUESTIONS.len(), 7);
    }

    #[test]
    fn a_fact_selects_all_its_experiments() {
        assert_eq!(only(&["0.3"]), Ok(vec!["0.3.1".to_owned(), "0.3.2".to_owned()]));
    }

    #[test]
    fn several_ids_select_their_union_in_the_order_of_the_list() {
        assert_eq!(only(&["0.3.2", "0.3.1", "0.3"]), only(&["0.3"]));
    }

    #[test]
    fn an_unknown_number_names_what_its_fact_has() {
        assert_eq!(
            only(&["0.3.9"]),
            Err("no experiment has the id \"0.3.9\": 0.3 goes from 0.3.1 to 0.3.2".to_owned())
        );
    }

    #[test]
    fn an_unknown_question_names_the_questions() {
        assert_eq!(
            only(&["7.1"]),
            Err("no experiment has the id \"7.1\": the questions are 0, 1, 2, 3, 4, 5, 6".to_owned())
        );
    }
}
