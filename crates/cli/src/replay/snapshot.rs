//! PyTorch's memory snapshot: what `torch.cuda.memory._dump_snapshot` writes after `_record_memory_history`, a pickled
//! dict, or the same dict as JSON.
//!
//! Reads the traces (per device, the calls of the allocator) and the segments (what is live at the end). A trace keeps
//! only the latest events, so blocks may be live before it. How PyTorch got its memory (`segment_alloc` and the like),
//! and when a free took effect (`free_completed`), is specific to its allocator and ignored.

use serde_json::Value as Json;

use super::history::HistoryBuilder;
use super::pickle::{Pickle, PickleError, Value};

/// Why a snapshot cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Pickle(#[from] PickleError),
    #[error("invalid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("expected the field device_traces, which every PyTorch memory snapshot has")]
    NoTraces,
    #[error(
        "no allocations were traced: call torch.cuda.memory._record_memory_history() before the work, and take the snapshot after it"
    )]
    NothingTraced,
    #[error("its lists contain each other too often for a snapshot")]
    Entangled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Alloc,
    FreeRequested,
    OutOfMemory,
    Other,
}

impl Action {
    fn of(name: &[u8]) -> Self {
        match name {
            b"alloc" => Self::Alloc,
            b"free_requested" => Self::FreeRequested,
            b"oom" => Self::OutOfMemory,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Event {
    action: Action,
    address: u64,
    bytes: u64,
    stream: u64,
}

/// A block that is allocated when the snapshot is taken.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    device: u64,
    address: u64,
    bytes: u64,
    stream: u64,
}

#[derive(Debug, Default)]
struct Snapshot {
    /// By device.
    traces: Vec<Vec<Event>>,
    alive: Vec<LiveBlock>,
    unreadable: u64,
}

pub(super) fn read_pickle(bytes: &[u8]) -> Result<HistoryBuilder, SnapshotError> {
    let pickle = Pickle::read(bytes)?;
    let dict = Pickled { pickle: &pickle, value: pickle.root };
    read(dict, bytes.len())
}

pub(super) fn read_json(text: &str) -> Result<HistoryBuilder, SnapshotError> {
    read(&serde_json::from_str::<Json>(text)?, text.len())
}

/// A dict, list, number or string of either format.
trait SnapshotValue<'a>: Copy {
    fn field(self, key: &str) -> Option<Self>;
    fn elements(self) -> impl Iterator<Item = Self>;
    fn number(self) -> Option<u64>;
    fn text(self) -> Option<&'a [u8]>;
}

#[derive(Clone, Copy)]
struct Pickled<'a> {
    pickle: &'a Pickle<'a>,
    value: Value,
}

impl<'a> SnapshotValue<'a> for Pickled<'a> {
    fn field(self, key: &str) -> Option<Self> {
        self.pickle.field(self.value, key).map(|value| Self { value, ..self })
    }

    fn elements(self) -> impl Iterator<Item = Self> {
        self.pickle.elements(self.value).iter().map(move |&value| Self { value, ..self })
    }

    fn number(self) -> Option<u64> {
        // A number above 2^63 was read as the negative one with the same bits: only addresses can be so large.
        if let Value::Number(number) = self.value { Some(number as u64) } else { None }
    }

    fn text(self) -> Option<&'a [u8]> {
        self.pickle.text(self.value)
    }
}

impl<'a> SnapshotValue<'a> for &'a Json {
    fn field(self, key: &str) -> Option<Self> {
        self.get(key)
    }

    fn elements(self) -> impl Iterator<Item = Self> {
        self.as_array().into_iter().flatten()
    }

    fn number(self) -> Option<u64> {
        self.as_u64()
    }

    fn text(self) -> Option<&'a [u8]> {
        self.as_str().map(str::as_bytes)
    }
}

/// Reads a snapshot, visiting at most `steps_max` values: a file has fewer events and blocks than bytes, unless its
/// lists are shared.
fn read<'a>(root: impl SnapshotValue<'a>, steps_max: usize) -> Result<HistoryBuilder, SnapshotError> {
    let traces = root.field("device_traces").ok_or(SnapshotError::NoTraces)?;
    let (mut snapshot, mut steps) = (Snapshot::default(), 0);
    let mut step = || {
        steps += 1;
        if steps > steps_max { Err(SnapshotError::Entangled) } else { Ok(()) }
    };
    for trace in traces.elements() {
        step()?;
        let mut events = Vec::new();
        for entry in trace.elements() {
            step()?;
            match event(entry) {
                Some(event) => events.push(event),
                None => snapshot.unreadable += 1,
            }
        }
        snapshot.traces.push(events);
    }
    for segment in root.field("segments").into_iter().flat_map(SnapshotValue::elements) {
        step()?;
        let number = |key| segment.field(key).and_then(SnapshotValue::number);
        let (device, stream) = (number("device").unwrap_or(0), number("stream").unwrap_or(0));
        // Blocks are contiguous. Only newer snapshots give their addresses.
        let mut address = number("address").unwrap_or(0);
        for block in segment.field("blocks").into_iter().flat_map(SnapshotValue::elements) {
            step()?;
            let number = |key| block.field(key).and_then(SnapshotValue::number);
            let size = number("size").unwrap_or(0);
            if block.field("state").and_then(SnapshotValue::text).is_some_and(|state| state == b"active_allocated") {
                snapshot.alive.push(LiveBlock {
                    device,
                    address,
                    bytes: number("requested_size").unwrap_or(size),
                    stream,
                });
            }
            address = address.wrapping_add(size);
        }
    }
    to_history(&snapshot)
}

fn event<'a>(entry: impl SnapshotValue<'a>) -> Option<Event> {
    let number = |key| entry.field(key).and_then(SnapshotValue::number);
    let action = Action::of(entry.field("action")?.text()?);
    Some(match action {
        Action::Alloc | Action::FreeRequested => {
            Event { action, address: number("addr")?, bytes: number("size")?, stream: number("stream")? }
        }
        Action::OutOfMemory | Action::Other => Event { action, address: 0, bytes: 0, stream: 0 },
    })
}

/// Converts the device with the most events.
fn to_history(snapshot: &Snapshot) -> Result<HistoryBuilder, SnapshotError> {
    let asked = |events: &[Event]| {
        events.iter().filter(|event| matches!(event.action, Action::Alloc | Action::FreeRequested)).count() as u64
    };
    let counts: Vec<u64> = snapshot.traces.iter().map(|events| asked(events)).collect();
    let (device, &most) = counts.iter().enumerate().rev().max_by_key(|(_, count)| **count).unwrap_or((0, &0));
    if most == 0 {
        return Err(SnapshotError::NothingTraced);
    }
    let mut builder = HistoryBuilder::default();
    builder.oddities.unreadable = snapshot.unreadable;
    builder.oddities.on_other_devices = counts.iter().sum::<u64>() - most;
    for &Event { action, address, bytes, stream } in &snapshot.traces[device] {
        match action {
            Action::Alloc => builder.alloc(address, bytes, (stream, 0)),
            Action::FreeRequested => builder.free(address, Some(bytes), (stream, 0)),
            Action::OutOfMemory => builder.oddities.failed_then += 1,
            Action::Other => {}
        }
    }
    for alive in snapshot.alive.iter().filter(|alive| alive.device == device as u64) {
        builder.live_at_end(alive.address, alive.bytes, (alive.stream, 0));
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::super::history::Anomalies;
    use super::*;

    const SNAPSHOT: &str = r#"{
        "segments": [
            {"device": 0, "address": 4096, "stream": 0, "blocks": [
                {"size": 512, "requested_size": 500, "state": "active_allocated"},
                {"size": 512, "state": "inactive"},
                {"size": 1024, "requested_size": 1000, "state": "active_allocated"}]},
            {"device": 1, "address": 9000, "stream": 0, "blocks": [{"size": 512, "state": "active_allocated"}]}],
        "device_traces": [
            [{"action": "segment_alloc", "addr": 4096, "size": 2048, "stream": 0},
             {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 1, "frames": []},
             {"action": "free_requested", "addr": 8192, "size": 300, "stream": 77},
             {"action": "free_completed", "addr": 8192, "size": 300, "stream": 77},
             {"action": "oom", "device_free": 0, "size": 1, "stream": 0},
             {"action": "alloc", "addr": "here"}],
            [{"action": "alloc", "addr": 9000, "size": 500, "stream": 0}]]}"#;

    #[test]
    fn the_busiest_device_is_replayed_with_what_was_alive_before_its_trace() {
        let history = read_json(SNAPSHOT).unwrap().finish();
        assert_eq!(
            history.ops,
            [
                Op::Allocate { id: 1, bytes: 300, stream: 1 },
                Op::Allocate { id: 2, bytes: 1000, stream: 0 },
                Op::Allocate { id: 0, bytes: 500, stream: 0 },
                Op::Free { id: 1, stream: 1 },
            ]
        );
        let odd = Anomalies {
            unreadable: 1,
            failed_then: 1,
            alive_at_start: 2,
            alive_at_end: 2,
            on_other_devices: 1,
            ..Anomalies::default()
        };
        assert_eq!(history.oddities, odd);
    }

    #[test]
    fn a_snapshot_without_history_says_how_to_make_one() {
        let error = read_json(r#"{"segments": [], "device_traces": [[], []]}"#).unwrap_err();
        assert!(matches!(error, SnapshotError::NothingTraced), "{error}");
        let error = read_json(r#"{"segments": []}"#).unwrap_err();
        assert!(matches!(error, SnapshotError::NoTraces), "{error}");
    }

    #[test]
    fn lists_that_are_the_same_a_thousand_times_are_refused() {
        // {"device_traces": [t, t, …]}, where t is a list of a thousand lists.
        let mut bytes = b"\x80\x02}X\x0d\x00\x00\x00device_traces](](".to_vec();
        bytes.extend_from_slice(&b"]".repeat(1000));
        bytes.extend_from_slice(b"eq\x00");
        bytes.extend_from_slice(&b"h\x00".repeat(1000));
        bytes.extend_from_slice(b"es.");
        let error = read_pickle(&bytes).unwrap_err();
        assert!(matches!(error, SnapshotError::Entangled), "{error}");
    }
}
