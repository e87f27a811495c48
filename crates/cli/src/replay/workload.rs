//! The text of a workload: `# NAME`, then a line an operation: `a ID BYTES STREAM`, `f ID STREAM`, `u ID STREAM`.

use super::Op;
use super::lives::Lives;

/// Empty lines and those that begin with `#` mean nothing.
pub(super) fn read(text: &str) -> Lives {
    let mut lives = Lives::default();
    let lines = text.lines().map(str::trim).enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match Op::parse(line) {
            Some(Op::Allocate { id, bytes, stream }) => lives.allocate(id.into(), bytes, (stream.into(), 0)),
            Some(Op::Free { id, stream }) => lives.free(id.into(), None, (stream.into(), 0)),
            Some(Op::Use { id, stream }) => lives.note_use(id.into(), (stream.into(), 0)),
            None => lives.oddities.note_unreadable(at),
        }
    }
    lives
}
