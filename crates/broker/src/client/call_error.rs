//! Errors of calls, grouped by whose fault they are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use freehold_driver::cuda::CUerror;

use crate::client::link::LinkError;
use crate::protocol::call_codec::BODY_WORDS;
use crate::protocol::name::NameError;
use crate::protocol::request_error::RequestError;
use freehold::signature::Parameter;

/// Whether the kernel of a failed call has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It has not run, and may be called again.
    No,
    /// It may have run, as a whole or in part: its output must be checked or written again.
    Maybe,
}

impl std::fmt::Display for Executed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "it was not executed",
            Self::Maybe => "it may have been executed, as a whole or in part",
        })
    }
}

/// Whose fault an error is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The caller's.
    Caller,
    /// The kernel's.
    Kernel,
    /// The device's.
    Device,
    /// The connection's, to the broker or to the worker.
    Connection,
}

/// Why a call failed. Arguments are counted from 1.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, thiserror::Error)]
pub enum CallError {
    // Caused by the caller.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("there is no module {name}: `freehold module put {name} FILE` makes one{}", nearest(.near))]
    NoModule { name: Arc<str>, near: String },
    #[error("module {module} has no kernel {kernel}{}", list(.known))]
    NoKernel { module: Arc<str>, kernel: String, known: Vec<Arc<str>> },
    #[error("kernel {kernel} takes {wanted} arguments, {given} were given")]
    ArgumentCount { kernel: Arc<str>, wanted: usize, given: usize },
    #[error("argument {argument} of {kernel} is {wanted}, {given} was given")]
    ArgumentKind { kernel: Arc<str>, argument: usize, wanted: Parameter, given: Parameter },
    #[error("argument {argument} of {kernel} is {wanted}: a lease needs a parameter of 8 bytes")]
    NotMemory { kernel: Arc<str>, argument: usize, wanted: Parameter },
    #[error("argument {argument} of {kernel} is not a lease")]
    NoLease { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} is a lease that has ended")]
    LeaseEnded { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} is a lease of another process")]
    ForeignLease { kernel: Arc<str>, argument: usize },
    #[error("argument {argument} of {kernel} begins at byte {offset_bytes} of a lease of {bytes} bytes")]
    OutOfBounds { kernel: Arc<str>, argument: usize, offset_bytes: u64, bytes: u64 },
    #[error(
        "a launch has 1 to 2147483647 blocks, 1 to 65535 in y and z, of 1 to 1024 threads: {blocks:?} of {threads:?} requested"
    )]
    InvalidGrid { blocks: [u32; 3], threads: [u32; 3] },
    #[error("the device cannot launch {kernel} with this grid: use fewer threads or less shared memory")]
    UnsupportedShape { kernel: Arc<str> },
    #[error(
        "the arguments and fences of {kernel} take {words} words, a call has {BODY_WORDS}: pass some through memory"
    )]
    ArgumentsTooLarge { kernel: Arc<str>, words: usize },
    #[error("a call waits for at most {most} fences, {given} were given")]
    TooManyFences { most: usize, given: usize },
    #[error("no stream {stream}: a process has {streams} at its worker, numbered from 0")]
    NoStream { stream: u32, streams: u32 },
    #[error("{kernel} cannot wait for a process of another user")]
    ForeignFence { kernel: Arc<str> },
    #[error("the text is not PTX: {0}")]
    NotPtx(freehold_ptx::Error),
    #[error("a module has 1 to {most} bytes, this one {bytes}")]
    ModuleTooLong { bytes: usize, most: usize },
    #[error("the module does not compile:\n{log}")]
    CompileFailed { log: String },
    #[error("the text of module {module} does not match its hash: drop it and put it again")]
    HashMismatch { module: Arc<str> },

    // Caused by the kernel.
    #[error("kernel {kernel} of {module} ended its worker: {code}{}; {executed}", after_comma(.cause))]
    Faulted { kernel: Arc<str>, module: Arc<str>, code: Code, cause: String, executed: Executed },
    #[error("kernel {kernel} of {module} ran for more than {} s and was ended; {executed}", .limit.as_secs_f64())]
    Hung { kernel: Arc<str>, module: Arc<str>, limit: Duration, executed: Executed },
    #[error("one of these kernels ended their worker: {among}; {code}; of {kernel} of {module}: {executed}")]
    SuspectFaulted { kernel: Arc<str>, module: Arc<str>, among: String, code: Code, executed: Executed },
    #[error("one of these kernels ran for more than {} s and was ended: {among}; of {kernel} of {module}: {executed}", .limit.as_secs_f64())]
    SuspectHung { kernel: Arc<str>, module: Arc<str>, among: String, limit: Duration, executed: Executed },
    #[error("a kernel that was called before {kernel} of {module} ended their worker; {executed}")]
    AfterFault { kernel: Arc<str>, module: Arc<str>, executed: Executed },

    // Caused by the device.
    #[error("the device cannot launch {kernel} of {module}: {code}; it was not executed")]
    Device { kernel: Arc<str>, module: Arc<str>, code: Code },
    #[error("the worker cannot open the device: {said}")]
    NoDevice { said: String },

    // Caused by the connection.
    #[error("argument {argument} of {kernel} cannot be used: {error}")]
    BorrowFailed { kernel: Arc<str>, argument: usize, error: RequestError },
    #[error("a kernel of another process ended the worker of {kernel} of {module}, which they share; {executed}")]
    SharedWorkerFaulted { kernel: Arc<str>, module: Arc<str>, executed: Executed },
    #[error("the worker of {kernel} of {module} was ended from outside; {executed}")]
    WorkerGone { kernel: Arc<str>, module: Arc<str>, executed: Executed },
    #[error(
        "the outcome of {kernel} of {module} was discarded: more than {most} calls have failed since; it may \
        have been executed, as a whole or in part"
    )]
    Forgotten { kernel: Arc<str>, module: Arc<str>, most: usize },
    #[error("{kernel} of {module} did not finish within {timeout:?}: it is still running")]
    TimedOut { kernel: Arc<str>, module: Arc<str>, timeout: Duration },
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error code of the driver, displayed with its name.
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

fn after_comma(cause: &str) -> String {
    if cause.is_empty() { String::new() } else { format!(", {cause}") }
}

fn nearest(near: &str) -> String {
    if near.is_empty() { String::new() } else { format!("; nearest: {}", near.replace('\n', ", ")) }
}

impl From<RequestError> for CallError {
    fn from(error: RequestError) -> Self {
        Self::Link(error.into())
    }
}

impl CallError {
    /// Whose fault it was.
    pub fn origin(&self) -> ErrorOrigin {
        match self {
            Self::Name(_)
            | Self::NoModule { .. }
            | Self::NoKernel { .. }
            | Self::ArgumentCount { .. }
            | Self::ArgumentKind { .. }
            | Self::NotMemory { .. }
            | Self::NoLease { .. }
            | Self::LeaseEnded { .. }
            | Self::ForeignLease { .. }
            | Self::OutOfBounds { .. }
            | Self::InvalidGrid { .. }
            | Self::UnsupportedShape { .. }
            | Self::ArgumentsTooLarge { .. }
            | Self::TooManyFences { .. }
            | Self::NoStream { .. }
            | Self::ForeignFence { .. }
            | Self::NotPtx(_)
            | Self::ModuleTooLong { .. }
            | Self::CompileFailed { .. }
            | Self::HashMismatch { .. } => ErrorOrigin::Caller,
            Self::Faulted { .. }
            | Self::Hung { .. }
            | Self::SuspectFaulted { .. }
            | Self::SuspectHung { .. }
            | Self::AfterFault { .. } => ErrorOrigin::Kernel,
            Self::Device { .. } | Self::NoDevice { .. } => ErrorOrigin::Device,
            Self::BorrowFailed { .. }
            | Self::SharedWorkerFaulted { .. }
            | Self::WorkerGone { .. }
            | Self::Forgotten { .. }
            | Self::TimedOut { .. }
            | Self::Link(_) => ErrorOrigin::Connection,
        }
    }

    /// Whether the kernel has run.
    pub fn executed(&self) -> Executed {
        match self {
            Self::Faulted { executed, .. }
            | Self::Hung { executed, .. }
            | Self::SuspectFaulted { executed, .. }
            | Self::SuspectHung { executed, .. }
            | Self::SharedWorkerFaulted { executed, .. }
            | Self::AfterFault { executed, .. }
            | Self::WorkerGone { executed, .. } => *executed,
            Self::TimedOut { .. } | Self::Forgotten { .. } => Executed::Maybe,
            _ => Executed::No,
        }
    }
}
