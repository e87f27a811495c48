//! The step of `cargo xtask test` that runs `freehold check` on programs of the corpus.
//!
//! Each program in `crates/check/corpus` has one error of the kind that its line `// kind: KIND` names, at the lines that end in
//! `// access` and `// other`, in memory of the lines `// allocated` and `// freed`; compiled with `-DFIXED` it has none. `calls.txt`
//! lists the programs whose error is visible at calls, without what kernels access.
//! Many are compiled at once.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::apt;
use crate::command::{Failure, command, outputs, root, run_quiet, target};
use crate::kernels::for_each_parallel;
use crate::nvcc::{BATCH, Member, NVCC, Toolkit, batch_source};
use crate::programs::freehold;
use crate::runner::Case;

const CORPUS: &str = "crates/check/corpus";

/// With source lines of kernels and of the host, and the symbols of the driver for programs that load modules.
const OPTIONS: &[&str] = &["-arch=compute_75", "-std=c++17", "-lineinfo", "-g", "-I", "../include"];

/// What the programs share.
const HEADERS: [&str; 2] = ["corpus.h", "freehold/check.h"];

/// Compiles the programs, and returns a case for each and for its corrected twin.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let toolkit = Toolkit::install()?;
    let programs = programs()?;
    let versions: Vec<_> = programs.iter().flat_map(|program| [(program, false), (program, true)]).collect();
    build(&toolkit, &programs)?;
    let case = |program: &Program, is_fixed: bool| {
        let what = if is_fixed { "corrected" } else { "with its error" };
        let rerun = format!("{} check --leaks -- {}", freehold().display(), program.path(is_fixed).display());
        let program = program.clone();
        Case::call(&format!("checked program {}, {what}", program.name), rerun, move || program.check(is_fixed))
    };
    let at_calls = |program: &Program, is_fixed: bool| {
        let what = if is_fixed { "corrected" } else { "with its error" };
        let rerun = format!("{} check --calls-only -- {}", freehold().display(), program.path(is_fixed).display());
        let program = program.clone();
        let name = format!("calls of program {}, {what}", program.name);
        Case::call(&name, rerun, move || program.check_calls(is_fixed))
    };
    let cases =
        versions.into_iter().flat_map(|(program, is_fixed)| [case(program, is_fixed), at_calls(program, is_fixed)]);
    Ok(cases.collect())
}

#[derive(Clone)]
struct Program {
    name: String,
    kind: String,
    is_visible_at_calls: bool,
    /// The lines of the two accesses.
    access: Vec<u64>,
    other: Vec<u64>,
    /// The lines that allocate and free the memory, if they matter.
    allocated: Vec<u64>,
    freed: Vec<u64>,
    /// A hash of its files, the options and the versions of the compiler.
    hash: u64,
    member: Member,
}

impl Program {
    /// `headers` are those that it may include.
    fn read(name: &str, headers: &[String; 2]) -> Result<Self, Failure> {
        let text = read(&format!("{CORPUS}/{name}.cu"))?;
        let stated = |what: &str| text.lines().find_map(|line| line.strip_prefix(what)).map(str::trim);
        let kind = stated("// kind:").ok_or_else(|| format!("{name}.cu has no line \"// kind:\""))?.to_owned();
        let marked = |mark: &str| {
            let is_marked = |line: &str| line.split("//").skip(1).any(|comment| comment.trim() == mark);
            let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with("//") && is_marked(line));
            lines.map(|(index, _)| index as u64 + 1).collect()
        };
        let mut hasher = DefaultHasher::new();
        (NVCC.names, OPTIONS, headers, &text).hash(&mut hasher);
        let is_visible_at_calls = read(&format!("{CORPUS}/calls.txt"))?.lines().any(|line| line == name);
        Ok(Self {
            name: name.to_owned(),
            kind,
            is_visible_at_calls,
            access: marked("access"),
            other: marked("other"),
            allocated: marked("allocated"),
            freed: marked("freed"),
            hash: hasher.finish(),
            member: Member::new(name, &text),
        })
    }

    fn path(&self, is_fixed: bool) -> PathBuf {
        let version = if is_fixed { "fixed" } else { "broken" };
        target().join("corpus").join(format!("{}-{version}-{:016x}", self.name, self.hash))
    }

    /// Checks a version of it. Returns the findings, and what was printed.
    fn findings(&self, is_fixed: bool, option: Option<&str>) -> Result<(Vec<Value>, Output), Failure> {
        let path = self.path(is_fixed);
        let report = path.with_extension(option.unwrap_or("").to_owned() + "json");
        let mut check = command(freehold(), &["check", "--quiet", "--leaks", "--json"]);
        check.arg(&report).args(option).arg("--").arg(&path).stderr(Stdio::piped());
        let output = outputs(&mut check).map_err(|error| format!("freehold cannot be run: {error}"))?;
        let text =
            fs::read_to_string(&report).map_err(|error| format!("{} cannot be read: {error}", report.display()))?;
        let json: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", report.display()))?;
        Ok((json["findings"].as_array().cloned().unwrap_or_default(), output))
    }

    /// Checks the calls of a version of it, and compares the kinds that are reported.
    fn check_calls(&self, is_fixed: bool) -> Result<(), Failure> {
        let (found, output) = self.findings(is_fixed, Some("--calls-only"))?;
        let is_right = match is_fixed {
            true => found.is_empty() && output.status.success(),
            false => {
                let is_expected = found.iter().all(|finding| finding["kind"] == *self.kind);
                is_expected && !(found.is_empty() && self.is_visible_at_calls)
            }
        };
        if is_right {
            return Ok(());
        }
        let (wanted, error) = (&self.kind, String::from_utf8_lossy(&output.stderr));
        Err(format!("expected {wanted} unless corrected, status {:?}: {found:?}{error}", output.status.code()))
    }

    /// Checks a version of it, and compares what is reported.
    fn check(&self, is_fixed: bool) -> Result<(), Failure> {
        let (found, output) = self.findings(is_fixed, None)?;
        let is_right = match is_fixed {
            true => found.is_empty() && output.status.success(),
            false => !found.is_empty() && found.iter().all(|finding| self.is_expected(finding)),
        };
        if is_right {
            return Ok(());
        }
        let (wanted, error) = (&self.kind, String::from_utf8_lossy(&output.stderr));
        let Self { access, other, allocated, freed, .. } = self;
        Err(format!(
            "expected {wanted} at {access:?} and {other:?}, allocated at {allocated:?} and freed at {freed:?}, unless corrected, \
             status {:?}: {found:?}{error}",
            output.status.code()
        ))
    }

    /// Returns whether a finding has the kind and the lines that the comments name. The two accesses may be swapped.
    fn is_expected(&self, finding: &Value) -> bool {
        let is_at =
            |line: Option<u64>, lines: &[u64]| lines.is_empty() || line.is_some_and(|line| lines.contains(&line));
        let [access, other] = ["access", "other"].map(|name| self.line(&finding[name]["location"]));
        let is_right = is_at(access, &self.access) && is_at(other, &self.other);
        let is_swapped = is_at(access, &self.other) && is_at(other, &self.access);
        let [allocated, freed] = ["allocated", "freed"].map(|name| self.line(&finding["memory"][name]));
        let is_of_memory = is_at(allocated, &self.allocated) && is_at(freed, &self.freed);
        finding["kind"] == *self.kind && (is_right || is_swapped) && is_of_memory
    }

    /// Returns the line of this program that a location is at: of its kernel, or of the innermost call.
    fn line(&self, location: &Value) -> Option<u64> {
        let frames = location["stack"].as_array().into_iter().flatten().map(|frame| &frame["source"]);
        let sources = [&location["source"]].into_iter().chain(frames).filter_map(Value::as_str);
        let file = format!("{}.cu", self.name);
        sources.filter_map(|source| source.rsplit_once(':')).find_map(|(path, line)| {
            if Path::new(path).file_name().is_some_and(|name| *name == *file) { line.parse().ok() } else { None }
        })
    }
}

/// Compiles both versions of the programs, but for those that were compiled before.
fn build(toolkit: &Toolkit, programs: &[Program]) -> Result<(), Failure> {
    let folder = target().join("corpus");
    fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    let mut batches = Vec::new();
    for is_fixed in [false, true] {
        let mut missing: Vec<_> = programs.iter().filter(|program| !program.path(is_fixed).exists()).collect();
        missing.sort_by_key(|program| program.member.includes());
        batches.extend(missing.chunks(BATCH).map(|batch| (batch.to_vec(), is_fixed)));
    }
    for_each_parallel(&batches, |(batch, is_fixed)| build_batch(toolkit, batch, *is_fixed))
}

/// Compiles a version of some programs to one file, which is then linked under the name of each.
fn build_batch(toolkit: &Toolkit, batch: &[&Program], is_fixed: bool) -> Result<(), Failure> {
    let first = batch[0].path(is_fixed);
    let (source, object) = (first.with_extension("batch.cu"), first.with_extension("unfinished"));
    fs::write(&source, batch_source(&HEADERS, batch.iter().map(|program| &program.member)))
        .map_err(|error| format!("{} cannot be written: {error}", source.display()))?;
    let mut nvcc = toolkit.nvcc(CORPUS);
    nvcc.args(OPTIONS).args(["-I", "."]).args(is_fixed.then_some("-DFIXED"));
    run_quiet(nvcc.arg(&source).arg("-o").arg(&object))?;
    for program in batch {
        let path = program.path(is_fixed);
        fs::hard_link(&object, &path).map_err(|error| format!("{} cannot be linked: {error}", path.display()))?;
    }
    for file in [&source, &object] {
        fs::remove_file(file).map_err(|error| format!("{} cannot be removed: {error}", file.display()))?;
    }
    Ok(())
}

/// Returns all programs, in the order of their names.
fn programs() -> Result<Vec<Program>, Failure> {
    let folder = root().join(CORPUS);
    let headers = headers()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| format!("{} cannot be read: {error}", folder.display()))? {
        let name = entry.map_err(|error| format!("{} cannot be read: {error}", folder.display()))?.file_name();
        names.extend(name.to_string_lossy().strip_suffix(".cu").map(str::to_owned));
    }
    names.sort_unstable();
    names.iter().map(|name| Program::read(name, &headers)).collect()
}

/// Returns the text of the headers that programs include.
fn headers() -> Result<[String; 2], Failure> {
    Ok([read(&format!("{CORPUS}/corpus.h"))?, read("crates/check/include/freehold/check.h")?])
}

/// Reads a file of the repository.
fn read(name: &str) -> Result<String, Failure> {
    let path = root().join(name);
    fs::read_to_string(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn program() -> Program {
        Program {
            name: "twice".to_owned(),
            kind: "double-free".to_owned(),
            is_visible_at_calls: true,
            access: vec![9],
            other: vec![],
            allocated: vec![3],
            freed: vec![5, 6],
            hash: 0,
            member: Member::new("twice", ""),
        }
    }

    fn finding(kind: &str, access: u64, allocated: u64, freed: u64) -> Value {
        let at = |line: u64| json!({"stack": [{"source": format!("/usr/a.h:{line}")}, {"source": format!("/b/twice.cu:{line}")}]});
        let memory = json!({"allocated": at(allocated), "freed": at(freed)});
        json!({"kind": kind, "access": {"location": at(access)}, "memory": memory})
    }

    #[test]
    fn a_finding_names_every_line_with_a_comment() {
        let program = program();
        assert!(program.is_expected(&finding("double-free", 9, 3, 5)));
        assert!(program.is_expected(&finding("double-free", 9, 3, 6)));
        for wrong in [("leak", 9, 3, 5), ("double-free", 8, 3, 5), ("double-free", 9, 4, 5), ("double-free", 9, 3, 7)] {
            let (kind, access, allocated, freed) = wrong;
            assert!(!program.is_expected(&finding(kind, access, allocated, freed)), "{wrong:?}");
        }
    }

    #[test]
    fn a_changed_header_compiles_the_programs_again() {
        let hash = |headers: [&str; 2]| {
            let headers = headers.map(str::to_owned);
            Program::read("double_free", &headers).expect("the program is in the corpus").hash
        };
        assert_ne!(hash(["", ""]), hash(["", "changed"]));
        assert_eq!(hash(["", ""]), hash(["", ""]));
        assert!(headers().expect("the headers are there")[1].contains("freehold_check_handed_out"));
    }
}
