//! How a kernel ends that goes wrong, and where it was then.

use std::fmt;

/// What a thread did that ended its kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub kernel: String,
    /// Line of the PTX text.
    pub line: u32,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// An access where no memory is that it may use.
    Address {
        space: &'static str,
        address: u64,
        bytes: u64,
        write: bool,
        what: String,
    },
    Misaligned {
        space: &'static str,
        address: u64,
        bytes: u64,
    },
    /// An address of one space given to an instruction of another.
    Space {
        address: u64,
    },
    Trap,
    Breakpoint,
    /// `assert` of the program's: its text.
    Assert {
        message: String,
    },
    /// Calls nested deeper than the stack is.
    Stack {
        limit_bytes: u64,
    },
    /// A call to where no function starts.
    Call {
        address: u64,
    },
    /// An instruction that means nothing with these values.
    Instruction {
        message: String,
    },
    /// All threads that are left wait for a barrier that none of them can complete.
    Deadlock {
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
                    "{place} accesses {bytes} bytes of {space} memory at {address:#x}, which is no multiple of {bytes}"
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
                write!(f, "{place}: all {waiting} threads that are left wait for a barrier that none of them completes")
            }
        }
    }
}

impl std::error::Error for Fault {}
