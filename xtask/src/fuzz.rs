//! Fuzz targets: built once with the coverage instrumentation that libFuzzer reads, which `cargo fuzz` would ask for too, and
//! run for a while each. The folder `fuzz` is laid out for `cargo fuzz`, which nobody has to install for this.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::apt;
use crate::command::{Failure, cargo, command, output, root, run, target};
use crate::runner::Case;

struct Target {
    name: &'static str,
    /// Where the texts are that a run starts with: those ending in `.ptx`, up to a size.
    seeds: &'static [&'static str],
    options: &'static [&'static str],
}

const PTX_SEEDS: &[&str] = &["fuzz/seeds", "crates/softcuda/tests/kernels"];
const PTX_OPTIONS: &[&str] = &["-dict=fuzz/ptx.dict"];

const TARGETS: &[Target] = &[
    Target { name: "parse", seeds: PTX_SEEDS, options: PTX_OPTIONS },
    Target { name: "module", seeds: PTX_SEEDS, options: PTX_OPTIONS },
    Target { name: "state", seeds: &[], options: &[] },
    Target { name: "journal", seeds: &[], options: &[] },
];

const SEED_BYTES_MAX: u64 = 8 << 10;

/// What has the compiler count edges and comparisons, as libFuzzer wants them. The targets reach no unsafe code but the words
/// of a mapped file, so that they need no sanitizer; without one, a stable compiler serves.
const INSTRUMENTATION: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What libFuzzer is told. A text that takes long or much memory fails like one that panics.
const OPTIONS: &[&str] =
    &["-timeout=60", "-rss_limit_mb=2048", "-max_len=8192", "-verbosity=0", "-print_final_stats=1"];

/// Builds the targets: a run of each, from the same seed each time.
pub(crate) fn cases(each: Duration) -> Result<Vec<Case>, Failure> {
    cases_with_seed(each, 1)
}

/// A run of each from a seed that no run had before.
pub(crate) fn fresh_cases(each: Duration) -> Result<Vec<Case>, Failure> {
    cases_with_seed(each, SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() as u32))
}

fn cases_with_seed(each: Duration, seed: u32) -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let folder = build()?;
    TARGETS
        .iter()
        .map(|Target { name, seeds, options }| {
            let mut fuzz = command(folder.join(name), &[]);
            fuzz.args(OPTIONS).args(*options).arg(format!("-max_total_time={}", each.as_secs()));
            fuzz.arg(format!("-seed={seed}")).arg(format!("-artifact_prefix={}/", artifacts().display()));
            fuzz.arg(corpus(name, seeds)?);
            let again = format!("cargo xtask test --only fuzz # or: {} FILE", folder.join(name).display());
            Ok(Case::command(format!("fuzz {name}, seed {seed}"), again, fuzz))
        })
        .collect()
}

/// The folder of the targets.
fn build() -> Result<PathBuf, Failure> {
    let version = output(&mut command("rustc", &["-vV"]))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not name its host")?;
    let folder = target().join("fuzz");
    let mut build = cargo(&["build", "--quiet", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", host]);
    run(build.arg("--target-dir").arg(&folder).env("RUSTFLAGS", INSTRUMENTATION))?;
    Ok(folder.join(host).join("release"))
}

/// Where inputs are kept that make a target fail.
fn artifacts() -> PathBuf {
    let folder = root().join("target/fuzz/found");
    let _ = fs::create_dir_all(&folder);
    folder
}

/// A folder with the texts to start with, made anew: what an earlier run found does not count.
fn corpus(target: &str, seeds: &[&str]) -> Result<PathBuf, Failure> {
    let folder = root().join("target/corpus").join(target);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(io_failure("removing", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(io_failure("making", &folder))?;
    for seeds in seeds {
        let seeds = root().join(seeds);
        for entry in fs::read_dir(&seeds).map_err(io_failure("reading", &seeds))? {
            let path = entry.map_err(io_failure("reading", &seeds))?.path();
            let bytes = fs::metadata(&path).map_err(io_failure("reading", &path))?.len();
            if let Some(name) =
                path.file_name().filter(|_| bytes <= SEED_BYTES_MAX && path.extension() == Some("ptx".as_ref()))
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
