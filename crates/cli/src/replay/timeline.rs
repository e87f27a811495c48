//! Freehold's own timeline, recorded by `Device::record`, one event per line.
//!
//! Events are in the order in which they became known, uses later than their calls; replay sorts them by the program's
//! calls. A file whose writer was killed may end anywhere. A merged file of several processes, as `freehold demo`
//! writes it, has per-process numbers for blocks and streams.

use std::collections::HashMap;

use serde_json::Value;

use super::history::HistoryBuilder;

/// At the same time, a block is allocated before it is used, and used before it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Allocated { bytes: u64 },
    Used,
    Released,
}

#[derive(Clone, Copy, Debug)]
struct TimedEvent {
    at_us: f64,
    what: EventKind,
    process: u64,
    block: u64,
    stream: u64,
}

/// Returns whether a file begins as every recording does.
pub(super) fn has_beginning(bytes: &[u8]) -> bool {
    let list = bytes.trim_ascii_start().strip_prefix(b"[");
    list.is_some_and(|events| events.trim_ascii_start().starts_with(br#"{"ph":"#))
}

pub(super) fn read(text: &str) -> HistoryBuilder {
    let (mut moments, mut builder) = (Vec::new(), HistoryBuilder::default());
    for (at, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches('[').trim_end_matches([',', ']']);
        if line.is_empty() {
            continue;
        }
        let event: Option<Value> = serde_json::from_str(line).ok();
        if event.and_then(|event| read_event(&event, &mut moments)).is_none() {
            builder.oddities.note_unreadable(at);
        }
    }
    moments.sort_by(|a, b| a.at_us.total_cmp(&b.at_us).then(a.what.cmp(&b.what)));
    let mut blocks = HashMap::new();
    for TimedEvent { what, process, block, stream, .. } in moments {
        let (next, stream) = (blocks.len() as u64, (stream, process));
        let block = *blocks.entry((process, block)).or_insert(next);
        match what {
            EventKind::Allocated { bytes } => builder.alloc(block, bytes, stream),
            EventKind::Used => builder.record_use(block, stream),
            EventKind::Released => builder.free(block, None, stream),
        }
    }
    builder
}

/// Records what an event says about blocks; most say nothing. Returns `None` for an event that no recording contains.
fn read_event(event: &Value, moments: &mut Vec<TimedEvent>) -> Option<()> {
    let arguments = &event["args"];
    if event["ph"] != "X" || (arguments["block"].is_null() && arguments["used blocks"].is_null()) {
        return event.is_object().then_some(());
    }
    let (start_us, stream) = (event["ts"].as_f64()?, arguments["stream"].as_u64()?);
    let process = event["pid"].as_u64()?;
    if let Some(used) = arguments["used blocks"].as_array() {
        let at_us = arguments["asked after us"].as_f64()?;
        for block in used {
            moments.push(TimedEvent { at_us, what: EventKind::Used, process, block: block.as_u64()?, stream });
        }
        return Some(());
    }
    let block = arguments["block"].as_u64()?;
    // Memory exists once the allocating call has returned, until the freeing call begins.
    moments.push(match &arguments["bytes"] {
        Value::Null => TimedEvent { at_us: start_us, what: EventKind::Released, process, block, stream },
        bytes => {
            let at_us = start_us + event["dur"].as_f64()?;
            TimedEvent { at_us, what: EventKind::Allocated { bytes: bytes.as_u64()? }, process, block, stream }
        }
    });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::super::history::Anomalies;
    use super::*;

    const ALLOCATE: &str = r#"{"ph":"X","pid":1,"tid":1,"ts":1.000,"dur":0.500,"name":"allocate 400 bytes at 0x200","args":{"block":1,"bytes":400,"stream":4}}"#;
    const RELEASE: &str =
        r#"{"ph":"X","pid":1,"tid":1,"ts":5.000,"dur":0.100,"name":"release 400","args":{"block":1,"stream":4}}"#;
    const USE: &str = r#"{"ph":"X","pid":1,"tid":9,"ts":7.000,"dur":2.000,"name":"scale","args":{"asked after us":2.5,"stream":5,"used blocks":[1],"blocks":"400 bytes"}}"#;

    #[test]
    fn events_are_replayed_in_submission_order() {
        let history = read(&format!("[\n{ALLOCATE},\n{RELEASE},\n{USE}\n]\n")).finish();
        assert_eq!(
            history.ops,
            [
                Op::Allocate { id: 0, bytes: 400, stream: 0 },
                Op::Use { id: 0, stream: 1 },
                Op::Free { id: 0, stream: 0 },
            ]
        );
        assert_eq!(history.oddities, Anomalies::default());
    }

    #[test]
    fn blocks_and_streams_of_two_processes_are_not_the_same() {
        let of_two = |event: &str| format!("{event},\n{}", event.replace(r#""pid":1"#, r#""pid":2"#));
        let history = read(&format!("[\n{},\n{}\n]\n", of_two(ALLOCATE), of_two(RELEASE))).finish();
        assert_eq!((history.blocks, history.streams, history.ops.len()), (2, 2, 4));
        assert_eq!(history.oddities, Anomalies::default());
    }

    fn unreadable(line: u64) -> Anomalies {
        Anomalies { unreadable: 1, unreadable_line: Some(line), ..Anomalies::default() }
    }

    #[test]
    fn a_file_that_was_cut_is_read_up_to_there() {
        let history = read(&format!("[\n{ALLOCATE},\n{}", &RELEASE[..40])).finish();
        assert_eq!(history.ops, [Op::Allocate { id: 0, bytes: 400, stream: 0 }]);
        assert_eq!(history.oddities, Anomalies { alive_at_end: 1, ..unreadable(3) });
    }

    #[test]
    fn unrelated_events_are_ignored() {
        let history = read(r#"[{"ph":"M","pid":1,"name":"process_name","args":{"name":"freehold"}}]"#);
        assert_eq!(history.finish().oddities, Anomalies::default());
    }
}
