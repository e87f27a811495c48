//! `freehold devices`, and commands on OpenCL. Tests that need an OpenCL driver report that and pass on a machine
//! without one, unless FREEHOLD_DEVICE selects OpenCL.

use crate::common;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use common::{binary, output, refused_with, text};

/// A folder without drivers, for the OpenCL loader.
const NO_VENDORS: (&str, &str) = ("OCL_ICD_VENDORS", "/nowhere");

fn freehold(words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(words).env_remove("FREEHOLD_DEVICE").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

/// Returns whether this machine has OpenCL.
fn has_opencl() -> bool {
    let found = lines(&output(&mut freehold(&["devices", "--json"]))).iter().any(|line| line["device"] == "opencl:0");
    let is_demanded = std::env::var("FREEHOLD_DEVICE").is_ok_and(|device| device.starts_with("opencl"));
    assert!(found || !is_demanded, "FREEHOLD_DEVICE selects OpenCL, but there is none");
    if !found {
        println!("skipped: this machine has no OpenCL");
    }
    found
}

#[test]
fn every_kind_of_device_is_listed_or_reported_missing() {
    let output = output(&mut freehold(&["devices", "--json"]));
    assert_eq!(output.status.code(), Some(0));
    let lines = lines(&output);
    for kind in ["cuda", "soft", "opencl"] {
        let of_kind = |line: &&Value| line["device"].as_str().is_some_and(|device| device.starts_with(kind));
        let line = lines.iter().find(of_kind).unwrap_or_else(|| panic!("{kind} is not listed"));
        assert!(line["missing"].is_string() != line["memory_bytes"].is_u64(), "{line}");
    }
}

#[test]
fn the_software_device_has_the_configured_memory_and_all_capabilities() {
    let output = output(freehold(&["devices", "--json"]).env("FREEHOLD_SOFT_MEMORY", "512MiB"));
    let soft = lines(&output).into_iter().find(|line| line["device"] == "soft").expect("the software device is listed");
    assert_eq!(soft["memory_bytes"], 512 << 20);
    assert_eq!(soft["abilities"], serde_json::json!(["PTX", "virtual memory", "sharing", "stream memory operations"]));
}

#[test]
fn every_software_device_is_listed_and_can_be_selected() {
    let two = |words: &[&str]| {
        let mut command = freehold(words);
        command.env("FREEHOLD_SOFT_DEVICES", "2").env("FREEHOLD_DEVICE", "soft:1");
        command
    };
    let listed = lines(&output(&mut two(&["devices", "--json"])));
    let soft = listed.iter().filter(|line| line["device"].as_str().is_some_and(|device| device.starts_with("soft")));
    let soft: Vec<_> = soft.map(|line| (&line["device"], &line["name"], &line["default"])).collect();
    let expected = [
        (&"soft".into(), &"Freehold Software Device 0".into(), &false.into()),
        (&"soft:1".into(), &"Freehold Software Device 1".into(), &true.into()),
    ];
    assert_eq!(soft, expected);
    let output = output(&mut two(&["lab", "--only", "0.1.1"]));
    assert!(text(&output.stdout).starts_with("software device 1 (as FREEHOLD_DEVICE says)\n"), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
    let sentence = "soft:2 was requested, but there are 2 software devices: set FREEHOLD_SOFT_DEVICES";
    refused_with(&mut two(&["lab", "--device", "soft:2"]), sentence);
}

#[test]
fn a_default_device_that_is_not_there_is_an_error_below_the_list() {
    let output = output(freehold(&["devices"]).env("FREEHOLD_DEVICE", "gpu"));
    assert!(text(&output.stdout).contains("Freehold Software Device 0"), "{output:?}");
    let sentence = "unknown device \"gpu\": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N";
    assert_eq!(text(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn without_a_driver_opencl_is_missing_in_one_line() {
    let output = output(freehold(&["devices"]).env(NO_VENDORS.0, NO_VENDORS.1));
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.starts_with("opencl")).expect("OpenCL is listed");
    assert!(line.contains("none: libOpenCL.so.1 "), "{line}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn selecting_opencl_without_a_driver_reports_what_is_missing() {
    let output = output(freehold(&["lab", "--device", "opencl:1"]).env(NO_VENDORS.0, NO_VENDORS.1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: opencl:1 was requested, but libOpenCL.so.1 "), "{said}");
    assert!(said.ends_with("; the software device, soft, needs no GPU\n"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_cuda_only_command_reports_that() {
    let sentence = "opencl was requested, but this needs a CUDA driver: expected soft, cuda or cuda:N";
    refused_with(&mut freehold(&["bench", "release", "--device", "opencl"]), sentence);
    refused_with(freehold(&["bench", "release"]).env("FREEHOLD_DEVICE", "opencl"), sentence);
    refused_with(&mut freehold(&["run", "--device", "opencl", "--", "true"]), sentence);
}

#[test]
fn a_device_of_opencl_beyond_the_last_is_refused_with_how_many_there_are() {
    if has_opencl() {
        let output = output(&mut freehold(&["lab", "--device", "opencl:99"]));
        let said = text(&output.stderr);
        assert!(said.starts_with("error: opencl:99 was requested, but this machine has "), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn opencl_has_questions_of_its_own_and_answers_agree_with_the_recorded_ones() {
    if has_opencl() {
        let output = output(&mut freehold(&["lab", "--device", "opencl", "--json", "--only", "o.1.1,o.3"]));
        let findings = lines(&output);
        assert_eq!(findings.len(), 14);
        for finding in findings {
            assert_eq!(finding["agrees"], true, "{finding}");
        }
        assert_eq!(output.status.code(), Some(0));
        refused_with(
            &mut freehold(&["lab", "--device", "opencl", "--trace", "/nowhere/trace.json"]),
            "--trace does not work with OpenCL: omit it, or choose a CUDA device",
        );
    }
}

#[test]
fn an_experiment_answers_for_no_other_device_than_the_lab_has_chosen() {
    if has_opencl() {
        let output = output(&mut freehold(&["experiment", "o.1.1", "--device", "00112233445566778899aabbccddeeff"]));
        let said = text(&output.stdout);
        let sentence = "the experiment's process does not find the OpenCL device 00112233445566778899aabbccddeeff";
        assert!(said.starts_with(sentence), "{said}");
        assert!(said.contains(" chosen by the lab; it finds "), "{said}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn bench_pool_compares_opencl_with_its_own_calls_and_cuda() {
    if has_opencl() {
        let output = output(&mut freehold(&["bench", "pool", "--device", "opencl", "--quick", "--json"]));
        assert_eq!(text(&output.stderr), "");
        let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
        let ids: Vec<_> = report["rows"].as_array().expect("rows").iter().map(|row| row["id"].clone()).collect();
        let sizes = ["512", "64k", "2m"];
        let wanted = sizes.map(|size| ["", "-svm", "-cuda"].map(|beside| format!("pair-{size}{beside}")));
        assert_eq!(ids, wanted.concat());
    }
}
