//! `freehold replay` from the command line: every kind of log, the table, the JSON, the chart, and errors for bad
//! input. Does not judge performance.

use crate::common;

use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use common::{binary, text};
use freehold_testing::process::Sandbox;

fn replay(words: &[&str]) -> Output {
    // Memory taken by other processes would be attributed to cuMemAlloc.
    let sandbox = Sandbox::new("replay");
    let mut command = sandbox.command(binary());
    command.env_remove("FREEHOLD_DEVICE").env_remove("COLUMNS").stdin(Stdio::null());
    command.arg("replay").args(words).output().expect("the binary starts")
}

const LOGS: [(&str, &[u8]); 5] = [
    ("timeline.json", include_bytes!("../logs/timeline.json")),
    ("rmm.csv", include_bytes!("../logs/rmm.csv")),
    ("snapshot.pickle", include_bytes!("../logs/snapshot.pickle")),
    ("snapshot.json", include_bytes!("../logs/snapshot.json")),
    ("three-streams.txt", include_bytes!("../logs/three-streams.txt")),
];

/// A file in its own folder, removed on drop: tests are copied to other machines, and their logs with them.
struct TempLog {
    _sandbox: Sandbox,
    path: PathBuf,
}

impl TempLog {
    fn new(name: &str, contents: &[u8]) -> Self {
        let sandbox = Sandbox::new("log");
        let path = sandbox.file(name, contents);
        Self { _sandbox: sandbox, path }
    }

    /// Returns one of the logs.
    fn log(name: &str) -> Self {
        let (_, contents) = LOGS.iter().find(|(known, _)| *known == name).expect("the log exists");
        Self::new(name, contents)
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("the path is UTF-8")
    }
}

fn report(words: &[&str]) -> Value {
    let output = replay(&[words, &["--json", "--device", "soft"]].concat());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    serde_json::from_slice(&output.stdout).expect("one JSON object was printed")
}

#[test]
fn every_kind_of_log_is_replayed_on_every_allocator() {
    for (name, kind, asked, peak_live_bytes) in [
        ("timeline.json", "timeline", [3, 3, 1, 2], 800),
        ("rmm.csv", "rmm", [6, 5, 0, 4], 3_150_336),
        ("snapshot.pickle", "snapshot", [10, 8, 0, 2], 24_495_632),
        ("snapshot.json", "snapshot", [10, 8, 0, 2], 24_495_632),
        ("three-streams.txt", "workload", [3, 3, 2, 3], 35_651_584),
    ] {
        let report = report(&[TempLog::log(name).path()]);
        assert_eq!((&report["file"], &report["kind"]), (&json!(name), &json!(kind)));
        assert_eq!(report["device"], "Freehold Software Device 0");
        let said = ["allocations", "frees", "uses", "streams"].map(|key| report[key].as_u64().expect("a number"));
        assert_eq!(said, asked, "{name}");
        assert_eq!(report["peak_live_bytes"], peak_live_bytes, "{name}");
        let played = report["allocators"].as_array().expect("a list");
        let names: Vec<&Value> = played.iter().map(|one| &one["allocator"]).collect();
        assert_eq!(names, ["freehold", "cuMemAllocAsync", "cuMemAlloc"]);
        for one in played {
            assert_eq!((&one["peak_live_bytes"], &one["refused"]), (&json!(peak_live_bytes), &json!(0)), "{name}");
            assert!(one["peak_reserved_bytes"].as_u64() >= Some(peak_live_bytes), "{name}: {one}");
            for time in ["first_ns", "later_ns"] {
                assert!(one[time].as_f64().expect("a time") > 0.0, "{name}: {one}");
            }
        }
    }
}

#[test]
fn what_the_library_records_is_replayed() {
    let file = TempLog::new("recorded.json", b"");
    let device = freehold::open::device(Some("soft")).expect("the software device opens");
    let recording = device.record(Some(&file.path)).expect("the recording starts");
    let (stream, other) = (device.new_stream().expect("a stream"), device.new_stream().expect("a stream"));
    let from = stream.upload(&[1.0_f32; 1000]).expect("a block with values");
    let mut to = other.alloc::<f32>(1000).expect("a block");
    other.copy(&from, &mut to).expect("a copy");
    drop(from);
    recording.finish().expect("the recording ends");
    let report = report(&[file.path()]);
    let said = ["allocations", "frees", "uses", "streams"].map(|key| report[key].as_u64().expect("a number"));
    assert_eq!(said, [2, 1, 1, 2], "{report}");
    assert_eq!(report["peak_live_bytes"], 8000);
    assert_eq!(report["oddities"]["alive_at_end"], 1);
}

#[test]
fn anomalies_are_counted_in_json_and_summarized_in_one_line() {
    let odd = json!({
        "unreadable": 1, "unreadable_line": 15, "of_no_bytes": 1, "failed_then": 1, "alive_at_start": 1, "unknown_frees": 0, "double_frees": 1,
        "stray_uses": 0, "unreleased": 0, "alive_at_end": 1, "on_other_devices": 0
    });
    let (log, flawless) = (TempLog::log("rmm.csv"), TempLog::log("three-streams.txt"));
    assert_eq!(report(&[log.path()])["oddities"], odd);
    let output = replay(&[log.path(), "--device", "soft"]);
    let said = text(&output.stdout);
    let line = "anomalies in the log: 1 unreadable, first in line 15 (skipped), 1 allocations of 0 bytes (skipped), 1 failed when the log was \
                recorded (skipped), 1 live before the log (allocated first), 1 freed twice (skipped), 1 never freed (freed at \
                the end)\n";
    assert!(said.contains(line), "{said}");
    assert!(!text(&replay(&[flawless.path(), "--device", "soft"]).stdout).contains("anomalies in the log"));
}

#[test]
fn what_the_device_cannot_hold_is_refused_and_its_free_left_out() {
    let text = "# large\na 0 9223372036854775808 0\na 1 4611686018427387904 0\na 2 1024 0\nf 0 0\nf 1 0\nf 2 0\n";
    let large = TempLog::new("large.txt", text.as_bytes());
    for one in report(&[large.path()])["allocators"].as_array().expect("a list") {
        assert_eq!((&one["refused"], &one["peak_live_bytes"]), (&json!(2), &json!(1024)), "{one}");
    }
}

#[test]
fn the_number_of_passes_is_the_callers() {
    let log = TempLog::log("three-streams.txt");
    let once = report(&[log.path(), "--passes", "1"]);
    assert_eq!((&once["passes"], &once["allocators"][0]["later_ns"]), (&json!(1), &Value::Null));
    let thrice = report(&[log.path(), "--passes", "3"]);
    assert!(thrice["allocators"][0]["later_ns"].is_f64(), "{thrice}");
    let none = replay(&[log.path(), "--passes", "0"]);
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn the_picture_has_a_panel_for_each_allocator_with_units_and_a_legend() {
    let picture = TempLog::new("picture.svg", b"");
    let log = TempLog::log("three-streams.txt");
    let output = replay(&[log.path(), "--device", "soft", "--svg", picture.path()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let svg = std::fs::read_to_string(&picture.path).expect("the chart was written");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    let count = |text: &str| svg.lines().filter(|line| line.trim() == text).count();
    let panels = ["freehold: ", "cuMemAllocAsync: ", "cuMemAlloc: "];
    assert!(panels.iter().all(|name| svg.lines().any(|line| line.trim().starts_with(name))), "{svg}");
    assert_eq!(count("Live and reserved memory: three-streams.txt"), 1, "{svg}");
    for label in ["live", "reserved", "MiB", "operations of the log"] {
        assert_eq!(count(label), panels.len(), "{label}: {svg}");
    }
}

#[test]
fn an_unreplayable_file_exits_with_status_2_and_a_reason() {
    let empty = TempLog::new("empty", b"");
    let letter = TempLog::new("letter", b"Dear reader,\n");
    let known = "expected a timeline recorded by Freehold, RMM's CSV log, a PyTorch memory snapshot (pickle or JSON), or a \
                 workload (`# NAME`, then lines `a ID BYTES STREAM`, `f ID STREAM`, `u ID STREAM`)";
    for (path, said) in [
        (empty.path(), format!("the file is empty: {known}")),
        (letter.path(), format!("unknown format: {known}")),
        ("/nonexistent/log", "No such file or directory (os error 2)".to_owned()),
    ] {
        let output = replay(&[path, "--device", "soft"]);
        assert_eq!(text(&output.stderr), format!("error: {path}: {said}\n"));
        assert_eq!(text(&output.stdout), "");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_named() {
    let log = TempLog::log("three-streams.txt");
    let output = replay(&[log.path(), "--device", "soft", "--svg", "/nonexistent/picture.svg"]);
    let said = "error: failed to write /nonexistent/picture.svg: No such file or directory (os error 2)\n";
    assert_eq!(text(&output.stderr), said);
    assert_eq!(output.status.code(), Some(2));
    // A file without a length is written directly.
    let output = replay(&[log.path(), "--device", "soft", "--svg", "/dev/null"]);
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

#[test]
fn bad_arguments_are_refused_with_status_2() {
    let log = TempLog::log("rmm.csv");
    let log = log.path();
    for words in [&[][..], &[log, "--fast"], &[log, "--svg"], &[log, "--device", "gpu"], &[log, log]] {
        let output = replay(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert_eq!(text(&output.stdout), "", "{words:?}");
    }
}

#[test]
fn the_help_says_which_logs_are_read() {
    let output = replay(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.starts_with("Replay an allocation log on the pool and on the driver"), "{said}");
    for word in ["RMM's CSV log", "PyTorch's memory snapshot", "bench pool", "--json", "--svg", "--device", "--passes"]
    {
        assert!(said.contains(word), "{word}: {said}");
    }
}
