//! `freehold put FILE --as NAME`: what is published, what is refused, and what is left when it is killed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Child;

use freehold_broker::tensors::{Dtype, Manifest};
use freehold_broker::wire::{BrokerStats, Reply, Request};
use freehold_broker::{Link, Policy};
use freehold_testing::process::{until, until_is, wait_stopped};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::broker_fixture::BrokerFixture;

/// The content of tensor `w`, which is not that of another stamp.
fn numbers(stamp: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| stamp.wrapping_add((at / 3) as u8)).collect()
}

fn bytes_of(header: &Value, data: &[u8]) -> Vec<u8> {
    let header = header.to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// A file with the tensors `w`, of `len` numbers, and `b`.
fn model(fixture: &BrokerFixture, stamp: u8, len: usize) -> String {
    let header = json!({
        "b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "w": {"dtype": "U8", "shape": [1, len], "data_offsets": [4, 4 + len]},
        "__metadata__": {"format": "pt"},
    });
    let data = [&[stamp; 4][..], &numbers(stamp, len)].concat();
    fixture.file(&format!("{stamp}.safetensors"), &bytes_of(&header, &data))
}

/// Reads a set back, and checks its hashes.
fn published(fixture: &BrokerFixture, name: &str) -> (Manifest, Vec<Vec<u8>>) {
    let output = fixture.run(&["get", name, "-"]);
    assert_eq!(output.status.code(), Some(0));
    let memory = output.stdout;
    let manifest = Manifest::parse(&memory, memory.len() as u64).expect("a set of tensors");
    let tensors = manifest.tensors().iter().map(|tensor| {
        let start = (manifest.data_start() + tensor.offset) as usize;
        let bytes = &memory[start..start + tensor.bytes as usize];
        let mut hasher = freehold_broker::tensors::TensorHasher::new();
        hasher.update(bytes);
        assert_eq!(tensor.hash, Some(hasher.finish()), "{}", tensor.name);
        bytes.to_vec()
    });
    let tensors = tensors.collect();
    (manifest, tensors)
}

/// Whether a line ends with a time and a rate, which differ from run to run.
fn without_time(line: &str) -> String {
    let parts: Vec<&str> = line.trim_end().split(", ").collect();
    let [first, count, time, rate] = parts[..] else { panic!("{line:?}") };
    let number = |text: &str, unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
    assert!(number(time, " s").is_some() && number(rate, " GB/s").is_some(), "{line:?}");
    format!("{first}, {count}")
}

#[test]
fn the_tensors_of_a_file_become_a_set_and_its_generations() {
    let fixture = BrokerFixture::new();
    // More than one piece of the largest tensor.
    let len = (17 << 20) + 5;
    let first = model(&fixture, 1, len);
    assert_eq!(without_time(&fixture.stdout_of(&["put", &first, "--as", "model"])), "model@1: 17.0 MiB, 2 tensors");
    let (manifest, tensors) = published(&fixture, "model");
    assert_eq!(manifest.policy(), Policy::Restore);
    let listed: Vec<_> = manifest.tensors().iter().map(|one| (one.name.as_str(), one.dtype, &one.shape[..])).collect();
    assert_eq!(listed, [("b", Dtype::Bfloat16, &[2_u64][..]), ("w", Dtype::Uint8, &[1, len as u64])]);
    assert!(tensors == [vec![1; 4], numbers(1, len)]);
    // Another length.
    let next = model(&fixture, 2, 1000);
    assert_eq!(
        without_time(&fixture.stdout_of(&["put", &next, "--as", "model", "--update"])),
        "model@2: 1004 B, 2 tensors"
    );
    assert!(published(&fixture, "model").1 == [vec![2; 4], numbers(2, 1000)]);
    let said: Value =
        serde_json::from_str(&fixture.stdout_of(&["put", &next, "--as", "model", "--update", "--json"])).unwrap();
    assert!(said["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{said}");
    let rest = [&said["name"], &said["bytes"], &said["tensors"], &said["generation"]];
    assert_eq!(rest, [&json!("model"), &json!(1004), &json!(2), &json!(3)]);
    // A replaced set starts over.
    assert!(fixture.stdout_of(&["put", &first, "--as", "model", "--replace"]).starts_with("model@1: "));
    assert!(published(&fixture, "model").1 == [vec![1; 4], numbers(1, len)]);
}

#[test]
fn a_wrong_file_or_name_is_refused_in_a_sentence_and_publishes_nothing() {
    let fixture = BrokerFixture::new();
    let whole = std::fs::read(model(&fixture, 1, 100)).unwrap();
    let file = |bytes: &[u8]| fixture.file("wrong", bytes);
    let refused = |bytes: &[u8]| {
        let path = file(bytes);
        let (said, status) = fixture.error_of(&["put", &path, "--as", "model"]);
        assert_eq!((status, said.lines().count()), (Some(2), 1), "{said}");
        said.strip_prefix(&format!("error: {path}: ")).expect("it names the file").trim_end().to_owned()
    };
    assert_eq!(refused(b"short"), "not a safetensors file: it has 5 bytes");
    let sentence = "the header describes 104 bytes of tensors, and the file has 90: it is truncated or damaged";
    assert_eq!(refused(&whole[..whole.len() - 14]), sentence);
    let end = u64::from_le_bytes(*whole.first_chunk().unwrap()) + 8;
    assert_eq!(refused(&whole[..40]), format!("the file is truncated: its header ends at byte {end} of 40"));
    assert_eq!(
        refused(b"\x00\x00\x00\x00\x00\x00\x00\x01{}"),
        "not a safetensors file: its header would have 72057594037927936 bytes"
    );
    let tensor = |from: u64, to: u64| json!({"dtype": "U8", "shape": [to - from], "data_offsets": [from, to]});
    for header in [
        json!({"a": tensor(0, 8), "b": tensor(4, 12)}),
        json!({"a": tensor(0, 4), "b": tensor(8, 12)}),
        json!({"a": {"dtype": "F32", "shape": [7], "data_offsets": [0, 12]}}),
    ] {
        assert!(refused(&bytes_of(&header, &[0; 12])).starts_with("the header is damaged: "));
    }
    assert_eq!(refused(&bytes_of(&json!({}), &[])), "the list has no tensors: expected at least one");
    let good = model(&fixture, 1, 100);
    let refused = |words: &[&str]| fixture.error_of(words);
    let sentence = "error: model: there is no such name\n".to_owned();
    assert_eq!(refused(&["put", &good, "--as", "model", "--update"]), (sentence, Some(1)));
    assert_eq!(refused(&["put", &good, "--update", "--name", "model"]).1, Some(2));
    assert_eq!(refused(&["put", &good, "--as", "model", "--update", "--replace"]).1, Some(2));
    assert_eq!(refused(&["put", &good, "other", "--as", "model"]).1, Some(2));
    assert_eq!(refused(&["put", &good, "--as", "model@1"]).1, Some(2));
    assert_eq!(fixture.stdout_of(&["ls", "--json"]), "{\"names\":[]}\n");
    fixture.stdout_of(&["put", &good, "--as", "model"]);
    let taken = refused(&["put", &good, "--as", "model"]);
    assert!(taken.0.starts_with("error: model: the name is taken: ") && taken.1 == Some(1), "{}", taken.0);
    // A set of another policy has no generations: nothing of it is overwritten.
    assert!(published(&fixture, "model").1 == [vec![1; 4], numbers(1, 100)]);
}

fn stats(link: &mut Link) -> BrokerStats {
    match link.call(Request::Stats).expect("the broker answers").reply {
        Reply::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

/// Starts `put`, and kills it when it has leased memory and published nothing.
fn kill_in_the_middle(fixture: &BrokerFixture, words: &[&str]) {
    let mut link = fixture.link();
    let before = stats(&mut link);
    for _ in 0..50 {
        let mut put: Child = fixture.command().args(words).spawn().expect("the binary starts");
        until("it leases memory", || {
            let has_ended = put.try_wait().expect("it is a child of this process").is_some();
            (has_ended || stats(&mut link).leases > before.leases).then_some(())
        });
        // One that has ended is a zombie.
        kill_process(Pid::from_child(&put), Signal::STOP).expect("it is a child of this process");
        wait_stopped(put.id());
        let is_unpublished =
            stats(&mut link).leases > before.leases && stats(&mut link).named_bytes == before.named_bytes;
        put.kill().expect("it is a child of this process");
        put.wait().expect("it is a child of this process");
        if is_unpublished {
            let left = || {
                let stats = stats(&mut link);
                (stats.leases, stats.leased_bytes, stats.named_bytes, stats.reclaiming_bytes)
            };
            let wanted = (before.leases, before.leased_bytes, before.named_bytes, 0);
            return until_is("its memory is free", wanted, left);
        }
    }
    panic!("put was never caught in the middle");
}

#[test]
fn a_put_that_is_killed_in_the_middle_publishes_nothing_and_leaves_nothing() {
    let fixture = BrokerFixture::new();
    let old = model(&fixture, 1, 1000);
    // Large, and cheap to make: a file with a hole.
    let len = 40 << 20;
    let header = bytes_of(&json!({ "w": {"dtype": "U8", "shape": [len], "data_offsets": [0, len]} }), &[]);
    let path = fixture.file("large.safetensors", &header);
    let large = File::options().write(true).open(&path).unwrap();
    large.write_all_at(&[1], header.len() as u64 + len - 1).unwrap();
    kill_in_the_middle(&fixture, &["put", &path, "--as", "new"]);
    assert_eq!(fixture.stdout_of(&["ls", "--json"]), "{\"names\":[]}\n");
    fixture.stdout_of(&["put", &old, "--as", "model"]);
    kill_in_the_middle(&fixture, &["put", &path, "--as", "model", "--update"]);
    assert!(published(&fixture, "model").1 == [vec![1; 4], numbers(1, 1000)]);
    assert!(
        fixture.stdout_of(&["put", &path, "--as", "model", "--update"]).starts_with("model@2: 40.0 MiB, 1 tensor, ")
    );
}
