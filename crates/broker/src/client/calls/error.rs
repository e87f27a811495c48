//! Why a call was not carried out, sorted by whose fault it is, in sentences.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use freehold_driver::cuda::CUerror;

use crate::client::link::LinkError;
use crate::name::NotAName;
use crate::order::ROOM_WORDS;
use crate::wire::Refusal;
use freehold::signature::Parameter;

/// Whether the kernel of a call that failed has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It has not, and may be called again.
    Not,
    /// It may have, as a whole or in part: what it writes is to be looked at, or written anew.
    Perhaps,
}

impl std::fmt::Display for Carried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Not => "it was not carried out",
            Self::Perhaps => "it may have been carried out, as a whole or in part",
        })
    }
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    Caller,
    Kernel,
    Device,
    Connection,
}

/// Why a call was not carried out. Arguments are counted from 1.
#[derive(Clone, thiserror::Error)]
pub enum CallError {
    // The caller's.
    #[error(transparent)]
    Name(#[from] NotAName),
    #[error("there is no module {name}: `freehold module put FILE --name {name}` makes one{}", nearest(.near))]
    NoModule { name: Arc<str>, near: String },
    #[error("module {module} has no kernel {kernel}{}", list(.known))]
    NoKernel { module: Arc<str>, kernel: String, known: Vec<Arc<str>> },
    #[error("kernel {kernel} takes {wanted} arguments, {given} were given")]
    ArgumentCount { kernel: Arc<str>, wanted: usize, given: usize },
    #[error("argument {argument} of {kernel} is {wanted}, {given} was given")]
    ArgumentKind { kernel: Arc<str>, argument: usize, wanted: Parameter, given: Parameter },
    #[error("argument {argument} of {kernel} is {wanted}, and a lease needs one of 8 bytes")]
    NotMemory { kernel: Arc<str>, argument: usize, wanted: Parameter },
    #[error("argument {argument} of {kernel} is a lease that never was")]
    NoLease { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} is a lease that is over")]
    LeaseOver { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} is another process's lease")]
    ForeignLease { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} begins at byte {offset_bytes} of a lease of {bytes}")]
    OutsideOfLease { kernel: Arc<str>, argument: usize, offset_bytes: u64, bytes: u64 },
    #[error(
        "a launch has 1 to 2147483647 blocks, 1 to 65535 in y and z, of 1 to 1024 threads: {blocks:?} of {threads:?} were asked for"
    )]
    Grid { blocks: [u32; 3], threads: [u32; 3] },
    #[error("the device does not launch {kernel} so: fewer threads or less shared memory may do")]
    Shape { kernel: Arc<str> },
    #[error(
        "the arguments and points of {kernel} take {words} words, and a call has {ROOM_WORDS}: put some into memory"
    )]
    TooMuch { kernel: Arc<str>, words: usize },
    #[error("a call waits for at most {most} points, and {given} were given")]
    TooManyPoints { most: usize, given: usize },
    #[error("stream {stream} is none: a process has {streams} at its worker, from 0 on")]
    NoStream { stream: u32, streams: u32 },
    #[error("{kernel} is to wait for work of a process of another user")]
    ForeignPoint { kernel: Arc<str> },
    #[error("the text is no PTX: {0}")]
    NotPtx(freehold_ptx::Error),
    #[error("a module has 1 to {most} bytes, and this one {bytes}")]
    TooLong { bytes: usize, most: usize },
    #[error("the driver refuses the module:\n{log}")]
    Image { log: String },
    #[error("the bytes of module {module} are not those that were put: drop it, and put it again")]
    OtherContent { module: Arc<str> },

    // The kernel's.
    #[error("kernel {kernel} of {module} ended its worker: {code}; {carried}")]
    Faulted { kernel: Arc<str>, module: Arc<str>, code: Code, carried: Carried },
    #[error("kernel {kernel} of {module} ran for more than {} s and was ended; {carried}", .limit.as_secs_f64())]
    Hung { kernel: Arc<str>, module: Arc<str>, limit: Duration, carried: Carried },
    #[error("one of these kernels ended their worker: {among}; {code}; of {kernel} of {module}: {carried}")]
    OneFaulted { kernel: Arc<str>, module: Arc<str>, among: String, code: Code, carried: Carried },
    #[error("one of these kernels ran for more than {} s and was ended: {among}; of {kernel} of {module}: {carried}", .limit.as_secs_f64())]
    OneHung { kernel: Arc<str>, module: Arc<str>, among: String, limit: Duration, carried: Carried },
    #[error("a kernel that was called before {kernel} of {module} ended their worker; {carried}")]
    Behind { kernel: Arc<str>, module: Arc<str>, carried: Carried },

    // The device's.
    #[error("the device refused {kernel} of {module}: {code}; it was not carried out")]
    Device { kernel: Arc<str>, module: Arc<str>, code: Code },
    #[error("the worker's device does not open: {said}")]
    NoDevice { said: String },

    // The connection's.
    #[error("argument {argument} of {kernel} cannot be had: {refusal}")]
    NotBorrowed { kernel: Arc<str>, argument: usize, refusal: Refusal },
    #[error("a kernel of another process ended the worker of {kernel} of {module}, which they share; {carried}")]
    Elsewhere { kernel: Arc<str>, module: Arc<str>, carried: Carried },
    #[error("the worker of {kernel} of {module} was ended from outside; {carried}")]
    WorkerGone { kernel: Arc<str>, module: Arc<str>, carried: Carried },
    #[error(
        "how {kernel} of {module} went is not known any more: more than {most} calls have failed since, and nobody asked; it may \
        have been carried out, as a whole or in part"
    )]
    Forgotten { kernel: Arc<str>, module: Arc<str>, most: usize },
    #[error("{kernel} of {module} had not come to its end within {timeout:?}: it goes on")]
    TimedOut { kernel: Arc<str>, module: Arc<str>, timeout: Duration },
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A code of the driver's, with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub u32);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match CUerror::new(self.0) {
            Some(code) => write!(f, "{code}"),
            None => write!(f, "code {}", self.0),
        }
    }
}

fn list(known: &[Arc<str>]) -> String {
    if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) }
}

fn nearest(near: &str) -> String {
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.replace('\n', ", ")) }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Link(refusal.into())
    }
}

impl CallError {
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name(_)
            | Self::NoModule { .. }
            | Self::NoKernel { .. }
            | Self::ArgumentCount { .. }
            | Self::ArgumentKind { .. }
            | Self::NotMemory { .. }
            | Self::NoLease { .. }
            | Self::LeaseOver { .. }
            | Self::ForeignLease { .. }
            | Self::OutsideOfLease { .. }
            | Self::Grid { .. }
            | Self::Shape { .. }
            | Self::TooMuch { .. }
            | Self::TooManyPoints { .. }
            | Self::NoStream { .. }
            | Self::ForeignPoint { .. }
            | Self::NotPtx(_)
            | Self::TooLong { .. }
            | Self::Image { .. }
            | Self::OtherContent { .. } => Blame::Caller,
            Self::Faulted { .. }
            | Self::Hung { .. }
            | Self::OneFaulted { .. }
            | Self::OneHung { .. }
            | Self::Behind { .. } => Blame::Kernel,
            Self::Device { .. } | Self::NoDevice { .. } => Blame::Device,
            Self::NotBorrowed { .. }
            | Self::Elsewhere { .. }
            | Self::WorkerGone { .. }
            | Self::Forgotten { .. }
            | Self::TimedOut { .. }
            | Self::Link(_) => Blame::Connection,
        }
    }

    /// Whether the kernel has run.
    pub fn carried(&self) -> Carried {
        match self {
            Self::Faulted { carried, .. }
            | Self::Hung { carried, .. }
            | Self::OneFaulted { carried, .. }
            | Self::OneHung { carried, .. }
            | Self::Elsewhere { carried, .. }
            | Self::Behind { carried, .. }
            | Self::WorkerGone { carried, .. } => *carried,
            Self::TimedOut { .. } | Self::Forgotten { .. } => Carried::Perhaps,
            _ => Carried::Not,
        }
    }
}
