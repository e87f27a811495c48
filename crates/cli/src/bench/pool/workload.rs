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

/// Why a text is not a workload. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseError {
    #[error("line 1: expected the workload's name, such as `# random-1m`")]
    NoName,
    #[error("line {line}: expected `a ID BYTES STREAM`, `f ID STREAM` or `u ID STREAM`, found {text:?}")]
    NoOperation { line: usize, text: String },
    #[error("line {line}: block {id} is empty: expected 1 byte or more")]
    NoBytes { line: usize, id: u32 },
    #[error("line {line}: block {id} was allocated before: give each block its own id")]
    SecondAllocation { line: usize, id: u32 },
    #[error("line {line}: block {id} is not allocated: allocate it before it is used or freed, and free it once")]
    NotAllocated { line: usize, id: u32 },
    #[error("at the end block {id} is still allocated: free every block")]
    NotFreed { id: u32 },
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

    /// Reads what [`write`](Self::write) wrote. Ignores empty lines and further lines that begin with `#`.
    #[allow(dead_code, reason = "only tests read the text back so far; other programs do")]
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let name = text.lines().next().and_then(|line| line.strip_prefix('#')).map(str::trim);
        let name = name.filter(|name| !name.is_empty()).ok_or(ParseError::NoName)?.to_owned();
        let mut ops = Vec::new();
        // Whether each block is still allocated.
        let mut blocks = HashMap::new();
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() || text.starts_with('#') {
                continue;
            }
            let op = Op::parse(text).ok_or_else(|| ParseError::NoOperation { line, text: text.to_owned() })?;
            match op {
                Op::Allocate { id, bytes: 0, .. } => return Err(ParseError::NoBytes { line, id }),
                Op::Allocate { id, .. } => {
                    if blocks.insert(id, true).is_some() {
                        return Err(ParseError::SecondAllocation { line, id });
                    }
                }
                Op::Free { id, .. } => {
                    if blocks.get(&id) != Some(&true) {
                        return Err(ParseError::NotAllocated { line, id });
                    }
                    blocks.insert(id, false);
                }
                Op::Use { id, .. } => {
                    if blocks.get(&id) != Some(&true) {
                        return Err(ParseError::NotAllocated { line, id });
                    }
                }
            }
            ops.push(op);
        }
        match blocks.into_iter().filter(|&(_, is_live)| is_live).map(|(id, _)| id).min() {
            Some(id) => Err(ParseError::NotFreed { id }),
            None => Ok(Self { name, ops }),
        }
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

    const TEXT: &str = "# three\na 0 100 0\na 1 50 1\nu 0 1\nf 0 0\na 2 120 0\nf 1 1\nf 2 0\n";

    #[test]
    fn a_text_read_and_written_is_the_same() {
        let workload = Workload::parse(TEXT).unwrap();
        assert_eq!(workload.name, "three");
        assert_eq!(workload.ops[1], Op::Allocate { id: 1, bytes: 50, stream: 1 });
        assert_eq!(workload.ops[2], Op::Use { id: 0, stream: 1 });
        assert_eq!(workload.ops[3], Op::Free { id: 0, stream: 0 });
        let mut written = Vec::new();
        workload.write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), TEXT);
    }

    #[test]
    fn the_peak_is_of_bytes_live_together() {
        assert_eq!(Workload::parse(TEXT).unwrap().peak_live_bytes(), 170);
    }

    #[test]
    fn comments_and_empty_lines_mean_nothing() {
        let workload = Workload::parse("# one\n\n# a block\na 7 1 0\n  \nf 7 0").unwrap();
        assert_eq!(workload.ops, [Op::Allocate { id: 7, bytes: 1, stream: 0 }, Op::Free { id: 7, stream: 0 }]);
    }

    #[test]
    fn an_invalid_workload_is_rejected_with_its_line() {
        for (text, said) in [
            ("", "line 1: expected the workload's name, such as `# random-1m`"),
            ("a 0 1 0\nf 0 0\n", "line 1: expected the workload's name, such as `# random-1m`"),
            ("#\na 0 1 0\nf 0 0\n", "line 1: expected the workload's name, such as `# random-1m`"),
            ("# x\n\na 0 0 0\n", "line 3: block 0 is empty: expected 1 byte or more"),
            ("# x\na 0 1 0\na 0 1 0\n", "line 3: block 0 was allocated before: give each block its own id"),
            ("# x\na 0 1 0\nf 0 0\na 0 1 0\n", "line 4: block 0 was allocated before: give each block its own id"),
            (
                "# x\na 0 1 0\nf 0 0\nf 0 0\n",
                "line 4: block 0 is not allocated: allocate it before it is used or freed, and free it once",
            ),
            (
                "# x\nu 3 0\n",
                "line 2: block 3 is not allocated: allocate it before it is used or freed, and free it once",
            ),
            ("# x\na 4 1 0\na 2 1 0\n", "at the end block 2 is still allocated: free every block"),
        ] {
            assert_eq!(Workload::parse(text).unwrap_err().to_string(), said, "{text:?}");
        }
    }

    #[test]
    fn a_malformed_operation_is_rejected() {
        for line in ["a 0 1", "a 0 1 0 0", "f 0", "x 0 0", "a 0 +1 0", "a -1 1 0", "a 0 1.5 0", "f 4294967296 0", "a"] {
            let error = Workload::parse(&format!("# x\n{line}\n")).unwrap_err();
            assert_eq!(error, ParseError::NoOperation { line: 2, text: line.to_owned() });
        }
    }
}
