//! OpenCL on PoCL, which runs on any processor: the backend, the library's contract, and the lab.

use std::path::Path;

use crate::command::{Failure, cargo, command, run};

/// Where the loader of OpenCL looks for PoCL.
const POCL: &str = "/etc/OpenCL/vendors/pocl.icd";

const PACKAGES: [&str; 2] = ["pocl-opencl-icd", "ocl-icd-libopencl1"];

/// The files of the library's tests that hold for every kind of device.
const CONTRACT: &[&str] = &[
    "arena",
    "modules",
    "never_waits",
    "order",
    "pool_model",
    "pool_review",
    "pool_threads",
    "races",
    "threads",
    "uploads",
    "vector",
];

/// Has PoCL installed, and runs everything that is to hold on it.
pub(crate) fn contract() -> Result<(), Failure> {
    install()?;
    run(cargo(&["test", "--package", "freehold-driver", "--test", "opencl"]).env("FREEHOLD_DEVICE", "opencl"))?;
    let mut tests = vec!["test", "--package", "freehold"];
    tests.extend(CONTRACT.iter().flat_map(|name| ["--test", name]));
    run(cargo(&tests).env("FREEHOLD_DEVICE", "opencl"))?;
    run(&mut cargo(&["run", "--", "lab", "--device", "opencl"]))
}

fn install() -> Result<(), Failure> {
    if Path::new(POCL).exists() {
        return Ok(());
    }
    let mut words = vec!["install", "--yes", "--no-install-recommends"];
    words.extend(PACKAGES);
    let failed = |failure| format!("{failure}; PoCL is to be installed: {}", PACKAGES.join(", "));
    run(&mut command("apt-get", &words)).map_err(failed)
}
