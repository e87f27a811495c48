//! The private file to which the processes of the program append their findings, one in a line.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};
use std::process;

use freehold_check::{Finding, LEAKS_UNKNOWN, STARTED};

/// How every finding starts.
const START: &str = "{\"kind\":";

/// A folder that only this user can open, with the file. Dropping it removes both.
pub(super) struct FindingsFile {
    folder: PathBuf,
    file: PathBuf,
}

impl FindingsFile {
    pub(super) fn create() -> io::Result<Self> {
        // The program may change its folder.
        let base = path::absolute(env::temp_dir())?;
        for number in 0_u32.. {
            let folder = base.join(format!("freehold-check-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                // Left behind by a process that was killed.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    let file = folder.join("findings");
                    let created = Self { folder, file };
                    File::options().create_new(true).write(true).mode(0o600).open(&created.file)?;
                    return Ok(created);
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    pub(super) fn read(&self) -> io::Result<Lines> {
        Ok(Lines::parse(&String::from_utf8_lossy(&fs::read(&self.file)?)))
    }
}

impl Drop for FindingsFile {
    fn drop(&mut self) {
        // What remains is in the folder for temporary files, which the system empties.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What the file contains.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lines {
    pub(super) findings: Vec<Finding>,
    /// How many complete lines are not findings.
    pub(super) unreadable: u64,
    /// Whether a process of the program has used CUDA.
    pub(super) is_checked: bool,
    /// Whether a process cannot tell what it has not freed.
    pub(super) are_leaks_unknown: bool,
}

impl Lines {
    /// Reads the findings. The last line may be incomplete: a process was killed while it was writing.
    fn parse(text: &str) -> Self {
        let mut lines = Self::default();
        for line in text.split_inclusive('\n') {
            // It may follow an incomplete finding.
            if line.ends_with(STARTED) {
                lines.is_checked = true;
                continue;
            }
            if line.ends_with(LEAKS_UNKNOWN) {
                lines.are_leaks_unknown = true;
                continue;
            }
            match Finding::from_line(line).or_else(|| after_fragment(line)) {
                Some(finding) => {
                    lines.is_checked = true;
                    lines.findings.push(finding);
                }
                None => lines.unreadable += u64::from(line.ends_with('\n') && !line.trim().is_empty()),
            }
        }
        lines
    }
}

/// Returns the finding at the end of a line that starts with an incomplete one, of a process that was killed.
fn after_fragment(line: &str) -> Option<Finding> {
    line.match_indices(START).skip(1).find_map(|(at, _)| Finding::from_line(&line[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_check::Kind;
    use std::os::unix::fs::PermissionsExt;

    fn line(message: &str) -> String {
        Finding::new(Kind::Leak, message).to_line()
    }

    fn messages(text: &str) -> (Vec<String>, u64) {
        let lines = Lines::parse(text);
        (lines.findings.into_iter().map(|finding| finding.message).collect(), lines.unreadable)
    }

    #[test]
    fn a_truncated_last_line_is_ignored() {
        let (first, second) = (line("first"), line("second"));
        for end in 0..second.len() - 2 {
            assert_eq!(messages(&format!("{first}{}", &second[..end])), (vec!["first".to_owned()], 0), "{end}");
        }
    }

    #[test]
    fn a_finding_after_a_truncated_one_is_read() {
        let (first, second) = (line("first"), line("second"));
        for end in START.len()..first.len() - 2 {
            assert_eq!(messages(&format!("{}{second}", &first[..end])), (vec!["second".to_owned()], 0), "{end}");
        }
    }

    #[test]
    fn a_process_that_starts_to_be_checked_is_noted() {
        let first = line("first");
        assert!(!Lines::parse("").is_checked && !Lines::parse("nonsense\n").is_checked);
        for end in [0, 5, first.len()] {
            let lines = Lines::parse(&format!("{}{STARTED}{first}", &first[..end]));
            assert_eq!((lines.is_checked, lines.unreadable, lines.findings.len()), (true, 0, 1 + end / first.len()));
        }
    }

    #[test]
    fn a_complete_line_that_is_not_a_finding_is_counted() {
        let text = format!("{}{{\"kind\":\"new\",\"message\":\"m\"}}\nnonsense\n\n{}", line("first"), line("second"));
        assert_eq!(messages(&text), (vec!["first".to_owned(), "second".to_owned()], 2));
    }

    #[test]
    fn only_this_user_can_open_the_file_and_it_is_removed() {
        let file = FindingsFile::create().unwrap();
        let folder = file.folder.clone();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(file.path())), (0o700, 0o600));
        drop(file);
        assert!(!folder.exists());
    }
}
