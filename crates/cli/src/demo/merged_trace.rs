//! Merges the timelines of all workers: one clock, one name per worker; and sums up their events.

use std::fs;
use std::io;
use std::path::Path;

use freehold_mesh::notes::{Event, Note};
use freehold_mesh::parent::trace_file;
use serde_json::{Value, json};

/// Keeps thread numbers unique within the file.
const THREAD_IDS_PER_WORKER: u64 = 1 << 24;

/// Events of refinement: flagging, and the upload of tile lists.
const REFINEMENT_EVENTS: [&str; 2] = ["flag", "upload"];

/// Events that use no device time: fence words that streams write and wait for.
const WAIT_EVENTS: [&str; 2] = ["wait for value", "write value"];

#[derive(Debug)]
pub(super) struct Merged {
    pub(super) text: String,
    /// The device's work over all workers, and the share of it for refinement.
    pub(super) busy_us: f64,
    pub(super) refining_us: f64,
    /// The longest library call that enqueued work.
    pub(super) longest_call_us: f64,
}

/// Merges the files that workers wrote.
pub(super) fn merge(folder: &Path, notes: &[Note]) -> io::Result<Merged> {
    let began_ns = notes.first().map_or(0, |note| note.at_ns);
    let mut merged = Merged { text: String::new(), busy_us: 0.0, refining_us: 0.0, longest_call_us: 0.0 };
    let mut lines = Vec::new();
    let opened = notes.iter().filter(|note| note.event == Event::Opened);
    for (number, note) in (1..).zip(opened) {
        // A worker that is killed soon has not noted that it opened the device.
        let is_earlier_kill =
            |other: &&Note| (other.event, other.worker) == (Event::Killed, note.worker) && other.at_ns < note.at_ns;
        let life = notes.iter().filter(is_earlier_kill).count() as u32;
        let name = match life {
            0 => format!("worker {}", note.worker),
            _ => format!("worker {}, its replacement", note.worker),
        };
        let offset_us = (note.at_ns - began_ns) as f64 / 1e3;
        lines.push(json!({ "ph": "M", "pid": note.process, "name": "process_name", "args": { "name": name } }));
        let killed = notes.iter().find(|other| other.process == note.process && other.event == Event::Killed);
        if let Some(killed) = killed {
            let at_us = (killed.at_ns - began_ns) as f64 / 1e3;
            lines.push(
                json!({ "ph": "i", "pid": note.process, "tid": number * THREAD_IDS_PER_WORKER, "ts": at_us, "s": "g",
                "name": format!("{name} is killed") }),
            );
        }
        let path = trace_file(folder, note.worker, life);
        let text = match fs::read_to_string(&path) {
            // It was killed before its first event.
            Err(error) if error.kind() == io::ErrorKind::NotFound && killed.is_some() => String::new(),
            read => read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?,
        };
        for line in text.lines() {
            // Brackets are not events; a killed worker's last line may be incomplete.
            let Ok(mut event) = serde_json::from_str::<Value>(line.trim_end_matches(',')) else { continue };
            // Every worker writes the same process name.
            if !event.is_object() || event["name"] == "process_name" {
                continue;
            }
            merged.count(&event);
            for at in ["/ts", "/args/asked after us"] {
                if let Some(time) = event.pointer_mut(at) {
                    *time = json!(time.as_f64().unwrap_or_default() + offset_us);
                }
            }
            if let Some(thread) = event["tid"].as_u64() {
                event["tid"] = json!(thread + number * THREAD_IDS_PER_WORKER);
            }
            lines.push(event);
        }
    }
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    merged.text = format!("[\n{}\n]\n", lines.join(",\n"));
    Ok(merged)
}

impl Merged {
    /// Returns the share of refinement in the device's work.
    pub(super) fn refinement_part(&self) -> f64 {
        if self.busy_us > 0.0 { self.refining_us / self.busy_us } else { 0.0 }
    }

    fn count(&mut self, event: &Value) {
        let (Some(name), Some(took_us)) = (event["name"].as_str(), event["dur"].as_f64()) else { return };
        if event["args"]["stream"].is_u64() && !event["args"]["used blocks"].is_null() && !WAIT_EVENTS.contains(&name) {
            self.busy_us += took_us;
            if REFINEMENT_EVENTS.contains(&name) {
                self.refining_us += took_us;
            }
        } else if name.starts_with("put ") {
            self.longest_call_us = self.longest_call_us.max(took_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(event: Event) -> Note {
        Note { at_ns: 1000, worker: 1, process: 77, epoch: 0, event, live_bytes: 0, reserved_bytes: 0 }
    }

    #[test]
    fn a_worker_that_was_killed_before_its_first_event_has_no_file() {
        let folder = Path::new("/nonexistent");
        let merged = merge(folder, &[note(Event::Opened), note(Event::Killed)]).unwrap();
        assert!(merged.text.contains("worker 1 is killed"), "{}", merged.text);
        let error = merge(folder, &[note(Event::Opened)]).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/worker-1-0.json: No such file or directory (os error 2)");
    }

    #[test]
    fn the_file_of_a_replacement_is_its_own_although_the_killed_worker_had_opened_nothing() {
        let replacement = Note { at_ns: 2000, process: 78, ..note(Event::Opened) };
        let error = merge(Path::new("/nonexistent"), &[note(Event::Killed), replacement]).unwrap_err().to_string();
        assert_eq!(error, "/nonexistent/worker-1-1.json: No such file or directory (os error 2)");
    }
}
