//! `freehold bench` as a person meets it: its rows, its help, and what it says to bad input. What things cost is not judged
//! here.

mod common;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use common::binary;

fn bench(words: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.env_remove("FREEHOLD_DEVICE").env_remove("COLUMNS").stdin(Stdio::null());
    command.arg("bench").args(words).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text was printed")
}

#[test]
fn every_row_has_our_times_and_the_drivers_where_there_is_a_call_to_compare() {
    let output = bench(&["release", "--quick", "--json", "--device", "soft"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object was printed");
    assert_eq!(report["device"], "Freehold Software Device 0");
    assert_eq!(report["driver"], "13.0");
    let rows = report["rows"].as_array().expect("there are rows");
    let of = |row: &Value| {
        (
            row["id"].as_str().unwrap().to_owned(),
            row["driver"]["call"].as_str().map(str::to_owned),
            row["target"].clone(),
        )
    };
    let row = |id: &str, call: Option<&str>, target: Value| (id.to_owned(), call.map(str::to_owned), target);
    let at_most = |ns: f64| serde_json::json!({"at_most": {"ns": ns}});
    let over_driver = || serde_json::json!({"over_driver": {"percent": 5.0}});
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [
            row("release", Some("cuMemFree"), at_most(1000.0)),
            row("release-ordered", Some("cuMemFreeAsync"), Value::Null),
            row("release-marked", Some("event, cuMemFreeAsync"), at_most(1000.0)),
            row("module-close", Some("cuModuleUnload"), at_most(5000.0)),
            row("launch", Some("cuLaunchKernel"), over_driver()),
            row("launch-bare", Some("cuLaunchKernel"), over_driver()),
            row("owner-of", None, at_most(50.0)),
            row("owner-of-near", None, at_most(50.0)),
            row("allocate", Some("cuMemAlloc, cuMemFree"), Value::Null),
        ]
    );
    for row in rows {
        let times = |at: &Value| ["p10_ns", "median_ns", "p90_ns"].map(|name| at[name].as_f64().expect("a time"));
        let [low, median, high] = times(&row["ours"]);
        assert!(0.0 < low && low <= median && median <= high, "{row}");
        assert_eq!(row["met"].is_boolean(), !row["target"].is_null(), "{row}");
        if row["driver"].is_object() {
            let [_, drivers, _] = times(&row["driver"]);
            // What is read back of a number differs from it in the last digit.
            let ratio = row["ratio"].as_f64().expect("a ratio");
            assert!((ratio * drivers / median - 1.0).abs() < 1e-12, "{row}");
        }
    }
}

#[test]
fn the_help_says_what_is_measured() {
    let output = bench(&["release", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(
        said.starts_with(
            "Measure release, module close, launch, owner_of and allocation beside the driver's own calls\n"
        ),
        "{said}"
    );
    for option in ["--json", "--device", "--quick"] {
        assert!(said.contains(option), "{said}");
    }
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    for words in [&[][..], &["releases"], &["release", "--fast"], &["release", "--device"], &["release", "now"]] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn an_unknown_device_names_the_three_forms() {
    let output = bench(&["release", "--device", "gpu"]);
    assert_eq!(text(&output.stderr), "error: \"gpu\" is no device: say soft, cuda or cuda:N\n");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}
