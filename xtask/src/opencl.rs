//! OpenCL on PoCL, which runs on any processor: the backend, the library's contract, and the lab.

use std::path::Path;

use crate::apt;
use crate::command::{Failure, cargo, run};

/// Where the loader of OpenCL looks for PoCL.
const POCL: &str = "/etc/OpenCL/vendors/pocl.icd";

const PACKAGES: [&str; 2] = ["pocl-opencl-icd", "ocl-icd-libopencl1"];

/// How memory is had of the device.
const MANNERS: [&str; 2] = ["svm", "buffers"];

/// Has PoCL installed, and runs everything that is to hold on it.
pub(crate) fn contract() -> Result<(), Failure> {
    install()?;
    run(cargo(&["test", "--package", "freehold-driver", "--lib", "--test", "opencl"]).env("FREEHOLD_DEVICE", "opencl"))?;
    for manner in MANNERS {
        // Of all packages, as the other tests are built: of one alone all that it needs would be built anew.
        let mut tests = cargo(&["test", "--workspace", "--test", "contract"]);
        run(tests.env("FREEHOLD_DEVICE", "opencl").env("FREEHOLD_OPENCL_MEMORY", manner))?;
    }
    run(&mut cargo(&["run", "--", "lab", "--device", "opencl"]))
}

fn install() -> Result<(), Failure> {
    if Path::new(POCL).exists() { Ok(()) } else { apt::install(&PACKAGES) }
}
