//! The report as one JSON document.

use freehold_check::Finding;
use serde::Serialize;

use super::report::{Report, Suppressed};
use super::search::Search;
use crate::output::text;

/// The version of the document's form.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    program: &'a [String],
    /// The program's, as in shells.
    status: u8,
    timed_out: bool,
    findings: &'a [Finding],
    suppressed: &'a [Suppressed],
    /// How many lines of the file of findings are not findings.
    unreadable: u64,
    /// Whether a process of the program has used CUDA.
    checked: bool,
    /// Whether leaks are not listed because of a fault.
    leaks_unknown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<&'a Search>,
}

/// Returns the document, as one line.
pub(super) fn json(report: &Report) -> String {
    let Report { program, outcome, findings, suppressed, unreadable, is_checked, are_leaks_unknown, .. } = report;
    let (status, timed_out) = (outcome.status(), outcome.timed_out);
    let (unreadable, checked, search) = (*unreadable, *is_checked, report.search.as_ref());
    text::json(&Document {
        version: VERSION,
        program,
        status,
        timed_out,
        findings,
        suppressed,
        unreadable,
        checked,
        leaks_unknown: *are_leaks_unknown,
        search,
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::report;
    use super::super::search;
    use super::*;
    use serde_json::Value;

    #[test]
    fn findings_are_as_they_were_written_and_suppressed_ones_have_their_suppression() {
        let mut report = report();
        report.unreadable = 2;
        let text = json(&report);
        assert_eq!(text.lines().count(), 1);
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["version"], 1);
        assert_eq!(document["program"][1], "two words");
        assert_eq!(document["status"], 139);
        assert_eq!(document["timed_out"], false);
        assert_eq!(document["unreadable"], 2);
        let findings: Vec<Finding> = serde_json::from_value(document["findings"].clone()).unwrap();
        assert_eq!(findings, report.findings);
        assert_eq!(document["findings"][0]["count"], 2);
        assert_eq!(document["suppressed"][0]["suppression"], "leak:cuMemAllocHost");
        assert_eq!(document["suppressed"][0]["kind"], "leak");
        assert_eq!(document["suppressed"].as_array().unwrap().len(), 1);
        assert!(document.get("search").is_none());
    }

    #[test]
    fn a_search_has_its_runs_and_the_schedule() {
        let mut report = report();
        report.search = Some(search::sample());
        let document: Value = serde_json::from_str(&json(&report)).unwrap();
        let shown = &document["search"]["shown"];
        assert_eq!((&document["search"]["runs"], &shown["switches"]), (&20.into(), &1.into()));
        assert_eq!(shown["schedule"], "seed:18,switches:1");
        assert_eq!(shown["difference"], "exit status 1 instead of exit status 0");
    }
}
