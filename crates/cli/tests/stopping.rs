//! What ends, and how: brokers that are stopped, `top` before one that does not answer, files that are half written.

mod common;
mod scene;

use freehold_broker::wire::Request;
use rustix::process::{Signal, kill_process};
use scene::{Scene, command, name, text, until};

/// The broker that serves, and nobody else, is sent a signal.
fn signal_broker(scene: &Scene, signal: Signal) {
    let brokers = scene.processes("broker");
    assert_eq!(brokers.len(), 1);
    kill_process(brokers[0], signal).expect("the broker is there");
}

#[test]
fn a_broker_is_stopped_and_another_serves_at_once() {
    let mut scene = Scene::new();
    let socket = scene.folder.join("broker");
    let ended = |lost: &str| format!("the broker at {} has ended: {lost}\n", socket.display());
    assert_eq!(scene.said(&["stop"]), ended("it had no names"));
    assert_eq!(scene.served(), (String::new(), Some(0)));
    scene.serve();
    scene.said(&["put", &scene.file("in", b"freehold"), "--name", "a"]);
    let refused = "8 bytes under 1 name would be gone: drop what has a name, or say `freehold stop --force`";
    assert_eq!(scene.refused(&["stop"]), (format!("error: {refused}\n"), Some(1)));
    assert_eq!(scene.said(&["stop", "--force"]), ended("1 name and 8 bytes are gone"));
    assert_eq!(scene.served(), (String::new(), Some(0)));
    assert!(!socket.exists());
    assert_eq!(scene.refused(&["stop"]).1, Some(3));
    scene.serve();
    let json = format!("{{\"bytes\":0,\"names\":0,\"stopped\":\"{}\"}}\n", socket.display());
    assert_eq!(scene.said(&["stop", "--json"]), json);
    assert_eq!(scene.served(), (String::new(), Some(0)));
}

#[test]
fn a_broker_whose_keeper_was_replaced_is_stopped_too() {
    let mut scene = Scene::new();
    scene.signal(Signal::KILL);
    assert_eq!(scene.served(), (String::new(), None));
    until("another keeper is there", || (!scene.processes("keeper").is_empty()).then_some(()));
    let second = command(&scene.folder, &scene.machine).args(["serve", "--device", "soft"]).output().unwrap();
    let socket = scene.folder.join("broker");
    let sentence = "already: use it, stop it with `freehold stop`, or name another with --socket";
    let expected = format!("error: a broker serves {} {sentence}\n", socket.display());
    assert_eq!((text(&second.stderr), second.status.code()), (expected.as_str(), Some(2)));
    scene.link().descriptor(Request::Host { bytes: 5000, name: name("a") }).expect("a descriptor");
    assert_eq!(
        scene.said(&["stop", "--force"]),
        format!("the broker at {} has ended: 1 name and 5000 bytes are gone\n", socket.display())
    );
    scene.serve();
}

#[test]
fn a_second_signal_ends_a_broker_that_hangs() {
    let mut scene = Scene::new();
    signal_broker(&scene, Signal::STOP);
    // Two of a kind would be one.
    scene.signal(Signal::INT);
    scene.signal(Signal::TERM);
    assert_eq!(scene.served(), ("error: the broker did not end: it was killed\n".to_owned(), Some(1)));
    scene.serve();
}
