//! Errors of wrong releases and wrong entries. Knows nothing of how entries are stored.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::entry::Owner;

/// Why an address cannot be released. All of these are the caller's mistakes.
///
/// ```
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// use freehold::Error;
/// use freehold::ledger::WrongRelease;
///
/// let address = stream.alloc::<u8>(100)?.into_address();
/// device.release(address)?;
/// let Err(Error::WrongRelease(wrong)) = device.release(address) else { panic!("it was released") };
/// assert!(matches!(wrong, WrongRelease::AlreadyReleased { bytes: 100, .. }));
/// println!("{wrong}"); // where it was allocated, and where released
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongRelease {
    /// The address lies inside a block.
    #[error("{offset_bytes} bytes into {of}: release the block by its first address")]
    Interior {
        /// The block that contains it.
        of: Box<Owner>,
        /// The offset in the block.
        offset_bytes: u64,
    },
    /// The block was released before.
    #[error(
        "{}already released{}{}: release a block once",
        Span { base: *base, bytes: *bytes, offset_bytes: *offset_bytes, allocated_at: *allocated_at },
        Place(*released_at),
        Moment(*when)
    )]
    AlreadyReleased {
        /// The first address of the block.
        base: u64,
        /// Its length.
        bytes: u64,
        /// The line that allocated it; `None` if it came from foreign code, such as C, which does not tell.
        allocated_at: Option<&'static Location<'static>>,
        /// The line that released it; `None` for a drop.
        released_at: Option<&'static Location<'static>>,
        /// The time since the device was opened. Unknown for a block that was returned and never released, and for most
        /// that were dropped: a drop reads no clock.
        when: Option<Duration>,
        /// The offset of the address in the block.
        offset_bytes: u64,
    },
    /// No block ever began there.
    #[error("nothing was allocated at {address:#x}: release only addresses that an allocation returned")]
    NeverAllocated {
        /// The address.
        address: u64,
    },
    /// Foreign memory that was recorded in the ledger.
    #[error("{of}, are foreign memory: release them where they were allocated")]
    Adopted {
        /// What lies there.
        of: Box<Owner>,
    },
    /// Memory of another process.
    #[error("{of}, are imported{}: close the import instead", Origin(of.process))]
    Imported {
        /// What lies there.
        of: Box<Owner>,
    },
    /// The block ended with its context.
    #[error(
        "{}gone with their context{}: release blocks before their context is destroyed",
        Span { base: *base, bytes: *bytes, offset_bytes: *offset_bytes, allocated_at: *allocated_at },
        Moment(Some(*when))
    )]
    ContextDestroyed {
        /// The first address of the block.
        base: u64,
        /// Its length.
        bytes: u64,
        /// The line that allocated it; `None` if it came from foreign code, such as C, which does not tell.
        allocated_at: Option<&'static Location<'static>>,
        /// The time since the device was opened.
        when: Duration,
        /// The offset of the address in the block.
        offset_bytes: u64,
    },
    /// The block is owned by a handle. Returned by callers that know of handles.
    #[error("{of}, are owned by a handle: drop the handle, or call `into_address` first")]
    Held {
        /// The block.
        of: Box<Owner>,
    },
    /// The block belongs to the process that this one was forked from. Returned by callers that know their process.
    #[error("{address:#x} belongs to process {process}, which this process was forked from: release it there")]
    ForkedChild {
        /// The address.
        address: u64,
        /// The process that owns it.
        process: u32,
    },
}

/// The same mistake in a call that uses a block by its address, with different advice.
pub(crate) struct WrongUse<'a>(pub(crate) &'a WrongRelease);

impl fmt::Display for WrongUse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            WrongRelease::Interior { of, offset_bytes } => {
                write!(f, "{offset_bytes} bytes into {of}: pass the block's first address")
            }
            WrongRelease::AlreadyReleased { base, bytes, allocated_at, released_at, when, offset_bytes } => {
                let span =
                    Span { base: *base, bytes: *bytes, offset_bytes: *offset_bytes, allocated_at: *allocated_at };
                write!(
                    f,
                    "{span}already released{}{}: use a block before it is released",
                    Place(*released_at),
                    Moment(*when)
                )
            }
            WrongRelease::NeverAllocated { address } => {
                write!(f, "nothing was allocated at {address:#x}: expected the address of a block")
            }
            WrongRelease::Held { of } => {
                write!(f, "{of}, are owned by a handle: pass the handle, or call `into_address` first")
            }
            WrongRelease::ForkedChild { address, process } => {
                write!(f, "{address:#x} belongs to process {process}, which this process was forked from: use it there")
            }
            wrong => write!(f, "{wrong}"),
        }
    }
}

/// Prints the message, for a `main` that returns the error, and for `unwrap`.
impl fmt::Debug for WrongRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a span cannot be recorded.
///
/// ```
/// # let device = freehold::open()?;
/// use freehold::ledger::NotEntered;
/// use freehold::{Adoption, Error};
///
/// let theirs = device.adopt(0x1000, 4096, Adoption::Foreign, "theirs")?;
/// let refused = device.adopt(0x1008, 8, Adoption::Foreign, "others'");
/// assert!(matches!(refused, Err(Error::NotEntered(NotEntered::Overlap { .. }))));
/// # Ok::<(), freehold::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotEntered {
    /// Another entry lies there.
    #[error("{bytes} bytes at {base:#x} overlap {with}")]
    Overlap {
        /// The first address.
        base: u64,
        /// The length requested.
        bytes: u64,
        /// What lies there.
        with: Box<Owner>,
    },
    /// The addresses, and all memory there, belong to a pool of the device.
    #[error(
        "{bytes} bytes at {base:#x} are not foreign memory: {address:#x} belongs to the device's pool{}",
        in_block(block)
    )]
    OfPool {
        /// The first address.
        base: u64,
        /// The length requested.
        bytes: u64,
        /// The first address that belongs to the pool.
        address: u64,
        /// The block there, if any.
        block: Option<Box<Owner>>,
    },
    /// It has no bytes.
    #[error("zero bytes at {base:#x}: expected at least one byte")]
    Empty {
        /// The first address.
        base: u64,
    },
    /// It ends beyond the last address.
    #[error("{bytes} bytes at {base:#x} overflow the address space")]
    BeyondAddresses {
        /// The first address.
        base: u64,
        /// The length requested.
        bytes: u64,
    },
}

fn in_block(block: &Option<Box<Owner>>) -> String {
    block.as_ref().map_or_else(String::new, |owner| format!(", in {owner}"))
}

/// Prints the message, for a `main` that returns the error, and for `unwrap`.
impl fmt::Debug for NotEntered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An ended block as the subject of a sentence, with its verb.
struct Span {
    base: u64,
    bytes: u64,
    offset_bytes: u64,
    allocated_at: Option<&'static Location<'static>>,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset_bytes > 0 {
            write!(f, "{} bytes into a block that is gone: ", self.offset_bytes)?;
        }
        write!(f, "{} bytes at {:#x}", self.bytes, self.base)?;
        if let Some(at) = self.allocated_at {
            write!(f, ", allocated at {}:{},", at.file(), at.line())?;
        }
        f.write_str(" are ")
    }
}

/// The origin of imported memory, if known.
struct Origin(u32);

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { Ok(()) } else { write!(f, " from process {}", self.0) }
    }
}

struct Place(Option<&'static Location<'static>>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |at| write!(f, " at {}:{}", at.file(), at.line()))
    }
}

struct Moment(Option<Duration>);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |when| write!(f, ", {:.6} s after the device was opened", when.as_secs_f64()))
    }
}
