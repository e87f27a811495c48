//! Findings: one JSON object per line, written as soon as it is found.

use serde::{Deserialize, Serialize};

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Two streams access the same bytes, at least one writes, and nothing orders them.
    StreamRace,
    /// A pool hands out a block before its last user is ordered.
    ReuseRace,
    /// The host accesses memory that work still uses, or that work accesses without being ordered after the host.
    HostRace,
    /// Threads of one block access the same bytes of shared memory without a barrier in between.
    SharedRace,
    /// Threads of a kernel access the same bytes of global memory, and nothing orders them.
    GlobalRace,
    /// An access outside of every allocation, or beyond the end of one.
    OutOfBounds,
    /// An access whose address is not a multiple of its size.
    Misaligned,
    /// An access to memory that was freed.
    UseAfterFree,
    /// An access that is not ordered after the allocation of its memory.
    UseBeforeAllocation,
    /// A free while work that is not ordered before it uses the memory.
    FreeInUse,
    /// A read of bytes that were never written.
    UninitializedRead,
    /// Threads of a block wait at a barrier that others never reach.
    BarrierDivergence,
    /// A second free of one block.
    DoubleFree,
    /// A free of an address inside a block.
    InteriorFree,
    /// A free of an address that was never allocated, or with the wrong function.
    InvalidFree,
    /// Memory that was not freed when the program ended.
    Leak,
    /// A capture that was not ended, or did not join all of its streams.
    UnjoinedCapture,
    /// Host memory that was freed while an asynchronous copy uses it.
    HostMemoryFreed,
    /// A stream that was used after it was destroyed.
    StreamInUse,
    /// An event that was used after it was destroyed.
    EventInUse,
    /// A module that was unloaded before the program had waited for its kernels.
    ModuleInUse,
    /// Memory of another process that was closed, or freed by its owner, while work uses it.
    IpcClosed,
    /// A kernel that ended with a fault of another kind: a trap, an assertion, a stack overflow.
    KernelFault,
}

impl Kind {
    /// All kinds.
    pub const ALL: &'static [Self] = &[
        Self::StreamRace,
        Self::ReuseRace,
        Self::HostRace,
        Self::SharedRace,
        Self::GlobalRace,
        Self::OutOfBounds,
        Self::Misaligned,
        Self::UseAfterFree,
        Self::UseBeforeAllocation,
        Self::FreeInUse,
        Self::UninitializedRead,
        Self::BarrierDivergence,
        Self::DoubleFree,
        Self::InteriorFree,
        Self::InvalidFree,
        Self::Leak,
        Self::UnjoinedCapture,
        Self::HostMemoryFreed,
        Self::StreamInUse,
        Self::EventInUse,
        Self::ModuleInUse,
        Self::IpcClosed,
        Self::KernelFault,
    ];

    /// The name as in reports and suppressions, such as `stream-race`.
    pub fn name(self) -> &'static str {
        match self {
            Self::StreamRace => "stream-race",
            Self::ReuseRace => "reuse-race",
            Self::HostRace => "host-race",
            Self::SharedRace => "shared-race",
            Self::GlobalRace => "global-race",
            Self::OutOfBounds => "out-of-bounds",
            Self::Misaligned => "misaligned",
            Self::UseAfterFree => "use-after-free",
            Self::UseBeforeAllocation => "use-before-allocation",
            Self::FreeInUse => "free-in-use",
            Self::UninitializedRead => "uninitialized-read",
            Self::BarrierDivergence => "barrier-divergence",
            Self::DoubleFree => "double-free",
            Self::InteriorFree => "interior-free",
            Self::InvalidFree => "invalid-free",
            Self::Leak => "leak",
            Self::UnjoinedCapture => "unjoined-capture",
            Self::HostMemoryFreed => "host-memory-freed",
            Self::StreamInUse => "stream-in-use",
            Self::EventInUse => "event-in-use",
            Self::ModuleInUse => "module-in-use",
            Self::IpcClosed => "ipc-closed",
            Self::KernelFault => "kernel-fault",
        }
    }
}

/// One error of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What kind of error it is.
    pub kind: Kind,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do about it, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The access or call that shows the error: of a race, the one that was executed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The other access of a race.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Access>,
    /// The memory that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The process that it occurred in.
    #[serde(default)]
    pub process: u32,
    /// How often it occurred at these places.
    #[serde(default = "once")]
    pub count: u64,
}

fn once() -> u64 {
    1
}

/// An access to memory, or a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// What it does, as a verb with its object: `reads 4 bytes`, `writes 1024 bytes`, `frees the block`.
    pub action: String,
    /// Where it is.
    pub location: Location,
    /// The number of the stream in the order of creation, and the number of this work in it. `None` for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
}

/// A place in the order of a stream's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The number of the stream, in the order of creation. Zero for a default stream.
    pub stream: u64,
    /// The number of the work in the stream.
    pub work: u64,
}

/// Where an access or a call is, in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// The kernel, or the function of the driver API.
    pub function: String,
    /// The file and line of a kernel's instruction, if its PTX says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The line of a kernel's PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx_line: Option<u32>,
    /// The thread block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// The thread of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<[u32; 3]>,
    /// The program's calls, innermost first: where a kernel was launched, or a function called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<Frame>,
}

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The function, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The file and line, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The object file, and the offset in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// A block of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Its first address.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The first byte of the error, from the start of the block.
    pub offset: i64,
    /// Where it was allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<Location>,
    /// Where it was freed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freed: Option<Location>,
}

/// What the checker of a process writes first, when the process creates a context.
pub const STARTED: &str = "started\n";

/// What the checker of a process writes instead of leaks if it cannot know them: after a fault, the program can free nothing.
pub const LEAKS_UNKNOWN: &str = "leaks unknown\n";

impl Finding {
    /// Creates a finding of a kind, with its sentence.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            advice: None,
            access: None,
            other: None,
            memory: None,
            process: std::process::id(),
            count: 1,
        }
    }

    /// Returns it as a line of the file of findings, with the line's end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a finding has nothing that JSON cannot hold");
        line.push('\n');
        line
    }

    /// Reads a line of the file of findings. `None` if it is incomplete: the process was killed while it was writing.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for &kind in Kind::ALL {
            let mut finding = Finding::new(kind, "two\nlines");
            finding.memory = Some(Memory {
                address: u64::MAX,
                bytes: 3,
                offset: -1,
                allocated: None,
                freed: Some(Location::default()),
            });
            let line = finding.to_line();
            assert_eq!(line.lines().count(), 1);
            assert_eq!(Finding::from_line(&line), Some(finding));
            assert!(line.contains(&format!("\"kind\":\"{}\"", kind.name())), "{line}");
        }
    }

    #[test]
    fn part_of_a_line_is_not_a_finding() {
        let line = Finding::new(Kind::Leak, "a leak").to_line();
        for end in 0..line.len() - 2 {
            assert_eq!(Finding::from_line(&line[..end]), None, "{end}");
        }
    }
}
