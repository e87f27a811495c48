//! What can go wrong, sorted by whose fault it is.

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
use crate::ledger::{ContextId, NotEntered, Owner, WrongRelease};

/// Why something was not done. What it was to be done to is as it was before.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// use freehold::Error;
///
/// match stream.alloc::<f32>(1 << 60) {
///     Ok(block) => drop(block),
///     Err(Error::OutOfMemory(shortage)) => println!("{shortage}"), // who has what, and what would help
///     Err(Error::TooManyElements { elements, .. }) => println!("{elements} are too many"),
///     Err(error) => return Err(error), // a sentence that says what to do
/// }
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, thiserror::Error)]
pub enum Error {
    // The caller's.
    /// A block of no bytes was asked for.
    #[error("a block has at least one byte, and none was asked for")]
    NothingAsked,
    /// The length in bytes is no number of 64 bits.
    #[error("{elements} elements of {element_bytes} bytes are more than addresses can tell apart")]
    TooManyElements {
        /// How many were asked for.
        elements: usize,
        /// How long one is.
        element_bytes: usize,
    },
    /// An address cannot be released: which wrong it is.
    #[error(transparent)]
    WrongRelease(#[from] WrongRelease),
    /// The stream is being captured: it takes no work of the library's, and cannot be given up.
    #[error("the stream is being captured: end the capture first")]
    StreamCaptured,
    /// A private pool was ended or released that was not begun.
    #[error("no private pool of this id is there to be ended or released: begin it first")]
    NoSuchPool,
    /// A private pool was released that is still to be ended.
    #[error("the private pool is begun and not ended: end it first")]
    PoolOpen,
    /// Memory of others cannot be entered into the ledger.
    #[error(transparent)]
    NotEntered(#[from] NotEntered),
    /// A view was to have elements that the block has not.
    #[error("elements {start} to {end} are no part of a block of {elements}")]
    OutsideOfBlock {
        /// The first element that was asked for.
        start: usize,
        /// The one behind the last.
        end: usize,
        /// How many elements the block has.
        elements: usize,
    },
    /// The addresses of the vector are used up: [`DeviceVec::with_room`](crate::DeviceVec::with_room) reserves more.
    #[error(
        "a vector with addresses for {room_elements} elements cannot have {wanted_elements}; make it with room for more"
    )]
    VectorFull {
        /// How many it was to have.
        wanted_elements: usize,
        /// How many it has addresses for.
        room_elements: usize,
    },
    /// The arena has not so much left.
    #[error("the arena has {free_bytes} of its {capacity_bytes} bytes free, {wanted_bytes} wanted; make a larger one")]
    ArenaFull {
        /// How much was asked for.
        wanted_bytes: u64,
        /// How much is left.
        free_bytes: u64,
        /// How much it has in all.
        capacity_bytes: u64,
    },
    /// A copy is between as many elements.
    #[error("cannot copy {from_elements} elements to a buffer of {to_elements}; take a view of as many")]
    LengthsDiffer {
        /// How many there are to copy.
        from_elements: usize,
        /// How many there is room for.
        to_elements: usize,
    },
    /// The rows of a copy end outside of the memory, or overlap.
    #[error(
        "{rows} rows of {row_elements} elements, {pitch_elements} from one to the next, are no part of {elements} elements"
    )]
    NoSuchRows {
        /// How many rows were asked for.
        rows: usize,
        /// How long one is.
        row_elements: usize,
        /// From the beginning of one to that of the next.
        pitch_elements: usize,
        /// How many elements the memory has.
        elements: usize,
    },
    /// A launch has as many arguments as the kernel has parameters.
    #[error("{kernel} takes {wanted} {}; {given} {} given", plural(*.wanted, "argument"), was(*.given))]
    ArgumentCount {
        /// Its name, and what it takes where the image tells.
        kernel: Arc<str>,
        /// How many it takes.
        wanted: usize,
        /// How many there were.
        given: usize,
    },
    /// An argument is as long as the parameter.
    #[error("argument {argument} of {kernel} takes {wanted_bytes} {}; {given_bytes} {} given{}",
        plural(*.wanted_bytes, "byte"), was(*.given_bytes), unsuffixed(*.given))]
    ArgumentSize {
        /// Its name, and what it takes where the image tells.
        kernel: Arc<str>,
        /// Which argument; the first is 1.
        argument: usize,
        /// How long the parameter is.
        wanted_bytes: usize,
        /// How long what was given is.
        given_bytes: usize,
        /// What was given, where it is a number.
        given: Option<Parameter>,
    },
    /// An argument is of the parameter's kind, where the image tells that.
    #[error("argument {argument} of {kernel} takes {wanted}; {} was given{}",
        .given.map_or_else(|| "memory".to_owned(), |given| given.to_string()), unsuffixed(*.given))]
    ArgumentKind {
        /// Its name, and what it takes.
        kernel: Arc<str>,
        /// Which argument; the first is 1.
        argument: usize,
        /// What the kernel takes.
        wanted: Parameter,
        /// What was given: a number, or else memory.
        given: Option<Parameter>,
    },
    /// A launch asks for more than the device or the kernel allows.
    #[error("{given} {what}; the {of} allows {allowed}")]
    ShapeTooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much was asked for.
        given: u64,
        /// How much is allowed.
        allowed: u64,
        /// By what: the device, or the kernel, whose registers count.
        of: &'static str,
    },
    /// The block was not asked for with [`Stream::alloc_shareable`](crate::Stream::alloc_shareable).
    #[error("the block at {address:#x} is this process's alone; ask for one with alloc_shareable to export it")]
    NotShareable {
        /// The first address.
        address: u64,
    },
    /// A launch of no thread.
    #[error("a launch has at least one block of at least one thread")]
    EmptyGrid,
    /// A write to memory that was imported for reading.
    #[error("{base:#x} is imported to be read alone: import it with `Permission::ReadWrite` to write there")]
    ReadOnly {
        /// Where the import begins.
        base: u64,
    },
    /// A transfer into the memory failed, and nothing has overwritten it since: see [`ExternalAccess::failed`](crate::ExternalAccess::failed).
    #[error(
        "the {bytes} bytes at {address:#x} hold anything: a transfer into them failed; write all of them before they are read"
    )]
    Undefined {
        /// The first address.
        address: u64,
        /// How long it is.
        bytes: u64,
    },
    /// A descriptor that is not of memory of a device.
    #[error("the descriptor names no memory that a device shares: {code}")]
    NotShared {
        /// What the driver said.
        code: Code,
    },
    /// An import of another length than the export.
    #[error("the descriptor names memory of another length than {bytes} bytes: import as much as was exported")]
    OtherLength {
        /// The length that was asked for.
        bytes: u64,
    },
    /// A part of an import that it has not.
    #[error("{part_bytes} bytes from {offset_bytes} on are no part of an import of {bytes}")]
    OutsideOfImport {
        /// Where it was to begin.
        offset_bytes: u64,
        /// How long the part was to be.
        part_bytes: u64,
        /// How long the import is.
        bytes: u64,
    },
    /// A part whose elements would not be aligned.
    #[error("a part at {offset_bytes} bytes holds no elements that lie at multiples of {alignment_bytes}")]
    Misaligned {
        /// Where it was to begin, in bytes of the memory.
        offset_bytes: u64,
        /// Where elements can lie: at multiples of this.
        alignment_bytes: usize,
    },
    /// A clock of more words than its memory holds.
    #[error("{words} words need {wanted_bytes} bytes, and the descriptor has {bytes}")]
    ClockShort {
        /// How many were asked for.
        words: usize,
        /// How long that is.
        wanted_bytes: u64,
        /// How long the memory is.
        bytes: u64,
    },
    /// Memory that another process could make shorter while it is used here.
    #[error("others can cut the descriptor's memory short: make it a memfd, and seal it with F_SEAL_SHRINK")]
    NotSealed,
    /// A word that the clock has not.
    #[error("word {word} is none of a clock of {words}; the first is 0")]
    NoSuchWord {
        /// Which word; the first is 0.
        word: usize,
        /// How many words it has.
        words: usize,
    },
    /// A kernel is launched in streams of its own context.
    #[error("{what} of {of} cannot be used in a stream of {within}")]
    OtherContext {
        /// What it is.
        what: &'static str,
        /// The context that it is of.
        of: ContextId,
        /// The context of the stream.
        within: ContextId,
    },
    /// Blocks, events and modules are used on their own device.
    #[error("{what} of another device cannot be used here")]
    OtherDevice {
        /// What it is.
        what: &'static str,
    },
    /// A context is not closed under live blocks: these.
    #[error("{context} has {} live {}: release them, or close the context with them{}", .blocks.len(),
        if .blocks.len() == 1 { "block" } else { "blocks" }, list(.blocks))]
    ContextInUse {
        /// The context.
        context: ContextId,
        /// What lives in it.
        blocks: Vec<Owner>,
    },
    /// The context was closed, with its blocks.
    #[error("{context} is closed, and all that lived in it is gone")]
    ContextClosed {
        /// The context.
        context: ContextId,
    },
    /// A forked child has none of its parent's devices (fact 0.6).
    #[error(
        "this process is a fork of process {process}, whose device it cannot use; start another program instead of a fork"
    )]
    ForkedChild {
        /// The process whose it is.
        process: u32,
    },
    /// A device has one recording at a time.
    #[error("the device is being recorded already: finish that recording first")]
    AlreadyRecording,
    /// A name with a zero in it.
    #[error("{name:?} holds a NUL, which no name in an image does")]
    NulInName {
        /// The name.
        name: String,
    },
    /// The image has other kernels: these.
    #[error("the image has no kernel {name:?}{}", names(.known))]
    NoSuchKernel {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// The image has no variable of this name.
    #[error("the image has no variable {name:?}")]
    NoSuchVariable {
        /// The name that was asked for.
        name: String,
    },
    /// A variable is read and written whole.
    #[error("variable {name} has {wanted_bytes} bytes, {given_bytes} were given")]
    VariableSize {
        /// Its name.
        name: String,
        /// How long the variable is.
        wanted_bytes: usize,
        /// How long what was given is.
        given_bytes: usize,
    },
    /// The image is shorter than it says.
    #[error("the image ends early: {bytes} bytes, where its headers speak of {wanted_bytes}")]
    ImageCutShort {
        /// How long it is.
        bytes: usize,
        /// How long its headers say it is.
        wanted_bytes: u64,
    },
    /// A driver does not check a binary, so a safe call takes none.
    #[error(
        "the image is a binary, which a driver trusts: expected PTX, or a call of the unsafe Image::binary or Image::file_binary"
    )]
    BinaryImage,
    /// The bytes are no image of kernels.
    #[error("the image is neither a text nor a binary for a GPU")]
    NotAnImage,
    /// The device loads other kinds of image.
    #[error("the device takes no {kind}; load an image that is made for it")]
    ImageNotTaken {
        /// The kind of this one.
        kind: ImageKind,
    },
    /// The driver does not compile or load the image; the log is what it says of it.
    #[error("the driver refuses the image: {code}{}", below(.log))]
    ImageRefused {
        /// What the driver said.
        code: Code,
        /// What the driver says of it, line by line.
        log: Box<str>,
    },

    /// More would be live under the tag than its budget: see [`Device::set_tag_budget`](crate::Device::set_tag_budget).
    #[error(
        "{tag} has {live_bytes} bytes live of {budget_bytes} that it may have, and {wanted_bytes} more were asked for: release \
        some, or raise its budget"
    )]
    BudgetFull {
        /// The name.
        tag: Arc<str>,
        /// How much more was asked for.
        wanted_bytes: u64,
        /// How much is live under it.
        live_bytes: u64,
        /// How much may be.
        budget_bytes: u64,
    },
    /// So many names cannot have budgets.
    #[error("{tag} is one name too many to have a budget: 4096 are counted")]
    TooManyTags {
        /// The name that is one too many.
        tag: Arc<str>,
    },

    // The device's.
    /// The device has no further contexts.
    #[error("the device has one context alone: use its primary one")]
    OneContext,
    /// The device does not visibility memory of the host.
    #[error("the device cannot use memory of the host where it lies; copy it to a block instead")]
    CannotRegister,
    /// The device has no memory that a descriptor names.
    #[error("the device cannot share memory with other processes by descriptors; copy through the host instead")]
    CannotShare,
    /// There is not so much memory, with what there is and what would help.
    #[error("{0}")]
    OutOfMemory(Box<Shortage>),
    /// The pool has no numbers left for blocks.
    #[error(
        "the pool tells {blocks_max} blocks apart, and has handed out and kept so many; release some, or ask for fewer and longer ones"
    )]
    TooManyBlocks {
        /// How many it tells apart.
        blocks_max: usize,
    },
    /// There is not so much memory; nobody asked for an explanation.
    #[error("{wanted_bytes} bytes cannot be had")]
    Short {
        /// How much was asked for.
        wanted_bytes: u64,
    },
    /// A kernel has failed, and with it every call of this process (fact 5.1).
    #[error("{0}")]
    Faulted(Arc<Fault>),
    /// The driver refused a call.
    #[error(transparent)]
    Call(#[from] CallError),

    /// The device has no clocks.
    #[error("streams of this device neither write nor await words, which clocks are made of")]
    NoWords,

    // The system's.
    /// There is no such device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read or written.
    #[error("{}: {kind}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The system refuses memory of the host.
    #[error("the system maps no page of memory: {kind}")]
    System {
        /// What it said.
        kind: io::ErrorKind,
    },
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a call that can fail returns.
///
/// ```
/// fn ones(count: usize) -> freehold::Result<freehold::Block<f32>> {
///     freehold::open()?.new_stream()?.upload(&vec![1.0; count])
/// }
/// assert_eq!(ones(10)?.len(), 10);
/// # Ok::<(), freehold::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be closed, and what was not closed, unchanged. `?` drops it, which releases it as any drop does.
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
    /// What was not closed.
    pub value: T,
    /// Why.
    pub error: Error,
}

impl<T> CloseError<T> {
    pub(crate) const fn new(value: T, error: Error) -> Self {
        Self { value, error }
    }
}

/// The message of the error, as for [`Error`].
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

/// What Rust takes a number for whose type is not written.
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

fn below(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{log}") }
}
