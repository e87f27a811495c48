//! RMM's log: the CSV that `rmm::mr::logging_resource_adaptor` writes, whose first line names the columns.
//!
//! Pointers are hexadecimal, with or without `0x`, or `(nil)`. A stream is `0` or a handle written like a pointer; 0x2
//! is the per-thread default stream, a different stream in each thread. Lines of all threads are in the order of time,
//! so the time column, which restarts each day, is not read.

use super::history::HistoryBuilder;

/// The columns that replay needs, in any order.
const NAMES: [&str; 5] = ["Thread", "Action", "Pointer", "Size", "Stream"];

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;

/// The positions of the columns.
#[derive(Clone, Copy, Debug)]
struct Columns([usize; 5]);

pub(super) fn is_header(line: &str) -> bool {
    Columns::of(line).is_some()
}

/// Reads all lines after the header.
///
/// # Panics
/// If the first line is not the header: the caller has checked it.
pub(super) fn read(text: &str) -> HistoryBuilder {
    let mut lines = text.lines().enumerate();
    let columns =
        lines.next().and_then(|(_, header)| Columns::of(header)).expect("the first line of the log is its header");
    let mut builder = HistoryBuilder::default();
    for (at, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if read_line(line, columns, &mut builder).is_none() {
            builder.oddities.note_unreadable(at);
        }
    }
    builder
}

impl Columns {
    fn of(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let at = NAMES.map(|name| fields.iter().position(|field| *field == name));
        Some(Self([at[0]?, at[1]?, at[2]?, at[3]?, at[4]?]))
    }
}

fn read_line(line: &str, columns: Columns, builder: &mut HistoryBuilder) -> Option<()> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [thread, action, pointer, size, stream] = columns.0.map(|at| fields.get(at).copied());
    let (pointer, bytes) = (address(pointer?)?, size?.parse::<u64>().ok()?);
    let stream = match address(stream?)? {
        PER_THREAD => (PER_THREAD, thread?.parse().ok()?),
        other => (other, 0),
    };
    match action? {
        "allocate" if pointer == 0 => builder.oddities.of_no_bytes += 1,
        "allocate" => builder.alloc(pointer, bytes, stream),
        "allocate failure" => builder.oddities.failed_then += 1,
        "free" if pointer == 0 => {}
        "free" => builder.free(pointer, Some(bytes), stream),
        _ => return None,
    }
    Some(())
}

/// Parses a pointer or a stream. Only equality matters.
fn address(text: &str) -> Option<u64> {
    match text {
        "(nil)" | "0x" => Some(0),
        _ => u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::super::history::{Anomalies, History};
    use super::*;

    fn history(lines: &str) -> History {
        read(&format!("Thread,Time,Action,Pointer,Size,Stream\n{lines}")).finish()
    }

    #[test]
    fn pointers_and_streams_are_read_in_every_form() {
        let forms = history(
            "1,10:00:00.000001,allocate,0x7f01,100,0\n1,10:00:00.000002,allocate,7f02,200,0x0\n\
             1,10:00:00.000003,free,7f01,100,(nil)\n1,10:00:00.000004,free,0x7f02,200,0x55d0\n",
        );
        assert_eq!(
            forms.ops,
            [
                Op::Allocate { id: 0, bytes: 100, stream: 0 },
                Op::Allocate { id: 1, bytes: 200, stream: 0 },
                Op::Free { id: 0, stream: 0 },
                Op::Free { id: 1, stream: 1 },
            ]
        );
        assert_eq!(forms.oddities, Anomalies::default());
    }

    #[test]
    fn each_thread_has_its_own_per_thread_stream_and_shares_the_others() {
        let streams =
            history("1,0,allocate,0x1,8,0x2\n2,0,allocate,0x2,8,0x2\n1,0,allocate,0x3,8,0x9\n2,0,allocate,0x4,8,0x9\n");
        let of = |op: &Op| match *op {
            Op::Allocate { stream, .. } => stream,
            _ => panic!("{op:?}"),
        };
        assert_eq!(streams.ops.iter().map(of).collect::<Vec<_>>(), [0, 1, 2, 2]);
    }

    #[test]
    fn the_columns_are_found_by_their_names() {
        let builder = read("Action,Size,Pointer,Stream,Thread\r\nallocate,64,0x1,0,9\r\n");
        assert_eq!(builder.finish().ops, [Op::Allocate { id: 0, bytes: 64, stream: 0 }]);
        assert!(!is_header("Thread,Time,Action,Pointer,Size"));
    }

    #[test]
    fn failures_null_and_lines_that_mean_nothing_are_counted() {
        let odd = history(
            "1,0,allocate failure,(nil),1099511627776,0\n1,0,allocate,(nil),0,0\n1,0,free,(nil),0,0\n\
             1,0,reallocate,0x1,8,0\n1,0,allocate,0x1,-8,0\n1,0,alloc",
        );
        assert_eq!(odd.ops, []);
        let expected = Anomalies { failed_then: 1, of_no_bytes: 1, unreadable: 3, ..Anomalies::default() };
        assert_eq!(odd.oddities, Anomalies { unreadable_line: Some(5), ..expected });
    }
}
