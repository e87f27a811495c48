//! `freehold run` from the command line: status, signals and environment are the program's own, and errors for programs
//! that cannot be executed.

use crate::common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::{binary, cache, output, text};

/// Returns `freehold run --device soft -- WORDS`, with the library in the tests' cache.
fn run(words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .env("XDG_CACHE_HOME", cache())
        .env_remove("FREEHOLD_DEVICE")
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CUDA_VISIBLE_DEVICES");
    command.args(["run", "--device", "soft", "--"]).args(words).stdin(Stdio::null());
    command
}

fn printed(command: &mut Command) -> String {
    let output = output(command);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    text(&output.stdout).to_owned()
}

/// Checks for one sentence on standard error, and this exit status.
fn assert_error(command: &mut Command, status: i32, sentence: &str) {
    let output = output(command);
    assert_eq!(text(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(status));
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("the folder is created");
    folder
}

/// Creates an executable script.
fn script(folder: &str, name: &str, body: &str) -> PathBuf {
    let path = self::folder(folder).join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("the script is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the script is ours");
    path
}

#[test]
fn the_exit_status_is_the_programs() {
    assert_eq!(output(&mut run(&["true"])).status.code(), Some(0));
    assert_eq!(output(&mut run(&["sh", "-c", "exit 7"])).status.code(), Some(7));
}

#[test]
fn a_program_that_dies_by_a_signal_dies_so_here() {
    assert_eq!(output(&mut run(&["sh", "-c", "kill -KILL $$"])).status.signal(), Some(libc::SIGKILL));
    let shell = format!("'{}' run --device soft -- sh -c 'kill -TERM $$'; echo $?", binary().display());
    let output = output(Command::new("sh").args(["-c", &shell]).stdin(Stdio::null()));
    assert_eq!(text(&output.stdout), "143\n");
}

#[test]
fn a_signal_in_the_background_reaches_the_program() {
    let words = ["sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do read -r line <&0 || :; done"];
    let mut child = run(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdout = child.stdout.take().expect("the output is piped");
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).expect("the program prints that it is ready");
    let id = i32::try_from(child.id()).expect("an id fits");
    // SAFETY: the child was not waited for yet, so the id is still its own.
    assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
    drop(child.stdin.take());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the output is UTF-8");
    assert_eq!(rest, "caught\n");
    assert_eq!(child.wait().expect("it is a child of this process").code(), Some(3));
}

#[test]
fn our_library_is_in_front_of_the_programs_others() {
    let show = "echo \"$LD_LIBRARY_PATH\"";
    let alone = printed(&mut run(&["sh", "-c", show]));
    let library = PathBuf::from(alone.trim_end()).join("libcuda.so.1");
    assert!(library.is_file(), "{alone}");
    let beside = printed(run(&["sh", "-c", show]).env("LD_LIBRARY_PATH", "/some/libraries"));
    assert_eq!(beside, format!("{}:/some/libraries\n", alone.trim_end()));
}

#[test]
fn kernels_that_were_compiled_for_a_gpu_are_not_found() {
    for name in ["CUPY_CACHE_DIR", "PYTORCH_KERNEL_CACHE_PATH"] {
        let words = ["sh", "-c", &format!("echo \"${name}\"; dirname \"$LD_LIBRARY_PATH/x\"")];
        let shown = printed(run(&words).env_remove(name));
        let (cache, libraries) = shown.trim_end().split_once('\n').expect("two lines");
        assert!(cache.starts_with(libraries), "{name}: {shown}");
        let chosen = printed(run(&words).env(name, "/some/kernels"));
        assert!(chosen.starts_with("/some/kernels\n"), "{name}: {chosen}");
    }
}

#[test]
fn arguments_reach_the_program_unchanged() {
    let said = printed(&mut run(&["printf", "%s|", "two words", "--device", "-x", "", "a\nb"]));
    assert_eq!(said, "two words|--device|-x||a\nb|");
}

#[test]
fn a_program_may_have_spaces_in_its_name() {
    let path = script("run with spaces", "my program", "echo \"$0\"");
    let path = path.to_str().expect("the path is UTF-8");
    assert_eq!(printed(&mut run(&[path])), format!("{path}\n"));
}

#[test]
fn the_variable_decides_where_no_flag_does() {
    let mut command = Command::new(binary());
    command.args(["run", "sh", "-c", "test -e \"$LD_LIBRARY_PATH/libcuda.so.1\""]);
    command.env("FREEHOLD_DEVICE", "soft").env("XDG_CACHE_HOME", cache()).env_remove("LD_LIBRARY_PATH");
    assert_eq!(output(&mut command).status.code(), Some(0));
    command.env("FREEHOLD_DEVICE", "gpu");
    assert_error(&mut command, 2, r#"unknown device "gpu": expected soft, cuda or cuda:N"#);
}

#[test]
fn a_missing_program_exits_with_127() {
    let sentence = "failed to run no-such-program: it is not in PATH; a program in this folder needs ./";
    assert_error(&mut run(&["no-such-program"]), 127, sentence);
    let sentence = "failed to run ./no-such-program: No such file or directory: check the path";
    assert_error(&mut run(&["./no-such-program"]), 127, sentence);
}

#[test]
fn an_unknown_option_is_not_taken_for_a_program() {
    let mut command = Command::new(binary());
    command.args(["run", "--frob", "true"]).stdin(Stdio::null());
    let sentence = "unknown option '--frob'; put `--` before a program whose name begins with a dash; \
                    see `freehold run --help`";
    assert_error(&mut command, 2, sentence);
    let mut command = Command::new(binary());
    command.args(["run", "--recrod", "out", "true"]).stdin(Stdio::null());
    let sentence = "unknown option '--recrod': try --record; put `--` before a program whose name begins with a dash; \
                    see `freehold run --help`";
    assert_error(&mut command, 2, sentence);
    // After `--`, it is one.
    assert_error(
        &mut run(&["--frob"]),
        127,
        "failed to run --frob: it is not in PATH; a program in this folder needs ./",
    );
}

#[test]
fn a_non_executable_file_exits_with_126() {
    let path = folder("run").join("text");
    fs::write(&path, "only text").expect("the file is written");
    let path = path.to_str().expect("the path is UTF-8");
    let sentence = format!("failed to run {path}: permission denied: it is not executable; run `chmod +x {path}`");
    assert_error(&mut run(&[path]), 126, &sentence);
}

#[test]
fn a_folder_and_a_file_without_its_interpreter_cannot_be_run() {
    let folder = folder("run");
    let path = folder.to_str().expect("the path is UTF-8");
    assert_error(&mut run(&[path]), 126, &format!("failed to run {path}: it is a folder, not a program"));
    // An interpreter that does not exist, as of a program for another system.
    let path = folder.join("foreign");
    fs::write(&path, "#!/no/such/interpreter\n").expect("the file is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let path = path.to_str().expect("the path is UTF-8");
    let sentence = format!("failed to run {path}: its interpreter or dynamic linker does not exist");
    assert_error(&mut run(&[path]), 127, &sentence);
}

#[test]
fn a_text_without_an_interpreter_is_a_shell_script() {
    let path = folder("run").join("script");
    fs::write(&path, "echo from a shell; exit 5\n").expect("the file is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let output = output(&mut run(&[path.to_str().expect("the path is UTF-8")]));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("from a shell\n", ""));
    assert_eq!(output.status.code(), Some(5));
}

#[test]
fn without_a_program_the_error_points_to_the_help() {
    let sentence = "the following required arguments were not provided: <PROGRAM>...; \
                    see `freehold run --help`";
    assert_error(Command::new(binary()).arg("run"), 2, sentence);
}

#[test]
fn a_folder_that_others_can_write_to_is_not_used() {
    let base = folder("run-open");
    // SAFETY: the call has no arguments and cannot fail.
    let mine = base.join(format!("freehold-{}", unsafe { libc::geteuid() }));
    fs::create_dir_all(&mine).expect("the folder is created");
    fs::set_permissions(&mine, fs::Permissions::from_mode(0o777)).expect("the folder is ours");
    let sentence = format!(
        "{} belongs to another user or is writable by others: remove it, or set XDG_CACHE_HOME",
        mine.display()
    );
    assert_error(run(&["true"]).env("XDG_CACHE_HOME", &base), 2, &sentence);
}

#[test]
fn a_folder_creation_error_says_what_to_do() {
    let file = folder("run").join("no-folder");
    fs::write(&file, "").expect("the file is written");
    let sentence = format!(
        "failed to write {}: Not a directory (os error 20): set XDG_CACHE_HOME to a writable folder",
        file.join("cache").display()
    );
    assert_error(run(&["true"]).env("XDG_CACHE_HOME", file.join("cache")), 2, &sentence);
}

#[test]
fn the_folder_of_the_library_is_printed_for_a_linker() {
    let mut command = Command::new(binary());
    command.env("XDG_CACHE_HOME", cache()).args(["run", "--print-libcuda"]).stdin(Stdio::null());
    let folder = PathBuf::from(printed(&mut command).trim_end());
    assert!(folder.join("libcuda.so").is_file() && folder.join("libcuda.so.1").is_file(), "{}", folder.display());
    let mut command = Command::new(binary());
    command.env("XDG_CACHE_HOME", cache()).args(["run", "--print-libcuda", "true"]).stdin(Stdio::null());
    let output = output(&mut command);
    assert_eq!((text(&output.stdout), output.status.code()), ("", Some(2)));
}

#[test]
fn a_program_is_not_given_one_of_several_software_devices() {
    let sentence = "soft:1 cannot be given to a program, which sees all software devices: use soft, and choose device 1 in the program";
    for count in ["1", "2"] {
        let mut command = Command::new(binary());
        command.env("XDG_CACHE_HOME", cache()).env("FREEHOLD_SOFT_DEVICES", count).stdin(Stdio::null());
        assert_error(command.args(["run", "--device", "soft:1", "--", "true"]), 2, sentence);
        let mut command = Command::new(binary());
        command.env("XDG_CACHE_HOME", cache()).env("FREEHOLD_SOFT_DEVICES", count).env("FREEHOLD_DEVICE", "soft:1");
        assert_error(command.args(["run", "--", "true"]).stdin(Stdio::null()), 2, sentence);
    }
}

#[test]
fn the_help_says_how_to_see_why_a_kernel_failed() {
    let output = output(Command::new(binary()).args(["run", "--help"]));
    let help = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("CUDA_LOG_FILE=stderr shows why a kernel was refused or failed"), "{help}");
    assert!(help.contains("at least 64MiB"), "{help}");
}

#[test]
fn options_that_change_nothing_on_the_software_device_are_warned_about() {
    let said = |options: &[&str], memory: &str| {
        let mut command = Command::new(binary());
        command.env("XDG_CACHE_HOME", cache()).env("FREEHOLD_SOFT_MEMORY", memory).stdin(Stdio::null());
        let output = output(command.args(["run", "--device", "soft"]).args(options).args(["--", "true"]));
        assert_eq!(output.status.code(), Some(0));
        text(&output.stderr).to_owned()
    };
    assert_eq!(
        said(&["--limit", "99GiB"], "1GiB"),
        "warning: --limit 99.0 GiB changes nothing: the software device has 1.0 GiB, which FREEHOLD_SOFT_MEMORY sets\n"
    );
    assert_eq!(said(&["--limit", "1GiB"], "1GiB"), "");
    assert_eq!(
        said(&["--strict"], "1GiB"),
        "warning: --strict changes nothing on the software device, whose cudaFree waits in any case\n"
    );
}
