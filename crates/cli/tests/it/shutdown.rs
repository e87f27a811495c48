//! What ends, and how: brokers that are stopped, `top` before one that does not answer, files that are half written.

use crate::broker_fixture;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use broker_fixture::{BrokerFixture, command, name, text, until};
use freehold_broker::wire::{Fence, Policy, Request};
use freehold_testing::HANG_TIMEOUT;
use rustix::process::{Pid, Signal, kill_process};

/// The broker that serves, and nobody else, is sent a signal.
fn signal_broker(fixture: &BrokerFixture, signal: Signal) {
    // A process that it has just started is called as it is, until it is another program.
    let broker = until("the broker is alone", || match fixture.processes("broker")[..] {
        [broker] => Some(broker),
        _ => None,
    });
    kill_process(broker, signal).expect("the broker is there");
}

#[test]
fn a_broker_is_stopped_and_another_serves_at_once() {
    let mut fixture = BrokerFixture::new();
    let socket = fixture.folder.join("broker");
    let ended = |lost: &str| format!("the broker at {} has ended: {lost}\n", socket.display());
    assert_eq!(fixture.said(&["stop"]), ended("it had no names"));
    assert_eq!(fixture.served(), (String::new(), Some(0)));
    fixture.serve();
    fixture.said(&["put", &fixture.file("in", b"freehold"), "--name", "a"]);
    let refused = "8 bytes under 1 name would be lost: drop the names, or use `freehold stop --force`";
    assert_eq!(fixture.refused(&["stop"]), (format!("error: {refused}\n"), Some(1)));
    assert_eq!(fixture.said(&["stop", "--force"]), ended("1 name and 8 bytes are gone"));
    assert_eq!(fixture.served(), (String::new(), Some(0)));
    assert!(!socket.exists());
    assert_eq!(fixture.refused(&["stop"]).1, Some(3));
    fixture.serve();
    let json = format!("{{\"bytes\":0,\"names\":0,\"stopped\":\"{}\"}}\n", socket.display());
    assert_eq!(fixture.said(&["stop", "--json"]), json);
    assert_eq!(fixture.served(), (String::new(), Some(0)));
}

#[test]
fn stop_also_ends_a_broker_whose_parent_process_was_replaced() {
    let mut fixture = BrokerFixture::new();
    fixture.signal(Signal::KILL);
    assert_eq!(fixture.served(), (String::new(), None));
    until("another keeper is there", || (!fixture.processes("keeper").is_empty()).then_some(()));
    let second = command(&fixture.folder, &fixture.machine).args(["serve", "--device", "soft"]).output().unwrap();
    let socket = fixture.folder.join("broker");
    let sentence = "already: use it, stop it with `freehold stop`, or name another with --socket";
    let expected = format!("error: a broker serves {} {sentence}\n", socket.display());
    assert_eq!((text(&second.stderr), second.status.code()), (expected.as_str(), Some(2)));
    fixture.link().call(Request::Host { bytes: 5000, name: name("a") }).expect("memory of the host");
    assert_eq!(
        fixture.said(&["stop", "--force"]),
        format!("the broker at {} has ended: 1 name and 5000 bytes are gone\n", socket.display())
    );
    fixture.serve();
}

#[test]
fn a_second_signal_ends_a_broker_that_hangs() {
    let mut fixture = BrokerFixture::new();
    signal_broker(&fixture, Signal::STOP);
    // Two of a kind would be one.
    fixture.signal(Signal::INT);
    fixture.signal(Signal::TERM);
    assert_eq!(fixture.served(), ("error: the broker did not exit and was killed\n".to_owned(), Some(1)));
    fixture.serve();
}

/// A program at a terminal of its own, 24 lines of 100 letters.
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
        // SAFETY: `keys` and `screen` are room for the descriptors that the call writes, and `size` is a size; no name is asked for,
        // and the settings are left as they are.
        let code = unsafe { libc::openpty(&raw mut keys, &raw mut screen, no_name, std::ptr::null(), &raw const size) };
        assert_eq!(code, 0, "a terminal is made");
        // SAFETY: the call made the descriptor, and it is nobody else's.
        let keys = File::from(unsafe { OwnedFd::from_raw_fd(keys) });
        // SAFETY: as the one above.
        let screen = unsafe { OwnedFd::from_raw_fd(screen) };
        let end = || Stdio::from(screen.try_clone().expect("a descriptor is copied"));
        let mut program = command(&fixture.folder, &fixture.machine);
        program.args(words).stdin(end()).stdout(end()).stderr(end());
        let program = program.spawn().expect("the binary starts");
        let (tell, shown) = channel();
        let mut reader = keys.try_clone().expect("a descriptor is copied");
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends when nobody has the screen any more.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if tell.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keys, program, shown }
    }

    /// Waits until something is shown.
    fn shows(&self, wanted: &str) {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains(wanted) {
            let more = self.shown.recv_timeout(HANG_TIMEOUT);
            shown.extend(more.unwrap_or_else(|_| panic!("{wanted:?} is not in {:?}", String::from_utf8_lossy(&shown))));
        }
    }

    /// It ends well, and sooner than it could have waited for an answer.
    fn ends_well(mut self) {
        let begun = Instant::now();
        let status = until("it ends", || self.program.try_wait().expect("it is this process's"));
        assert_eq!(status.code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    }
}

#[test]
fn top_is_left_at_once_though_the_broker_does_not_answer() {
    let fixture = BrokerFixture::new();
    for key in [b'q', 3] {
        let mut top = Terminal::start(&fixture, &["top"]);
        top.shows("q leaves");
        signal_broker(&fixture, Signal::STOP);
        top.shows("the broker does not answer since ");
        top.keys.write_all(&[key]).expect("the terminal is there");
        top.ends_well();
        signal_broker(&fixture, Signal::CONT);
    }
}

#[test]
fn top_goes_on_when_the_broker_does() {
    let fixture = BrokerFixture::new();
    let mut top = Terminal::start(&fixture, &["top"]);
    top.shows("q leaves");
    signal_broker(&fixture, Signal::STOP);
    top.shows("the broker does not answer since ");
    signal_broker(&fixture, Signal::CONT);
    fixture.said(&["put", &fixture.file("in", b"freehold"), "--name", "model/weights"]);
    top.shows("model/weights");
    top.keys.write_all(b"q").expect("the terminal is there");
    top.ends_well();
}

#[test]
fn a_file_that_a_signal_leaves_half_written_is_removed() {
    let fixture = BrokerFixture::new();
    // Who reads it waits on the device for work that never passes.
    let mut link = fixture.link();
    let lease = link.reserve(4096).expect("there is room").lease;
    let (policy, point) = (Policy::Restore, Fence { tenant: link.tenant(), semaphore: 1, value: 1 });
    link.call(Request::Publish { lease, policy, fence: point, name: name("a") }).expect("the name is free");
    let out = fixture.folder.join("out");
    std::fs::write(&out, "before").expect("a file of the test's");
    let files = || {
        let entries = std::fs::read_dir(&fixture.folder).expect("the folder is there");
        let names = entries.map(|entry| entry.expect("a file").file_name().into_string().expect("text"));
        names.filter(|name| name.starts_with("out")).collect::<Vec<_>>()
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut get = command(&fixture.folder, &fixture.machine);
        get.args(["get", "a", "-o"]).arg(&out);
        let heed = || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // SAFETY: no function is set, only that the signal ends the process.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // Whoever started this test may have had it leave some out.
        // SAFETY: between fork and exec it calls nothing but `signal`, which may be called there.
        let mut get = unsafe { get.pre_exec(heed) }.spawn().expect("the binary starts");
        until("the file is begun", || (files().len() == 2).then_some(()));
        kill_process(Pid::from_child(&get), signal).expect("it is there");
        let status = get.wait().expect("it is this process's");
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!((files(), std::fs::read(&out).expect("it is there")), (vec!["out".to_owned()], b"before".to_vec()));
    }
}
