//! The text of a workload: `# NAME`, then one operation per line: `a ID BYTES STREAM`, `f ID STREAM`, `u ID STREAM`.

use super::Op;
use super::history::HistoryBuilder;

/// Ignores empty lines and those that begin with `#`.
pub(super) fn read(text: &str) -> HistoryBuilder {
    let mut builder = HistoryBuilder::default();
    let lines = text.lines().map(str::trim).enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match Op::parse(line) {
            Some(Op::Allocate { id, bytes, stream }) => builder.alloc(id.into(), bytes, (stream.into(), 0)),
            Some(Op::Free { id, stream }) => builder.free(id.into(), None, (stream.into(), 0)),
            Some(Op::Use { id, stream }) => builder.record_use(id.into(), (stream.into(), 0)),
            None => builder.oddities.note_unreadable(at),
        }
    }
    builder
}
