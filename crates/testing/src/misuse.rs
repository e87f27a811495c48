//! Programs that must not compile: one function each in a common crate, compared with the compiler's errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// What a program tries, the error code that it must get, and its text.
pub type Program = (&'static str, &'static str, &'static str);

/// A crate of programs.
#[derive(Clone, Copy, Debug)]
pub struct Programs {
    /// The imports and items that all of them share, including a `Result` called `R`.
    pub head: &'static str,
    /// The parameters of each program.
    pub given: &'static str,
    /// The libraries that they use. The test was built with all of them.
    pub libraries: &'static [&'static str],
}

impl Programs {
    /// Returns the errors, as `CODE MESSAGE`, by the number of the program that they are in. `None` on a machine
    /// without a compiler.
    ///
    /// # Panics
    /// If files cannot be written, or the compiler's output is not understood.
    pub fn errors(&self, programs: &[&str]) -> Option<BTreeMap<usize, Vec<String>>> {
        // Line 1 is the head, and each program has one line.
        let mut text = self.head.replace('\n', " ") + "\n";
        for (number, program) in programs.iter().enumerate() {
            writeln!(text, "fn program_{number}{} -> R {{ {program} Ok(()) }}", self.given.replace('\n', " "))
                .expect("writing to a string does not fail");
        }
        let test = std::env::current_exe().expect("cannot find the test binary");
        let deps = test.parent().expect("a file is in a folder");
        let source = std::env::temp_dir().join(format!("freehold-misuse-{}-{}.rs", std::process::id(), text.len()));
        std::fs::write(&source, text).expect("cannot write the source");
        // An explicit output file: a compiler that runs as root would replace /dev/null.
        let metadata = source.with_extension("rmeta");
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(compiler);
        command.args(["--edition=2024", "--crate-type=lib", "--crate-name=misuse", "--emit=metadata"]);
        command.args(["--error-format=short", "-o"]).arg(&metadata);
        command.arg("-L").arg(format!("dependency={}", deps.display()));
        for name in self.libraries {
            command.arg("--extern").arg(format!("{name}={}", library(&test, deps, name).display()));
        }
        let compiled = command.arg(&source).stdin(Stdio::null()).output();
        std::fs::remove_file(&source).expect("cannot remove the source");
        if metadata.exists() {
            std::fs::remove_file(&metadata).expect("cannot remove the metadata");
        }
        let Ok(compiled) = compiled else {
            println!("skipped: this machine has no compiler");
            return None;
        };
        let mut found: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for line in String::from_utf8_lossy(&compiled.stderr).lines() {
            // PATH:LINE:COLUMN: error[CODE]: MESSAGE
            let Some((at, error)) = line.split_once(": error") else { continue };
            let at: usize = at.rsplit(':').nth(1).and_then(|at| at.parse().ok()).unwrap_or_else(|| panic!("{line}"));
            let error = error.trim_start_matches('[').replacen("]:", "", 1);
            found.entry(at.wrapping_sub(2)).or_default().push(error);
        }
        Some(found)
    }

    /// Asserts that each program gets its error, and no other.
    ///
    /// # Panics
    /// If one does not.
    pub fn assert_refused(&self, programs: &[Program]) {
        let texts: Vec<&str> = programs.iter().map(|&(_, _, text)| text).collect();
        let Some(found) = self.errors(&texts) else { return };
        let wrong: Vec<String> = programs
            .iter()
            .enumerate()
            .filter_map(|(number, (what, code, _))| {
                let errors = found.get(&number).map_or(&[][..], Vec::as_slice);
                let is_right = !errors.is_empty() && errors.iter().all(|error| error.starts_with(code));
                (!is_right).then(|| format!("{what}: expected {code}, found {errors:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(found.len(), programs.len(), "{found:?}");
    }

    /// Asserts that all programs compile.
    ///
    /// # Panics
    /// If one does not.
    pub fn assert_compile(&self, programs: &[&str]) {
        let found = self.errors(programs).unwrap_or_default();
        assert!(found.is_empty(), "{found:?}");
    }
}

/// Returns the library of a crate that a test was built with: the newest that is not newer than the test. Later builds with other features
/// leave libraries in the same folder.
fn library(test: &Path, deps: &Path, name: &str) -> PathBuf {
    let prefix = format!("lib{name}-");
    let built = |path: &Path| path.metadata().and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let all = deps.read_dir().expect("cannot read the folder").filter_map(|entry| Some(entry.ok()?.path()));
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|file| {
            let file = file.to_string_lossy();
            file.starts_with(&prefix) && file.ends_with(".rlib")
        })
    };
    let is_older = |path: &PathBuf| built(path) <= built(test);
    all.filter(is_it).filter(is_older).max_by_key(|path| built(path)).expect("the library was not built")
}
