//! The binary that the tests of the command line start, and its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the lab on the software device, whatever the machine and the environment.
pub(crate) fn lab() -> Command {
    let mut command = Command::new(binary());
    command.arg("lab").env("FREEHOLD_DEVICE", "soft").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

/// Returns the binary built with the tests, or the one beside them if they were copied to another machine.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("FREEHOLD_BIN").map_or_else(|| env!("CARGO_BIN_EXE_freehold").into(), PathBuf::from)
}

/// Returns where `freehold run` keeps the library in tests.
pub(crate) fn cache() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

/// Checks for an empty standard output, one line on standard error, and exit status 2.
pub(crate) fn refused_with(command: &mut Command, sentence: &str) {
    let output = output(command);
    assert_eq!(text(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}

/// Compiles a C program of the tests' folder against the driver's library and the runtime's. Returns its path.
pub(crate) fn runtime_program(name: &Path, options: &[&str]) -> PathBuf {
    /// Tests run at the same time, and a file that is being written cannot be executed.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let mut folder = Command::new(binary());
    folder.args(["run", "--print-libcuda"]).env("XDG_CACHE_HOME", cache()).stdin(Stdio::null());
    let folder = text(&output(&mut folder).stdout).trim_end().to_owned();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(name).with_extension("c");
    let (stem, made) = (source.file_stem().unwrap_or_default().display(), MADE.fetch_add(1, Ordering::Relaxed));
    let file = format!("program-{stem}-{}-{made}", std::process::id());
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror"]).args(options).arg(&source).arg("-L").arg(folder);
    compiler.args(["-lcuda", "-lcudart", "-ldl", "-lpthread", "-o"]).arg(&program);
    assert!(compiler.status().expect("a C compiler is installed").success(), "{} does not compile", source.display());
    program
}
