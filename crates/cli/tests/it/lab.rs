//! `freehold lab` from the command line: its answers, its table, and errors for bad input.

use crate::common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use freehold_testing::at_effort;
use serde_json::Value;

use common::{binary, lab, output, refused_with, text};

/// Creates an empty folder for this test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the old folder is removed");
    }
    fs::create_dir_all(&folder).expect("the folder is created");
    folder
}

#[test]
fn an_unknown_device_names_the_forms() {
    refused_with(
        lab().args(["--device", "gpu"]),
        r#"unknown device "gpu": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"#,
    );
}

#[test]
fn an_unknown_device_in_the_environment_is_refused_too() {
    refused_with(
        lab().env("FREEHOLD_DEVICE", "cuda:"),
        r#"unknown device "cuda:": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"#,
    );
}

#[test]
fn a_setting_of_the_software_device_that_cannot_be_read_is_named() {
    refused_with(
        lab().env("FREEHOLD_SOFT_MEMORY", "8GB"),
        "FREEHOLD_SOFT_MEMORY is '8GB', but should be a size from 64MiB to 1024GiB, such as 512MiB or 8GiB",
    );
    refused_with(
        lab().env("FREEHOLD_SOFT_SCHEDULE", "random"),
        "FREEHOLD_SOFT_SCHEDULE is 'random', but should be threads, eager, seed:N or seed:N,switches:K with numbers N and K",
    );
}

#[test]
fn a_missing_gpu_is_an_error() {
    let output = output(lab().args(["--device", "cuda:99"]));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: cuda:99 was requested, but "), "{said}");
    assert_eq!(said.lines().count(), 1);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_unknown_id_names_its_neighbours() {
    refused_with(lab().args(["--only", "0.3.9"]), r#"no experiment has the id "0.3.9": 0.3 has 0.3.1 to 0.3.2"#);
}

#[test]
fn an_id_of_an_unknown_question_names_the_questions() {
    refused_with(
        lab().args(["--only", "9"]),
        r#"no experiment has the id "9": expected one that starts with 0, 1, 2, 3, 4, 5, 6, 7"#,
    );
}

#[test]
fn an_invalid_id_error_shows_the_expected_form() {
    refused_with(lab().args(["--only", "2.x"]), r#"no experiment has the id "2.x": ids look like 2, 2.2 or 2.2.1"#);
}

#[test]
fn one_unknown_id_among_known_ones_is_refused() {
    refused_with(lab().args(["--only", "0.3.1,0.3.9"]), r#"no experiment has the id "0.3.9": 0.3 has 0.3.1 to 0.3.2"#);
}

#[test]
fn a_runtime_that_is_not_there_is_named() {
    let output = output(lab().args(["--only", "7.1.1", "--runtime", "/nowhere/libcudart.so.13"]));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: failed to load the CUDA runtime /nowhere/libcudart.so.13: "), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_library_that_is_not_a_runtime_is_refused() {
    refused_with(
        lab().args(["--only", "7.1.1", "--runtime", "libc.so.6"]),
        "experiment 7.1.1 did not start: libc.so.6 is not a CUDA runtime of version 12.8 or later: it has no cudaGetErrorName",
    );
}

#[test]
fn the_runtime_of_experiments_is_named_and_only_if_they_are_asked() {
    let first = |words: &[&str]| {
        let output = output(lab().args(words).env("COLUMNS", "160"));
        text(&output.stdout).lines().next().expect("a table has lines").to_owned()
    };
    assert_eq!(first(&["7.1.1"]), "software device (as FREEHOLD_DEVICE says); Freehold's CUDA runtime");
    assert_eq!(
        first(&["7.1.1", "--runtime", "freehold"]),
        "software device (as FREEHOLD_DEVICE says); Freehold's CUDA runtime (as --runtime says)"
    );
    assert_eq!(first(&["0.4.2"]), "software device (as FREEHOLD_DEVICE says)");
}

#[test]
fn the_runtime_says_which_calls_wait_for_a_running_kernel() {
    let output = output(lab().args(["--json", "--only", "7.3.1,7.3.3"]));
    let lines = text(&output.stdout).lines();
    let answers: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("a line is an object")).collect();
    assert_eq!(answers[0]["here"], "returned at once");
    assert_eq!(answers[1]["here"], "waited for the work");
}

#[test]
fn a_reference_that_is_not_there_is_named() {
    refused_with(
        lab().args(["--reference", "/nowhere/h200.json"]),
        "failed to read the reference /nowhere/h200.json: No such file or directory (os error 2)",
    );
}

#[test]
fn a_reference_that_is_not_json_is_refused() {
    let path = folder("not_json").join("reference.json");
    fs::write(&path, "answers").unwrap();
    let path = path.to_str().unwrap();
    refused_with(
        lab().args(["--reference", path]),
        &format!("{path} is not a reference: expected value at line 1 column 1"),
    );
}

#[test]
fn a_reference_of_another_shape_is_refused() {
    let path = folder("wrong_shape").join("reference.json");
    fs::write(&path, r#"{"device": "NVIDIA H200", "driver": "580.159", "cuda": "13.0"}"#).unwrap();
    let path = path.to_str().unwrap();
    refused_with(
        lab().args(["--reference", path]),
        &format!("{path} is not a reference: missing field `answers` at line 1 column 62"),
    );
}

#[test]
fn a_reference_with_an_answer_to_no_id_is_refused() {
    let path = folder("wrong_id").join("reference.json");
    fs::write(&path, r#"{"device": "", "driver": "", "cuda": "", "answers": {"2.2": "SUCCESS"}}"#).unwrap();
    let output = output(lab().arg("--reference").arg(&path));
    let said = text(&output.stderr);
    assert!(said.contains("is not a reference: expected one to three numbers separated by dots"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_record_in_a_folder_that_is_not_there_is_refused_before_anything_runs() {
    refused_with(
        lab().args(["--record", "/nowhere/record.json"]),
        "failed to write the record /nowhere/record.json: No such file or directory (os error 2)",
    );
}

#[test]
fn an_unknown_option_has_exit_status_2() {
    assert_eq!(output(lab().arg("--nothing")).status.code(), Some(2));
}

#[test]
fn a_command_without_arguments_has_exit_status_2() {
    let mut command = Command::new(binary());
    assert_eq!(output(&mut command).status.code(), Some(2));
}

#[test]
fn the_help_does_not_show_the_process_of_an_experiment() {
    let help = output(Command::new(binary()).arg("--help"));
    assert!(text(&help.stdout).contains("lab"));
    assert!(!text(&help.stdout).contains("experiment "), "{}", text(&help.stdout));
}

#[test]
fn no_line_of_the_table_is_wider_than_the_terminal() {
    for columns in ["80", "160"] {
        let output = output(
            lab()
                .args(["--only", at_effort("0.1,2.12,5.1", "0.1,2.12,5.1,7.1", "0,1,2,3,4,5,6,7")])
                .env("COLUMNS", columns),
        );
        let table = text(&output.stdout);
        let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns.parse().unwrap(), "{widest} columns of {columns}:\n{table}");
    }
}

#[test]
fn the_table_starts_with_the_device_and_ends_with_a_summary() {
    let output = output(lab().args(["--only", "0.4.2,2.12.1"]).env("COLUMNS", "160"));
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], "software device (as FREEHOLD_DEVICE says)");
    assert_eq!(lines[2], "0 who owns device memory and who may free it");
    assert!(lines.contains(&"2 when a release really happens"));
    let summary =
        "2 agree, 0 differ; software device (as FREEHOLD_DEVICE says); recorded on NVIDIA H200, driver 580.159.04";
    assert_eq!(lines.last(), Some(&summary));
}

#[test]
fn ids_are_given_with_and_without_an_option() {
    let ids = |words: &[&str]| {
        let output = output(lab().args(words).arg("--json"));
        let ids = text(&output.stdout).lines().map(|line| line[..line.find(',').unwrap()].to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids(&["0.4.2", "2.12.1"]), [r#"{"id":"0.4.2""#, r#"{"id":"2.12.1""#]);
    assert_eq!(ids(&["0.4.2,2.12.1"]), ids(&["--only", "0.4.2,2.12.1"]));
}

#[test]
fn a_pipe_gets_no_colour_and_no_progress() {
    let output = output(lab().args(["--only", "0.4.2"]));
    assert!(!text(&output.stdout).contains('\u{1b}'));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn every_line_of_json_is_one_finding() {
    let output = output(lab().args(["--json", "--only", "0.4"]));
    let findings: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(findings.len(), 9);
    for finding in &findings {
        let keys: Vec<&String> = finding.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["agrees", "did", "here", "id", "question", "reference"]);
    }
    assert_eq!(findings[1]["id"], "0.4.2");
    assert_eq!(findings[1]["question"], "who owns device memory and who may free it");
    assert_eq!(findings[1]["did"], "free null");
    assert_eq!(findings[1]["here"], "SUCCESS");
}

#[test]
fn what_the_reference_lacks_is_null_and_does_not_agree() {
    let path = folder("lacking").join("reference.json");
    fs::write(&path, r#"{"device": "d", "driver": "1", "cuda": "13.0", "answers": {}}"#).unwrap();
    let output = output(lab().args(["--json", "--only", "0.4.2", "--reference"]).arg(&path));
    let finding: Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!(finding["reference"], Value::Null);
    assert_eq!(finding["agrees"], false);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_device_agrees_with_its_own_record() {
    let folder = folder("own_record");
    let path = folder.join("record.json");
    let only: &[&str] = at_effort(&["--only", "0.4,2.12,3.1,5.1"], &["--only", "0.4,2.12,3.1,5.1,7.1"], &[]);
    output(lab().args(only).arg("--record").arg(&path));
    let output = output(lab().args(only).args(["--json", "--reference"]).arg(&path));
    for line in text(&output.stdout).lines() {
        let finding: Value = serde_json::from_str(line).unwrap();
        assert_eq!(finding["here"], finding["reference"], "{line}");
    }
    assert_eq!(output.status.code(), Some(0));
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["record.json"]);
}

#[test]
fn one_other_answer_is_exit_status_1() {
    let path = folder("other_answer").join("reference.json");
    let answers = r#"{"0.4.2": "SUCCESS", "0.4.4": "SUCCESS"}"#;
    fs::write(&path, format!(r#"{{"device": "d", "driver": "1", "cuda": "13.0", "answers": {answers}}}"#)).unwrap();
    let output = output(lab().args(["--only", "0.4.2,0.4.4", "--reference"]).arg(&path).env("COLUMNS", "160"));
    assert_eq!(output.status.code(), Some(1));
    let last = text(&output.stdout).lines().last().unwrap();
    assert_eq!(last, "1 agree, 1 differ; software device (as FREEHOLD_DEVICE says); recorded on d, driver 1");
}

#[test]
fn a_record_replaces_an_older_one() {
    let path = folder("older_record").join("record.json");
    fs::write(&path, "an older one").unwrap();
    output(lab().args(["--only", "0.4.2", "--record"]).arg(&path));
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["answers"]["0.4.2"], "SUCCESS");
}

#[test]
fn a_closed_pipe_is_not_a_panic() {
    let mut child = lab().args(["--only", "0.4.2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", output.status);
}

#[test]
fn a_width_beyond_all_screens_is_a_wide_table() {
    let output = output(lab().args(["--only", "0.4.2"]).env("COLUMNS", "18446744073709551615"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn a_record_replaces_a_plain_file_and_nothing_else() {
    let folder = folder("plain_file_only");
    let link = folder.join("link.json");
    std::os::unix::fs::symlink("/dev/null", &link).expect("the link is new");
    refused_with(
        lab().args(["--only", "0.4.2", "--record"]).arg(&link),
        &format!("failed to write the record {}: it exists and is not a regular file", link.display()),
    );
    assert!(fs::symlink_metadata(&link).expect("the link exists").is_symlink());
}
