//! Places in source files, as `file:line`, and the lines around them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The lines that are shown before and after a place.
const AROUND: usize = 2;

/// Larger files are not read: no person wrote them.
const BYTES_MAX: u64 = 4 << 20;

/// Longer lines are cut.
const LETTERS_MAX: usize = 160;

/// Source files, each read once. Relative paths start from `folder`.
pub(super) struct Sources {
    folder: PathBuf,
    files: HashMap<String, Vec<String>>,
}

/// Lines of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    /// The number of the first line.
    pub(super) first: usize,
    pub(super) lines: Vec<String>,
    /// The index of the line that the place is in.
    pub(super) place: usize,
}

impl Sources {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), files: HashMap::new() }
    }

    /// Returns the lines around a place, if its file is on this machine and has that line.
    pub(super) fn excerpt(&mut self, source: &str) -> Option<Excerpt> {
        let (file, line) = split(source);
        let index = usize::try_from(line?).ok()? - 1;
        let read = || read(&self.folder.join(file)).unwrap_or_default();
        let lines = self.files.entry(file.to_owned()).or_insert_with(read);
        let start = index.saturating_sub(AROUND);
        let end = lines.len().min(index + AROUND + 1);
        lines.get(index)?;
        let cut = |line: &String| line.chars().take(LETTERS_MAX).collect();
        Some(Excerpt { first: start + 1, lines: lines[start..end].iter().map(cut).collect(), place: index - start })
    }
}

/// Splits `file:line` or `file:line:column` into the file and the line.
pub(super) fn split(source: &str) -> (&str, Option<u32>) {
    let number = |text: &str| text.parse::<u32>().ok().filter(|line| *line > 0);
    let Some((file, last)) = source.rsplit_once(':') else { return (source, None) };
    let Some(last) = number(last) else { return (source, None) };
    match file.rsplit_once(':') {
        Some((file, line)) if number(line).is_some() => (file, number(line)),
        _ => (file, Some(last)),
    }
}

fn read(path: &Path) -> Option<Vec<String>> {
    // A pipe would never end.
    fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= BYTES_MAX)?;
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_testing::process::Sandbox;

    #[test]
    fn a_source_ends_with_its_line() {
        assert_eq!(split("a.cu:31"), ("a.cu", Some(31)));
        assert_eq!(split("a.cu:31:5"), ("a.cu", Some(31)));
        assert_eq!(split("C:a.cu:31"), ("C:a.cu", Some(31)));
        assert_eq!(split("a.cu"), ("a.cu", None));
        assert_eq!(split("a.cu:0"), ("a.cu:0", None));
        assert_eq!(split("a.cu:x"), ("a.cu:x", None));
    }

    #[test]
    fn an_excerpt_has_the_lines_around_a_place() {
        let sandbox = Sandbox::new("source");
        let path = sandbox.file("a.cu", "1\n2\n3\n4\n5\n6\n");
        let mut sources = Sources::new(&sandbox.folder);
        let mut shown = |source: &str| {
            let Excerpt { first, lines, place } = sources.excerpt(source)?;
            Some((first, lines.concat(), place))
        };
        assert_eq!(shown("a.cu:4"), Some((2, "23456".to_owned(), 2)));
        assert_eq!(shown("a.cu:1"), Some((1, "123".to_owned(), 0)));
        assert_eq!(shown(&format!("{}:6", path.display())), Some((4, "456".to_owned(), 2)));
        for missing in ["a.cu:7", "a.cu", "b.cu:1", "/:1"] {
            assert_eq!(shown(missing), None, "{missing}");
        }
    }

    #[test]
    fn what_is_not_text_of_a_person_is_cut_or_left_out() {
        let sandbox = Sandbox::new("source");
        sandbox.file("wide", format!("\u{fe}{}", "x".repeat(500)));
        sandbox.file("binary", b"\xff\xfe\n");
        fs::File::create(sandbox.folder.join("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        let mut sources = Sources::new(&sandbox.folder);
        assert_eq!(sources.excerpt("wide:1").unwrap().lines[0].chars().count(), 160);
        assert_eq!(sources.excerpt("binary:1").unwrap().lines, ["\u{fffd}\u{fffd}"]);
        assert_eq!(sources.excerpt("large:1"), None);
    }
}
