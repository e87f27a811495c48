//! `freehold bench` from the command line: its rows, its help, and errors for bad input. Does not judge performance.

use crate::common;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;

use common::{binary, text};
use freehold_testing::process::Sandbox;

/// Runs each on its own software machine: others would leave it too little memory.
fn bench(words: &[&str]) -> Output {
    let sandbox = Sandbox::new("bench");
    let mut command = sandbox.command(binary());
    command.env_remove("FREEHOLD_DEVICE").env_remove("COLUMNS").stdin(Stdio::null());
    command.arg("bench").args(words).output().expect("the binary starts")
}

#[test]
fn every_row_has_our_times_and_the_drivers_where_there_is_a_call_to_compare() {
    let output = bench(&["release", "--quick", "--json", "--device", "soft"]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object was printed");
    assert_eq!(report["device"], "Freehold Software Device 0");
    assert_eq!(report["driver"], "13.0");
    let rows = report["rows"].as_array().expect("a report has rows");
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
            // A number read back may differ in its last digit.
            let ratio = row["ratio"].as_f64().expect("a ratio");
            assert!((ratio * drivers / median - 1.0).abs() < 1e-12, "{row}");
        }
    }
}

#[test]
fn every_workload_has_our_figures_and_the_drivers_and_a_picture() {
    let sandbox = Sandbox::new("bench");
    let path = sandbox.folder.join("pool.svg");
    let output = bench(&["pool", "--quick", "--json", "--device", "soft", "--svg", path.to_str().unwrap()]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object was printed");
    assert_eq!(report["device"], "Freehold Software Device 0");
    assert_eq!(report["driver"], "13.0");
    assert!(report["processors"].as_u64() >= Some(1), "{report}");
    let rows = report["rows"].as_array().expect("a report has rows");
    let of = |row: &Value| {
        let calls = row["beside"].as_array().unwrap().iter().map(|beside| beside["calls"].as_str().unwrap());
        let calls: Vec<_> = calls.collect();
        let [id, unit] = ["id", "unit"].map(|name| row[name].as_str().unwrap().to_owned());
        (id, unit, calls.join("; "), row["target"].clone())
    };
    let row =
        |id: &str, unit: &str, calls: &str, target: Value| (id.to_owned(), unit.to_owned(), calls.to_owned(), target);
    let at_most = |value: f64| serde_json::json!({"at_most": value});
    let at_least = |value: f64| serde_json::json!({"at_least": value});
    let ordered = "cuMemAllocAsync, cuMemFreeAsync";
    let both = "cuMemAllocAsync, cuMemFreeAsync; cuMemAlloc, cuMemFree";
    let all = "cuMemAllocAsync, cuMemFreeAsync; cuMemAlloc, cuMemFree; mi_malloc, mi_free";
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [
            row("pair-512", "ns", all, at_most(40.0)),
            row("pair-mimalloc", "ratio", "", at_most(4.0)),
            row("pair-64k", "ns", both, at_most(40.0)),
            row("pair-2m", "ns", both, at_most(40.0)),
            row("pair-20m", "ns", both, at_most(40.0)),
            row("threads-1", "pairs_per_s", ordered, Value::Null),
            row("threads-16", "pairs_per_s", ordered, at_least(100e6)),
            row("threads-scaling", "ratio", "", at_least(0.8)),
            row("threads-shared", "pairs_per_s", ordered, at_least(20e6)),
            row("threads-handed", "pairs_per_s", ordered, at_least(20e6)),
            row("random-1m", "ns", both, at_most(80.0)),
            row("random-1m-reserved", "ratio", ordered, at_most(1.05)),
            row("random-64m", "ns", both, at_most(250.0)),
            row("random-64m-reserved", "ratio", ordered, at_most(1.05)),
            row("transformer", "ns", both, at_most(150.0)),
            row("transformer-reserved", "ratio", ordered, at_most(1.03)),
            row("caches", "ns", both, at_most(150.0)),
            row("caches-reserved", "ratio", ordered, at_most(1.03)),
            row("grow-cold", "ns", "", at_most(110e3)),
            row("grow-kept", "ns", "", at_most(70e3)),
            row("refuse", "ns", both, at_most(1000.0)),
            row("refuse-explained", "ns", "", at_most(50e3)),
        ]
    );
    for row in rows {
        let beside = row["beside"].as_array().unwrap();
        for figures in std::iter::once(&row["ours"]).chain(beside) {
            let [low, median, high] = ["p10", "median", "p90"].map(|name| figures[name].as_f64().expect("a figure"));
            assert!(0.0 < low && low <= median && median <= high, "{row}");
        }
        assert_eq!(row["met"].is_boolean(), !row["target"].is_null(), "{row}");
    }
    is_drawn(path);
}

/// Checks that the chart names the device and has bars.
fn is_drawn(path: PathBuf) {
    let drawn = std::fs::read_to_string(path).expect("the chart was written");
    assert!(drawn.starts_with("<svg "), "{drawn}");
    assert!(drawn.contains("Allocation on Freehold Software Device 0, driver 13.0"), "{drawn}");
}

#[test]
fn a_picture_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let sandbox = Sandbox::new("bench");
    let path = sandbox.folder.join("missing").join("pool.svg");
    // The device is not opened either: its name is invalid.
    let output = bench(&["pool", "--device", "gpu", "--svg", path.to_str().unwrap()]);
    let said = format!("error: failed to write {}: No such file or directory (os error 2)\n", path.display());
    assert_eq!(text(&output.stderr), said);
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_workloads_are_written_as_text_a_file_for_each() {
    let sandbox = Sandbox::new("bench");
    let place = sandbox.folder.join("new");
    let output = bench(&["pool", "--workloads", place.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = |name: &str, ops: usize, bytes: u64| {
        format!("{}: {ops} operations, at most {bytes} bytes live\n", place.join(name).display())
    };
    assert_eq!(
        text(&output.stdout),
        line("random-1m.ops", 21_002, 557_601_033)
            + &line("random-64m.ops", 20_588, 22_727_281_683)
            + &line("transformer.ops", 39_704, 4_179_396_512)
            + &line("caches.ops", 20_178, 7_291_797_504)
    );
    let written = std::fs::read_to_string(place.join("random-1m.ops")).expect("the file was written");
    assert!(written.starts_with("# random-1m\na 0 568300 0\na 1 150016 0\n"), "{}", &written[..80]);
    assert_eq!(written.lines().count(), 21_003);
}

#[test]
fn unwritable_workloads_are_reported_with_the_path() {
    let output = bench(&["pool", "--workloads", "/dev/null/here"]);
    assert_eq!(text(&output.stderr), "error: failed to write /dev/null/here: Not a directory (os error 20)\n");
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_help_says_what_is_measured() {
    let output = bench(&["release", "--help"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    assert!(
        said.starts_with(
            "Measure release, module close, launch, owner_of and allocation next to the driver's own calls\n"
        ),
        "{said}"
    );
    for option in ["--json", "--device", "--quick"] {
        assert!(said.contains(option), "{said}");
    }
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    for words in [
        &[][..],
        &["releases"],
        &["release", "--fast"],
        &["release", "--device"],
        &["release", "now"],
        &["pool", "--fast"],
        &["pool", "--svg"],
        &["pool", "--workloads"],
        &["pool", "--workloads", "/tmp", "--quick"],
        &["pool", "now"],
    ] {
        let output = bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn an_unknown_device_names_the_forms() {
    for what in ["release", "pool"] {
        let output = bench(&[what, "--device", "gpu"]);
        assert_eq!(
            text(&output.stderr),
            "error: unknown device \"gpu\": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N\n"
        );
        assert_eq!(text(&output.stdout), "");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn every_row_of_calls_has_its_times_and_its_target() {
    let output = bench(&["call", "--quick", "--json", "--device", "soft"]);
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object was printed");
    let rows = report["rows"].as_array().expect("a report has rows");
    let of = |row: &Value| (row["id"].as_str().unwrap().to_owned(), row["targets"].as_array().map(Vec::len));
    let row = |id: &str, targets: usize| (id.to_owned(), Some(targets));
    assert_eq!(
        rows.iter().map(of).collect::<Vec<_>>(),
        [
            row("local", 0),
            row("call-spinning", 1),
            row("call-asleep", 1),
            row("rate-local", 0),
            row("rate-call", 1),
            row("enqueue", 1),
        ]
    );
    // A call may take 1.5 µs more than a local launch, and 25 µs if all were asleep.
    let most = |at: usize| rows[at]["targets"][0]["median"].as_f64().expect("a time");
    let local = rows[0]["median_ns"].as_f64().expect("a time");
    assert_eq!((most(1), most(2), most(5)), (local + 1500.0, local + 25_000.0, 1000.0));
}
