//! Errors, grouped by whose fault they are.

pub(crate) mod fault;
pub(crate) mod open_error;
pub(crate) mod shortage;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use freehold_driver::{CallError, Code, ImageKind};

use self::fault::Fault;
use self::open_error::OpenError;
use self::shortage::Shortage;
use crate::base::signature::{Kind, Parameter};
use crate::ledger::{ContextId, NotEntered, Owner, WrongRelease, WrongUse};

/// Why an operation failed. The object that it was called on is unchanged.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// use freehold::Error;
///
/// match stream.alloc::<f32>(1 << 60) {
///     Ok(block) => drop(block),
///     Err(Error::OutOfMemory(shortage)) => println!("{shortage}"), // what uses the memory, and what would help
///     Err(Error::TooManyElements { elements, .. }) => println!("{elements} are too many"),
///     Err(error) => return Err(error), // the message says what to do
/// }
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, thiserror::Error)]
pub enum Error {
    // The caller's errors.
    /// Zero bytes were requested where at least one is needed.
    #[error("zero bytes: expected at least one")]
    NothingAsked,
    /// The length in bytes overflows 64 bits.
    #[error("{elements} elements of {element_bytes} bytes overflow a 64-bit length")]
    TooManyElements {
        /// The number of elements requested.
        elements: usize,
        /// The length of one element.
        element_bytes: usize,
    },
    /// An address cannot be released; the error explains why.
    #[error(transparent)]
    WrongRelease(#[from] WrongRelease),
    /// An address cannot be used; the error explains why.
    #[error("{}", WrongUse(.0))]
    WrongUse(WrongRelease),
    /// The stream is being captured: it accepts no work of the library, and cannot be retired.
    #[error("the stream is being captured: end the capture first")]
    StreamCaptured,
    /// A private pool was ended or released that was not begun.
    #[error("no private pool with this id to end or release: begin it first")]
    NoSuchPool,
    /// A private pool was released that was not ended.
    #[error("the private pool is still open: end it first")]
    PoolOpen,
    /// Foreign memory cannot be recorded in the ledger.
    #[error(transparent)]
    NotEntered(#[from] NotEntered),
    /// A view would extend beyond the block.
    #[error("range {start}..{end} is outside a block of {elements} {}", plural(*.elements, "element"))]
    OutsideOfBlock {
        /// The first element requested.
        start: usize,
        /// The end of the range, exclusive.
        end: usize,
        /// The number of elements of the block.
        elements: usize,
    },
    /// The vector has no addresses left: [`DeviceVec::with_max_len`](crate::DeviceVec::with_max_len) reserves more.
    #[error(
        "the vector has addresses for {max_elements} elements, {wanted_elements} requested; create it with a larger `max_len`"
    )]
    VectorFull {
        /// The number of elements requested.
        wanted_elements: usize,
        /// The number of elements that it has addresses for.
        max_elements: usize,
    },
    /// The arena has too little space left.
    #[error(
        "the arena has {free_bytes} of its {capacity_bytes} bytes free, {wanted_bytes} requested; create a larger one"
    )]
    ArenaFull {
        /// The bytes requested.
        wanted_bytes: u64,
        /// The bytes left.
        free_bytes: u64,
        /// The size of the arena.
        capacity_bytes: u64,
    },
    /// The two sides of a copy have different lengths.
    #[error("cannot copy {from_elements} elements to a buffer of {to_elements}: expected equal lengths, take a view")]
    LengthsDiffer {
        /// The number of elements to copy.
        from_elements: usize,
        /// The number of elements at the destination.
        to_elements: usize,
    },
    /// The rows of a copy extend beyond the memory, or overlap.
    #[error(
        "{rows} rows of {row_elements} elements with a pitch of {pitch_elements} overlap or do not fit in {elements} elements"
    )]
    NoSuchRows {
        /// The number of rows requested.
        rows: usize,
        /// The length of a row.
        row_elements: usize,
        /// The distance between the beginnings of two rows.
        pitch_elements: usize,
        /// The number of elements of the memory.
        elements: usize,
    },
    /// A launch has fewer or more arguments than the kernel has parameters.
    #[error("{kernel} takes {wanted} {}; {given} {} given", plural(*.wanted, "argument"), was(*.given))]
    ArgumentCount {
        /// The kernel's name, with its parameters if the image has them.
        kernel: Arc<str>,
        /// The number of parameters.
        wanted: usize,
        /// The number of arguments.
        given: usize,
    },
    /// The size of an argument differs from that of the parameter.
    #[error("argument {argument} of {kernel} takes {wanted_bytes} {}; {given_bytes} {} given{}",
        plural(*.wanted_bytes, "byte"), was(*.given_bytes), unsuffixed(*.given))]
    ArgumentSize {
        /// The kernel's name, with its parameters if the image has them.
        kernel: Arc<str>,
        /// Which argument; the first is 1.
        argument: usize,
        /// The size of the parameter.
        wanted_bytes: usize,
        /// The size of the argument.
        given_bytes: usize,
        /// The argument's type, if it is a number.
        given: Option<Parameter>,
    },
    /// The kind of an argument differs from that of the parameter, for images that record it.
    #[error("argument {argument} of {kernel} takes {wanted}; {} was given{}",
        .given.map_or_else(|| "memory".to_owned(), |given| given.to_string()), unsuffixed(*.given))]
    ArgumentKind {
        /// The kernel's name and parameters.
        kernel: Arc<str>,
        /// Which argument; the first is 1.
        argument: usize,
        /// The parameter's type.
        wanted: Parameter,
        /// The argument's type if it is a number; `None` for memory.
        given: Option<Parameter>,
    },
    /// A launch exceeds a limit of the device or of the kernel.
    #[error("{given} {what}; the {of} allows {allowed}")]
    ShapeTooLarge {
        /// Which limit.
        what: &'static str,
        /// The value requested.
        given: u64,
        /// The largest value allowed.
        allowed: u64,
        /// What sets the limit: the device, or the kernel with its registers.
        of: &'static str,
    },
    /// The block was not allocated with [`Stream::alloc_shareable`](crate::Stream::alloc_shareable).
    #[error("the block at {address:#x} cannot be exported: allocate it with alloc_shareable")]
    NotShareable {
        /// The first address.
        address: u64,
    },
    /// A launch whose blocks have no threads. A launch without blocks is not an error: it does nothing.
    #[error("0 threads per block: expected at least one")]
    NoThreads,
    /// A write to memory that was imported read-only.
    #[error("the import at {base:#x} is read-only: import it with `Permission::ReadWrite` to write")]
    ReadOnly {
        /// Where the import begins.
        base: u64,
    },
    /// A transfer into the memory failed, and nothing has overwritten it since: see
    /// [`ExternalAccess::failed`](crate::ExternalAccess::failed).
    #[error(
        "the {bytes} bytes at {address:#x} are undefined because a transfer into them failed: write all of them before reading"
    )]
    Undefined {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A descriptor that does not name device memory.
    #[error("the descriptor is not shared device memory: {code}")]
    NotShared {
        /// The driver's error code.
        code: Code,
    },
    /// The length of an import differs from that of the export.
    #[error("the descriptor's memory is not {bytes} bytes long: import the length that was exported")]
    OtherLength {
        /// The length requested.
        bytes: u64,
    },
    /// A slice that extends beyond the import.
    #[error("{slice_bytes} bytes at offset {offset_bytes} are outside an import of {bytes} bytes")]
    OutsideOfImport {
        /// Where it would begin.
        offset_bytes: u64,
        /// The length of the slice.
        slice_bytes: u64,
        /// The length of the import.
        bytes: u64,
    },
    /// A slice whose elements would be misaligned.
    #[error("offset {offset_bytes} is not a multiple of {alignment_bytes}, the alignment of the elements")]
    Misaligned {
        /// Where it would begin, in bytes.
        offset_bytes: u64,
        /// The alignment of the elements.
        alignment_bytes: usize,
    },
    /// More semaphores than the memory holds.
    #[error("{count} semaphores need {wanted_bytes} bytes, but the descriptor has {bytes}")]
    TooManySemaphores {
        /// The number of semaphores requested.
        count: usize,
        /// Their length in bytes.
        wanted_bytes: u64,
        /// The length of the memory.
        bytes: u64,
    },
    /// Memory that another process could shrink while it is used here.
    #[error("the descriptor's memory can shrink: use a memfd sealed with F_SEAL_SHRINK")]
    NotSealed,
    /// A semaphore index out of range.
    #[error("semaphore {index} is out of range: there are {count}, numbered from 0")]
    NoSuchSemaphore {
        /// Which semaphore; the first is 0.
        index: usize,
        /// How many semaphores there are.
        count: usize,
    },
    /// A kernel was launched in a stream of another context.
    #[error("{what} of {of} cannot be used in a stream of {within}")]
    OtherContext {
        /// What was used.
        what: &'static str,
        /// Its context.
        of: ContextId,
        /// The context of the stream.
        within: ContextId,
    },
    /// A block, an event or a module was used on another device.
    #[error("{what} of another device cannot be used here")]
    OtherDevice {
        /// What was used.
        what: &'static str,
    },
    /// The context cannot be closed because it has live blocks.
    #[error("{context} has {} live {}: release them, or close the context with them{}", .blocks.len(),
        if .blocks.len() == 1 { "block" } else { "blocks" }, list(.blocks))]
    ContextInUse {
        /// The context.
        context: ContextId,
        /// The live blocks.
        blocks: Vec<Owner>,
    },
    /// The context was closed, with its blocks.
    #[error("{context} is closed, and its blocks, streams and modules with it")]
    ContextClosed {
        /// The context.
        context: ContextId,
    },
    /// A forked child cannot use its parent's devices.
    #[error(
        "this process is a fork of process {process} and cannot use its device: start a new program instead of forking"
    )]
    ForkedChild {
        /// The process that opened the device.
        process: u32,
    },
    /// A device has one recording at a time.
    #[error("the device is already being recorded: finish that recording first")]
    AlreadyRecording,
    /// A name that contains a NUL.
    #[error("{name:?} contains a NUL: expected a name without one")]
    NulInName {
        /// The name.
        name: String,
    },
    /// The block is asleep: it has no memory until [`Device::wake`](crate::Device::wake).
    #[error("the block at {address:#x} is asleep: call `wake({tag:?})` before using it")]
    Asleep {
        /// The address that was to be used.
        address: u64,
        /// The name that sleeps.
        tag: Arc<str>,
    },
    /// The name is not one that [`Device::set_sleepable`](crate::Device::set_sleepable) was called with.
    #[error("blocks of {tag:?} cannot sleep: call `set_sleepable({tag:?})` before allocating them")]
    NotSleepable {
        /// The name.
        tag: Arc<str>,
    },
    /// The device cannot map memory, so addresses cannot outlive their memory.
    #[error("this device cannot map memory: its blocks cannot sleep, release them instead")]
    CannotSleep,
    /// No more names can sleep.
    #[error("cannot make {tag:?} sleepable: at most {names_max} names can be")]
    TooManySleepable {
        /// The name.
        tag: Arc<str>,
        /// How many can be.
        names_max: u32,
    },
    /// A block is lent: see [`Stream::lend`](crate::Stream::lend).
    #[error("{tag:?} cannot sleep while {accesses} of its blocks {} lent: end the accesses first", if *.accesses == 1 { "is" } else { "are" })]
    LentOut {
        /// The name.
        tag: Arc<str>,
        /// How many accesses have not ended.
        accesses: u32,
    },
    /// The image has no kernel with this name.
    #[error("the image has no kernel {name:?}{}", names(.known))]
    NoSuchKernel {
        /// The name requested.
        name: String,
        /// The names that the image has.
        known: Vec<String>,
    },
    /// The image has no variable with this name.
    #[error("the image has no variable {name:?}")]
    NoSuchVariable {
        /// The name requested.
        name: String,
    },
    /// A variable is read and written as a whole.
    #[error("variable {name} has {wanted_bytes} bytes; {given_bytes} were given")]
    VariableSize {
        /// Its name.
        name: String,
        /// The length of the variable.
        wanted_bytes: usize,
        /// The length of the value.
        given_bytes: usize,
    },
    /// The image is shorter than its headers say.
    #[error("the image is truncated: {bytes} bytes, but its headers say {wanted_bytes}")]
    ImageCutShort {
        /// The length of the image.
        bytes: usize,
        /// The length that its headers specify.
        wanted_bytes: u64,
    },
    /// A driver does not check a binary, so safe calls reject it.
    #[error(
        "the image is a binary, which drivers trust: expected PTX, or a call to the unsafe Image::binary or Image::file_binary"
    )]
    BinaryImage,
    /// The bytes are not an image of kernels.
    #[error("unknown image format: expected PTX, OpenCL C, SPIR-V, a cubin or a fat binary")]
    NotAnImage,
    /// The text is not PTX.
    #[error("not PTX: expected text that begins with .version, as written by `nvcc -ptx`")]
    NotPtx,
    /// The device cannot load this kind of image.
    #[error("the device cannot load {kind}: load an image made for this device")]
    ImageNotTaken {
        /// The kind of the image.
        kind: ImageKind,
    },
    /// The driver does not compile or load the image; the log is its output.
    #[error("the driver rejected the image: {code}{}", below(.log))]
    ImageRefused {
        /// The driver's error code.
        code: Code,
        /// The driver's output, line by line.
        log: Box<str>,
    },

    /// The tag's budget would be exceeded: see [`Device::set_tag_budget`](crate::Device::set_tag_budget).
    #[error(
        "{tag} has {live_bytes} of {budget_bytes} bytes live, {wanted_bytes} more requested: release some, or raise its budget"
    )]
    BudgetFull {
        /// The name.
        tag: Arc<str>,
        /// The bytes requested in addition.
        wanted_bytes: u64,
        /// The bytes live under it.
        live_bytes: u64,
        /// Its budget.
        budget_bytes: u64,
    },
    /// The limit on the number of names with budgets is reached.
    #[error("too many names for a budget on {tag}: at most 4096 are counted")]
    TooManyTags {
        /// The name that exceeds the limit.
        tag: Arc<str>,
    },

    // The device's errors.
    /// The device supports one context only.
    #[error("the device supports one context: use its primary context")]
    OneContext,
    /// The device cannot access host memory.
    #[error("the device cannot access host memory in place: copy it to a block instead")]
    CannotRegister,
    /// The device cannot share memory by descriptors.
    #[error("the device cannot share memory with other processes: copy through the host instead")]
    CannotShare,
    /// The device cannot map memory at reserved addresses.
    #[error("the device cannot map memory, so nothing grows at its address: allocate a block instead")]
    CannotMap,
    /// Out of memory, with what uses the memory and what would help.
    #[error("{0}")]
    OutOfMemory(Box<Shortage>),
    /// The pool's block metadata is exhausted.
    #[error("the pool has its maximum of {blocks_max} blocks: release some, or allocate fewer and larger ones")]
    TooManyBlocks {
        /// The most blocks that the pool can have.
        blocks_max: usize,
    },
    /// Out of memory.
    #[error("out of memory: {wanted_bytes} bytes requested")]
    Short {
        /// The bytes requested.
        wanted_bytes: u64,
    },
    /// A kernel has failed, and every later call of this process fails too.
    #[error("{0}")]
    Faulted(Arc<Fault>),
    /// The driver refused a call.
    #[error(transparent)]
    Call(#[from] CallError),

    /// The device has no shared semaphores.
    #[error("the device has no shared semaphores: its streams cannot write or wait for values in memory")]
    NoSemaphores,

    // The system's errors.
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read or written.
    #[error("{}: {}", .path.display(), file_error(*.kind))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        kind: io::ErrorKind,
    },
    /// The system refused host memory.
    #[error("the system refused to map memory: {kind}")]
    System {
        /// The system's error.
        kind: io::ErrorKind,
    },
}

/// Prints the message, for a `main` that returns the error, and for `unwrap`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a call that can fail.
///
/// ```
/// fn ones(count: usize) -> freehold::Result<freehold::Block<f32>> {
///     freehold::open()?.new_stream()?.upload(&vec![1.0; count])
/// }
/// assert_eq!(ones(10)?.len(), 10);
/// # Ok::<(), freehold::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Why a value could not be closed, with the unchanged value. `?` drops the value, which releases it like any drop.
///
/// ```
/// use freehold::CloseError;
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let block = stream.alloc::<u8>(10)?;
/// if let Err(CloseError { value, error }) = block.close() {
///     eprintln!("{} bytes at {:#x} are still allocated: {error}", value.len(), value.address());
/// }
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct CloseError<T> {
    /// The value that was not closed.
    pub value: T,
    /// Why.
    pub error: Error,
}

impl Error {
    /// Returns the error of a call that uses a block instead of releasing it.
    pub(crate) fn into_use(self) -> Self {
        match self {
            Self::WrongRelease(wrong) => Self::WrongUse(wrong),
            error => error,
        }
    }
}

impl<T> CloseError<T> {
    pub(crate) const fn new(value: T, error: Error) -> Self {
        Self { value, error }
    }
}

/// Prints the message, like [`Error`].
impl<T> fmt::Debug for CloseError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> From<CloseError<T>> for Error {
    fn from(failed: CloseError<T>) -> Self {
        failed.error
    }
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

fn was(count: usize) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Names the type that Rust gives an unsuffixed number.
fn unsuffixed(given: Option<Parameter>) -> &'static str {
    match given {
        Some(Parameter { kind: Kind::Float, bytes: 8 }) => " (an unsuffixed 1.0 is f64)",
        Some(Parameter { kind: Kind::Signed, bytes: 4 }) => " (an unsuffixed 1 is i32)",
        _ => "",
    }
}

fn list(blocks: &[Owner]) -> String {
    blocks.iter().map(|owner| format!("\n  {owner}")).collect()
}

fn names(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
}

/// Names what is wrong with a file, as the system's tools do.
fn file_error(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::NotFound => "no such file or folder".to_owned(),
        io::ErrorKind::IsADirectory => "is a folder, not a file".to_owned(),
        kind => kind.to_string(),
    }
}

fn below(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}
