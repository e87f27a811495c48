//! The steps of `cargo xtask test` that build the crate for MPI, which is apart from the others so that those need none, and run its tests:
//! with Open MPI all of them, with MPICH every operation once.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::apt;
use crate::command::{Failure, cargo, command, output, run, target};

const MANIFEST: &str = "crates/mpi/Cargo.toml";

/// A library of MPI's, as Debian has it.
struct Library {
    /// The compiler that the crate's build asks for it.
    compiler: &'static str,
    packages: &'static [&'static str],
}

const OPEN_MPI: Library =
    Library { compiler: "mpicc.openmpi", packages: &["openmpi-bin", "libopenmpi-dev", "libclang-dev"] };

const MPICH: Library = Library { compiler: "mpicc.mpich", packages: &["mpich", "libmpich-dev", "libclang-dev"] };

/// What is built anew for another library; all else serves both.
const OF_ONE_LIBRARY: [&str; 3] = ["mpi-sys", "mpi", "freehold-mpi"];

pub(crate) fn open_mpi() -> Result<(), Failure> {
    prepare(&OPEN_MPI)?;
    run(&mut crate_cargo(&OPEN_MPI, "fmt", &["--check"]))?;
    run(&mut crate_cargo(&OPEN_MPI, "clippy", &["--all-targets", "--", "-D", "warnings"]))?;
    // One test at a time: each is several processes already.
    run(&mut crate_cargo(&OPEN_MPI, "test", &["--", "--test-threads=1"]))?;
    run(crate_cargo(&OPEN_MPI, "doc", &["--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
}

pub(crate) fn mpich() -> Result<(), Failure> {
    prepare(&MPICH)?;
    run(&mut crate_cargo(&MPICH, "test", &["--test", "operations"]))
}

/// Cargo for the crate, with a library.
fn crate_cargo(library: &Library, task: &str, words: &[&str]) -> Command {
    let mut cargo = cargo(&[task, "--manifest-path", MANIFEST]);
    cargo.args(words).env("MPICC", library.compiler).env("CARGO_TARGET_DIR", folder());
    cargo
}

/// Where cargo builds the crate.
fn folder() -> PathBuf {
    target().join("mpi")
}

/// Has a library installed, and nothing left that was built for the other.
fn prepare(library: &Library) -> Result<(), Failure> {
    install(library)?;
    let last = folder().join("library");
    if fs::read_to_string(&last).is_ok_and(|last| last == library.compiler) {
        return Ok(());
    }
    let mut clean = crate_cargo(library, "clean", &[]);
    run(clean.args(OF_ONE_LIBRARY.iter().flat_map(|package| ["--package", package])))?;
    fs::create_dir_all(folder())
        .and_then(|()| fs::write(&last, library.compiler))
        .map_err(|error| format!("{} cannot be written: {error}", last.display()))
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
