//! The step of `cargo xtask test` that runs PyTorch on the software device, with its operators and Freehold's allocator. PyTorch and
//! the libraries of NVIDIA that it loads are a large download, made once.

use std::path::{Path, PathBuf};

use crate::command::{Failure, command, root, run, run_quiet};
use crate::pip::{Packages, install};
use crate::runner::Case;
use crate::wheel;

/// PyTorch, and what it needs to be imported. Triton has headers of the CUDA runtime that NVIDIA's package lacks.
const PACKAGES: Packages = Packages {
    folder: "torch",
    names: &[
        "torch==2.11.0",
        "triton==3.6.0",
        "numpy==2.4.6",
        "typing_extensions==4.16.0",
        "filelock==4.2.10",
        "fsspec==2026.9.0",
        "jinja2==3.1.6",
        "markupsafe==3.0.4",
        "mpmath==1.3.0",
        "networkx==3.6.1",
        "sympy==1.14.0",
        "nvidia-cublas==13.1.0.3",
        "nvidia-cuda-cupti==13.0.85",
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cudnn-cu13==9.19.0.56",
        "nvidia-cufft==12.0.0.61",
        "nvidia-cufile==1.15.1.6",
        "nvidia-curand==10.4.0.35",
        "nvidia-cusparse==12.6.3.3",
        "nvidia-cusparselt-cu13==0.8.0",
        "nvidia-nccl-cu13==2.28.9",
        "nvidia-nvjitlink==13.0.88",
        "nvidia-nvshmem-cu13==3.4.5",
    ],
};

/// The files of `python/tests`, and what they test.
const TESTS: &[(&str, &str)] =
    &[("test_torch_operators.py", "PyTorch's operators"), ("test_torch_table.py", "PyTorch's operators, one by one")];

/// Builds the extension of a PyTorch that can be imported with the search path of Python, into the package.
fn build_extension(search: &Path) -> Result<(), Failure> {
    let script = root().join("python/build_operators.py");
    run_quiet(command("python3", &[]).arg(script).env("PYTHONPATH", search))
}

/// Builds the extension of the installed PyTorch, if there is one.
pub(crate) fn build_installed() -> Result<(), Failure> {
    if run_quiet(&mut command("python3", &["-c", "import torch"])).is_err() {
        println!("python3 finds no PyTorch: the wheel has none of its operators");
        return Ok(());
    }
    run(command("python3", &[]).arg(root().join("python/build_operators.py")))
}

/// Installs PyTorch, and returns a case for each file of tests.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    let packages = install(&PACKAGES)?;
    build_extension(&packages)?;
    let site = wheel::installed("torch")?;
    let search = paths(&[site.clone(), wheel::pytest()?, packages])?;
    let cases = TESTS.iter().map(|(file, name)| {
        let mut python = command(site.join("bin/freehold"), &["run", "--device", "soft", "--"]);
        python.args(["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(format!("python/tests/{file}"));
        python.env("PYTHONPATH", &search).env("PYTHONDONTWRITEBYTECODE", "1");
        python.env("FREEHOLD_COMMAND", site.join("bin/freehold"));
        // A second device, between which tensors are copied.
        python.env("FREEHOLD_SOFT_DEVICES", "2");
        Case::command(*name, "cargo xtask test --only PyTorch", python)
    });
    Ok(cases.collect())
}

fn paths(folders: &[PathBuf]) -> Result<std::ffi::OsString, Failure> {
    std::env::join_paths(folders).map_err(|error| error.to_string())
}
