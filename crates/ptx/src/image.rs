//! Texts compiled and linked: what a module consists of before and after its variables have addresses.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// One text, compiled. Names of other texts are open.
#[derive(Debug)]
pub struct Unit {}

impl Unit {
    /// # Errors
    /// The first mistake in the text.
    pub fn compile(text: &str) -> Result<Self, Error> {
        todo!("{text}")
    }
}

/// Why texts do not fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// Declared and used, and nowhere defined.
    Undefined { name: String },
    /// Defined twice.
    Duplicate { name: String },
    /// Declared in one text and defined in another as something else.
    Mismatch { name: String },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { name } => write!(f, "undefined reference to '{name}'"),
            Self::Duplicate { name } => write!(f, "'{name}' is defined more than once"),
            Self::Mismatch { name } => write!(f, "'{name}' is declared and defined as different things"),
        }
    }
}

impl std::error::Error for LinkError {}

/// Texts linked into one. Its variables have no addresses yet.
#[derive(Debug)]
pub struct Image {}

/// A variable of global or constant memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalVariable {
    pub name: String,
    pub bytes: u64,
    pub align: u64,
    /// Whether the host finds it by its name.
    pub visible: bool,
    /// Lives in constant memory: kernels do not write it.
    pub constant: bool,
}

/// What the host knows of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub name: String,
    pub parameters: Vec<KernelParameter>,
    /// Bytes of all parameters with the gaps between them.
    pub parameter_bytes: u64,
    /// Static shared memory.
    pub shared_bytes: u64,
    /// Stack and local variables of one thread.
    pub local_bytes: u64,
    /// 32-bit registers of one thread, as the text declares and uses them.
    pub registers: u32,
    pub max_threads: Option<[u32; 3]>,
    pub required_threads: Option<[u32; 3]>,
    pub min_blocks: Option<u32>,
    pub max_registers: Option<u32>,
    /// Version of the text, as 86 for 8.6.
    pub ptx_version: u32,
    /// As in `sm_90`: 90.
    pub target: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelParameter {
    pub offset: u64,
    pub bytes: u64,
}

impl Image {
    /// # Errors
    /// The texts do not fit together.
    pub fn link(units: Vec<Unit>) -> Result<Self, LinkError> {
        todo!("{units:?}")
    }

    pub fn variables(&self) -> &[GlobalVariable] {
        todo!()
    }

    pub fn kernels(&self) -> &[Kernel] {
        todo!()
    }

    /// Gives the variables their addresses, in the order of [`variables`](Self::variables), and returns the program
    /// and the bytes that each variable starts with. The same image may be placed many times.
    pub fn place(&self, addresses: &[u64]) -> (Arc<Program>, Vec<Vec<u8>>) {
        todo!("{addresses:?}")
    }
}

/// A program ready to run.
#[derive(Debug)]
pub struct Program {}

impl Program {
    /// The kernels, in the order of the image's.
    pub fn kernels(&self) -> &[Kernel] {
        todo!()
    }
}
