//! The last failed call of each thread: a code immediately, and a text when the caller asks for it.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use crate::pools;
use freehold::Error;
use freehold::ledger::WrongRelease;
use freehold_driver::cuda::CUerror;

/// Why a call failed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeholdError {
    /// Nothing failed.
    None = 0,
    /// Zero bytes, or a negative number of bytes, were requested.
    NothingAsked = 1,
    /// There is not enough free memory.
    OutOfMemory = 2,
    /// The address is inside a block; a block is released by its first address.
    Interior = 3,
    /// The block was released before.
    AlreadyReleased = 4,
    /// Nothing was ever allocated at the address.
    NeverAllocated = 5,
    /// The block belongs to another device.
    WrongDevice = 6,
    /// The block belongs to Rust code of this process, or to other code that registered it with the library.
    NotYours = 7,
    /// This process is a fork of the one that opened the device.
    ForkedChild = 8,
    /// The device or the driver does not exist.
    NoDevice = 9,
    /// The driver refused a call.
    Driver = 10,
    /// The device has failed: every call of this process fails until the process exits.
    DeviceFailed = 11,
    /// A system call failed.
    System = 12,
    /// An argument that must not be null is null.
    NullArgument = 13,
    /// A bug in the library: please report the text.
    Internal = 14,
    /// The allocation would exceed the budget of the tag, or of one that contains it.
    TagBudget = 15,
    /// No more tags can have a budget, or sleep.
    TooManyTags = 16,
    /// A string is not valid UTF-8.
    NotText = 17,
    /// The stream is being captured.
    StreamCaptured = 18,
    /// There is no private pool with this id to end or release.
    NoSuchPool = 19,
    /// The private pool was begun and not ended; end it before releasing it.
    PoolOpen = 20,
    /// The block is asleep: call freehold_wake before using it.
    Asleep = 21,
    /// The tag is not one that freehold_set_sleepable was called with, or no tag of this device can sleep.
    NotSleepable = 22,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    NegativeSize { bytes: isize },
    WrongDevice { address: u64, asked: c_int, of: c_int },
    NullArgument { name: &'static str },
    InvalidUtf8 { name: &'static str },
    CannotExport { device: c_int },
    Panicked { text: String },
    Library { device: Option<c_int>, error: Error },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library { device: None, error }
    }
}

impl Failure {
    pub(crate) fn from_panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Self::Panicked { text: text.unwrap_or_default() }
    }

    pub(crate) fn code(&self) -> FreeholdError {
        match self {
            Self::NegativeSize { .. } => FreeholdError::NothingAsked,
            Self::WrongDevice { .. } => FreeholdError::WrongDevice,
            Self::NullArgument { .. } => FreeholdError::NullArgument,
            Self::InvalidUtf8 { .. } => FreeholdError::NotText,
            Self::CannotExport { .. } => FreeholdError::System,
            Self::Panicked { .. } => FreeholdError::Internal,
            Self::Library { error, .. } => code_of(error),
        }
    }
}

fn code_of(error: &Error) -> FreeholdError {
    match error {
        Error::NothingAsked => FreeholdError::NothingAsked,
        Error::OutOfMemory { .. } | Error::Short { .. } | Error::TooManyBlocks { .. } => FreeholdError::OutOfMemory,
        Error::WrongRelease(wrong) | Error::WrongUse(wrong) => match wrong {
            WrongRelease::Interior { .. } => FreeholdError::Interior,
            WrongRelease::AlreadyReleased { .. } | WrongRelease::ContextDestroyed { .. } => {
                FreeholdError::AlreadyReleased
            }
            WrongRelease::NeverAllocated { .. } => FreeholdError::NeverAllocated,
            WrongRelease::Adopted { .. } | WrongRelease::Imported { .. } | WrongRelease::Held { .. } => {
                FreeholdError::NotYours
            }
            WrongRelease::ForkedChild { .. } => FreeholdError::ForkedChild,
            _ => FreeholdError::Internal,
        },
        Error::StreamCaptured => FreeholdError::StreamCaptured,
        Error::NoSuchPool => FreeholdError::NoSuchPool,
        Error::PoolOpen => FreeholdError::PoolOpen,
        Error::BudgetFull { .. } => FreeholdError::TagBudget,
        Error::TooManyTags { .. } | Error::TooManySleepable { .. } => FreeholdError::TooManyTags,
        Error::Asleep { .. } => FreeholdError::Asleep,
        Error::NotSleepable { .. } | Error::CannotSleep => FreeholdError::NotSleepable,
        // Only Rust code lends blocks.
        Error::LentOut { .. } => FreeholdError::NotYours,
        Error::ForkedChild { .. } => FreeholdError::ForkedChild,
        Error::Open(_) => FreeholdError::NoDevice,
        // A block that can sleep.
        Error::NotShareable { .. } => FreeholdError::Driver,
        Error::Call(_) => FreeholdError::Driver,
        Error::Faulted(_) => FreeholdError::DeviceFailed,
        Error::System { .. } | Error::File { .. } => FreeholdError::System,
        // Errors of images, kernels and contexts, which no function here returns.
        _ => FreeholdError::Internal,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeSize { bytes } => write!(f, "{bytes} bytes were requested: a block has at least one"),
            Self::WrongDevice { address, asked, of } => {
                write!(f, "{address:#x} is memory of device {of}, not of device {asked}: pass {of} as the device")
            }
            Self::NullArgument { name } => write!(f, "{name} is null: it must point to a value"),
            Self::InvalidUtf8 { name } => write!(f, "{name} is not valid UTF-8"),
            Self::CannotExport { device } => {
                write!(f, "the driver of device {device} cannot share memory between processes")
            }
            Self::Panicked { text } => write!(f, "bug in the library, please report it: {text}"),
            Self::Library { device, error } => write_error(f, *device, error),
        }
    }
}

fn write_error(f: &mut fmt::Formatter<'_>, device: Option<c_int>, error: &Error) -> fmt::Result {
    match error {
        Error::Short { wanted_bytes } => write_out_of_memory(f, device, *wanted_bytes),
        Error::Call(call) if call.code.number == i64::from(CUerror::INVALID_HANDLE.number()) => write!(
            f,
            "the stream does not exist in the current context: it was destroyed, or never created; pass one that lives ({call})"
        ),
        Error::WrongRelease(WrongRelease::NeverAllocated { address }) => write!(
            f,
            "{address:#x} is not a block of freehold_alloc: free memory of cuMemAlloc or of another allocator with its own function"
        ),
        Error::WrongUse(WrongRelease::NeverAllocated { address }) => {
            write!(f, "{address:#x} is not a block of freehold_alloc: pass the address that freehold_alloc returned")
        }
        Error::WrongRelease(wrong) => {
            let advice = ["release the block by its first address", "release a block once"];
            write_wrong(f, error, wrong, advice)
        }
        Error::WrongUse(wrong) => {
            let advice = ["pass the block's first address", "use a block before it is released"];
            write_wrong(f, error, wrong, advice)
        }
        error => write!(f, "{error}"),
    }
}

/// Explains what is wrong with an address, without source locations: a C caller has no Rust line that the text could
/// name.
fn write_wrong(
    f: &mut fmt::Formatter<'_>,
    error: &Error,
    wrong: &WrongRelease,
    [interior, released]: [&str; 2],
) -> fmt::Result {
    match wrong {
        WrongRelease::Interior { of, offset_bytes } => {
            write!(f, "{offset_bytes} bytes into {} bytes at {:#x}: {interior}", of.bytes, of.base)
        }
        WrongRelease::AlreadyReleased { base, bytes, offset_bytes, .. } => {
            if *offset_bytes > 0 {
                write!(f, "{offset_bytes} bytes into a block that is gone: ")?;
            }
            write!(f, "{bytes} bytes at {base:#x} are already released: {released}")
        }
        _ => write!(f, "{error}"),
    }
}

/// Writes how the device's memory is used, and what would help. Done only when the text is read, because it takes
/// longer than the failed call.
fn write_out_of_memory(f: &mut fmt::Formatter<'_>, device: Option<c_int>, wanted_bytes: u64) -> fmt::Result {
    match device.and_then(pools::known_pool).map(|pool| pool.explain(wanted_bytes)) {
        Some(Ok(text)) => f.write_str(&text),
        Some(Err(_)) | None => write!(f, "{}", Error::Short { wanted_bytes }),
    }
}

/// The length of the longest text, including its NUL. Longer texts are truncated.
const TEXT_BYTES_MAX: usize = 4096;

/// A thread's last failure, and whether its text is in the buffer.
struct LastError {
    failure: Failure,
    is_written: bool,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
    /// The text that the thread asked for last. Its address does not change, so a pointer to it stays valid until the
    /// thread ends.
    static TEXT: OnceCell<Box<[Cell<u8>]>> = const { OnceCell::new() };
}

/// Stores a failure of this thread, and returns its code.
#[cold]
pub(crate) fn set(failure: Failure) -> FreeholdError {
    let code = failure.code();
    replace(Some(LastError { failure, is_written: false }));
    code
}

pub(crate) fn clear() {
    replace(None);
}

/// Does nothing in a thread that is exiting.
fn replace(what: Option<LastError>) {
    if let Ok(before) = LAST.try_with(|last| last.replace(what)) {
        drop(before);
    }
}

pub(crate) fn last_code() -> FreeholdError {
    let code = LAST.try_with(|last| last.borrow().as_ref().map(|last| last.failure.code()));
    code.ok().flatten().unwrap_or(FreeholdError::None)
}

/// Returns the text of this thread's last failure. It changes when this is called after another failure.
pub(crate) fn last_text() -> *const c_char {
    const NOTHING: &CStr = c"";
    let text = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let LastError { failure, is_written } = last.as_mut()?;
        TEXT.try_with(|buffer| {
            let buffer = buffer.get_or_init(|| vec![Cell::new(0); TEXT_BYTES_MAX].into_boxed_slice());
            if !std::mem::replace(is_written, true) {
                write_text(buffer, &failure.to_string());
            }
            buffer.as_ptr().cast()
        })
        .ok()
    });
    text.ok().flatten().unwrap_or(NOTHING.as_ptr())
}

/// Writes as much of a text as fits, and a NUL, to a buffer.
fn write_text(buffer: &[Cell<u8>], text: &str) {
    let end = text.floor_char_boundary(buffer.len() - 1);
    let bytes = text[..end].bytes().map(|byte| if byte == 0 { b' ' } else { byte });
    for (to, byte) in buffer.iter().zip(bytes.chain([0])) {
        to.set(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_ends_in_a_nul() {
        let buffer = vec![Cell::new(1); 8];
        write_text(&buffer, "abcdef\u{e9}g");
        assert_eq!(buffer.iter().map(Cell::get).collect::<Vec<_>>(), *b"abcdef\0\x01");
        write_text(&buffer, "a\0b");
        assert_eq!(buffer.iter().map(Cell::get).collect::<Vec<_>>(), *b"a b\0ef\0\x01");
    }
}
