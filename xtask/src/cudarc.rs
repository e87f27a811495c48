//! The step of `cargo xtask test` that runs the test suite of the crate cudarc, unmodified, on the software driver.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{Failure, cargo, output, run, target};
use crate::kernels::CUDA_12;
use crate::pip::install;
use crate::programs::freehold;
use crate::runner::Case;

const VERSION: &str = "0.19.10";
const FEATURES: &str = "std,dynamic-loading,driver,nvrtc,cuda-12090,f16";

/// Tests that are not run, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "driver::safe::core::tests::test_default_pinned_host_reads_are_faster_than_write_combined",
        "compares two timings: for the software device all host memory is cached",
    ),
    (
        "driver::safe::core::tests::test_pinned_copy_is_faster",
        "compares two timings: the software device copies from pinned and pageable memory in the same way",
    ),
    (
        "driver::safe::launch::tests::test_par_launch",
        "compares two timings: two concurrent kernels are faster only with two idle cores",
    ),
];

/// Builds the tests. Each runs in a process of its own, so that those that ruin their process run too.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    let work = target().join("cudarc");
    let (source, compiler) = (source(&work)?, install(&CUDA_12)?);
    let libraries = nvrtc(&work, &compiler)?;
    headers(&source, &compiler)?;
    let program = build(&source, &work)?;
    let names = names(&program)?;
    for (name, _) in EXCEPTIONS {
        if !names.iter().any(|found| found == name) {
            return Err(format!("cudarc no longer has a test {name}"));
        }
    }
    let chosen = names.iter().filter(|name| !EXCEPTIONS.iter().any(|(exception, _)| exception == name));
    let case = |name: &String| {
        let command = test(&program, &source, &libraries, name);
        let again = format!("cargo xtask test --only cudarc # {name}");
        Case::command(format!("cudarc {name}"), again, command)
    };
    Ok(chosen.map(case).collect())
}

/// Runs one test, with two devices, because some tests need them.
fn test(program: &Path, source: &Path, libraries: &Path, name: &str) -> Command {
    let mut command = Command::new(freehold());
    command.args(["run", "--device", "soft", "--"]).arg(program).args(["--include-ignored", "--exact", name]);
    command.env("LD_LIBRARY_PATH", libraries).env("FREEHOLD_SOFT_DEVICES", "2").current_dir(source);
    command.stdin(Stdio::null());
    command
}

/// Copies the crate's source to build in, because cargo's own copy must not be changed.
fn source(work: &Path) -> Result<PathBuf, Failure> {
    let copy = work.join(format!("cudarc-{VERSION}"));
    if copy.join("complete").exists() {
        return Ok(copy);
    }
    let project = work.join("project");
    let manifest = format!(
        "[package]\nname = \"project\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\ncudarc = {{ version = \"={VERSION}\", default-features = false, features = [\"cuda-12090\"] }}\n"
    );
    write(&project.join("Cargo.toml"), &manifest)?;
    write(&project.join("src/lib.rs"), "")?;
    let mut metadata = cargo(&["metadata", "--format-version", "1"]);
    let metadata = output(metadata.current_dir(&project))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| format!("cargo's metadata: {error}"))?;
    let found = metadata["packages"].as_array().into_iter().flatten().find(|package| package["name"] == "cudarc");
    let kept = found.and_then(|package| Path::new(package["manifest_path"].as_str()?).parent());
    let kept = kept.ok_or("cargo metadata does not contain cudarc")?;
    run(Command::new("rm").arg("-rf").arg(&copy))?;
    run(Command::new("cp").arg("-r").arg(kept).arg(&copy))?;
    // The copy is inside this repository, but does not belong to its workspace.
    let manifest = copy.join("Cargo.toml");
    let text =
        fs::read_to_string(&manifest).map_err(|error| format!("{} cannot be read: {error}", manifest.display()))?;
    write(&manifest, &(text + "\n[workspace]\n"))?;
    patch_iteration_counts(&copy.join("src/driver/safe/launch.rs"))?;
    write(&copy.join("complete"), "")?;
    Ok(copy)
}

/// Shortens the kernel that keeps a stream busy: a million iterations take no time on a GPU and a minute here.
fn patch_iteration_counts(path: &Path) -> Result<(), Failure> {
    let (long, short) = ("i < 1000000;", "i < 20000;");
    let text = fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if !text.contains(long) {
        return Err(format!("cudarc no longer has a kernel with {long:?}"));
    }
    write(path, &text.replace(long, short))
}

/// Creates a folder with NVRTC under the name that cudarc loads.
fn nvrtc(work: &Path, compiler: &Path) -> Result<PathBuf, Failure> {
    let (from, to) = (compiler.join("nvidia/cuda_nvrtc/lib"), work.join("lib"));
    fs::create_dir_all(&to).map_err(|error| format!("cannot create {}: {error}", to.display()))?;
    link(&from.join("libnvrtc.so.12"), &to.join("libnvrtc.so"))?;
    link(&from.join("libnvrtc-builtins.so.12.9"), &to.join("libnvrtc-builtins.so.12.9"))?;
    Ok(to)
}

/// A test includes `cuda_fp16.h`, which it expects in `/usr/include`; NVRTC also searches the current folder.
fn headers(source: &Path, compiler: &Path) -> Result<(), Failure> {
    let folder = compiler.join("nvidia/cuda_runtime/include");
    let told = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
    for entry in fs::read_dir(&folder).map_err(told)? {
        let path = entry.map_err(told)?.path();
        link(&path, &source.join(path.file_name().expect("an entry has a name")))?;
    }
    Ok(())
}

fn link(to: &Path, at: &Path) -> Result<(), Failure> {
    if at.is_symlink() {
        fs::remove_file(at).map_err(|error| format!("{} cannot be removed: {error}", at.display()))?;
    }
    symlink(to, at).map_err(|error| format!("cannot create {}: {error}", at.display()))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().expect("a file is in a folder");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

/// Builds the tests, and returns the test program.
fn build(source: &Path, work: &Path) -> Result<PathBuf, Failure> {
    let mut build = cargo(&["test", "--quiet", "--lib", "--no-run", "--no-default-features", "--features", FEATURES]);
    build.args(["--message-format", "json-render-diagnostics", "--target-dir"]).arg(work.join("target"));
    let messages = output(build.current_dir(source))?;
    let mut programs = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    programs.next_back().ok_or_else(|| "cargo built no tests of cudarc".to_owned())
}

fn names(program: &Path) -> Result<Vec<String>, Failure> {
    let listed = output(Command::new(program).args(["--list", "--format", "terse"]))?;
    let names: Vec<_> = listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect();
    if names.is_empty() { Err("cudarc has no tests".to_owned()) } else { Ok(names) }
}
