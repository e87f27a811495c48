//! What a thread's last failed call is remembered by: a code at once, and a text when it is asked for.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;

use crate::pools;
use freehold::Error;
use freehold::ledger::WrongRelease;

/// Why a call failed.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeholdError {
    /// Nothing failed.
    None = 0,
    /// No bytes were asked for, or a negative number of them.
    NothingAsked = 1,
    /// So much memory cannot be had now.
    OutOfMemory = 2,
    /// The address lies within a block; a block is named by its first address.
    Interior = 3,
    /// The block was released before.
    AlreadyReleased = 4,
    /// Nothing was ever allocated at the address.
    NeverAllocated = 5,
    /// The block is another device's.
    WrongDevice = 6,
    /// Rust code of this process owns the block, or others who entered it with the library.
    NotYours = 7,
    /// This process is a fork of the one that opened the device.
    ForkedChild = 8,
    /// There is no such device, or no driver.
    NoDevice = 9,
    /// The driver refused a call.
    Driver = 10,
    /// The device has failed for good: every call of this process does, until it ends.
    DeviceFailed = 11,
    /// The system refused something.
    System = 12,
    /// A pointer that must not be null is.
    NullArgument = 13,
    /// The library is wrong: please report the text.
    Internal = 14,
    /// So much more may not be live under the tag, or one that it is within.
    TagBudget = 15,
    /// More names than the library counts were to have a budget.
    TooManyTags = 16,
    /// A text that has to be UTF-8 is not.
    NotText = 17,
    /// The stream is being captured.
    StreamCaptured = 18,
    /// No private pool of this id is there to be ended or released.
    NoSuchPool = 19,
    /// The private pool is begun and not ended: it is released after that.
    PoolOpen = 20,
}

/// A call that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    NegativeSize { bytes: isize },
    WrongDevice { address: u64, asked: c_int, of: c_int },
    NullArgument { name: &'static str },
    InvalidUtf8 { name: &'static str },
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
            Self::Panicked { .. } => FreeholdError::Internal,
            Self::Library { error, .. } => code_of(error),
        }
    }
}

fn code_of(error: &Error) -> FreeholdError {
    match error {
        Error::NothingAsked => FreeholdError::NothingAsked,
        Error::OutOfMemory { .. } | Error::Short { .. } | Error::TooManyBlocks { .. } => FreeholdError::OutOfMemory,
        Error::WrongRelease(wrong) => match wrong {
            WrongRelease::Interior { .. } => FreeholdError::Interior,
            WrongRelease::AlreadyReleased { .. } | WrongRelease::ContextDestroyed { .. } => {
                FreeholdError::AlreadyReleased
            }
            WrongRelease::NeverAllocated { .. } => FreeholdError::NeverAllocated,
            WrongRelease::Adopted { .. } | WrongRelease::Imported { .. } | WrongRelease::Held { .. } => {
                FreeholdError::NotYours
            }
            WrongRelease::ForkedChild { .. } => FreeholdError::ForkedChild,
        },
        Error::StreamCaptured => FreeholdError::StreamCaptured,
        Error::NoSuchPool => FreeholdError::NoSuchPool,
        Error::PoolOpen => FreeholdError::PoolOpen,
        Error::BudgetFull { .. } => FreeholdError::TagBudget,
        Error::TooManyTags { .. } => FreeholdError::TooManyTags,
        Error::ForkedChild { .. } => FreeholdError::ForkedChild,
        Error::Open(_) => FreeholdError::NoDevice,
        Error::Call(_) => FreeholdError::Driver,
        Error::Faulted(_) => FreeholdError::DeviceFailed,
        Error::System { .. } | Error::File { .. } => FreeholdError::System,
        // Of images, kernels and contexts, which nothing here has.
        _ => FreeholdError::Internal,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NegativeSize { bytes } => write!(f, "{bytes} bytes were asked for; a block has at least one"),
            Self::WrongDevice { address, asked, of } => {
                write!(f, "{address:#x} is memory of device {of}, not of device {asked}: name that one")
            }
            Self::NullArgument { name } => write!(f, "{name} is null, and has to point to something"),
            Self::InvalidUtf8 { name } => write!(f, "{name} is not UTF-8: give it as text of that encoding"),
            Self::Panicked { text } => write!(f, "the library is wrong, please report this: {text}"),
            Self::Library { device, error } => write_error(f, *device, error),
        }
    }
}

fn write_error(f: &mut fmt::Formatter<'_>, device: Option<c_int>, error: &Error) -> fmt::Result {
    match error {
        Error::Short { wanted_bytes } => write_out_of_memory(f, device, *wanted_bytes),
        // Who calls from C has no line of Rust to be told.
        Error::WrongRelease(WrongRelease::Interior { of, offset_bytes }) => {
            let (bytes, base) = (of.bytes, of.base);
            write!(f, "{offset_bytes} bytes into {bytes} bytes at {base:#x}: release the block by its first address")
        }
        Error::WrongRelease(WrongRelease::AlreadyReleased { base, bytes, offset_bytes, .. }) => {
            if *offset_bytes > 0 {
                write!(f, "{offset_bytes} bytes into a block that is gone: ")?;
            }
            write!(f, "{bytes} bytes at {base:#x} are already released: release a block once")
        }
        error => write!(f, "{error}"),
    }
}

/// What there is of a device's memory, and what would help. Asked only when somebody reads it, for it takes longer than the
/// refusal itself.
fn write_out_of_memory(f: &mut fmt::Formatter<'_>, device: Option<c_int>, wanted_bytes: u64) -> fmt::Result {
    match device.and_then(pools::known_pool).map(|pool| pool.explain(wanted_bytes)) {
        Some(Ok(text)) => f.write_str(&text),
        Some(Err(_)) | None => write!(f, "{}", Error::Short { wanted_bytes }),
    }
}

/// A thread's last failure, and its text once somebody asked for it.
struct LastError {
    failure: Failure,
    text: Option<CString>,
}

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
}

/// Remembers a failure of this thread. The code is told in any case.
#[cold]
pub(crate) fn set(failure: Failure) -> FreeholdError {
    let code = failure.code();
    replace(Some(LastError { failure, text: None }));
    code
}

pub(crate) fn clear() {
    replace(None);
}

/// A thread that is ending remembers nothing, and nobody asks it any more.
fn replace(what: Option<LastError>) {
    if let Ok(before) = LAST.try_with(|last| last.replace(what)) {
        drop(before);
    }
}

pub(crate) fn last_code() -> FreeholdError {
    let code = LAST.try_with(|last| last.borrow().as_ref().map(|last| last.failure.code()));
    code.ok().flatten().unwrap_or(FreeholdError::None)
}

/// The text of this thread's last failure, which stays until the next one.
pub(crate) fn last_text() -> *const c_char {
    const NOTHING: &CStr = c"";
    let text = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let LastError { failure, text } = last.as_mut()?;
        let text = text.get_or_insert_with(|| {
            let text = failure.to_string().replace('\0', " ");
            CString::new(text).expect("there are no zeros left in the text")
        });
        Some(text.as_ptr())
    });
    text.ok().flatten().unwrap_or(NOTHING.as_ptr())
}
