//! Programs in C on the software driver's library: built by the machine's compiler against our header, started by
//! `freehold run`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::binary;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder that `freehold run` puts in front of others.
fn library_folder() -> PathBuf {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--", "sh", "-c", "echo \"$LD_LIBRARY_PATH\""]);
    let output = command.env_remove("LD_LIBRARY_PATH").output().expect("the binary starts");
    let text = String::from_utf8(output.stdout).expect("a path of text");
    PathBuf::from(text.trim_end())
}

/// Builds a program and runs it on the software device: what it printed.
fn runs(source: &Path, name: &str) -> String {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    compiler.arg(root().join("crates/libcuda/include")).arg(source).arg("-L").arg(library_folder());
    let status = compiler.arg("-lcuda").arg("-o").arg(&program).status().expect("there is a C compiler");
    assert!(status.success(), "{name} compiles");
    let mut run = Command::new(binary());
    run.args(["run", "--device", "soft", "--"]).arg(&program).stdin(Stdio::null());
    let output = run.output().expect("the binary starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8(output.stdout).expect("text was printed")
}

#[test]
fn a_c_program_allocates_copies_launches_and_frees() {
    let said = runs(&root().join("examples/c/saxpy.c"), "saxpy");
    assert_eq!(said, "Freehold Software Device 0: 1000 elements are right\n");
}

#[test]
fn a_c_program_meets_the_refusal_of_what_is_not_served() {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("refused.c");
    let text = "#include <freehold_cuda.h>\n#include <stdio.h>\n\
        CUresult cuTexRefGetFormat(int *format, int *channels, void *texture);\n\
        int main(void) { int a, b; printf(\"%d\\n\", cuTexRefGetFormat(&a, &b, 0)); return 0; }\n";
    fs::write(&source, text).expect("a source can be written");
    assert_eq!(runs(&source, "refused"), "801\n");
}
