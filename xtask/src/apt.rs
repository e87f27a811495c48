//! Debian packages that tests need, installed together: directly if this user is root, else through sudo.

use std::path::Path;
use std::sync::OnceLock;

use crate::command::{Failure, command, run_quiet};

/// Something whose presence shows that a package is installed.
enum InstalledMarker {
    Program(&'static str),
    File(&'static str),
    /// A file of this name below `/usr/lib`.
    Library(&'static str),
}

impl InstalledMarker {
    fn exists(&self) -> bool {
        match self {
            Self::Program(name) => run_quiet(&mut command("sh", &["-c", &format!("command -v {name}")])).is_ok(),
            Self::File(path) => Path::new(path).exists(),
            Self::Library(name) => {
                let find = format!("find /usr/lib -name '{name}' | grep -q .");
                run_quiet(&mut command("sh", &["-c", &find])).is_ok()
            }
        }
    }
}

const PACKAGES: &[(InstalledMarker, &str)] = &[
    (InstalledMarker::Program("mpicc.openmpi"), "openmpi-bin libopenmpi-dev"),
    (InstalledMarker::Program("mpicc.mpich"), "mpich libmpich-dev"),
    // Required by bindgen.
    (InstalledMarker::Library("libclang.so*"), "libclang-dev"),
    (InstalledMarker::File("/etc/OpenCL/vendors/pocl.icd"), "pocl-opencl-icd ocl-icd-libopencl1"),
    (InstalledMarker::Program("valgrind"), "valgrind"),
    (InstalledMarker::Program("openssl"), "openssl"),
    (InstalledMarker::Program("g++"), "g++"),
];

/// Installs what is missing, once.
pub(crate) fn packages() -> Result<(), Failure> {
    static INSTALLED: OnceLock<Result<(), Failure>> = OnceLock::new();
    INSTALLED.get_or_init(install).clone()
}

fn install() -> Result<(), Failure> {
    let missing: Vec<_> = PACKAGES.iter().filter(|(sign, _)| !sign.exists()).map(|(_, names)| *names).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    println!("apt-get installs {names}");
    let script = format!(
        "sudo=$([ $(id -u) = 0 ] || echo sudo -n); $sudo apt-get update -qq && \
         $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {names}"
    );
    run_quiet(&mut command("sh", &["-c", &script])).map_err(|failure| format!("install {names}: {failure}"))
}
