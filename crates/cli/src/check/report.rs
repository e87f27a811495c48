//! What all forms of the report are written from.

use freehold_check::{Finding, Kind};
use serde::Serialize;

use super::findings_file::Lines;
use super::fold::fold;
use super::program::Outcome;
use super::search::Search;
use super::suppressions::{self, Suppression};

pub(super) struct Report {
    /// The program and its arguments.
    pub(super) program: Vec<String>,
    pub(super) outcome: Outcome,
    /// Folded, in the order of their first occurrence.
    pub(super) findings: Vec<Finding>,
    pub(super) suppressed: Vec<Suppressed>,
    /// The suppressions that matched nothing.
    pub(super) unused: Vec<Suppression>,
    /// How many lines of the file of findings are not findings.
    pub(super) unreadable: u64,
    /// Whether a process of the program has used CUDA.
    pub(super) is_checked: bool,
    /// Whether a process cannot tell what it has not freed.
    pub(super) are_leaks_unknown: bool,
    /// What came of the search for a schedule that shows them.
    pub(super) search: Option<Search>,
}

/// A finding that a suppression matches.
#[derive(Serialize)]
pub(super) struct Suppressed {
    /// The line of the file of suppressions.
    pub(super) suppression: String,
    #[serde(flatten)]
    pub(super) finding: Finding,
}

impl Report {
    /// Separates what is suppressed, selects kinds (all if none is named), and folds.
    pub(super) fn new(
        program: Vec<String>,
        outcome: Outcome,
        lines: Lines,
        mut suppressions: Vec<Suppression>,
        kinds: &[Kind],
    ) -> Self {
        let is_selected = |finding: &Finding| kinds.is_empty() || kinds.contains(&finding.kind);
        let (mut found, mut hidden) = (Vec::new(), Vec::new());
        for finding in lines.findings {
            // One of another kind still shows that its suppression is used.
            let is_suppressed = suppressions::apply(&mut suppressions, &finding).is_some();
            if is_selected(&finding) {
                if is_suppressed { hidden.push(finding) } else { found.push(finding) }
            }
        }
        let with_suppression = |finding: Finding| {
            let suppression = suppressions::apply(&mut suppressions, &finding).expect("one has matched it");
            Suppressed { suppression, finding }
        };
        let suppressed = fold(hidden).into_iter().map(with_suppression).collect();
        suppressions.retain(|suppression| !suppression.is_used);
        let Lines { unreadable, is_checked, are_leaks_unknown, .. } = lines;
        Self {
            program,
            outcome,
            findings: fold(found),
            suppressed,
            unused: suppressions,
            unreadable,
            is_checked,
            are_leaks_unknown,
            search: None,
        }
    }

    /// Returns the exit status: 1 if there is something that the user must see, else that of the program.
    pub(super) fn status(&self) -> u8 {
        if self.findings.is_empty() && self.unreadable == 0 { self.outcome.status() } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::Exit;
    use super::super::samples::{leak, race, suppressions};
    use super::*;

    fn report(findings: Vec<Finding>, lines: &str, kinds: &[Kind]) -> Report {
        let outcome = Outcome { exit: Exit::Status(3), timed_out: false };
        Report::new(
            Vec::new(),
            outcome,
            Lines { findings, is_checked: true, ..Lines::default() },
            suppressions(lines),
            kinds,
        )
    }

    #[test]
    fn what_is_suppressed_is_folded_apart_and_named() {
        let report = report(vec![race(), leak(), leak()], "leak:cuMemAlloc\nleak:*\nleak:none", &[]);
        assert_eq!(report.findings, [race()]);
        assert_eq!(report.suppressed.len(), 1);
        assert_eq!(
            (report.suppressed[0].suppression.as_str(), report.suppressed[0].finding.count),
            ("leak:cuMemAlloc", 2)
        );
        assert_eq!(report.unused.iter().map(Suppression::text).collect::<Vec<_>>(), ["leak:none"]);
        assert_eq!(report.status(), 1);
    }

    #[test]
    fn only_selected_kinds_are_reported_and_others_use_their_suppressions() {
        let report = report(vec![race(), leak()], "leak:*", &[Kind::HostRace]);
        assert!(report.findings.is_empty() && report.suppressed.is_empty() && report.unused.is_empty());
        assert_eq!(report.status(), 3);
    }

    #[test]
    fn what_cannot_be_read_is_not_success() {
        let mut report = report(vec![leak()], "leak:*", &[]);
        assert_eq!(report.status(), 3);
        report.unreadable = 1;
        assert_eq!(report.status(), 1);
    }
}
