//! `cargo xtask kernels`: compiles the PTX of the test data and of the example from its sources, with NVIDIA's
//! compilers and with Numba, installed by pip; and the step of `cargo xtask test` in which ptxas checks all of it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::command::{Failure, command, root, run_quiet};
use crate::cpu::Meter;
use crate::pip::{Packages, install, tools};
use crate::runner::Case;

pub(crate) const CUDA_12: Packages = Packages {
    folder: "cuda-12",
    names: &[
        "nvidia-cuda-nvrtc-cu12==12.9.86",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "nvidia-cuda-cccl-cu12==12.9.27",
        "nvidia-cuda-nvcc-cu12==12.9.86",
    ],
};
pub(crate) const CUDA_13: Packages = Packages {
    folder: "cuda-13",
    names: &["nvidia-cuda-nvrtc==13.0.88", "nvidia-cuda-runtime==13.0.88", "nvidia-cuda-cccl==13.0.85"],
};
const NUMBA: Packages = Packages {
    folder: "numba",
    names: &["numba==0.62.1", "llvmlite==0.45.1", "numpy==2.3.5", "nvidia-cuda-nvcc-cu12==12.9.86"],
};
const PTXAS_12: Packages = Packages { folder: "ptxas-12", names: &["nvidia-cuda-nvcc-cu12==12.9.86"] };
const PTXAS_13: Packages = Packages { folder: "ptxas-13", names: &["nvidia-cuda-nvcc==13.0.88"] };

/// What to do with the compiled PTX.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMode {
    Write,
    Compare,
}

/// Compiles all PTX from its sources.
pub(crate) fn make(mode: OutputMode) -> Result<(), Failure> {
    let made = tools().join("made");
    fs::create_dir_all(&made).map_err(|error| format!("cannot create {}: {error}", made.display()))?;
    let mut sources: Vec<(&Packages, PathBuf)> = Vec::new();
    for path in files(&["cu", "ll", "py"])? {
        sources.push((compiler(&path)?, path));
    }
    for packages in [&CUDA_12, &CUDA_13, &NUMBA] {
        let paths: Vec<_> = sources.iter().filter(|(with, _)| with.folder == packages.folder).collect();
        if !paths.is_empty() {
            let folder = install(packages)?;
            for_each_parallel(&paths, |(_, path)| compile(&folder, &made, path))?;
        }
    }
    let mut differing = Vec::new();
    for (_, path) in &sources {
        let to = path.with_extension("ptx");
        let from = made.join(to.file_name().unwrap_or_default());
        let (new, old) = (read(&from)?, fs::read_to_string(&to).unwrap_or_default());
        if code_lines(&new) != code_lines(&old) {
            differing.push(to.display().to_string());
            if mode == OutputMode::Write {
                fs::write(&to, new).map_err(|error| format!("{} cannot be written: {error}", to.display()))?;
            }
        }
    }
    println!("{} kernels compiled, {} of them changed", sources.len(), differing.len());
    if mode == OutputMode::Compare && !differing.is_empty() {
        return Err(format!("these files differ from the compilers' output:\n{}", differing.join("\n")));
    }
    Ok(())
}

pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    install(&PTXAS_12)?;
    install(&PTXAS_13)?;
    Ok(vec![Case::call("ptxas", "cargo xtask test --only ptxas", assemble)])
}

/// Makes ptxas check all PTX.
pub(crate) fn assemble() -> Result<(), Failure> {
    let (old, new) = (install(&PTXAS_12)?, install(&PTXAS_13)?);
    let (old, new) = (assembler(&old)?, assembler(&new)?);
    let paths = files(&["ptx"])?;
    for_each_parallel(&paths, |path| {
        let is_new = read(path)?.lines().any(|line| line.starts_with(".version 9"));
        check_with_ptxas(if is_new { &new } else { &old }, path)
    })?;
    println!("ptxas accepts {} files", paths.len());
    Ok(())
}

/// The folders with kernels: those of the test data, and those of the example.
const FOLDERS: [&str; 2] = ["crates/softcuda/tests/kernels", "examples/mesh/kernels"];

/// Returns the files with these extensions.
fn files(extensions: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for folder in FOLDERS.map(|folder| root().join(folder)) {
        let told = |error: std::io::Error| format!("{} cannot be read: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(told)? {
            let path = entry.map_err(told)?.path();
            if path.extension().and_then(OsStr::to_str).is_some_and(|extension| extensions.contains(&extension)) {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
}

/// Returns the packages that compile a source: Numba's for Python, else those of CUDA 12, or of 13 if the source asks
/// for it.
fn compiler(path: &Path) -> Result<&'static Packages, Failure> {
    if path.extension().is_some_and(|extension| extension == "py") {
        return Ok(&NUMBA);
    }
    let source = read(path)?;
    let wanted = source.lines().find(|line| line.starts_with("// compile:")).unwrap_or_default();
    Ok(if wanted.split_whitespace().any(|word| word == "cuda13") { &CUDA_13 } else { &CUDA_12 })
}

/// Returns the PTX without the lines in which the compiler names itself.
fn code_lines(ptx: &str) -> Vec<&str> {
    ptx.lines().filter(|line| !line.starts_with("//")).collect()
}

fn assembler(folder: &Path) -> Result<PathBuf, Failure> {
    ["nvidia/cuda_nvcc/bin/ptxas", "nvidia/cu13/bin/ptxas"]
        .iter()
        .map(|inner| folder.join(inner))
        .find(|path| path.exists())
        .ok_or_else(|| format!("no ptxas in {}", folder.display()))
}

fn compile(packages: &Path, made: &Path, source: &Path) -> Result<(), Failure> {
    let mut python = command("python3", &["xtask/src/kernels.py"]);
    run_quiet(python.arg(packages).arg(made).arg(source))
}

fn check_with_ptxas(ptxas: &Path, path: &Path) -> Result<(), Failure> {
    // A target with a letter is for one architecture alone.
    let is_own = read(path)?.lines().any(|line| line.starts_with(".target sm_90a"));
    let arch = if is_own { "-arch=sm_90a" } else { "-arch=sm_90" };
    run_quiet(Command::new(ptxas).args([arch, "--compile-only", "-o", "/dev/null"]).arg(path))
}

/// Calls `work` for each item, on all cores, and returns all failures.
pub(crate) fn for_each_parallel<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let meter = Meter::current();
    let worker = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failure) = meter.during(|| work(item)) {
                failures.lock().expect("no thread panics with the list").push(failure);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let failures = failures.into_inner().expect("no thread panics with the list");
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}
