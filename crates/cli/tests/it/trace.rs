//! `freehold lab --trace`: the content of the file, and errors if it cannot be written.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use common::lab;

/// Returns a path in this test's folder.
fn path(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace");
    fs::create_dir_all(&folder).expect("the folder is created");
    folder.join(name)
}

/// Returns the events of the experiments that `only` selects.
fn trace(name: &str, only: &str) -> Vec<Value> {
    let path = path(name);
    let output = output(lab().args(["--device", "soft", "--only", only, "--trace"]).arg(&path));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&fs::read(&path).expect("the trace exists")).expect("the trace is JSON")
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the binary starts")
}

fn with_phase<'a>(events: &'a [Value], phase: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["ph"] == phase)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Returns the names of the processes, in order.
fn processes(events: &[Value]) -> Vec<&str> {
    let names = with_phase(events, "M").filter(|event| event["name"] == "process_name");
    names.map(|event| text(&event["args"]["name"])).collect()
}

/// Checks that times are in order within a thread, that slices are nested or disjoint, and that every span ends.
fn assert_well_formed(events: &[Value]) {
    let mut ends: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    for event in with_phase(events, "X") {
        let thread = format!("{}.{}", event["pid"], event["tid"]);
        let (start, length) = (number(&event["ts"]), number(&event["dur"]));
        assert!(start >= 0.0 && length >= 0.0, "{event}");
        assert!(last.insert(thread.clone(), start).is_none_or(|before| before <= start), "{event}");
        let open = ends.entry(thread).or_default();
        open.retain(|&end| end > start);
        // Sums of floats may be off by a thousandth of a nanosecond.
        assert!(open.iter().all(|&end| start + length <= end + 1e-6), "{event}");
        open.push(start + length);
    }
    let mut open = BTreeMap::new();
    for event in events {
        let span = format!("{}.{}", event["pid"], event["id2"]["local"]);
        match text(&event["ph"]) {
            "b" => assert!(open.insert(span, number(&event["ts"])).is_none(), "{event}"),
            "e" => {
                assert!(open.remove(&span).expect("a span starts before it ends") <= number(&event["ts"]), "{event}")
            }
            _ => {}
        }
    }
    assert_eq!(open.len(), 0, "{open:?}");
}

#[test]
fn an_experiment_is_a_process_whose_calls_are_slices() {
    let events = trace("calls.json", "0.1");
    assert_well_formed(&events);
    assert_eq!(
        processes(&events),
        [
            "0.1.1 allocate in context 1, make context 2 current, ask for the context of the address",
            "0.1.2 allocate in context 1, copy to it and fill it with context 2 current",
            "0.1.3 allocate in context 1, free with context 2 current, free again with context 1 current",
        ]
    );
    let calls: Vec<&Value> = with_phase(&events, "X").filter(|event| event["pid"] == 3).collect();
    let of = |name: &str| -> Vec<&&Value> { calls.iter().filter(|event| event["name"] == name).collect() };
    let [alloc] = of("cuMemAlloc_v2")[..] else { panic!("0.1.3 allocates once") };
    let [free, again] = of("cuMemFree_v2")[..] else { panic!("0.1.3 frees twice") };
    assert_eq!((&alloc["args"]["outcome"], &alloc["args"]["bytes"]), (&"SUCCESS".into(), &4096.into()));
    assert_eq!((&free["args"]["outcome"], &again["args"]["outcome"]), (&"SUCCESS".into(), &"INVALID_VALUE (1)".into()));
    assert_eq!(free["args"]["start"], alloc["args"]["start"]);

    let address = alloc["args"]["start"].as_str().expect("an address is a string");
    let [begin, end] = ["b", "e"].map(|phase| with_phase(&events, phase).find(|event| event["pid"] == 3).unwrap());
    assert_eq!(begin["name"], format!("4096 bytes at {address}"));
    assert_eq!((&end["name"], &end["ts"]), (&begin["name"], &free["ts"]));
}

#[test]
fn every_experiment_is_there_in_the_order_of_the_ids_with_its_answer() {
    let events = trace("order.json", "0.1,0.4");
    let ids: Vec<&str> = processes(&events).iter().map(|name| name.split(' ').next().unwrap()).collect();
    let printed = lab().args(["--json", "--only", "0.1,0.4"]).output().unwrap();
    let findings: Vec<Value> =
        printed.stdout.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let expected: Vec<&str> = findings.iter().map(|finding| finding["id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected);
    let answers: Vec<&Value> = with_phase(&events, "i").map(|event| &event["args"]["answer"]).collect();
    let expected: Vec<&Value> = findings.iter().map(|finding| &finding["here"]).collect();
    assert_eq!(answers, expected);
}

/// Viewers attribute events without a thread to the thread that has the process's number, and find threads by number
/// alone.
#[test]
fn the_main_thread_has_the_number_of_its_process_and_no_other_thread_has() {
    let events = trace("numbers.json", "0.12,1.7.3");
    let names = with_phase(&events, "M").filter(|event| event["name"] == "thread_name");
    let mut numbers = BTreeSet::new();
    for event in names {
        assert_eq!(event["args"]["name"] == "main", event["tid"] == event["pid"], "{event}");
        assert!(numbers.insert(event["tid"].to_string()), "{event}");
    }
    assert!(numbers.len() > processes(&events).len(), "no experiment has a second thread");
}

#[test]
fn a_partner_that_is_killed_leaves_its_calls() {
    let events = trace("partner.json", "1.7.3");
    assert_well_formed(&events);
    let processes = processes(&events);
    assert_eq!(processes.len(), 2);
    assert_eq!(processes[1], format!("partner of {}", processes[0]));
    let calls: BTreeSet<&str> = with_phase(&events, "X")
        .filter(|event| event["pid"] == 2)
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert!(calls.contains("cuMemAlloc_v2"), "{calls:?}");
    let life = with_phase(&events, "b").find(|event| event["pid"] == 2).expect("the block has a span");
    assert!(life["name"].as_str().unwrap().starts_with("1073741824 bytes at 0x"), "{life}");
}

#[test]
fn a_forked_child_is_a_process_too() {
    let events = trace("fork.json", "0.6.4");
    assert_well_formed(&events);
    let processes = processes(&events);
    assert_eq!(processes.len(), 2);
    assert_eq!(processes[1], format!("forked child of {}", processes[0]));
    let refused: Vec<&Value> =
        with_phase(&events, "X").filter(|event| event["pid"] == 2).map(|event| &event["args"]["outcome"]).collect();
    assert_eq!(refused, vec!["NOT_INITIALIZED (3)"; 6]);
}

#[test]
fn threads_of_the_host_are_threads() {
    let events = trace("threads.json", "0.12.3");
    assert_well_formed(&events);
    let names = with_phase(&events, "M").filter(|event| event["name"] == "thread_name");
    let names: Vec<(&Value, &str)> =
        names.map(|event| (&event["tid"], event["args"]["name"].as_str().unwrap())).collect();
    assert_eq!(names, [(&1.into(), "main"), (&2.into(), "thread 2")]);
    let current = with_phase(&events, "X").find(|event| event["name"] == "cuCtxGetCurrent").unwrap();
    assert_eq!((&current["tid"], &current["args"]["context"]), (&2.into(), &"0x0".into()));
}

fn assert_error(command: &mut Command, sentence: &str) {
    let output = output(command);
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("error: {sentence}\n"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_trace_in_a_folder_that_is_not_there_is_refused_before_anything_runs() {
    assert_error(
        lab().args(["--trace", "/nowhere/trace.json"]),
        "failed to write the trace /nowhere/trace.json: No such file or directory (os error 2)",
    );
}

#[test]
fn a_trace_that_is_a_folder_is_refused() {
    let folder = path("folder.json");
    fs::create_dir_all(&folder).unwrap();
    assert_error(
        lab().args([Path::new("--trace"), &folder]),
        &format!("failed to write the trace {}: Is a directory (os error 21)", folder.display()),
    );
}

#[test]
fn a_trace_that_is_not_begun_leaves_the_older_one() {
    let path = path("older.json");
    fs::write(&path, "older").unwrap();
    let output = lab().args(["--only", "9", "--trace"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), "older");
}
