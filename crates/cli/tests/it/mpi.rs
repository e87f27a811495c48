//! `freehold mpi` from the command line: it executes freehold-mpi, or says how to build it.

use crate::common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::binary;

/// Held by each test: a program that is being written cannot be executed, and processes started by other threads hold
/// it open.
fn exclusive() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of this test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    /// Creates the folder with a copy of the binary, so that the test controls what is beside it.
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("freehold-mpi-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder is new");
        fs::copy(binary(), path.join("freehold")).expect("the binary can be copied");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).expect("the folder is removed");
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("the program is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is made executable");
}

fn freehold(folder: &Path) -> Command {
    let mut command = Command::new(folder.join("freehold"));
    command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

#[test]
fn without_freehold_mpi_the_error_says_how_to_build_it() {
    let _alone = exclusive();
    let folder = Folder::new("missing");
    let output = freehold(&folder.0).args(["mpi", "bench"]).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: freehold-mpi is neither beside this program nor in PATH: on a machine with MPI and libclang (on Debian \
         libopenmpi-dev and libclang-dev), build it with cargo build --release -p freehold-mpi\n"
    );
}

#[test]
fn its_help_is_there_without_its_program() {
    let _alone = exclusive();
    let folder = Folder::new("help");
    let output = freehold(&folder.0).args(["mpi", "--help"]).output().expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("cargo build --release -p freehold-mpi"), "{said}");
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("", Some(0)));
}

#[test]
fn mpi_execs_the_adjacent_program_with_arguments_and_status() {
    let _alone = exclusive();
    let folder = Folder::new("beside");
    write_program(&folder.0.join("freehold-mpi"), "#!/bin/sh\necho \"$@\"\nexit 7\n");
    let output = freehold(&folder.0).args(["mpi", "bench", "--json", "--help"]).output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "bench --json --help\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn it_finds_the_program_in_path() {
    let _alone = exclusive();
    let (folder, other) = (Folder::new("path"), Folder::new("path-other"));
    write_program(&other.0.join("freehold-mpi"), "#!/bin/sh\necho found\n");
    let mut command = freehold(&folder.0);
    command.env("PATH", format!("{}:/usr/bin:/bin", other.0.display()));
    let output = command.arg("mpi").output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "found\n");
    assert_eq!(output.status.code(), Some(0));
}
