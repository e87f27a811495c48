//! The steps of `cargo xtask test` that build the crate for MPI, which is apart from the others so that those need none, and run its tests:
//! with Open MPI all of them, with MPICH every operation once.

use std::process::{Command, Stdio};

use crate::apt;
use crate::command::{Failure, cargo, command, output, run, target};

const MANIFEST: &str = "crates/mpi/Cargo.toml";

/// A library of MPI's, as Debian has it.
struct Library {
    /// The compiler that the crate's build asks for it.
    compiler: &'static str,
    packages: &'static [&'static str],
    /// Where cargo builds with it.
    folder: &'static str,
}

const OPEN_MPI: Library = Library {
    compiler: "mpicc.openmpi",
    packages: &["openmpi-bin", "libopenmpi-dev", "libclang-dev"],
    folder: "openmpi",
};

const MPICH: Library =
    Library { compiler: "mpicc.mpich", packages: &["mpich", "libmpich-dev", "libclang-dev"], folder: "mpich" };

pub(crate) fn open_mpi() -> Result<(), Failure> {
    install(&OPEN_MPI)?;
    run(&mut crate_cargo(&OPEN_MPI, "fmt", &["--check"]))?;
    run(&mut crate_cargo(&OPEN_MPI, "clippy", &["--all-targets", "--", "-D", "warnings"]))?;
    // One test at a time: each is several processes already.
    run(&mut crate_cargo(&OPEN_MPI, "test", &["--", "--test-threads=1"]))?;
    run(crate_cargo(&OPEN_MPI, "doc", &["--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

pub(crate) fn mpich() -> Result<(), Failure> {
    install(&MPICH)?;
    run(&mut crate_cargo(&MPICH, "test", &["--test", "operations"]))
}

/// Cargo for the crate, with a library.
fn crate_cargo(library: &Library, task: &str, words: &[&str]) -> Command {
    let mut cargo = cargo(&[task, "--manifest-path", MANIFEST]);
    cargo.args(words).env("MPICC", library.compiler).env("CARGO_TARGET_DIR", target().join(library.folder));
    cargo
}

/// Installs a library where it is missing.
fn install(library: &Library) -> Result<(), Failure> {
    let asked = command(library.compiler, &["-show"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    // What bindgen looks for.
    let found = output(&mut command("sh", &["-c", "find /usr/lib -name 'libclang*.so*' ! -name '*cpp*' | head -1"]))?;
    if asked.is_ok_and(|status| status.success()) && !found.is_empty() {
        return Ok(());
    }
    apt::install(library.packages)
}
