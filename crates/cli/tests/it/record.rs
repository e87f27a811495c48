//! `freehold run --record`: a timeline that `freehold replay` and Perfetto read. The program is the C file beside this one.

use crate::common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use common::{binary, cache, output, refused_with, runtime_program, text};

/// Returns a file in a folder that is new.
fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("record").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the folder is created");
    folder.join("timeline.json")
}

fn run(file: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(["run", "--device", "soft", "--record"]).arg(file).arg("--").args(words);
    command.env("XDG_CACHE_HOME", cache()).stdin(Stdio::null());
    command
}

/// Returns what `freehold replay` says of a timeline.
fn replayed(file: &Path) -> Value {
    let mut command = Command::new(binary());
    command.args(["replay", "--device", "soft", "--json", "--passes", "1"]).arg(file).stdin(Stdio::null());
    let output = output(&mut command);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn events(file: &Path) -> Vec<Value> {
    let text = fs::read(file).expect("the file was written");
    serde_json::from_slice(&text).expect("it is a JSON array")
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == "X" && event["name"].as_str().unwrap_or("").starts_with(name)).collect()
}

#[test]
fn a_timeline_has_every_allocation_and_free_and_can_be_replayed() {
    for frees in ["driver", "deferred"] {
        let file = file(frees);
        let program = runtime_program(Path::new("record/calls"), &[]);
        let output = output(run(&file, &[program.to_str().unwrap()]).env("FREEHOLD_CUDAFREE", frees));
        assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
        let events = events(&file);
        assert_eq!(named(&events, "cudaMalloc ").len(), 40);
        assert_eq!(named(&events, "cudaFree ").len(), 20);
        assert_eq!(named(&events, "cudaMallocAsync ").len(), 2);
        assert_eq!(named(&events, "cudaFreeAsync ").len(), 2);
        assert_eq!(named(&events, "cudaMemset")[0]["args"]["size"], 1024);
        assert_eq!(named(&events, "cudaStreamSynchronize").len(), 1);
        let threads = |name| named(&events, name)[0]["tid"].clone();
        assert_ne!(threads("cudaMalloc "), threads("cudaFree "));
        let count = |phase: &str| events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!((count("b"), count("e")), (42, 22));
        let last = events.iter().rfind(|event| event["ph"] == "C").expect("memory is counted");
        let left: u64 = (21..=40).map(|block| 1024 * block).sum();
        assert_eq!(last["args"]["owned"], left);
        let report = replayed(&file);
        assert_eq!((&report["allocations"], &report["frees"]), (&42.into(), &22.into()));
        let odd = &report["oddities"];
        assert_eq!(
            (&odd["alive_at_end"], &odd["unknown_frees"], &odd["unreadable"]),
            (&20.into(), &0.into(), &0.into())
        );
    }
}

#[test]
fn a_killed_program_leaves_a_timeline_up_to_its_last_flush() {
    let file = file("killed");
    let program = runtime_program(Path::new("record/calls"), &[]);
    let output = output(&mut run(&file, &[program.to_str().unwrap(), "killed"]));
    assert_eq!(output.status.signal(), Some(9));
    assert!(!fs::read_to_string(&file).unwrap().ends_with("]\n"));
    let report = replayed(&file);
    assert_eq!(report["kind"], "timeline");
    // Every 32nd event is followed by a flush, and there are over 60 calls.
    let lines = fs::read_to_string(&file).unwrap().matches("\"ph\":\"b\"").count();
    assert!(lines >= 32, "{lines} allocations");
}

#[test]
fn a_second_process_writes_beside_the_first() {
    let file = file("two");
    let program = runtime_program(Path::new("record/calls"), &[]);
    let both = format!("{0} & first=$!; wait $first; {0}", program.display());
    let output = output(&mut run(&file, &["sh", "-c", &both]));
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    let files: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        assert_eq!(named(&events(&file), "cudaMalloc ").len(), 40, "{}", file.display());
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_program_starts() {
    let file = file("absent").with_file_name("absent/timeline.json");
    let sentence = format!("failed to write {}: No such file or directory (os error 2)", file.display());
    refused_with(&mut run(&file, &["sh", "-c", "echo started"]), &sentence);
}
