//! The step of `cargo xtask test` that runs programs under `freehold check`: those of the runtime API, the numbered examples, and
//! programs with pools that announce their blocks. A finding that is not listed here, with a reason, is a false report; a listed one
//! that is missing is an error too.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::command::{Failure, command, target};
use crate::cuda_programs;
use crate::programs::{self, Kind, freehold};
use crate::rmm;
use crate::runner::Case;

/// What is found in programs that make errors on purpose, by the kinds in the order of the alphabet, and what they do.
const EXPECTED: &[(&str, &[&str], &str)] = &[
    ("async_alloc", &["double-free", "invalid-free"], "frees twice, and frees an address of the host"),
    ("capture_fork", &["unjoined-capture"], "ends a capture that a second stream does not lead back to"),
    ("copy_2d", &["out-of-bounds"], "copies beyond the end of a block, which the driver refuses"),
    ("copy_directions", &["out-of-bounds"], "copies beyond the end of a block, which the driver refuses"),
    ("device_reset", &["double-free"], "frees a block after the device was reset"),
    ("errors_sticky", &["out-of-bounds"], "writes to a wild address"),
    ("event", &["event-in-use"], "records an event that was destroyed"),
    ("fill", &["out-of-bounds"], "fills beyond the end of a block, which the driver refuses"),
    ("free_under_kernel", &["double-free"], "frees twice"),
    ("memory_alloc", &["double-free", "interior-free", "invalid-free"], "frees wrongly in all ways"),
    ("memory_ipc", &["invalid-free"], "frees a block of another process with cudaFree"),
    ("memory_pinned", &["interior-free", "invalid-free", "invalid-free"], "frees pinned memory wrongly in all ways"),
    ("reset_memory", &["double-free"], "frees a block after the device was reset"),
    ("surface", &["out-of-bounds"], "reads outside of a surface, whose mode asks for a trap"),
];

/// What is found in libraries, as suppressions, and why it is there.
const SUPPRESSED: &[(&str, &str, &str)] = &[
    (
        "thrust_sort",
        "global-race:*UniqueAgent*",
        "in place, CUB orders the reads of a block before the writes of the next with relaxed accesses and no fence",
    ),
    (
        "thrust_sort",
        "uninitialized-read:*DeviceMergeSortMergeKernel*",
        "at the end of a list, CUB's merge reads the element of shared memory behind it, and does not use the value",
    ),
];

/// Programs that `cargo xtask test` leaves to `cargo xtask soak`: they need more than ten seconds.
const LONG: &[&str] = &["async_reuse", "memory_ipc_many"];

/// Which programs run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Short,
    All,
}

/// Returns a case for each program.
pub(crate) fn cases(extent: Extent) -> Result<Vec<Case>, Failure> {
    let folder = target().join("checked");
    fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    let mut cases = Vec::new();
    for (name, path) in cuda_programs::paths()? {
        if extent == Extent::All || !LONG.contains(&name.as_str()) {
            cases.push(case(&name, command(&path, &[]), expected(&name)));
        }
    }
    let is_numbered = |name: &str| name.starts_with(|first: char| first.is_ascii_digit());
    let programs = programs::build()?;
    for example in programs.iter().filter(|program| program.kind == Kind::Example && is_numbered(&program.name)) {
        cases.push(case(&example.name, example.command(), expected(&example.name)));
    }
    cases.extend(pools()?);
    Ok(cases)
}

/// Returns the cases of pools that announce their blocks: each with a block that is reused too early, and corrected. That of PyTorch,
/// `torch_pool.py`, is run by hand: its packages have 5 GB.
fn pools() -> Result<Vec<Case>, Failure> {
    let ([broken, fixed], libraries) = rmm::programs()?;
    let python = |word| command("python3", &["crates/check/tests/pools/python_pool.py", word]);
    let rmm = |path: &Path| {
        let mut program = command(path, &[]);
        program.env("LD_LIBRARY_PATH", &libraries);
        program
    };
    Ok(vec![
        case("python_pool with its error", python("broken"), &["reuse-race"]),
        case("python_pool corrected", python("fixed"), &[]),
        case("rmm_pool with its error", rmm(&broken), &["reuse-race"]),
        case("rmm_pool corrected", rmm(&fixed), &[]),
    ])
}

/// Returns the kinds of what a program does wrong on purpose.
fn expected(name: &str) -> &'static [&'static str] {
    EXPECTED.iter().find(|(program, ..)| *program == name).map_or(&[], |(_, kinds, _)| kinds)
}

/// Returns the case of a program and what is found in it.
fn case(name: &str, program: Command, wanted: &'static [&'static str]) -> Case {
    let words: Vec<_> =
        [program.get_program()].into_iter().chain(program.get_args()).map(|word| word.to_owned()).collect();
    let shown: Vec<_> = words.iter().map(|word| word.display().to_string()).collect();
    let rerun = format!("{} check -- {}", freehold().display(), shown.join(" "));
    let variables: Vec<_> =
        program.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    let folder = program.get_current_dir().map(Path::to_owned);
    let report = target().join("checked").join(format!("{}.json", name.replace(' ', "-")));
    let of_program = SUPPRESSED.iter().filter(|(program, ..)| *program == name);
    let suppressed: Vec<&str> = of_program.map(|(_, suppression, _)| *suppression).collect();
    Case::call(&format!("program {name}, under the checker"), rerun, move || {
        let mut check = command(freehold(), &["check", "--quiet", "--json"]);
        check.arg(&report);
        if !suppressed.is_empty() {
            let file = report.with_extension("suppressions");
            fs::write(&file, suppressed.join("\n"))
                .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
            check.arg("--suppressions").arg(file);
        }
        check.arg("--").args(&words).envs(variables.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = &folder {
            check.current_dir(folder);
        }
        compare(&mut check, &report, wanted, &suppressed)
    })
}

/// Runs a check, and compares the kinds of its findings. Each suppression must have one.
fn compare(check: &mut Command, report: &Path, wanted: &[&str], suppressions: &[&str]) -> Result<(), Failure> {
    let output = check.output().map_err(|error| format!("freehold cannot be run: {error}"))?;
    let text = fs::read_to_string(report).map_err(|error| format!("{} cannot be read: {error}", report.display()))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", report.display()))?;
    let mut found: Vec<_> =
        json["findings"].as_array().into_iter().flatten().filter_map(|finding| finding["kind"].as_str()).collect();
    found.sort_unstable();
    let suppressed = json["suppressed"].as_array().map_or(&[][..], Vec::as_slice);
    let is_used = |suppression: &&str| suppressed.iter().any(|finding| finding["suppression"] == **suppression);
    let unused: Vec<_> = suppressions.iter().filter(|suppression| !is_used(suppression)).collect();
    if found == wanted && unused.is_empty() && json["status"] == 0 {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "expected {wanted:?}, status 0 and findings for {suppressions:?}, found {found:?}, status {} and nothing for {unused:?}: \
         {text}{error}",
        json["status"]
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares a report that has a suppressed leak.
    fn compared(name: &str, suppressions: &[&str]) -> Result<(), Failure> {
        let path = std::env::temp_dir().join(format!("freehold-checked-{name}-{}.json", std::process::id()));
        let suppressed = [json!({"kind": "leak", "suppression": "leak:*libthird.so*"})];
        let report = json!({"status": 0, "findings": [], "suppressed": suppressed});
        fs::write(&path, report.to_string()).expect("the folder is writable");
        let result = compare(&mut Command::new("true"), &path, &[], suppressions);
        fs::remove_file(&path).expect("the file is there");
        result
    }

    #[test]
    fn a_suppression_without_a_finding_is_an_error() {
        assert!(compared("one", &["leak:*libthird.so*"]).is_ok());
        assert!(compared("two", &["leak:*libthird.so*", "leak:*libother.so*"]).is_err());
    }
}
