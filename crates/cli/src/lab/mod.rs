//! The lab: experiments that say what a driver does, beside what a recorded device did.
//!
//! This file owns the command: what is selected, what is compared, what is printed. It calls no driver: each
//! experiment runs in a process of its own (`runner` starts it, `child` is it).

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use freehold::open::OpenError;
use freehold_driver::cuda::CUerror;
use serde::Serialize;

use self::answer_text::error_name;
use self::experiment::ExperimentInfo;
use self::id::{Id, IdPrefix, OPENCL};
use self::reference::{Reference, ReferenceError, ReferenceWriter};
use self::table::{Table, TableStyle};
use self::target::{Target, question};
use self::trace::{Trace, TraceError};

pub(crate) mod child;
pub(crate) mod table;

mod answer_text;
mod cpu_time;
mod experiment;
mod fixture;
mod free_memory;
mod host_buffer;
mod id;
mod kernels;
mod latch;
mod mapped;
mod opencl;
mod output_capture;
mod partner;
mod partner_request;
mod reference;
mod runner;
mod shared_host;
mod target;
mod trace;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Only these experiments: an id, or the front of some (2, 2.2, 2.2.1; of OpenCL o.2, o.2.1)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// The device: soft, cuda, cuda:N, opencl or opencl:N; without it FREEHOLD_DEVICE, or an NVIDIA GPU if there is one
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
    #[error("no experiment has the id {text:?} on this device: it is a question to OpenCL, for --device opencl")]
    OfOpenCl { text: String },
    #[error(
        "no answers of the OpenCL platform {platform:?} are built in: record some with --record FILE, or name others with --reference FILE"
    )]
    NeverRecorded { platform: String },
    #[error("--trace: calls of OpenCL cannot be traced; leave it out, or name a CUDA device")]
    Untraceable,
    #[error("experiment {id} did not begin: {said}")]
    NotBegun { id: Id, said: String },
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
    let reference = arguments.reference.as_deref().map(Reference::read).transpose()?;
    let mut target = Target::open(arguments.device.as_deref())?;
    let selected = select(&target.experiments, &arguments.only)?;
    if arguments.trace.is_some() && target.record.opencl.is_some() {
        return Err(LabError::Untraceable);
    }
    let reference = reference.or_else(|| target.built_in.take());
    if reference.is_none() && arguments.record.is_none() {
        let platform = target.record.opencl.clone().unwrap_or_default();
        return Err(LabError::NeverRecorded { platform });
    }
    let record = arguments.record.as_deref().map(ReferenceWriter::create).transpose()?;

    let trace = arguments.trace.as_deref().map(Trace::create).transpose()?;

    let answers = runner::answers(&selected, &target, trace.as_ref())?;

    if let Some(trace) = trace {
        trace.finish()?;
    }
    if let Some(record) = record {
        record.finish(&recorded(&selected, &answers, &target))?;
    }
    // What is recorded for the first time agrees with itself.
    let reference = reference.unwrap_or_else(|| recorded(&selected, &answers, &target));
    let findings = findings(&selected, &answers, &reference);
    let text = if arguments.json { json(&findings) } else { table(&findings, &target.why, &reference) };
    print(&text).map_err(LabError::Print)?;
    Ok(findings.iter().all(|finding| finding.agrees))
}

/// What is recorded of a device.
fn recorded(selected: &[ExperimentInfo], answers: &[String], target: &Target) -> Reference {
    let given = selected.iter().zip(answers).map(|(experiment, answer)| (experiment.id, answer.clone()));
    Reference { answers: given.collect(), ..target.record.clone() }
}

/// The experiments that `only` names, all where it names none.
fn select(all: &[ExperimentInfo], only: &[String]) -> Result<Vec<ExperimentInfo>, LabError> {
    let parts = only.iter().map(|text| parse_prefix(all, text)).collect::<Result<Vec<_>, _>>()?;
    let wanted = |asked: &&ExperimentInfo| parts.is_empty() || parts.iter().any(|part| part.matches(asked.id));
    Ok(all.iter().filter(wanted).copied().collect())
}

/// The part that `text` names, where it holds an experiment.
fn parse_prefix(all: &[ExperimentInfo], text: &str) -> Result<IdPrefix, LabError> {
    let unknown = |hint: String| LabError::UnknownId { text: text.to_owned(), hint };
    let is_opencl = all.iter().all(|asked| asked.id.0 == OPENCL);
    let Ok(part) = text.parse::<IdPrefix>() else {
        let hint = if is_opencl { "ids look like o, o.2 or o.2.1" } else { "ids look like 2, 2.2 or 2.2.1" };
        return Err(unknown(hint.to_owned()));
    };
    if all.iter().any(|asked| part.matches(asked.id)) {
        return Ok(part);
    }
    if !is_opencl && opencl::all().iter().any(|experiment| part.matches(experiment.id)) {
        return Err(LabError::OfOpenCl { text: text.to_owned() });
    }
    let mut above = part.parent();
    while let Some(near) = above {
        let ids: Vec<Id> = all.iter().map(|asked| asked.id).filter(|&id| near.matches(id)).collect();
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            return Err(unknown(format!("{near} goes from {first} to {last}")));
        }
        above = near.parent();
    }
    Err(unknown(format!("the questions are {}", questions_asked(all).join(", "))))
}

/// The questions that have an experiment.
fn questions_asked(all: &[ExperimentInfo]) -> Vec<String> {
    let mut questions: Vec<String> = all.iter().map(|asked| question(asked.id).0).collect();
    questions.dedup();
    questions
}

fn findings<'a>(selected: &[ExperimentInfo], answers: &'a [String], reference: &'a Reference) -> Vec<Finding<'a>> {
    selected
        .iter()
        .zip(answers)
        .map(|(&ExperimentInfo { id, did }, here)| {
            let reference = reference.answers.get(&id).map(String::as_str);
            let is_stricter =
                experiment::is_unchecked(id) && reference.is_some_and(|recorded| is_stricter(here, recorded));
            let agrees = is_stricter || reference.is_some_and(|recorded| agrees(here, recorded));
            Finding { id, question: question(id).1, did, here, reference, agrees, is_stricter }
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

fn table(findings: &[Finding<'_>], why: &str, reference: &Reference) -> String {
    let ids: Vec<String> = findings.iter().map(|finding| finding.id.to_string()).collect();
    let id_columns = ids.iter().map(String::len).max().unwrap_or(0).max("id".len());
    let mut table = Table::new(TableStyle::for_stdout(), id_columns);
    table.paragraph(why);
    let mut heading = None;
    for (finding, id) in findings.iter().zip(&ids) {
        if heading != Some(finding.question) {
            heading = Some(finding.question);
            table.heading(&format!("{}  {}", question(finding.id).0, finding.question));
            table.names(["id", "what was done", "what happened here", "on the recorded hardware", ""]);
        }
        let there = finding.reference.unwrap_or("not recorded");
        if finding.is_stricter {
            table.agreement([id, finding.did, finding.here, there, "strict"]);
        } else if finding.agrees {
            table.agreement([id, finding.did, finding.here, there, "agree"]);
        } else {
            table.difference([id, finding.did, finding.here, there, "differ"]);
        }
    }
    table.heading(&summary(findings, why, reference));
    table.into_text()
}

fn summary(findings: &[Finding<'_>], why: &str, reference: &Reference) -> String {
    let agree = findings.iter().filter(|finding| finding.agrees).count();
    let differ = findings.len() - agree;
    let stricter = match findings.iter().filter(|finding| finding.is_stricter).count() {
        0 => String::new(),
        count => format!(" ({count} as a fault that the hardware does not see)"),
    };
    let Reference { device, driver, .. } = reference;
    format!("{agree} agree{stricter}, {differ} differ; {why}; recorded on {device}, driver {driver}")
}

/// A reader that has seen enough and closes the pipe is no failure.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn cuda() -> Vec<ExperimentInfo> {
        experiment::all().into_iter().map(|experiment| experiment.info()).collect()
    }

    fn opencl() -> Vec<ExperimentInfo> {
        super::opencl::all().into_iter().map(|experiment| experiment.info()).collect()
    }

    fn only(texts: &[&str]) -> Result<Vec<String>, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let selected = select(&cuda(), &texts).map_err(|error| error.to_string())?;
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
    fn only_unchecked_experiments_may_be_stricter() {
        let reference = |id| Reference {
            device: String::new(),
            driver: String::new(),
            cuda: None,
            opencl: None,
            answers: BTreeMap::from([(id, "SUCCESS".to_owned())]),
        };
        let agrees = |id| {
            let experiment = experiment::with_id(id).unwrap().info();
            findings(&[experiment], &["ILLEGAL_ADDRESS".to_owned()], &reference(id))[0].agrees
        };
        assert!(agrees(Id(5, 3, 3)));
        assert!(!agrees(Id(5, 3, 1)));
    }

    #[test]
    fn ids_ascend_so_that_no_two_experiments_share_one() {
        for all in [cuda(), opencl()] {
            for pair in all.windows(2) {
                assert!(pair[0].id < pair[1].id, "{} comes before {}", pair[0].id, pair[1].id);
            }
        }
    }

    #[test]
    fn every_experiment_belongs_to_one_of_the_seven_questions() {
        assert_eq!(questions_asked(&cuda()), ["0", "1", "2", "3", "4", "5", "6"]);
        assert_eq!(experiment::QUESTIONS.len(), 7);
    }

    #[test]
    fn every_experiment_of_opencl_belongs_to_one_of_its_nine() {
        let nine = ["o.1", "o.2", "o.3", "o.4", "o.5", "o.6", "o.7", "o.8", "o.9"];
        assert_eq!(questions_asked(&opencl()), nine);
        assert_eq!(target::OPENCL_QUESTIONS.len(), 9);
    }

    #[test]
    fn cuda_and_opencl_ids_are_disjoint() {
        assert_eq!(
            only(&["o.1"]),
            Err("no experiment has the id \"o.1\" on this device: it is a question to OpenCL, for --device opencl"
                .to_owned())
        );
        let said = |text: &str| select(&opencl(), &[text.to_owned()]).unwrap_err().to_string();
        assert_eq!(
            said("2.2"),
            "no experiment has the id \"2.2\": the questions are o.1, o.2, o.3, o.4, o.5, o.6, o.7, o.8, o.9"
        );
        assert_eq!(said("x"), "no experiment has the id \"x\": ids look like o, o.2 or o.2.1");
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
