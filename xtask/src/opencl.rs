//! OpenCL on PoCL, which runs on any processor: the backend, the library's contract, and the lab.

use std::path::Path;

use crate::apt;
use crate::command::{Failure, run};
use crate::programs::{Program, tested};

/// Where the loader of OpenCL looks for PoCL.
const POCL: &str = "/etc/OpenCL/vendors/pocl.icd";

const PACKAGES: [&str; 2] = ["pocl-opencl-icd", "ocl-icd-libopencl1"];

/// How memory is had of the device.
const MANNERS: [&str; 2] = ["svm", "buffers"];

/// Has PoCL installed, and runs everything that is to hold on it.
pub(crate) fn contract() -> Result<(), Failure> {
    install()?;
    let programs = tested()?;
    let test = |name: &str| {
        let found = programs.iter().find(|program| program.name == name);
        found.map(Program::command).ok_or_else(|| format!("cargo built no {name}"))
    };
    for name in ["driver.unit", "driver.opencl"] {
        run(test(name)?.env("FREEHOLD_DEVICE", "opencl"))?;
    }
    for manner in MANNERS {
        run(test("freehold.contract")?.env("FREEHOLD_DEVICE", "opencl").env("FREEHOLD_OPENCL_MEMORY", manner))?;
    }
    run(test("freehold")?.args(["lab", "--device", "opencl"]))
}

fn install() -> Result<(), Failure> {
    if Path::new(POCL).exists() { Ok(()) } else { apt::install(&PACKAGES) }
}
