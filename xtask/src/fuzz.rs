//! Fuzz targets: built once with the coverage instrumentation that libFuzzer needs (the same as that of `cargo fuzz`),
//! and run for a while each. The folder `fuzz` is laid out for `cargo fuzz`, but does not need it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::apt;
use crate::command::{Failure, cargo, command, output, root, run, target};
use crate::runner::Case;

struct Target {
    name: &'static str,
    /// The folders with the initial inputs, up to a size, and the extension of their files.
    seeds: &'static [&'static str],
    extension: &'static str,
    options: &'static [&'static str],
}

const PTX_SEEDS: &[&str] = &["fuzz/seeds", "crates/softcuda/tests/kernels"];
const PTX_OPTIONS: &[&str] = &["-dict=fuzz/ptx.dict"];

const TARGETS: &[Target] = &[
    Target { name: "parse", seeds: PTX_SEEDS, extension: "ptx", options: PTX_OPTIONS },
    Target { name: "module", seeds: PTX_SEEDS, extension: "ptx", options: PTX_OPTIONS },
    Target { name: "fatbin", seeds: &["fuzz/seeds"], extension: "fatbin", options: &[] },
    Target { name: "state", seeds: &[], extension: "", options: &[] },
    Target { name: "journal", seeds: &[], extension: "", options: &[] },
    Target { name: "tensors", seeds: &["fuzz/seeds"], extension: "json", options: &[] },
];

const SEED_BYTES_MAX: u64 = 8 << 10;

/// Makes the compiler count edges and comparisons for libFuzzer. The only unsafe code of ours that the targets reach
/// accesses the words of a mapped file, so they need no sanitizer; without one, a stable compiler suffices.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The options of libFuzzer. An input that takes long or much memory fails like one that panics.
const OPTIONS: &[&str] =
    &["-timeout=60", "-rss_limit_mb=2048", "-max_len=8192", "-verbosity=0", "-print_final_stats=1"];

/// Builds the targets, and returns a run of each, with the same seed each time.
pub(crate) fn cases(each: Duration) -> Result<Vec<Case>, Failure> {
    cases_with_seed(each, 1)
}

/// Returns a run of each target, with a fresh seed.
pub(crate) fn fresh_cases(each: Duration) -> Result<Vec<Case>, Failure> {
    cases_with_seed(each, SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() as u32))
}

fn cases_with_seed(each: Duration, seed: u32) -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let folder = build()?;
    TARGETS
        .iter()
        .map(|target| {
            let name = target.name;
            let mut fuzz = command(folder.join(name), &[]);
            fuzz.args(OPTIONS).args(target.options).arg(format!("-max_total_time={}", each.as_secs()));
            fuzz.arg(format!("-seed={seed}")).arg(format!("-artifact_prefix={}/", artifacts().display()));
            fuzz.arg(corpus(target)?);
            let again = format!("cargo xtask test --only fuzz # or: {} FILE", folder.join(name).display());
            Ok(Case::command(format!("fuzz {name}, seed {seed}"), again, fuzz))
        })
        .collect()
}

/// Builds the targets, and returns their folder.
fn build() -> Result<PathBuf, Failure> {
    let version = output(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not name its host")?;
    let folder = target().join("fuzz");
    let mut build = cargo(&["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    run(build.arg("--target-dir").arg(&folder).env("RUSTFLAGS", INSTRUMENTATION))?;
    Ok(folder.join(host).join("release"))
}

/// Returns the folder for inputs that make a target fail.
fn artifacts() -> PathBuf {
    let folder = root().join("target/fuzz/found");
    let _ = fs::create_dir_all(&folder);
    folder
}

/// Creates a folder with the initial inputs: what an earlier run found is discarded.
fn corpus(target: &Target) -> Result<PathBuf, Failure> {
    let folder = root().join("target/corpus").join(target.name);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(io_failure("removing", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(io_failure("making", &folder))?;
    for seeds in target.seeds {
        let seeds = root().join(seeds);
        for entry in fs::read_dir(&seeds).map_err(io_failure("reading", &seeds))? {
            let path = entry.map_err(io_failure("reading", &seeds))?.path();
            let bytes = fs::metadata(&path).map_err(io_failure("reading", &path))?.len();
            if let Some(name) = path
                .file_name()
                .filter(|_| bytes <= SEED_BYTES_MAX && path.extension() == Some(target.extension.as_ref()))
            {
                fs::copy(&path, folder.join(name)).map_err(io_failure("copying", &path))?;
            }
        }
    }
    Ok(folder)
}

fn io_failure(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| format!("{what} {}: {error}", path.display())
}
