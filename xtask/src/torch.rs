//! The step of `cargo xtask test` that runs PyTorch on the software device, with its operators and Freehold's allocator. PyTorch and
//! the libraries of NVIDIA that it loads are a large download, made once.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::command::{Failure, command, run_quiet};
use crate::numba_cupy;
use crate::pip::{Packages, install};
use crate::runner::Case;
use crate::wheel;

/// PyTorch, what it needs to be imported, and headers of the CUDA runtime that it comes without.
const PACKAGES: Packages = Packages {
    folder: "torch",
    names: &[
        "torch==2.11.0",
        "nvidia-cuda-crt==13.0.88",
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
const TESTS: &[(&str, &str)] = &[
    ("test_torch_operators.py", "training with PyTorch"),
    ("test_torch_readme.py", "the lines in the README"),
    ("test_torch_streams.py", "PyTorch's operators in streams"),
    ("test_torch_table.py", "PyTorch's operators, one by one"),
    ("test_torch_allocator.py", "PyTorch's allocator"),
    ("test_torch_allocator_enable.py", "enabling it"),
    ("test_torch_allocator_history.py", "its history"),
    ("test_torch_allocator_pools.py", "its private pools"),
    ("test_torch_allocator_sharing.py", "tensors in several processes"),
];

/// A file of tests that also needs CuPy and Numba.
const EXCHANGE: (&str, &str) = ("test_torch_exchange.py", "arrays of PyTorch, CuPy and Numba");

/// Installs PyTorch, and returns a case for each file of tests.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    let packages = install(&PACKAGES)?;
    let mut extensions = command("python3", &[wheel::EXTENSIONS]);
    wheel::keep_bytecode(extensions.env("PYTHONPATH", &packages));
    run_quiet(&mut extensions)?;
    let site = wheel::installed("torch")?;
    let search = paths(&[site.clone(), wheel::pytest()?, packages])?;
    let others = install(&numba_cupy::PACKAGES)?;
    let toolkit = others.join("nvidia/cu13");
    let cases = TESTS.iter().chain([&EXCHANGE]).map(|(file, name)| {
        let mut python = command(site.join("bin/freehold"), &["run", "--device", "soft", "--"]);
        python.args(["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(format!("python/tests/{file}"));
        wheel::keep_bytecode(python.env("PYTHONPATH", &search));
        python.env("FREEHOLD_COMMAND", site.join("bin/freehold"));
        // A second device, between which tensors are copied.
        python.env("FREEHOLD_SOFT_DEVICES", "2");
        if *file == EXCHANGE.0 {
            python.env("FREEHOLD_TEST_PACKAGES", &others);
            python.env("CUDA_PATH", &toolkit).env("LD_LIBRARY_PATH", toolkit.join("lib"));
        }
        Case::command(*name, "cargo xtask test --only PyTorch", python)
    });
    Ok(cases.collect())
}

fn paths(folders: &[PathBuf]) -> Result<OsString, Failure> {
    env::join_paths(folders).map_err(|error| error.to_string())
}
