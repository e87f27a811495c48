//! The step of `cargo xtask test` that runs Numba, CuPy, Triton and NVRTC on the software device, under `freehold run`: the functions
//! of `numba_cupy.py`, each in a process of its own. Pip installs them, 1.5 GB, once.

use crate::command::{Failure, command};
use crate::pip::{Packages, install};
use crate::programs::freehold;
use crate::runner::Case;

pub(crate) const PACKAGES: Packages = Packages {
    folder: "numba-cupy",
    names: &[
        "numba-cuda==0.30.4",
        "numba==0.68.1",
        "llvmlite==0.50.0",
        "cupy-cuda13x==14.2.0",
        "numpy==2.4.6",
        "packaging==26.3",
        "cuda-bindings==13.5.0",
        "cuda-core==1.2.2",
        "cuda-pathfinder==1.9.0",
        "nvidia-cuda-nvrtc==13.4.92",
        "nvidia-cuda-runtime==13.4.92",
        "nvidia-nvjitlink==13.5.37",
        "nvidia-nvvm==13.4.92",
        "triton==3.9.0",
    ],
};

const PROGRAM: &str = "xtask/src/numba_cupy.py";

/// The functions of the program, and the names of their cases.
const FUNCTIONS: &[(&str, &str)] = &[
    ("numba", "Numba"),
    ("cupy", "CuPy"),
    ("triton", "Triton"),
    ("nvml", "NVML from Python"),
    ("nvrtc", "machine code of NVRTC"),
];

/// Installs the packages, and returns a case for each function.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    let packages = install(&PACKAGES)?;
    let toolkit = packages.join("nvidia/cu13");
    let cases = FUNCTIONS.iter().map(|(function, name)| {
        let mut python = command(freehold(), &["run", "--device", "soft", "--", "python3", PROGRAM]);
        python.arg(&packages).arg(function);
        // Where the packages look for NVIDIA's libraries and headers outside of an environment of their own.
        python.env("CUDA_PATH", &toolkit).env("LD_LIBRARY_PATH", toolkit.join("lib"));
        Case::command(*name, "cargo xtask test --only 'Numba and CuPy'", python)
    });
    Ok(cases.collect())
}
