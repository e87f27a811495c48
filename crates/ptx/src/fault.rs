//! Faults: why a kernel was aborted, and where.

use std::fmt;

/// The error of a thread that aborted its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// The line of the PTX text.
    pub line: u32,
    /// The function of the line, for [`Program::source`](crate::Program::source).
    pub function: u32,
    /// The thread block of the grid.
    pub block: [u32; 3],
    /// The thread of the thread block.
    pub thread: [u32; 3],
}

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file's path, as the compiler was given it.
    pub file: String,
    /// The number of the line, from 1.
    pub line: u32,
}

/// The ways in which a kernel goes wrong.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// An access outside the memory that it may use.
    Address {
        /// Global, shared, local or another.
        space: &'static str,
        /// The first address.
        address: u64,
        /// How many bytes.
        bytes: u64,
        /// Whether it writes.
        write: bool,
        /// A description of what lies there.
        what: String,
    },
    /// An access whose address is not a multiple of its size.
    Misaligned {
        /// Global, shared, local or another.
        space: &'static str,
        /// The address.
        address: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// An address of one space in an instruction of another.
    Space {
        /// The address.
        address: u64,
    },
    /// `trap`.
    Trap,
    /// `brkpt`.
    Breakpoint,
    /// A failed `assert` of the program: its text.
    Assert {
        /// Its message.
        message: String,
    },
    /// Calls nested deeper than the stack allows.
    Stack {
        /// How deep the stack is.
        limit_bytes: u64,
    },
    /// A call of an address where no function starts.
    Call {
        /// The address.
        address: u64,
    },
    /// An instruction that is invalid with these values.
    Instruction {
        /// What is wrong with them.
        message: String,
    },
    /// All remaining threads wait for a barrier that none of them can complete.
    Deadlock {
        /// How many threads wait.
        waiting: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        let place =
            format!("kernel {}, PTX line {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})", self.kernel, self.line);
        match &self.kind {
            FaultKind::Address { space, address, bytes, write, what } => {
                let verb = if *write { "writes" } else { "reads" };
                write!(f, "{place} {verb} {bytes} bytes of {space} memory at {address:#x}: {what}")
            }
            FaultKind::Misaligned { space, address, bytes } => {
                write!(
                    f,
                    "{place} accesses {bytes} bytes of {space} memory at {address:#x}, which is not a multiple of {bytes}"
                )
            }
            FaultKind::Space { address } => write!(f, "{place}: {address:#x} is an address of another space"),
            FaultKind::Trap => write!(f, "{place} executes trap"),
            FaultKind::Breakpoint => write!(f, "{place} executes brkpt"),
            FaultKind::Assert { message } => write!(f, "{place}: {message}"),
            FaultKind::Stack { limit_bytes } => write!(f, "{place} needs more than {limit_bytes} bytes of stack"),
            FaultKind::Call { address } => write!(f, "{place} calls {address:#x}, where no function starts"),
            FaultKind::Instruction { message } => write!(f, "{place}: {message}"),
            FaultKind::Deadlock { waiting } => {
                write!(
                    f,
                    "{place}: deadlock: all {waiting} remaining threads wait for a barrier that none of them can complete"
                )
            }
        }
    }
}

impl std::error::Error for Fault {}
