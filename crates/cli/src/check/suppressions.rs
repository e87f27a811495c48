//! Files of suppressions. A line `kind:pattern` suppresses findings of the kind, or of all kinds (`*`), if the pattern matches a
//! name in the finding: a function, a source line, or an object file of either access, of the allocation or of the free.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use freehold_check::{Finding, Kind, Location};

use super::{describe, kinds};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suppression {
    /// `None` for all kinds.
    kind: Option<Kind>,
    pattern: String,
    /// The file and the number of the line.
    pub(super) place: String,
    /// Whether it has matched a finding.
    pub(super) is_used: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SuppressionError {
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{place}: {wrong}")]
    Line { place: String, wrong: String },
}

impl Suppression {
    fn parse(line: &str, place: String) -> Result<Option<Self>, SuppressionError> {
        let line = without_comment(line).trim();
        if line.is_empty() {
            return Ok(None);
        }
        let refused = |wrong| SuppressionError::Line { place: place.clone(), wrong };
        let parts = line.split_once(':').map(|(kind, pattern)| (kind.trim(), pattern.trim()));
        let Some((kind, pattern)) = parts.filter(|(kind, pattern)| !kind.is_empty() && !pattern.is_empty()) else {
            return Err(refused(format!("expected kind:pattern or *:pattern, found {line:?}")));
        };
        let kind = if kind == "*" { None } else { Some(kinds::parse(kind).map_err(refused)?) };
        Ok(Some(Self { kind, pattern: pattern.to_owned(), place, is_used: false }))
    }

    /// Returns it as in its file.
    pub(super) fn text(&self) -> String {
        format!("{}:{}", self.kind.map_or("*", Kind::name), self.pattern)
    }

    fn matches(&self, finding: &Finding) -> bool {
        self.kind.is_none_or(|kind| kind == finding.kind)
            && names(finding).into_iter().any(|name| is_match(&self.pattern, name))
    }
}

/// Reads files, in order.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Suppression>, SuppressionError> {
    let mut all = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path).map_err(|source| SuppressionError::Read { path: path.clone(), source })?;
        all.extend(parse(&text, path)?);
    }
    Ok(all)
}

/// Reads the lines of a file.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<Suppression>, SuppressionError> {
    let lines = text.lines().zip(1..);
    lines
        .filter_map(|(line, number)| Suppression::parse(line, format!("{}:{number}", path.display())).transpose())
        .collect()
}

/// Returns the text of the first suppression that matches a finding. Marks all that do.
pub(super) fn apply(all: &mut [Suppression], finding: &Finding) -> Option<String> {
    let mut first = None;
    for suppression in all.iter_mut().filter(|suppression| suppression.matches(finding)) {
        suppression.is_used = true;
        first.get_or_insert_with(|| suppression.text());
    }
    first
}

/// Returns the pattern that hides as little as possible beside a finding: the line of its access, or, of a leak, of the allocation,
/// in a file of this name in any folder. Without lines, the function.
pub(super) fn narrowest(finding: &Finding) -> Option<String> {
    let access = finding.access.as_ref().map(|access| &access.location);
    let allocated = finding.memory.as_ref().and_then(|memory| memory.allocated.as_ref());
    let location = access.or(allocated)?;
    if let Some(source) = describe::source(location) {
        let (folder, line) = source.rsplit_once('/').map_or((None, source), |(folder, line)| (Some(folder), line));
        return Some(if folder.is_some() { format!("*/{line}") } else { line.to_owned() });
    }
    let caller = location.stack.first().and_then(|frame| frame.function.as_ref().or(frame.object.as_ref()));
    let is_kernel = location.ptx_line.is_some();
    Some(caller.filter(|_| !is_kernel).unwrap_or(&location.function).clone())
}

/// Cuts off a comment: `#` at the start of the line or after a space. Names of lambdas contain it too.
fn without_comment(line: &str) -> &str {
    let is_start = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(|(at, _)| is_start(*at)).map_or(line, |(at, _)| &line[..at])
}

/// Returns the names that a pattern is compared with.
fn names(finding: &Finding) -> Vec<&str> {
    let accesses = [&finding.access, &finding.other].into_iter().flatten().map(|access| &access.location);
    let memory = finding.memory.iter().flat_map(|memory| memory.allocated.iter().chain(&memory.freed));
    accesses.chain(memory).flat_map(names_of).collect()
}

fn names_of(location: &Location) -> Vec<&str> {
    let frames = location.stack.iter().flat_map(|frame| [&frame.function, &frame.source, &frame.object]);
    let optional = frames.chain([&location.source]).filter_map(|name| name.as_deref());
    std::iter::once(location.function.as_str()).chain(optional).collect()
}

/// Whether a pattern matches the whole name. `*` stands for any number of characters. Takes the shortest text for each `*` and, if
/// the rest differs, lets the last one have one character more: the earlier ones never need to change.
fn is_match(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut next) = (0, 0);
    // The position after the last `*`, and the end of what it stands for.
    let mut star = None;
    while next < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, next));
            }
            Some(byte) if *byte == name[next] => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((after, end)) = star else { return false };
                (at, next) = (after, end + 1);
                star = Some((after, next));
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::super::samples::{frame, leak, race};
    use super::*;

    fn parsed(text: &str) -> Vec<Suppression> {
        parse(text, Path::new("my.supp")).unwrap()
    }

    fn error(text: &str) -> String {
        parse(text, Path::new("my.supp")).unwrap_err().to_string()
    }

    fn suppresses(line: &str, finding: &Finding) -> bool {
        apply(&mut parsed(line), finding).is_some()
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        let found = parsed("# all\n\n  leak : cuMem* # because\n*:main(int)::{lambda()#1}\n\t# end");
        let texts: Vec<(String, &str)> = found.iter().map(|one| (one.text(), one.place.as_str())).collect();
        let expected = [("leak:cuMem*", "my.supp:3"), ("*:main(int)::{lambda()#1}", "my.supp:4")];
        assert_eq!(texts, expected.map(|(text, place)| (text.to_owned(), place)));
    }

    #[test]
    fn a_bad_line_is_named_with_what_was_expected() {
        for line in ["leak", "leak:", ":main", "leak: # nothing"] {
            let shown = without_comment(line).trim();
            let expected = format!("my.supp:2: expected kind:pattern or *:pattern, found {shown:?}");
            assert_eq!(error(&format!("# one\n{line}\nleak:x")), expected);
        }
        let unknown = error("leak:a\nlaek:b");
        assert!(unknown.starts_with("my.supp:2: unknown kind \"laek\": expected stream-race, "), "{unknown}");
    }

    #[test]
    fn a_pattern_matches_the_whole_name() {
        for (pattern, name) in [
            ("main", "main"),
            ("*", ""),
            ("*", "anything"),
            ("a*", "a"),
            ("*b", "aab"),
            ("a*b*c", "axxbyybzc"),
            ("*ab*ab", "abxabab"),
            ("**x**", "x"),
            ("f(int*)", "f(int*)"),
            ("\u{e9}*", "\u{e9}t\u{e9}"),
        ] {
            assert!(is_match(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("main", "main2"), ("ain", "main"), ("a*b", "abc"), ("", "a"), ("a**b", "a"), ("ab*ab", "aba")]
        {
            assert!(!is_match(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn hostile_patterns_take_no_exponential_time() {
        let name = "a".repeat(5000);
        assert!(!is_match(&format!("{}b", "*a".repeat(1000)), &name));
    }

    #[test]
    fn the_narrowest_pattern_is_a_line_and_matches_its_finding() {
        let changed = |change: fn(&mut Location)| {
            let mut finding = race();
            change(&mut finding.access.as_mut().unwrap().location);
            finding
        };
        let stub = || frame("scale", "/tmp/tmpxft_0000130c_00000000-6_saxpy.cudafe1.stub.c:13");
        for (finding, expected) in [
            (race(), "saxpy.cu:31"),
            (leak(), "saxpy.cu:70"),
            (changed(|location| location.source = Some("/home/me/src/saxpy.cu:31".to_owned())), "*/saxpy.cu:31"),
            (changed(|location| location.source = None), "saxpy.cu:80"),
            (changed(|location| (location.source, location.stack) = (None, Vec::new())), "scale(float*, int)"),
            (
                changed(|location| {
                    (location.source, location.ptx_line, location.stack[0].source) = (None, None, None);
                }),
                "step(int)",
            ),
        ] {
            assert_eq!(narrowest(&finding).as_deref(), Some(expected));
            assert!(suppresses(&format!("*:{expected}"), &finding), "{expected}");
        }
        let mut launched = changed(|location| location.source = None);
        launched.access.as_mut().unwrap().location.stack.insert(0, stub());
        assert_eq!(narrowest(&launched).as_deref(), Some("saxpy.cu:80"));
    }

    #[test]
    fn every_name_of_a_finding_is_compared() {
        let mut finding = race();
        let memory = finding.memory.as_mut().unwrap();
        let stack = vec![frame("release", "pool.cu:9")];
        memory.freed = Some(Location { function: "cuMemFree".to_owned(), stack, ..Location::default() });
        for name in [
            "scale(*",
            "saxpy.cu:31",
            "step(int)",
            "saxpy.cu:80",
            "saxpy+0x*",
            "cuMemcpyDtoHAsync",
            "main",
            "saxpy.cu:92",
            "cuMemAlloc",
            "saxpy.cu:70",
            "cuMemFree",
            "release",
        ] {
            assert!(suppresses(&format!("stream-race:{name}"), &finding), "{name}");
            assert!(suppresses(&format!("*:{name}"), &finding), "{name}");
            assert!(!suppresses(&format!("host-race:{name}"), &finding), "{name}");
        }
        for name in ["scale", "writes*", "other", "58"] {
            assert!(!suppresses(&format!("*:{name}"), &finding), "{name}");
        }
    }

    #[test]
    fn all_that_match_are_used_and_the_first_is_named() {
        let mut all = parsed("leak:nothing\nleak:cuMemAlloc\n*:main\nstream-race:main");
        assert_eq!(apply(&mut all, &leak()).as_deref(), Some("leak:cuMemAlloc"));
        assert_eq!(all.iter().map(|one| one.is_used).collect::<Vec<_>>(), [false, true, true, false]);
    }
}
