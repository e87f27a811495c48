//! Debian packages that tests need, installed together, as this user where that is root, else through sudo.

use std::path::Path;
use std::sync::OnceLock;

use crate::command::{Failure, command, quiet};

/// What a package is needed for is there when this is.
enum Sign {
    Program(&'static str),
    File(&'static str),
    /// A file of such a name below `/usr/lib`.
    Library(&'static str),
}

impl Sign {
    fn is_there(&self) -> bool {
        match self {
            Self::Program(name) => quiet(&mut command("sh", &["-c", &format!("command -v {name}")])).is_ok(),
            Self::File(path) => Path::new(path).exists(),
            Self::Library(name) => {
                let find = format!("find /usr/lib -name '{name}' | grep -q .");
                quiet(&mut command("sh", &["-c", &find])).is_ok()
            }
        }
    }
}

const PACKAGES: &[(Sign, &str)] = &[
    (Sign::Program("mpicc.openmpi"), "openmpi-bin libopenmpi-dev"),
    (Sign::Program("mpicc.mpich"), "mpich libmpich-dev"),
    // What bindgen looks for.
    (Sign::Library("libclang.so*"), "libclang-dev"),
    (Sign::File("/etc/OpenCL/vendors/pocl.icd"), "pocl-opencl-icd ocl-icd-libopencl1"),
    (Sign::Program("valgrind"), "valgrind"),
    (Sign::Program("openssl"), "openssl"),
    (Sign::Program("g++"), "g++"),
];

/// Installs what is missing, once.
pub(crate) fn packages() -> Result<(), Failure> {
    static INSTALLED: OnceLock<Result<(), Failure>> = OnceLock::new();
    INSTALLED.get_or_init(install).clone()
}

fn install() -> Result<(), Failure> {
    let missing: Vec<_> = PACKAGES.iter().filter(|(sign, _)| !sign.is_there()).map(|(_, names)| *names).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    println!("apt-get installs {names}");
    let script = format!(
        "sudo=$([ $(id -u) = 0 ] || echo sudo -n); $sudo apt-get update -qq && \
         $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends {names}"
    );
    quiet(&mut command("sh", &["-c", &script])).map_err(|failure| format!("install {names}: {failure}"))
}
