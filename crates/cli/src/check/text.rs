//! The report as text, for a terminal or a log. Control characters in names of the program are shown as escapes, so that they
//! cannot change what the terminal shows.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use freehold_check::Finding;

use super::describe::{self, Place};
use super::program::{Exit, Outcome};
use super::report::Report;
use crate::output::table::TableStyle;
use crate::output::text::count;
use freehold_lab::signal_name;

/// How many findings are shown unless all are requested.
pub(super) const SHOWN: usize = 20;

const KIND: Style = AnsiColor::Red.on_default().bold();
const HEADING: Style = Style::new().bold();
const DETAIL: Style = Style::new().dimmed();
const ADVICE: Style = AnsiColor::Green.on_default();
const NOTE: Style = AnsiColor::Yellow.on_default();

/// Said in place of leaks.
pub(super) const LEAKS_UNKNOWN: &str =
    "leaks are not listed: after the fault of a kernel the program could not free anything";

/// How much is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Summary,
    /// At most [`SHOWN`] findings.
    Some,
    All,
}

/// Returns the report.
pub(super) fn text(report: &Report, extent: Extent, style: TableStyle) -> String {
    let mut page = Page { text: String::new(), style };
    if extent != Extent::Summary {
        let shown = if extent == Extent::All { report.findings.len() } else { SHOWN };
        for finding in report.findings.iter().take(shown) {
            page.finding(finding);
        }
        let more = report.findings.len().saturating_sub(shown);
        if more > 0 {
            let number = count(more as u64, "more finding");
            page.line(0, NOTE, &format!("{number}: --all shows them, and --json, --sarif and --html have them"));
        }
        page.notes(report);
    }
    if report.unreadable > 0 {
        let lines = count(report.unreadable, "line");
        page.line(0, KIND, &format!("{lines} in the file of findings cannot be read: another version wrote them"));
    }
    if let Some(search) = &report.search {
        page.line(0, NOTE, &search.sentence());
        search.replay(&report.program).iter().for_each(|command| page.line(1, DETAIL, command));
    }
    let style = if report.findings.is_empty() { Style::new() } else { KIND };
    page.line(0, style, &summary(report));
    page.text
}

/// Returns the summary, in one line.
pub(super) fn summary(report: &Report) -> String {
    let findings = report.findings.len() as u64;
    let found = match findings {
        0 if !report.is_checked => "nothing was checked: no process of the program used a CUDA device".to_owned(),
        0 => "no findings".to_owned(),
        _ => format!("{}: {}", count(findings, "finding"), describe::kinds(&report.findings)),
    };
    match report.suppressed.len() {
        0 => found,
        suppressed => format!("{found}; {suppressed} suppressed"),
    }
}

/// Returns how the program ended, if it did not exit with success.
pub(super) fn ending(outcome: Outcome) -> Option<String> {
    let how = match outcome.exit {
        Exit::Status(0) if !outcome.timed_out => return None,
        Exit::Status(status) => format!("exited with status {status}"),
        Exit::Signal(signal) => format!("was ended by {}", signal_name(signal)),
    };
    let why = if outcome.timed_out { " after its time was up" } else { "" };
    Some(format!("the program {how}{why}"))
}

struct Page {
    text: String,
    style: TableStyle,
}

impl Page {
    fn finding(&mut self, finding: &Finding) {
        let (kind, heading) = (self.style.style(KIND), self.style.style(HEADING));
        let times = describe::occurrences(finding).map_or_else(String::new, |times| format!(" ({times})"));
        let message = printable(&finding.message);
        writeln!(self.text, "{kind}{}:{kind:#} {heading}{message}{heading:#}{times}", finding.kind.name())
            .expect("a string can be written");
        for access in describe::accesses(finding) {
            self.place(1, HEADING, &access);
        }
        if let Some(memory) = &finding.memory {
            self.line(1, HEADING, &format!("memory: {}", describe::memory(memory)));
            for place in describe::lifetime(memory) {
                self.place(2, Style::new(), &place);
            }
        }
        if let Some(advice) = &finding.advice {
            self.line(1, ADVICE, &format!("advice: {advice}"));
        }
        self.text.push('\n');
    }

    fn place(&mut self, depth: usize, style: Style, place: &Place<'_>) {
        self.line(depth, style, &place.heading);
        if let Some(details) = &place.details {
            self.line(depth + 1, Style::new(), details);
        }
        for frame in place.stack {
            self.line(depth + 1, DETAIL, &describe::frame(frame));
        }
    }

    /// Says what is not about a finding.
    fn notes(&mut self, report: &Report) {
        // Of a status, the program has said why.
        let Outcome { exit, timed_out } = report.outcome;
        if let Some(ending) = ending(report.outcome).filter(|_| timed_out || matches!(exit, Exit::Signal(_))) {
            self.line(0, NOTE, &ending);
        }
        if report.are_leaks_unknown {
            self.line(0, NOTE, LEAKS_UNKNOWN);
        }
        for suppression in &report.unused {
            let told = format!("{}: the suppression {} never matched", suppression.place, suppression.text());
            self.line(0, NOTE, &told);
        }
    }

    fn line(&mut self, depth: usize, style: Style, text: &str) {
        let (style, indent, text) = (self.style.style(style), "  ".repeat(depth), printable(text));
        writeln!(self.text, "{indent}{style}{text}{style:#}").expect("a string can be written");
    }
}

/// Returns text without control characters, and without those that change the direction of text.
fn printable(text: &str) -> String {
    let is_harmful = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            harmful if is_harmful(harmful) => shown.extend(harmful.escape_default()),
            plain => shown.push(plain),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::samples::{leak, race, report};
    use super::super::search;
    use super::*;
    use freehold_check::Kind;

    const PLAIN: TableStyle = TableStyle { columns: 120, colour: false };

    const GOLDEN: &str = "\
stream-race: scale writes bytes that cuMemcpyDtoHAsync reads (2 times)
  scale(float*, int) writes 4 bytes
    at saxpy.cu:31, PTX line 58, block (1,0,0), thread (5,0,0), stream 2, work 7
    step(int) at saxpy.cu:80
    in saxpy+0x1234
  cuMemcpyDtoHAsync reads 1024 bytes
    stream 1, work 3
    main at saxpy.cu:92
  memory: 20 bytes into a block of 1024 bytes at 0x200000000200
    allocated by cuMemAlloc
      main at saxpy.cu:70
  advice: Record an event in stream 1 after the copy, and let stream 2 wait for it.

leak: 1024 bytes were not freed
  memory: a block of 1024 bytes at 0x200000000200
    allocated by cuMemAlloc
      main at saxpy.cu:70

the program was ended by SIGSEGV
my.supp:2: the suppression leak:none never matched
2 findings: 1 stream-race, 1 leak; 1 suppressed
";

    #[test]
    fn the_text_has_everything_in_this_order() {
        assert_eq!(text(&report(), Extent::Some, PLAIN), GOLDEN);
    }

    #[test]
    fn it_is_said_why_leaks_are_missing() {
        let mut report = report();
        report.are_leaks_unknown = true;
        let told = "\nleaks are not listed: after the fault of a kernel the program could not free anything\n";
        assert!(text(&report, Extent::Some, PLAIN).contains(told));
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let coloured = text(&report(), Extent::Some, TableStyle { columns: 120, colour: true });
        assert!(coloured.starts_with("\x1b[1m\x1b[31mstream-race:\x1b[0m \x1b[1mscale writes"), "{coloured:?}");
        let mut plain = String::new();
        for part in coloured.split('\x1b') {
            plain.push_str(part.strip_prefix('[').map_or(part, |rest| &rest[rest.find('m').unwrap() + 1..]));
        }
        assert_eq!(plain, GOLDEN);
    }

    #[test]
    fn the_summary_alone_is_one_line() {
        assert_eq!(text(&report(), Extent::Summary, PLAIN), "2 findings: 1 stream-race, 1 leak; 1 suppressed\n");
        let mut report = report();
        report.findings.clear();
        assert_eq!(text(&report, Extent::Summary, PLAIN), "no findings; 1 suppressed\n");
        report.suppressed.clear();
        report.findings.push(leak());
        assert_eq!(text(&report, Extent::Summary, PLAIN), "1 finding: 1 leak\n");
        report.unreadable = 2;
        let told = "2 lines in the file of findings cannot be read: another version wrote them\n1 finding: 1 leak\n";
        assert_eq!(text(&report, Extent::Summary, PLAIN), told);
    }

    #[test]
    fn the_schedule_that_shows_it_and_the_command_come_before_the_summary() {
        let mut report = report();
        report.search = Some(search::sample());
        let expected = "\
shown by FREEHOLD_SOFT_SCHEDULE=seed:18,switches:1 (1 switch): exit status 1 instead of exit status 0
  FREEHOLD_SOFT_SCHEDULE=seed:18,switches:1 freehold run --device soft -- ./saxpy 'two words'
2 findings: 1 stream-race, 1 leak; 1 suppressed
";
        assert_eq!(text(&report, Extent::Summary, PLAIN), expected);
        assert!(text(&report, Extent::Some, PLAIN).ends_with(expected));
    }

    #[test]
    fn twenty_findings_are_shown_unless_all_are_requested() {
        let mut report = report();
        report.findings = vec![leak(); 23];
        let headlines = |text: &str| text.lines().filter(|line| line.starts_with("leak: ")).count();
        let some = text(&report, Extent::Some, PLAIN);
        assert_eq!(headlines(&some), 20);
        assert!(some.contains("\n3 more findings: --all shows them, and"), "{some}");
        let all = text(&report, Extent::All, PLAIN);
        assert_eq!(headlines(&all), 23);
        assert!(!all.contains("more finding"), "{all}");
        report.findings.truncate(20);
        assert!(!text(&report, Extent::Some, PLAIN).contains("more finding"));
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let mut report = report();
        let mut hostile = race();
        hostile.message = "two\nlines \x1b[2J".to_owned();
        hostile.access.as_mut().unwrap().location.function = "a\rb\u{202e}c\u{9b}d\u{e9}".to_owned();
        report.findings = vec![hostile];
        let text = text(&report, Extent::All, PLAIN);
        assert!(
            text.starts_with("stream-race: two\\nlines \\u{1b}[2J\n  a\\rb\\u{202e}c\\u{9b}d\u{e9} writes"),
            "{text}"
        );
    }

    #[test]
    fn the_end_of_a_program_is_told_unless_it_is_success() {
        let told = |exit, timed_out| ending(Outcome { exit, timed_out });
        assert_eq!(told(Exit::Status(0), false), None);
        assert_eq!(told(Exit::Status(0), true).unwrap(), "the program exited with status 0 after its time was up");
        assert_eq!(told(Exit::Status(3), false).unwrap(), "the program exited with status 3");
        assert_eq!(told(Exit::Signal(9), true).unwrap(), "the program was ended by SIGKILL after its time was up");
    }

    #[test]
    fn without_findings_there_is_one_line() {
        let mut report = report();
        (report.findings, report.suppressed, report.unused) = (Vec::new(), Vec::new(), Vec::new());
        report.outcome.exit = Exit::Status(3);
        assert_eq!(text(&report, Extent::Some, PLAIN), "no findings\n");
    }

    #[test]
    fn a_finding_without_details_is_its_headline() {
        let mut report = report();
        report.findings = vec![Finding::new(Kind::KernelFault, "a trap")];
        assert!(text(&report, Extent::All, PLAIN).starts_with("kernel-fault: a trap\n\nthe program"));
    }
}
