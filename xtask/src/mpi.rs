//! The MPI crate, the only one that needs MPI to build, and its tests: all of them with Open MPI, and every operation
//! once with MPICH.

use std::fs;
use std::path::{Path, PathBuf};

use crate::apt;
use crate::command::{Failure, cargo, cargo_build, output, run, target};
use crate::programs::{self, Kind, Program};
use crate::runner::{Case, folder};

/// The compilers through which the crate's build finds a library.
pub(crate) const OPEN_MPI: &str = "mpicc.openmpi";
const MPICH: &str = "mpicc.mpich";

const PACKAGE: &str = "freehold-mpi";

/// The packages that are built for one MPI library; all others serve both.
const BUILT_PER_LIBRARY: [&str; 3] = ["mpi-sys", "mpi", PACKAGE];

pub(crate) fn open_mpi() -> Result<Vec<Case>, Failure> {
    let programs = build(OPEN_MPI, &[])?;
    let mut cases = Vec::new();
    for program in programs.iter().filter(|program| program.kind == Kind::Test) {
        let program = keep_copy(program)?;
        cases.extend(program.tests()?.iter().map(|test| program.case(test, &[])));
    }
    Ok(cases)
}

/// Builds for MPICH. This overwrites the program that tests with Open MPI start, which is then restored.
pub(crate) fn mpich() -> Result<Vec<Case>, Failure> {
    let (program, copy) = (target().join("debug").join(PACKAGE), folder().join(PACKAGE));
    copy_file(&program, &copy)?;
    let programs = build(MPICH, &["--test", "it"])?;
    copy_file(&copy, &program)?;
    let program = programs.iter().find(|program| program.package == PACKAGE && program.target == "it");
    let program = program.ok_or("cargo built no MPI tests")?;
    let tests = program.tests()?;
    let operations = tests.iter().filter(|test| test.starts_with("operations::"));
    Ok(operations.map(|test| program.case(test, &[("MPICC", MPICH)])).collect())
}

/// Builds the programs of the crate with a library's compiler. All packages are named, so that the others are not
/// rebuilt.
fn build(compiler: &str, targets: &[&str]) -> Result<Vec<Program>, Failure> {
    apt::packages()?;
    let last = target().join("mpi-library");
    if fs::read_to_string(&last).is_ok_and(|last| last != compiler) {
        let mut clean = cargo(&["clean", "--quiet"]);
        run(clean.args(BUILT_PER_LIBRARY.iter().flat_map(|package| ["--package", package])))?;
    }
    let mut build = cargo_build(&["test", "--workspace", "--no-run"]);
    build.args(targets).args(["--message-format=json-render-diagnostics"]).env("MPICC", compiler);
    let messages = output(&mut build)?;
    fs::write(&last, compiler).map_err(|error| format!("{} cannot be written: {error}", last.display()))?;
    Ok(programs::programs(&messages).filter(|program| program.package == PACKAGE).collect())
}

/// Copies a program, so that the build for another library does not overwrite it.
fn keep_copy(program: &Program) -> Result<Program, Failure> {
    let path = folder().join(&program.name);
    copy_file(&program.path, &path)?;
    Ok(Program { path, ..program.clone() })
}

fn copy_file(from: &Path, to: &PathBuf) -> Result<(), Failure> {
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(|error| format!("{} cannot be copied: {error}", from.display()))
}
