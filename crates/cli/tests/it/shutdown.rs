//! How things end: stopped brokers, `top` in front of a broker that does not answer, interrupted downloads.

use crate::{broker_fixture, common};

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use broker_fixture::{BrokerFixture, name};
use common::text;
use freehold_broker::wire::{Fence, Policy, Request};
use freehold_testing::HANG_TIMEOUT;
use freehold_testing::process::{until, wait_stopped};
use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to the broker process only. If it stops the process, returns when that has happened.
fn signal_broker(fixture: &BrokerFixture, signal: Signal) {
    // A process that it has just started has the same command line until it executes another program.
    let broker = until("there is one broker process", || match fixture.sandbox.processes("broker")[..] {
        [broker] => Pid::from_raw(broker.cast_signed()),
        _ => None,
    });
    kill_process(broker, signal).expect("the broker runs");
    if signal == Signal::STOP {
        wait_stopped(broker.as_raw_nonzero().get().cast_unsigned());
    }
}

#[test]
fn a_broker_is_stopped_and_another_serves_at_once() {
    let mut fixture = BrokerFixture::new();
    let socket = fixture.sandbox.socket();
    let ended = |lost: &str| format!("broker at {} stopped; {lost}\n", socket.display());
    assert_eq!(fixture.stdout_of(&["stop"]), ended("nothing was published"));
    assert_eq!(fixture.served(), (String::new(), Some(0)));
    fixture.serve(&[]);
    fixture.stdout_of(&["put", &fixture.file("in", b"freehold"), "--name", "a"]);
    let refused = "8 bytes under 1 name would be lost: drop it, or use `freehold stop --force`";
    assert_eq!(fixture.error_of(&["stop"]), (format!("error: {refused}\n"), Some(1)));
    assert_eq!(fixture.stdout_of(&["stop", "--force"]), ended("1 name with 8 B is lost"));
    assert_eq!(fixture.served(), (String::new(), Some(0)));
    assert!(!socket.exists());
    assert_eq!(fixture.error_of(&["stop"]).1, Some(3));
    fixture.serve(&[]);
    let json = format!("{{\"bytes\":0,\"modules\":0,\"names\":0,\"stopped\":\"{}\"}}\n", socket.display());
    assert_eq!(fixture.stdout_of(&["stop", "--json"]), json);
    assert_eq!(fixture.served(), (String::new(), Some(0)));
}

#[test]
fn a_broker_leaves_nothing_behind_and_an_interrupt_stops_it_once_nothing_is_published() {
    let mut fixture = BrokerFixture::new();
    fixture.stdout_of(&["put", "a", &fixture.file("in", b"freehold")]);
    fixture.signal(Signal::INT);
    let warning = "1 name with 8 B would be lost; press Ctrl-C again within 10 s to stop\n";
    until("the broker warns", || (fixture.sandbox.stderr() == warning).then_some(()));
    fixture.stdout_of(&["drop", "a"]);
    assert_eq!(fixture.stdout_of(&["totals"]).lines().count(), 1, "it still serves");
    fixture.signal(Signal::INT);
    assert_eq!(fixture.served(), (warning.to_owned(), Some(0)));
    let left = || {
        let entries = std::fs::read_dir(&fixture.sandbox.folder).expect("the folder exists");
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .filter(|name| name != "in" && name != "stderr")
            .count()
    };
    assert_eq!(left(), 0, "neither the socket nor its lock");
    fixture.serve(&[]);
    fixture.stdout_of(&["put", "a", &fixture.file("in", b"freehold")]);
    for expected in [warning, ""] {
        fixture.signal(Signal::INT);
        if expected == warning {
            until("the broker warns", || (fixture.sandbox.stderr() == warning).then_some(()));
        }
    }
    assert_eq!(fixture.served(), (warning.to_owned(), Some(0)), "the second interrupt stops it");
}

#[test]
fn stop_also_ends_a_broker_whose_parent_process_was_replaced() {
    let mut fixture = BrokerFixture::new();
    fixture.signal(Signal::KILL);
    assert_eq!(fixture.served(), (String::new(), None));
    until("another fdstore runs", || (!fixture.sandbox.processes("fdstore").is_empty()).then_some(()));
    let second = fixture.command().args(["serve", "--device", "soft"]).output().unwrap();
    let socket = fixture.sandbox.socket();
    let sentence = "already: use it, stop it with `freehold stop`, or choose another socket with --socket";
    let expected = format!("error: a broker serves {} {sentence}\n", socket.display());
    assert_eq!((text(&second.stderr), second.status.code()), (expected.as_str(), Some(2)));
    fixture.link().call(Request::Host { bytes: 5000, name: name("a") }).expect("host memory is allocated");
    assert_eq!(
        fixture.stdout_of(&["stop", "--force"]),
        format!("broker at {} stopped; 1 name with 4.9 KiB is lost\n", socket.display())
    );
    fixture.serve(&[]);
}

#[test]
fn a_signal_that_is_sent_twice_stops_a_broker_once() {
    let mut fixture = BrokerFixture::new();
    // Both are pending when it runs again. Two of a kind would count as one.
    fixture.signal(Signal::STOP);
    fixture.signal(Signal::INT);
    fixture.signal(Signal::TERM);
    fixture.signal(Signal::CONT);
    assert_eq!(fixture.served(), (String::new(), Some(0)));
    assert!(!fixture.sandbox.folder.join("broker.lock").exists());
}

#[test]
fn a_second_signal_ends_a_broker_that_hangs() {
    let mut fixture = BrokerFixture::new();
    signal_broker(&fixture, Signal::STOP);
    fixture.signal(Signal::TERM);
    // The next ones count once the time in which a signal counts as repeated is over.
    until("the fdstore exits", || {
        fixture.signal(Signal::TERM);
        fixture.has_exited().then_some(())
    });
    assert_eq!(fixture.served(), ("error: a second signal came: the broker was killed\n".to_owned(), Some(1)));
    assert!(!fixture.sandbox.folder.join("broker.lock").exists());
    fixture.serve(&[]);
}

/// How long `top` may take to exit. On an idle machine it takes half a second. If it waited for an answer of the broker,
/// it would take the rest of the ten seconds after which the command line gives up.
const EXIT_MAX: Duration = Duration::from_secs(7);

/// A program in its own terminal, of 24 lines and 100 columns.
struct Terminal {
    keys: File,
    program: Child,
    shown: Receiver<Vec<u8>>,
}

impl Terminal {
    fn start(fixture: &BrokerFixture, words: &[&str]) -> Self {
        let (mut keys, mut screen) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let no_name = std::ptr::null_mut();
        // SAFETY: `keys` and `screen` are variables for the descriptors that the call writes, and `size` is a size; no
        // name is requested, and the settings are the default.
        let code = unsafe { libc::openpty(&raw mut keys, &raw mut screen, no_name, std::ptr::null(), &raw const size) };
        assert_eq!(code, 0, "the terminal is created");
        // SAFETY: the call created the descriptor, and nothing else owns it.
        let keys = File::from(unsafe { OwnedFd::from_raw_fd(keys) });
        // SAFETY: as above.
        let screen = unsafe { OwnedFd::from_raw_fd(screen) };
        let end = || Stdio::from(screen.try_clone().expect("the descriptor is duplicated"));
        let mut program = fixture.command();
        program.args(words).stdin(end()).stdout(end()).stderr(end());
        let program = program.spawn().expect("the binary starts");
        let (tell, shown) = channel();
        let mut reader = keys.try_clone().expect("the descriptor is duplicated");
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends when no process has the terminal open.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keys, program, shown }
    }

    /// Waits until a text is shown.
    fn shows(&self, wanted: &str) {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains(wanted) {
            let more = self.shown.recv_timeout(HANG_TIMEOUT);
            shown.extend(more.unwrap_or_else(|_| panic!("{wanted:?} is not in {:?}", String::from_utf8_lossy(&shown))));
        }
    }

    /// Checks that it exits successfully.
    fn ends_well(mut self) {
        let status = until("the program ends", || self.program.try_wait().expect("it is a child of this process"));
        assert_eq!(status.code(), Some(0));
    }
}

#[test]
fn top_is_left_within_seconds_though_the_broker_does_not_answer() {
    let fixture = BrokerFixture::new();
    for key in [b'q', 3] {
        let mut top = Terminal::start(&fixture, &["top"]);
        top.shows("q quits");
        signal_broker(&fixture, Signal::STOP);
        top.shows("no answer from the broker for ");
        let pressed = Instant::now();
        top.keys.write_all(&[key]).expect("the terminal is open");
        top.ends_well();
        assert!(pressed.elapsed() < EXIT_MAX, "it took {:?}", pressed.elapsed());
        signal_broker(&fixture, Signal::CONT);
    }
}

#[test]
fn top_goes_on_when_the_broker_does() {
    let fixture = BrokerFixture::new();
    let mut top = Terminal::start(&fixture, &["top"]);
    top.shows("q quits");
    signal_broker(&fixture, Signal::STOP);
    top.shows("no answer from the broker for ");
    signal_broker(&fixture, Signal::CONT);
    fixture.stdout_of(&["put", &fixture.file("in", b"freehold"), "--name", "model/weights"]);
    top.shows("model/weights");
    top.keys.write_all(b"q").expect("the terminal is open");
    top.ends_well();
}

#[test]
fn a_file_that_a_signal_leaves_half_written_is_removed() {
    let fixture = BrokerFixture::new();
    // A reader waits on the device for work that never completes.
    let mut link = fixture.link();
    let lease = link.reserve(4096).expect("the memory fits").lease;
    let (policy, point) = (Policy::Restore, Fence { tenant: link.tenant(), semaphore: 1, value: 1 });
    link.call(Request::Publish { lease, policy, fence: point, name: name("a") }).expect("the name is free");
    let out = fixture.sandbox.folder.join("out");
    std::fs::write(&out, "before").expect("the file is written");
    let files = || {
        let entries = std::fs::read_dir(&fixture.sandbox.folder).expect("the folder exists");
        let names = entries.map(|entry| entry.expect("a file").file_name().into_string().expect("the name is UTF-8"));
        names.filter(|name| name.starts_with("out")).collect::<Vec<_>>()
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut get = fixture.command();
        get.args(["get", "a", "-o"]).arg(&out);
        let reset_signals = || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // SAFETY: no function is set, only the default action.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // The parent of this test may have set signals to be ignored.
        // SAFETY: between fork and exec it calls only `signal`, which is allowed there.
        let mut get = unsafe { get.pre_exec(reset_signals) }.spawn().expect("the binary starts");
        until("the partial file exists", || (files().len() == 2).then_some(()));
        kill_process(Pid::from_child(&get), signal).expect("the command runs");
        let status = get.wait().expect("it is a child of this process");
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!(
            (files(), std::fs::read(&out).expect("the file exists")),
            (vec!["out".to_owned()], b"before".to_vec())
        );
    }
}
