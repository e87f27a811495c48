//! Logs of every kind: complete, truncated and damaged ones.

use freehold_testing::{Random, at_effort, report_covered, seed};

use super::super::Op;
use super::super::history::Anomalies;
use super::*;

const TIMELINE: &[u8] = include_bytes!("../../../tests/logs/timeline.json");
const RMM: &[u8] = include_bytes!("../../../tests/logs/rmm.csv");
const PICKLE: &[u8] = include_bytes!("../../../tests/logs/snapshot.pickle");
const JSON: &[u8] = include_bytes!("../../../tests/logs/snapshot.json");
const WORKLOAD: &[u8] = include_bytes!("../../../tests/logs/three-streams.txt");

const SAMPLES: [&[u8]; 5] = [TIMELINE, RMM, PICKLE, JSON, WORKLOAD];

/// Returns the count of each kind of operation, the streams, and the anomalies.
fn summary(bytes: &[u8]) -> (Kind, [usize; 3], u32, Anomalies) {
    let Log { kind, history } = read(bytes).unwrap();
    let count = |is_so: fn(&Op) -> bool| history.ops.iter().filter(|op| is_so(op)).count();
    let counts = [
        count(|op| matches!(op, Op::Allocate { .. })),
        count(|op| matches!(op, Op::Free { .. })),
        count(|op| matches!(op, Op::Use { .. })),
    ];
    (kind, counts, history.streams, history.oddities)
}

#[test]
fn every_kind_is_recognized_by_what_it_holds() {
    assert_eq!(summary(WORKLOAD), (Kind::Workload, [3, 3, 2], 3, Anomalies::default()));
    let odd = Anomalies {
        unreadable: 1,
        unreadable_line: Some(15),
        of_no_bytes: 1,
        failed_then: 1,
        alive_at_start: 1,
        double_frees: 1,
        alive_at_end: 1,
        ..Anomalies::default()
    };
    assert_eq!(summary(RMM), (Kind::Rmm, [6, 5, 0], 4, odd));
    let odd = Anomalies { failed_then: 1, alive_at_start: 2, alive_at_end: 2, ..Anomalies::default() };
    assert_eq!(summary(PICKLE), (Kind::Snapshot, [10, 8, 0], 2, odd));
    assert_eq!(summary(TIMELINE), (Kind::Timeline, [3, 3, 1], 2, Anomalies::default()));
}

#[test]
fn a_snapshot_is_the_same_as_pickle_and_as_json() {
    assert_eq!(read(PICKLE).unwrap(), read(JSON).unwrap());
}

#[test]
fn an_unknown_file_format_error_lists_the_formats() {
    for (bytes, beginning) in [
        (&b""[..], "the file is empty: expected a timeline recorded by Freehold, RMM's CSV log, "),
        (b" \n\n", "the file is empty: "),
        (b"Dear reader,\n", "unknown format: expected a timeline recorded by Freehold, "),
        (b"PK\x03\x04", "unknown format: "),
        // These look like the beginning of a log by chance.
        (b"#\x93\xfe\x01 q", "unknown format: "),
        (b"#x\n\x93\xfe\x01\n", "unknown format: "),
        (b"#!/bin/sh\necho\n", "unknown format: "),
        (b"[\x93\xfe\x01\n\x02", "unknown format: "),
        (&TIMELINE[..300], "a Freehold timeline that ends before its first event"),
        (&TIMELINE[..12], "a Freehold timeline that ends before its first event"),
        (b"[\n]\n", "a Freehold timeline without allocations: nothing to replay"),
        (b"# empty\n", "a workload without allocations: "),
        (b"Thread,Time,Action,Pointer,Size,Stream\n", "an RMM log without allocations: "),
        (b"Thread,Time,Action,Pointer,Size,Stream\n1,0,allocate,0x1,-5,0\n", "an RMM log without allocations: "),
        (b"{}", "PyTorch memory snapshot: expected the field device_traces, "),
        (b"\x80\x04N.", "PyTorch memory snapshot: expected the field device_traces, "),
        (&PICKLE[..1000], "PyTorch memory snapshot: the pickle is truncated at byte 1000"),
    ] {
        let said = read(bytes).unwrap_err().to_string();
        assert!(said.starts_with(beginning), "{said}");
    }
}

#[test]
fn more_streams_than_a_device_has_are_refused() {
    let mut text = "# streams\n".to_owned();
    for id in 0..1025 {
        text.push_str(&format!("a {id} 8 {id}\n"));
    }
    let said = read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(said, "a workload with 1025 streams: expected at most 1024");
}

/// Checks what the player relies on.
fn check(bytes: &[u8]) {
    let Ok(Log { history, .. }) = read(bytes) else { return };
    let mut alive = vec![None; history.blocks as usize];
    for op in &history.ops {
        let (Op::Allocate { id, stream, .. } | Op::Free { id, stream } | Op::Use { id, stream }) = *op;
        assert!(stream < history.streams);
        let place = &mut alive[id as usize];
        match op {
            Op::Allocate { bytes, .. } => {
                assert!(place.is_none() && *bytes > 0, "block {id} is allocated twice, or is empty");
                *place = Some(true);
            }
            Op::Free { .. } => assert_eq!(place.replace(false), Some(true), "block {id} is not live when it is freed"),
            Op::Use { .. } => assert_eq!(*place, Some(true), "block {id} is alive while it is used"),
        }
    }
    assert!(history.ops.len() <= 2 * bytes.len(), "operations are in proportion to the bytes");
}

#[test]
fn a_log_that_is_cut_anywhere_is_read_or_refused() {
    for sample in SAMPLES {
        for end in (0..sample.len()).step_by(at_effort(11, 1, 1)) {
            check(&sample[..end]);
        }
    }
}

#[test]
fn a_log_with_any_bytes_changed_is_read_or_refused() {
    let mut random = Random::new(seed());
    let mut below = |end: usize| random.below(end as u64) as usize;
    let changed = at_effort(200, 2000, 100_000);
    report_covered(changed * SAMPLES.len() as u64, "changed logs");
    for sample in SAMPLES {
        for _ in 0..changed {
            let mut bytes = sample.to_vec();
            for _ in 0..1 + below(4) {
                let at = below(bytes.len());
                match below(4) {
                    0 => bytes[at] ^= 1 << below(8),
                    1 => bytes[at] = [0, 0xff, b'0', b'9', b'(', b'e', b'\n', b','][below(8)],
                    2 => drop(bytes.remove(at)),
                    _ => {
                        let (from, count) = (below(bytes.len()), 1 + below(16));
                        let again: Vec<u8> = bytes[from..].iter().take(count).copied().collect();
                        bytes.splice(at..at, again);
                    }
                }
            }
            check(&bytes);
        }
    }
}
