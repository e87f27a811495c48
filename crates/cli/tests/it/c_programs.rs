//! C programs on the software driver's library: compiled with the machine's compiler against our header, started by
//! `freehold run`.

use crate::common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{binary, cache};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns `FREEHOLD run --device soft -- `, with the library in `cache`.
fn run(freehold: &Path, cache: &Path) -> Command {
    let mut command = Command::new(freehold);
    command.args(["run", "--device", "soft", "--"]).env("XDG_CACHE_HOME", cache).stdin(Stdio::null());
    command
}

/// Returns the folder that `freehold run` puts first in the library path.
fn library_folder() -> PathBuf {
    let mut command = run(&binary(), &cache());
    command.args(["sh", "-c", "echo \"$LD_LIBRARY_PATH\""]);
    let output = command.env_remove("LD_LIBRARY_PATH").output().expect("the binary starts");
    let text = String::from_utf8(output.stdout).expect("the path is UTF-8");
    PathBuf::from(text.trim_end())
}

/// Compiles a program. Returns its path.
fn built(source: &Path, name: &str) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    compiler.arg(root().join("crates/libcuda/include")).arg(source).arg("-L").arg(library_folder());
    let status = compiler.arg("-lcuda").arg("-o").arg(&program).status().expect("a C compiler is installed");
    assert!(status.success(), "{name} does not compile");
    program
}

/// Returns the output of a program that succeeds.
fn stdout_of(command: &mut Command) -> String {
    let output = command.output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

#[test]
fn a_c_program_allocates_copies_launches_and_frees() {
    let program = built(&root().join("examples/c/saxpy.c"), "saxpy");
    let said = stdout_of(run(&binary(), &cache()).arg(&program));
    assert_eq!(said, "Freehold Software Device 0: 1000 elements are right\n");
}

#[test]
fn the_binary_runs_from_an_empty_folder() {
    let program = built(&root().join("examples/c/saxpy.c"), "saxpy-alone");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("alone-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder is new");
    let freehold = folder.join("freehold");
    // A copy would be held open by processes that other tests start, and could not be executed.
    fs::hard_link(binary(), &freehold).expect("the binary can be linked");
    let said = stdout_of(run(&freehold, &folder.join("cache")).arg(&program));
    assert_eq!(said, "Freehold Software Device 0: 1000 elements are right\n");
    fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn a_c_program_gets_not_supported_for_unimplemented_calls() {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("refused.c");
    let text = "#include <freehold_cuda.h>\n#include <stdio.h>\n\
        CUresult cuTexRefGetFormat(int *format, int *channels, void *texture);\n\
        int main(void) { int a, b; printf(\"%d\\n\", cuTexRefGetFormat(&a, &b, 0)); return 0; }\n";
    fs::write(&source, text).expect("the source is written");
    assert_eq!(stdout_of(run(&binary(), &cache()).arg(built(&source, "refused"))), "801\n");
}
