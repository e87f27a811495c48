//! Workloads: lists of allocations and frees, and their text format for other programs.
//!
//! Pure: knows nothing about allocators and timing. [`models`] makes the measured ones.

pub(crate) mod models;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

/// One step of a workload. An id names one block from its allocation to its free, and is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// `a ID BYTES STREAM`
    Allocate { id: u32, bytes: u64, stream: u32 },
    /// `f ID STREAM`
    Free { id: u32, stream: u32 },
    /// `u ID STREAM`: work in a stream other than the block's home stream uses it.
    Use { id: u32, stream: u32 },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { id, bytes, stream } => write!(f, "a {id} {bytes} {stream}"),
            Self::Free { id, stream } => write!(f, "f {id} {stream}"),
            Self::Use { id, stream } => write!(f, "u {id} {stream}"),
        }
    }
}

/// A name and the operations of one pass, which frees every block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) ops: Vec<Op>,
}

impl Workload {
    /// Returns the peak of allocated bytes.
    pub(crate) fn peak_live_bytes(&self) -> u64 {
        let mut sizes = HashMap::new();
        let (mut live_bytes, mut peak_bytes) = (0, 0);
        for op in &self.ops {
            match *op {
                Op::Allocate { id, bytes, .. } => {
                    sizes.insert(id, bytes);
                    live_bytes += bytes;
                    peak_bytes = peak_bytes.max(live_bytes);
                }
                Op::Free { id, .. } => {
                    live_bytes -= sizes.remove(&id).expect("blocks are allocated before they are freed")
                }
                Op::Use { .. } => {}
            }
        }
        peak_bytes
    }

    /// Writes the text: `# name`, then a line for each operation.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# {}", self.name)?;
        self.ops.iter().try_for_each(|op| writeln!(out, "{op}"))
    }
}

impl Op {
    /// Parses one line of the text.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        Some(match words[..] {
            ["a", id, bytes, stream] => {
                Self::Allocate { id: number(id)?, bytes: number(bytes)?, stream: number(stream)? }
            }
            ["f", id, stream] => Self::Free { id: number(id)?, stream: number(stream)? },
            ["u", id, stream] => Self::Use { id: number(id)?, stream: number(stream)? },
            _ => return None,
        })
    }
}

/// Accepts only digits: the standard library accepts a plus sign, which C++ programs may not.
fn number<N: std::str::FromStr>(digits: &str) -> Option<N> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [(Op, &str); 4] = [
        (Op::Allocate { id: 0, bytes: 100, stream: 0 }, "a 0 100 0"),
        (Op::Allocate { id: 1, bytes: 50, stream: 1 }, "a 1 50 1"),
        (Op::Use { id: 0, stream: 1 }, "u 0 1"),
        (Op::Free { id: 0, stream: 0 }, "f 0 0"),
    ];

    #[test]
    fn an_operation_is_one_line() {
        for (op, line) in OPS {
            assert_eq!((op.to_string(), Op::parse(line)), (line.to_owned(), Some(op)));
        }
        let mut written = Vec::new();
        Workload { name: "few".to_owned(), ops: OPS.map(|(op, _)| op).to_vec() }.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "# few\na 0 100 0\na 1 50 1\nu 0 1\nf 0 0\n");
    }

    #[test]
    fn the_peak_is_of_bytes_live_together() {
        let mut ops = OPS.map(|(op, _)| op).to_vec();
        ops.push(Op::Allocate { id: 2, bytes: 120, stream: 0 });
        assert_eq!(Workload { name: String::new(), ops }.peak_live_bytes(), 170);
    }

    #[test]
    fn a_malformed_operation_is_rejected() {
        for line in ["a 0 1", "a 0 1 0 0", "f 0", "x 0 0", "a 0 +1 0", "a -1 1 0", "a 0 1.5 0", "f 4294967296 0", "a"] {
            assert_eq!(Op::parse(line), None, "{line}");
        }
    }
}
