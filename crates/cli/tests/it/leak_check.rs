//! `freehold run --leak-check`: what a program has not freed, and its wrong frees. The program is the C file beside this one.

use crate::common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{binary, cache, output, runtime_program, text};

fn run(program: &Path, word: &str, frees: &str) -> Output {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--leak-check", "--"]).arg(program).arg(word);
    command.env("XDG_CACHE_HOME", cache()).env("FREEHOLD_CUDAFREE", frees).stdin(Stdio::null());
    output(&mut command)
}

/// Returns what was reported, with the file's folder left out, and addresses replaced by a dash.
fn reported(output: &Output) -> String {
    let folder = format!("{}/tests/it/leak_check/", env!("CARGO_MANIFEST_DIR"));
    let text = text(&output.stderr).replace(&folder, "");
    let lines = text.lines().map(|line| match (line.find("(0x"), line.find(')')) {
        (Some(start), Some(end)) => format!("{}(-{}\n", &line[..start], &line[end..]),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// The line of the program with a comment.
fn line(comment: &str) -> usize {
    let source = include_str!("leak_check/leaks.c");
    1 + source.lines().position(|line| line.ends_with(comment)).expect("the comment is there")
}

#[test]
fn leaks_and_wrong_frees_are_reported_with_function_and_line() {
    let program = runtime_program(Path::new("leak_check/leaks"), &["-g", "-O1"]);
    for frees in ["driver", "deferred"] {
        let output = run(&program, "all", frees);
        assert_eq!(output.status.code(), Some(7));
        let said = reported(&output);
        let (make, looped) = (line("// the line of make"), line("// the line of the loop"));
        let (first, second) = (line("// the line of the first free"), line("// the line of the second free"));
        let double = format!(
            "freehold: cudaFree(-): the address was freed before
  wrong free:
    main at leaks.c:{second}
  allocated:
    make at leaks.c:{make}
    main at leaks.c:{}
  freed first:
    main at leaks.c:{first}
",
            first - 1
        );
        assert!(said.starts_with(&double), "{said}");
        for expected in [
            "freehold: cudaFree(-): the address is 16 bytes into a block of 200 bytes from cudaMalloc\n",
            "freehold: cudaFree(-): the address is memory of the host\n",
            "freehold: cudaFree(-): the address is from cudaMallocHost, which another function frees\n",
            "freehold: not freed: 32504 bytes in 8 allocations, from 6 places\n  12288 bytes in 3 allocations of cudaMalloc\n",
            &format!("allocations of cudaMalloc\n    make at leaks.c:{make}\n    main at leaks.c:{looped}\n"),
            "  8192 bytes in 1 allocation of cudaMallocHost\n    main at leaks.c:",
            "  6000 bytes in 1 allocation of cudaMallocAsync\n",
            "  5000 bytes in 1 allocation of cudaMallocManaged\n",
            "  1024 bytes in 1 allocation of cudaMallocArray\n",
            "  0 bytes in 1 allocation of cudaStreamCreate\n",
        ] {
            assert!(said.contains(expected), "{expected} is not in:\n{said}");
        }
    }
}

#[test]
fn what_an_exit_handler_frees_is_not_a_leak() {
    let program = runtime_program(Path::new("leak_check/leaks"), &["-g"]);
    let output = run(&program, "clean", "driver");
    assert_eq!((text(&output.stderr), output.status.code()), ("freehold: everything was freed\n", Some(0)));
}

#[test]
fn a_process_without_allocations_reports_nothing() {
    assert_eq!(text(&run(Path::new("true"), "", "driver").stderr), "");
}

#[test]
fn a_program_without_symbols_is_named_with_offsets() {
    let program = runtime_program(Path::new("leak_check/leaks"), &["-O1", "-s"]);
    let said = reported(&run(&program, "all", "driver"));
    let place = format!("  8192 bytes in 1 allocation of cudaMallocHost\n    in {}+0x", program.display());
    assert!(said.contains(&place), "{place} is not in:\n{said}");
}

#[test]
fn nothing_is_reported_unless_it_is_asked_for() {
    let program = runtime_program(Path::new("leak_check/leaks"), &["-g"]);
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--"]).arg(program).arg("all");
    let output = output(command.env("XDG_CACHE_HOME", cache()).env_remove("FREEHOLD_LEAK_CHECK").stdin(Stdio::null()));
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(7)));
}
