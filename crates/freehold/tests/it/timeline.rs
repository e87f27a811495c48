//! Recordings: the content of the file that Perfetto opens.

use std::collections::BTreeMap;
use std::path::PathBuf;

use freehold::{DeviceVec, Error};
use serde_json::Value;

use recorded::{device, work};

use crate::recorded;

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("freehold-{name}-{}.json", std::process::id()))
}

/// A time of an event, in nanoseconds.
fn ns(event: &Value, key: &str) -> u64 {
    (event[key].as_f64().unwrap() * 1e3).round() as u64
}

#[test]
fn a_release_ends_in_the_file_when_the_last_use_has() {
    let (device, file) = (device(), file("release"));
    let recording = device.record(Some(&file)).unwrap();
    work(&device);
    recording.finish().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let named = |kind: &str, name: &str| -> Vec<&Value> {
        let found = |event: &&Value| event["ph"] == kind && event["name"].as_str().is_some_and(|n| n.starts_with(name));
        events.iter().filter(found).collect()
    };
    for name in
        ["upload", "scale", "spend", "copy", "load module", "unload module", "allocate 400 bytes", "release 400"]
    {
        assert!(!named("X", name).is_empty(), "{name}: {text}");
    }
    assert_eq!(named("X", "reuse 400 bytes").len(), 1, "{text}");
    let copy = named("X", "copy")[0];
    let (copied, end) = (ns(copy, "ts"), ns(copy, "ts") + ns(copy, "dur"));
    let spent = named("X", "spend")[0];
    assert!(copied >= ns(spent, "ts") + ns(spent, "dur"), "the copy comes after the kernel: {text}");
    // The first block to end its life is `x`, in both streams' hands until the copy was done.
    let id = |event: &Value| event["id2"]["local"].as_str().unwrap().to_owned();
    let lives: BTreeMap<String, u64> =
        named("e", "400").into_iter().map(|event| (id(event), ns(event, "ts"))).collect();
    let (_, ended) = lives.first_key_value().unwrap();
    assert!(*ended >= end, "the block lives until the copy is done, {ended} and {end}: {text}");
    assert_eq!(named("b", "400").len(), named("e", "400").len(), "every life ends");
}

#[test]
fn every_event_of_a_block_has_its_number_and_its_stream() {
    let (device, file) = (device(), file("blocks"));
    let recording = device.record(Some(&file)).unwrap();
    work(&device);
    recording.finish().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let slices = |name: &'static str| {
        let is_so = move |event: &&Value| event["ph"] == "X" && event["name"].as_str().unwrap().starts_with(name);
        events.iter().filter(is_so).map(|event| &event["args"]).collect::<Vec<_>>()
    };
    let first = slices("allocate 400 bytes")[0];
    assert_eq!((&first["block"], &first["bytes"]), (&Value::from(1), &Value::from(400)), "{text}");
    let (home, copy) = (&first["stream"], slices("copy")[0]);
    assert_eq!(copy["used blocks"], serde_json::json!([1, 2]), "{text}");
    assert!(copy["stream"].is_u64() && copy["stream"] != *home, "the copy is of the other stream: {text}");
    let released = slices("release 400 bytes");
    assert_eq!((&released[0]["block"], &released[0]["stream"]), (&Value::from(1), home), "{text}");
    assert_eq!((&released[1]["block"], &released[1]["stream"]), (&Value::from(2), &copy["stream"]), "{text}");
}

#[test]
fn a_vector_is_seen_to_grow_to_shrink_and_to_go() {
    let (device, file) = (device(), file("vector"));
    let recording = device.record(Some(&file)).unwrap();
    let stream = device.new_stream().unwrap();
    let mut vector = DeviceVec::<u8>::with_max_len(&stream, 64 << 20).unwrap();
    vector.resize(&stream, 3 << 20, 1).unwrap();
    vector.resize(&stream, 9 << 20, 1).unwrap();
    vector.truncate(1);
    vector.shrink_to_fit().unwrap();
    drop(vector);
    recording.finish().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text).unwrap();
    let sizes = |verb: &'static str| {
        let is_so = move |event: &&Value| event["ph"] == "X" && event["name"].as_str().unwrap().starts_with(verb);
        let told = |event: &Value| ["had bytes", "has bytes"].map(|key| event["args"][key].as_u64().unwrap());
        events.iter().filter(is_so).map(told).collect::<Vec<_>>()
    };
    let grown = sizes("grow vector at 0x");
    assert!(grown.len() == 2 && grown[0][0] == 0 && grown[0][1] == grown[1][0] && grown[1][1] >= 9 << 20, "{text}");
    let shrunk = sizes("shrink vector at 0x");
    assert!(shrunk.len() == 2 && shrunk[0][0] == grown[1][1] && shrunk[0][1] < 9 << 20, "{text}");
    assert_eq!(shrunk[1], [shrunk[0][1], 0], "{text}");
}

#[test]
fn what_was_flushed_is_in_the_file_of_one_that_goes_on() {
    let (device, file) = (device(), file("flush"));
    let recording = device.record(Some(&file)).unwrap();
    let stream = device.new_stream().unwrap();
    let x = stream.upload(&[1.0f32; 100]).unwrap();
    stream.synchronize().unwrap();
    recording.flush().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&format!("{text}]")).unwrap();
    let is_whole = |name: &str| events.iter().any(|event| event["name"] == name && event["dur"].is_number());
    assert!(is_whole("upload") && is_whole("put upload"), "{text}");
    drop(x);
    recording.finish().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap()[..events.len()], events);
}

#[test]
fn a_full_trace_file_is_reported_when_it_is_flushed() {
    let recording = device().record(Some(&PathBuf::from("/dev/full"))).unwrap();
    let error = recording.flush().unwrap_err();
    assert_eq!(error.to_string(), "/dev/full: no storage space");
}

#[test]
fn one_recording_at_a_time() {
    let device = device();
    let recording = device.record(None).unwrap();
    assert!(matches!(device.record(None), Err(Error::AlreadyRecording)));
    recording.finish().unwrap();
    device.record(None).unwrap().finish().unwrap();
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let path = PathBuf::from("/nonexistent/trace.json");
    let error = device().record(Some(&path)).unwrap_err();
    assert_eq!(error.to_string(), "/nonexistent/trace.json: no such file or folder");
}
