//! The lab: experiments that show what a driver does, compared with a recorded device.
//!
//! This file owns the command: selection, comparison and output. `freehold_lab` has the experiments.

use std::path::PathBuf;
use std::process::ExitCode;

use freehold_driver::cuda::CUerror;
use freehold_lab::{
    ExperimentInfo, Id, IdPrefix, OPENCL, Reference, ReferenceWriter, Target, Trace, answers, error_name, is_unchecked,
    opencl_experiments, question,
};
use serde::Serialize;

use self::error::LabError;
use self::runtime_library::FoundRuntime;
use self::table::Table;
use crate::output::progress;
use crate::output::table::TableStyle;
use crate::output::text::print;

mod error;
mod runtime_library;
mod table;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Only these experiments: an id, or the start of one (2, 2.2, 2.2.1; for OpenCL o.2, o.2.1); separated by commas
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// The same as --only
    #[arg(value_name = "ID", value_delimiter = ',', conflicts_with = "only")]
    ids: Vec<String>,
    /// Device: soft, soft:N, cuda, cuda:N, opencl or opencl:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software
    /// device]
    #[arg(long)]
    device: Option<String>,
    /// The CUDA runtime that experiments of 7 ask: a library's path, its name for the dynamic linker, or freehold for
    /// the one within this program [default: on a GPU libcudart.so.13, if it is found; else freehold]
    #[arg(long, value_name = "LIBRARY")]
    runtime: Option<String>,
    /// Write the answers of this device to FILE, as a reference
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Compare with the answers in FILE instead of the built-in record
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Write every driver call of every experiment to FILE, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// One experiment with its answers, as printed by `--json`.
#[derive(Serialize)]
struct Finding<'a> {
    id: Id,
    question: &'static str,
    did: &'static str,
    here: &'a str,
    reference: Option<&'a str>,
    agrees: bool,
    /// It agrees because it reports an invalid access that hardware does not check.
    #[serde(skip)]
    is_stricter: bool,
}

/// Exits with status 0 if all answers agree, 1 if one differs or the answers cannot be printed, 2 if the lab could not run.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match compare(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, LabError::Print(_)) { 1 } else { 2 })
        }
    }
}

/// Returns whether all selected answers agree.
fn compare(arguments: &Arguments) -> Result<bool, LabError> {
    let reference = arguments.reference.as_deref().map(Reference::read).transpose()?;
    let mut target = Target::open(arguments.device.as_deref())?;
    let wanted = if arguments.ids.is_empty() { &arguments.only } else { &arguments.ids };
    let selected = select(&target.experiments, wanted)?;
    if arguments.trace.is_some() && target.record.opencl.is_some() {
        return Err(LabError::Untraceable);
    }
    let runtime = runtime_of(&target, &selected, arguments.runtime.as_deref())?;
    if let Some(runtime) = &runtime {
        if runtime.is_fallback && arguments.record.is_some() {
            return Err(LabError::NoRuntimeToRecord);
        }
        target.why = format!("{}; {}", target.why, runtime.why);
    }
    let reference = reference.or_else(|| target.built_in.take());
    if reference.is_none() && arguments.record.is_none() {
        let platform = target.record.opencl.clone().unwrap_or_default();
        return Err(LabError::NeverRecorded { platform });
    }
    let record = arguments.record.as_deref().map(ReferenceWriter::create).transpose()?;

    let trace = arguments.trace.as_deref().map(Trace::create).transpose()?;

    let answers = {
        let progress = progress::bar(selected.len() as u64, progress::STEPS);
        let library = runtime.as_ref().map(|found| &found.library);
        let answers = answers(&selected, &target, library, trace.as_ref(), &progress)?;
        progress.finish_and_clear();
        answers
    };

    if let Some(trace) = trace {
        trace.finish()?;
    }
    if let Some(record) = record {
        record.finish(&recorded(&selected, &answers, &target))?;
    }
    // A first record agrees with itself.
    let reference = reference.unwrap_or_else(|| recorded(&selected, &answers, &target));
    let findings = findings(&selected, &answers, &reference);
    let text = if arguments.json { json(&findings) } else { table(&findings, &target.why, &reference) };
    print(text).map_err(LabError::Print)?;
    Ok(findings.iter().all(|finding| finding.agrees))
}

/// Returns the CUDA runtime for the selected experiments, if one of them needs it.
fn runtime_of(
    target: &Target,
    selected: &[ExperimentInfo],
    requested: Option<&str>,
) -> Result<Option<FoundRuntime>, LabError> {
    match target.cuda {
        None if requested.is_some() => Err(LabError::RuntimeOfOpenCl),
        Some((kind, ordinal)) if selected.iter().any(|asked| asked.id.0 == freehold_lab::RUNTIME) => {
            Ok(Some(FoundRuntime::find(requested, kind, ordinal)?))
        }
        _ => Ok(None),
    }
}

/// Returns the record of a device.
fn recorded(selected: &[ExperimentInfo], answers: &[String], target: &Target) -> Reference {
    let given = selected.iter().zip(answers).map(|(experiment, answer)| (experiment.id, answer.clone()));
    Reference { answers: given.collect(), ..target.record.clone() }
}

/// Returns the experiments that `only` selects; without any, all.
fn select(all: &[ExperimentInfo], only: &[String]) -> Result<Vec<ExperimentInfo>, LabError> {
    let parts = only.iter().map(|text| parse_prefix(all, text)).collect::<Result<Vec<_>, _>>()?;
    let wanted = |asked: &&ExperimentInfo| parts.is_empty() || parts.iter().any(|part| part.matches(asked.id));
    Ok(all.iter().filter(wanted).copied().collect())
}

/// Parses a prefix that selects at least one experiment.
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
    if !is_opencl && opencl_experiments().iter().any(|experiment| part.matches(experiment.id)) {
        return Err(LabError::OfOpenCl { text: text.to_owned() });
    }
    let mut above = part.parent();
    while let Some(near) = above {
        let ids: Vec<Id> = all.iter().map(|asked| asked.id).filter(|&id| near.matches(id)).collect();
        if let (Some(first), Some(last)) = (ids.first(), ids.last()) {
            return Err(unknown(format!("{near} has {first} to {last}")));
        }
        above = near.parent();
    }
    Err(unknown(format!("expected one that starts with {}", questions_asked(all).join(", "))))
}

/// Returns the questions that have an experiment.
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
            let is_stricter = is_unchecked(id) && reference.is_some_and(|recorded| is_stricter(here, recorded));
            let agrees = is_stricter || reference.is_some_and(|recorded| agrees(here, recorded));
            Finding { id, question: question(id).1, did, here, reference, agrees, is_stricter }
        })
        .collect()
}

/// Returns whether an answer agrees with the recorded one.
///
/// If the recorded driver crashed, CUDA does not define what the call does: a driver that returns an error agrees too.
fn agrees(here: &str, recorded: &str) -> bool {
    let crashed = |answer: &str| answer.starts_with("killed by ");
    let is_error =
        |last: &str| last.starts_with("cudaError") || CUerror::ALL.iter().any(|&code| error_name(code) == last);
    let refused = here.split([' ', ',']).next_back().is_some_and(is_error);
    here == recorded || crashed(recorded) && !crashed(here) && refused
}

/// Returns whether an answer is a fault where the recorded one is not. For an experiment whose invalid access hardware
/// does not check, that agrees: a device that checks every access must report it.
fn is_stricter(here: &str, recorded: &str) -> bool {
    let faults = [CUerror::ILLEGAL_ADDRESS, CUerror::INVALID_ADDRESS_SPACE, CUerror::LAUNCH_FAILED];
    recorded == "SUCCESS" && faults.iter().any(|&fault| error_name(fault) == here)
}

fn json(findings: &[Finding<'_>]) -> String {
    let line = |finding| serde_json::to_string(finding).expect("a finding holds only strings");
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
        count => format!(" ({count} as a fault that hardware does not check)"),
    };
    let Reference { device, driver, .. } = reference;
    format!("{agree} agree{stricter}, {differ} differ; {why}; recorded on {device}, driver {driver}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn cuda() -> Vec<ExperimentInfo> {
        freehold_lab::cuda_experiments()
    }

    fn opencl() -> Vec<ExperimentInfo> {
        opencl_experiments()
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
        assert!(agrees("cudaSuccess, cudaErrorInvalidValue", "killed by SIGSEGV"));
        assert!(!agrees("cudaErrorInvalidValue, cudaSuccess", "killed by SIGSEGV"));
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
            let experiment = cuda().into_iter().find(|experiment| experiment.id == id).unwrap();
            findings(&[experiment], &["ILLEGAL_ADDRESS".to_owned()], &reference(id))[0].agrees
        };
        assert!(agrees(Id(5, 3, 3)));
        assert!(!agrees(Id(5, 3, 1)));
    }

    #[test]
    fn ids_ascend_so_that_no_two_experiments_share_one() {
        for all in [cuda(), opencl()] {
            for pair in all.windows(2) {
                assert!(pair[0].id < pair[1].id, "{} must come before {}", pair[0].id, pair[1].id);
            }
        }
    }

    #[test]
    fn every_experiment_belongs_to_one_of_the_eight_questions() {
        assert_eq!(questions_asked(&cuda()), ["0", "1", "2", "3", "4", "5", "6", "7"]);
        assert_eq!(freehold_lab::QUESTIONS.len(), 8);
    }

    #[test]
    fn every_experiment_of_opencl_belongs_to_one_of_its_nine() {
        let nine = ["o.1", "o.2", "o.3", "o.4", "o.5", "o.6", "o.7", "o.8", "o.9"];
        assert_eq!(questions_asked(&opencl()), nine);
        assert_eq!(freehold_lab::OPENCL_QUESTIONS.len(), 9);
    }

    #[test]
    fn cuda_and_opencl_ids_are_disjoint() {
        assert_eq!(
            only(&["o.1"]),
            Err("no experiment has the id \"o.1\" on this device: OpenCL experiments need --device opencl".to_owned())
        );
        let said = |text: &str| select(&opencl(), &[text.to_owned()]).unwrap_err().to_string();
        assert_eq!(
            said("2.2"),
            "no experiment has the id \"2.2\": expected one that starts with o.1, o.2, o.3, o.4, o.5, o.6, o.7, o.8, o.9"
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
        assert_eq!(only(&["0.3.9"]), Err("no experiment has the id \"0.3.9\": 0.3 has 0.3.1 to 0.3.2".to_owned()));
    }

    #[test]
    fn an_unknown_question_names_the_questions() {
        assert_eq!(
            only(&["8.1"]),
            Err("no experiment has the id \"8.1\": expected one that starts with 0, 1, 2, 3, 4, 5, 6, 7".to_owned())
        );
    }
}
