//! `freehold demo` from the command line: the field, the files it writes, and errors for bad input. `examples/mesh`
//! tests that the field does not depend on the number of workers.

use crate::common;

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use common::binary;
use freehold_testing::process::Sandbox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

struct DemoFixture(Sandbox);

impl DemoFixture {
    fn new() -> Self {
        Self(Sandbox::new("demo"))
    }

    /// Runs the demo on the test's own software machine.
    fn demo(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary starts")
    }

    fn command(&self, words: &[&str]) -> Command {
        // With a umask that lets a user's own group write.
        let mut command = self.0.command("sh");
        command
            .args(["-c", "umask 002 && exec \"$0\" \"$@\""])
            .arg(binary())
            .arg("demo")
            .args(words)
            .arg("--out")
            .arg(self.0.folder.join("out"));
        command.env("FREEHOLD_DEVICE", "soft").stdin(Stdio::null());
        command
    }

    fn figures(&self, words: &[&str]) -> Value {
        let output = self.demo(words);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.folder.join("out").join(name)).expect("the file was written")
    }
}

const SMALL: [&str; 7] = ["--size", "96", "--steps", "60", "--seed", "5", "--json"];
/// For tests in which the result does not matter.
const TINY: [&str; 7] = ["--size", "32", "--steps", "16", "--seed", "5", "--json"];

#[test]
fn a_killed_worker_changes_no_bit_and_is_seen_in_both_pictures() {
    let folder = DemoFixture::new();
    let figures = folder.figures(&[&SMALL[..], &["--workers", "3"]].concat());
    assert_eq!((&figures["same"], &figures["workers"]), (&Value::from(true), &Value::from(3)));
    let killed = figures["killed"]["worker"].as_u64().expect("a worker was killed");
    assert!(figures["killed"]["epoch"].as_u64().expect("the kill has an epoch") >= 4, "{figures}");
    let [live, reserved] = ["peak_live_bytes", "peak_reserved_bytes"].map(|name| figures[name].as_u64().expect(name));
    // Two generations of at least 36 KiB, and never more live than reserved.
    assert!(live > 73_728 && reserved >= live, "{figures}");
    assert!(figures["refined_tiles_max"].as_u64().expect("a number") > 0, "{figures}");
    let part = figures["refinement_part"].as_f64().expect("a number");
    assert!(part > 0.0 && part < 1.0, "{figures}");

    assert_eq!(folder.read("field.png")[..8], *b"\x89PNG\r\n\x1a\n");
    let picture = String::from_utf8(folder.read("memory.svg")).expect("the SVG is UTF-8");
    assert!(picture.starts_with("<svg") && picture.contains(&format!("worker {killed} is killed")));
    assert!(["worker 0", "worker 1", "worker 2"].iter().all(|name| picture.contains(name)));
    let trace: Vec<Value> = serde_json::from_slice(&folder.read("trace.json")).expect("the trace is JSON");
    let names: Vec<&str> = trace.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
    let wanted = [format!("worker {killed}"), format!("worker {killed}, its replacement")];
    assert!(wanted.iter().all(|name| names.contains(&name.as_str())), "{names:?}");
    assert!(trace.iter().any(|event| event["name"] == format!("worker {killed} is killed")));
    assert!(trace.iter().any(|event| event["name"] == "refined" && event["dur"].is_number()));
}

#[test]
fn the_trace_of_a_killed_worker_goes_on_until_its_kill() {
    let folder = DemoFixture::new();
    // All tiles are refined here. 20 epochs, and the kill after 10. Epoch 6 is enqueued while the device is in epoch 4,
    // and 10 have completed: so the file contains what was known when epoch 8 was enqueued, at least 4 epochs.
    let figures = folder.figures(&["--size", "64", "--steps", "160", "--workers", "2", "--json"]);
    let killed = figures["killed"]["worker"].as_u64().expect("a worker was killed");
    let trace: Vec<Value> = serde_json::from_slice(&folder.read("trace.json")).expect("the trace is JSON");
    let is_name = |event: &&Value| event["args"]["name"] == format!("worker {killed}");
    let process = &trace.iter().find(is_name).expect("the worker has a name")["pid"];
    let of_it = |event: &&Value| event["pid"] == *process && event["name"] == "average" && event["dur"].is_number();
    let epochs = trace.iter().filter(of_it).count();
    assert!(epochs >= 4, "only {epochs} epochs of the killed worker are in the trace");
}

#[test]
fn remote_kernels_come_to_the_same_field() {
    let folder = DemoFixture::new();
    let here = folder.figures(&[&TINY[..], &["--workers", "1", "--no-kill"]].concat());
    assert_eq!((&here["same"], &here["killed"]), (&Value::from(true), &Value::Null));
    let there = folder.figures(&[&TINY[..], &["--remote"]].concat());
    assert_eq!((&there["same"], &there["field"]), (&Value::from(true), &here["field"]));
}

#[test]
fn what_is_killed_leaves_no_broker_and_no_folder() {
    let folder = DemoFixture::new();
    let mut command = folder.command(&["--steps", "100000"]);
    // All processes that it starts hold the other end, until the last of them has ended.
    let (mut ends, other) = std::io::pipe().expect("a pipe");
    command.env("TMPDIR", &folder.0.folder).stdout(Stdio::null()).stderr(other);
    let mut demo = command.spawn().expect("the binary starts");
    drop(command);
    let own = folder.0.folder.join(format!("freehold-own-{}-0", demo.id()));
    while !own.join("worker-3-0.json").exists() {
        assert!(demo.try_wait().expect("it is a child of this process").is_none(), "the demo ended early");
        std::thread::yield_now();
    }
    demo.kill().expect("the demo is killed");
    demo.wait().expect("it is a child of this process");
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    let long = Timespec { tv_sec: 60, tv_nsec: 0 };
    loop {
        let heard = poll(&mut [PollFd::new(&ends, PollFlags::IN)], Some(&long)).expect("a pipe can be polled");
        assert_eq!(heard, 1, "a process that it started still runs");
        match ends.read(&mut piece).expect("the pipe is readable") {
            0 => break,
            bytes => said.extend_from_slice(&piece[..bytes]),
        }
    }
    assert!(!own.exists(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_file_that_cannot_be_written_takes_no_figures_away() {
    let folder = DemoFixture::new();
    fs::create_dir_all(folder.0.folder.join("out/memory.svg/in-the-way")).unwrap();
    let output = folder.demo(&[&TINY[..], &["--workers", "1", "--no-kill"]].concat());
    let figures: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&figures["same"], output.status.code()), (&Value::from(true), Some(1)));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.ends_with("choose another folder with --out\n") && said.lines().count() == 1, "{said}");
    assert_eq!(folder.read("field.png")[..8], *b"\x89PNG\r\n\x1a\n");
    assert!(!folder.read("trace.json").is_empty());
    let mut command = folder.command(&[&TINY[..], &["--workers", "1", "--no-kill"]].concat());
    fs::remove_dir_all(folder.0.folder.join("out")).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full exists");
    assert_eq!(command.stdout(full).status().expect("the binary starts").code(), Some(1));
    assert!(!folder.read("memory.svg").is_empty());
}

#[test]
fn bad_input_is_one_sentence_with_the_expected_form() {
    let folder = DemoFixture::new();
    let said = |words: &[&str]| {
        let output = folder.demo(words);
        (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
    };
    let sentence = "error: a size of 100 cells: expected a multiple of 32 from 32 to 16384, as in --size 256\n";
    assert_eq!(said(&["--size", "100"]), (sentence.to_owned(), Some(2)));
    let sentence = "error: --workers 4: expected 1 to 2 (--size 64 has 2 rows of tiles; at most one worker each)\n";
    assert_eq!(said(&["--size", "64", "--workers", "4"]), (sentence.to_owned(), Some(2)));
    let sentence = "error: --workers 0: expected 1 to 8 (--size 256 has 8 rows of tiles; at most one worker each)\n";
    assert_eq!(said(&["--workers", "0"]), (sentence.to_owned(), Some(2)));
    let sentence = "error: 0 steps: expected --steps 1 or more\n";
    assert_eq!(said(&["--steps", "0"]), (sentence.to_owned(), Some(2)));
    let most = "invalid value '-1' for '--size <CELLS>': expected a multiple of 32 from 32 to 16384";
    let sentence = format!("error: {most}; see `freehold demo --help`\n");
    assert_eq!(said(&["--size", "-1"]), (sentence, Some(2)));
    let (sentence, status) = said(&["--workers", "5000000000"]);
    assert!(sentence.contains("expected a number from 1 to 4294967295") && status == Some(2), "{sentence}");
    let (sentence, status) = said(&["--device", "opencl"]);
    assert!(sentence.contains("expected soft, cuda or cuda:N") && status == Some(2), "{sentence}");
    assert_eq!(sentence.lines().count(), 1, "{sentence}");
    let (sentence, status) = said(&["--remote", "--workers", "2"]);
    assert!(sentence.contains("cannot be used with '--workers") && status == Some(2), "{sentence}");
    assert!(!folder.0.folder.join("out").exists());
}

#[test]
fn a_small_domain_has_fewer_workers_unless_they_are_given() {
    let folder = DemoFixture::new();
    let output = folder.demo(&["--size", "32", "--steps", "8", "--no-kill"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(", 1 worker\n"), "{said}");
    assert_eq!(output.status.code(), Some(0));
}
