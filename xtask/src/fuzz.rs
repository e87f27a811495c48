//! A short run of every fuzz target, from the same texts and the same seed each time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, command, output, root, run};

/// A crate of targets; it stands outside of the workspace.
struct Fuzzed {
    folder: &'static str,
    targets: &'static [&'static str],
    /// Where the texts are that a run starts with: those ending in `.ptx`, up to a size.
    seeds: &'static [&'static str],
    /// What libFuzzer is told beside the rest.
    options: &'static [&'static str],
}

const CRATES: &[Fuzzed] = &[
    Fuzzed {
        folder: "crates/ptx/fuzz",
        targets: &["parse", "module"],
        seeds: &["crates/ptx/fuzz/seeds", "crates/softcuda/tests/kernels"],
        options: &["-dict=crates/ptx/fuzz/ptx.dict"],
    },
    Fuzzed { folder: "crates/broker/fuzz", targets: &["state", "journal"], seeds: &[], options: &[] },
];

const SEED_BYTES_MAX: u64 = 8 << 10;

/// What libFuzzer is told. A text that takes long or much memory fails like one that panics.
const OPTIONS: &[&str] = &[
    "-seed=1",
    "-max_total_time=20",
    "-timeout=10",
    "-rss_limit_mb=1024",
    "-max_len=8192",
    "-verbosity=0",
    "-print_final_stats=1",
];

pub(crate) fn short_runs() -> Result<(), Failure> {
    for fuzzed in CRATES {
        run(cargo(&["fmt", "--check", "--manifest-path"]).arg(format!("{}/Cargo.toml", fuzzed.folder)))?;
    }
    if output(&mut command("c++", &["--version"])).is_err() {
        println!("There is no C++ compiler, which libFuzzer needs: the fuzz targets are left out.");
        return Ok(());
    }
    let tool = tool()?;
    for Fuzzed { folder, targets, seeds, options } in CRATES {
        for target in *targets {
            let corpus = corpus(target, seeds)?;
            // The targets reach no unsafe code but the words of a mapped file, so that they need no sanitizer; without one, a stable
            // toolchain serves.
            let mut fuzz = command(&tool.to_string_lossy(), &["run", "--fuzz-dir", folder, "--sanitizer", "none"]);
            fuzz.arg("--target-dir").arg(root().join("target/fuzz")).arg(target).arg(corpus).arg("--");
            run(fuzz.args(OPTIONS).args(*options))?;
        }
    }
    Ok(())
}

/// cargo-fuzz, installed where the build outputs are if it is not there yet.
fn tool() -> Result<PathBuf, Failure> {
    let folder = root().join("target/tools");
    let tool = folder.join("bin/cargo-fuzz");
    if !tool.exists() {
        let version = ["install", "cargo-fuzz", "--version", "^0.13", "--locked", "--root"];
        run(cargo(&version).arg(&folder))?;
    }
    Ok(tool)
}

/// A folder with the texts to start with, made anew: what an earlier run found does not count.
fn corpus(target: &str, seeds: &[&str]) -> Result<PathBuf, Failure> {
    let folder = root().join("target/corpus").join(target);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed("removing", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(failed("making", &folder))?;
    for seeds in seeds {
        let seeds = root().join(seeds);
        for entry in fs::read_dir(&seeds).map_err(failed("reading", &seeds))? {
            let path = entry.map_err(failed("reading", &seeds))?.path();
            let bytes = fs::metadata(&path).map_err(failed("reading", &path))?.len();
            if let Some(name) =
                path.file_name().filter(|_| bytes <= SEED_BYTES_MAX && path.extension() == Some("ptx".as_ref()))
            {
                fs::copy(&path, folder.join(name)).map_err(failed("copying", &path))?;
            }
        }
    }
    Ok(folder)
}

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| format!("{what} {}: {error}", path.display())
}
