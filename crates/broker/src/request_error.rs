//! Why the broker did not do what it was asked: a number for each reason, and a sentence that says what to do.

use crate::name::NameError;
use crate::wire::{DecodeError, MemoryKind, VERSION};
use std::fmt;

/// Why not. What the numbers mean is said by [`std::fmt::Display`].
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the broker did not understand the message: update the program or the broker")]
    Malformed,
    #[error(
        "the broker speaks version {theirs} of the protocol, and this program {VERSION}: update the older of the two"
    )]
    Version { theirs: u32 },
    #[error("{0}")]
    InvalidName(#[from] NameError),
    #[error("there is no such lease: it was returned, given away, or never this process's")]
    NoLease,
    #[error("there is no such name")]
    NoName,
    #[error("the name is another user's")]
    ForeignName,
    #[error("the name is taken: drop it first, or lease it for writing")]
    NameTaken,
    #[error("the name is in use: {readers} read it, {writers} write it")]
    Busy { readers: u32, writers: u32 },
    #[error("there is no such segment, or nothing of this process in it")]
    NoSegment,
    #[error("the lease is for reading")]
    ReadOnly,
    #[error(
        "the user may have {limit_bytes} bytes and has {had_bytes}: {wanted_bytes} more were asked for; drop a name, or raise the \
        quota with `freehold quota SIZE`"
    )]
    UserQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error(
        "this process may have {limit_bytes} bytes and has {had_bytes}: {wanted_bytes} more were asked for; return some first"
    )]
    TenantQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error(
        "the broker has {free_bytes} bytes left of {budget_bytes}: {wanted_bytes} were asked for; drop a name, or serve with more \
        --memory"
    )]
    OutOfMemory { free_bytes: u64, budget_bytes: u64, wanted_bytes: u64 },
    #[error("this is more than {limit} at once")]
    TooMany { limit: u64 },
    #[error("there is no such process at the broker")]
    NoTenant,
    #[error("the other process does not take what it was given: it has {waiting} leases to look at")]
    ReceiverBusy { waiting: u32 },
    #[error("the device refused with code {code}")]
    Device { code: u32 },
    #[error(
        "the GPU is gone or broken (code {code}): look at `nvidia-smi`, and start the broker again when it is back"
    )]
    DeviceGone { code: u32 },
    #[error("no bytes were asked for")]
    ZeroBytes,
    #[error("only user {user} may do that")]
    NotAllowed { user: u32 },
    #[error("the broker has no descriptors left: end processes that use it, or start it with a higher `ulimit -n`")]
    NoDescriptors,
    #[error("the memory of that name has {bytes} bytes")]
    SizeMismatch { bytes: u64 },
    #[error("the name was dropped while this lease was written: copy it to memory of its own, and publish that")]
    NameDropped,
    #[error("{}", wrong_memory_text(*.memory))]
    WrongMemoryKind { memory: MemoryKind },
    #[error(
        "the user may have {limit_bytes} bytes of the host's memory and has {had_bytes}: {wanted_bytes} more were asked for; drop a \
        name, or raise the quota with `freehold quota SIZE --host`"
    )]
    HostQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error("nothing can be had with a quota of less than {least_bytes} bytes: set a larger one, or take it away")]
    QuotaTooSmall { least_bytes: u64 },
    #[error("{bytes} bytes under {} would be gone: drop what has a name, or say `freehold stop --force`", names_text(*.names))]
    NamesPublished { names: u64, bytes: u64 },
    #[error("the lease is of another name: publish it under that one, or copy it to memory of its own")]
    WrongName,
    #[error("there is no such module")]
    NoModule,
    #[error("a module of that name is there, with another text: drop it first")]
    ModuleTaken,
    #[error("a module is a sealed file in memory of 1 to {limit_bytes} bytes")]
    InvalidModule { limit_bytes: u64 },
    #[error("only a worker of the broker's may ask that")]
    NotAWorker,
    #[error("the lease is over")]
    LeaseEnded,
    #[error("the lease is another process's")]
    ForeignLease,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn names_text(names: u64) -> String {
    if names == 1 { "1 name".to_owned() } else { format!("{names} names") }
}

fn wrong_memory_text(memory: MemoryKind) -> &'static str {
    match memory {
        MemoryKind::Device => "the name is of memory of the device: lease it",
        MemoryKind::Host => "the name is of memory of the host, which is not leased: open it with `Broker::open_host`",
    }
}

impl RequestError {
    /// The kind of the message, and its numbers.
    pub(crate) fn to_words(self) -> (u16, [u64; 3]) {
        match self {
            Self::Malformed => (201, [0; 3]),
            Self::Version { theirs } => (202, [u64::from(theirs), 0, 0]),
            Self::InvalidName(wrong) => {
                let (rule, first, second) = match wrong {
                    NameError::Empty => (0, 0, 0),
                    NameError::TooLong { bytes } => (1, bytes, 0),
                    NameError::PartLength { part, bytes } => (2, part, bytes),
                    NameError::InvalidByte { at } => (3, at, 0),
                    NameError::InvalidStart { part } => (4, part, 0),
                };
                (203, [rule, first as u64, second as u64])
            }
            Self::NoLease => (204, [0; 3]),
            Self::NoName => (205, [0; 3]),
            Self::ForeignName => (206, [0; 3]),
            Self::NameTaken => (207, [0; 3]),
            Self::Busy { readers, writers } => (208, [u64::from(readers), u64::from(writers), 0]),
            Self::NoSegment => (209, [0; 3]),
            Self::ReadOnly => (210, [0; 3]),
            Self::UserQuota { limit_bytes, had_bytes, wanted_bytes } => (211, [limit_bytes, had_bytes, wanted_bytes]),
            Self::OutOfMemory { free_bytes, budget_bytes, wanted_bytes } => {
                (212, [free_bytes, budget_bytes, wanted_bytes])
            }
            Self::TooMany { limit } => (213, [limit, 0, 0]),
            Self::NoTenant => (214, [0; 3]),
            Self::ReceiverBusy { waiting } => (215, [u64::from(waiting), 0, 0]),
            Self::Device { code } => (216, [u64::from(code), 0, 0]),
            Self::ZeroBytes => (217, [0; 3]),
            Self::NotAllowed { user } => (218, [u64::from(user), 0, 0]),
            Self::SizeMismatch { bytes } => (219, [bytes, 0, 0]),
            Self::NoDescriptors => (221, [0; 3]),
            Self::DeviceGone { code } => (222, [u64::from(code), 0, 0]),
            Self::NameDropped => (223, [0; 3]),
            Self::WrongName => (224, [0; 3]),
            Self::WrongMemoryKind { memory } => (225, [memory.to_word(), 0, 0]),
            Self::HostQuota { limit_bytes, had_bytes, wanted_bytes } => (226, [limit_bytes, had_bytes, wanted_bytes]),
            Self::QuotaTooSmall { least_bytes } => (227, [least_bytes, 0, 0]),
            Self::NamesPublished { names, bytes } => (228, [names, bytes, 0]),
            Self::NoModule => (229, [0; 3]),
            Self::ModuleTaken => (230, [0; 3]),
            Self::InvalidModule { limit_bytes } => (231, [limit_bytes, 0, 0]),
            Self::NotAWorker => (232, [0; 3]),
            Self::LeaseEnded => (233, [0; 3]),
            Self::ForeignLease => (234, [0; 3]),
            Self::TenantQuota { limit_bytes, had_bytes, wanted_bytes } => (220, [limit_bytes, had_bytes, wanted_bytes]),
        }
    }

    /// # Errors
    /// [`NoMessage`] for a kind that no broker of this version sends.
    pub(crate) fn from_words(kind: u16, numbers: [u64; 3]) -> Result<Self, DecodeError> {
        let [first, second, third] = numbers;
        Ok(match kind {
            201 => Self::Malformed,
            202 => Self::Version { theirs: first as u32 },
            203 => Self::InvalidName(match first {
                0 => NameError::Empty,
                1 => NameError::TooLong { bytes: second as usize },
                2 => NameError::PartLength { part: second as usize, bytes: third as usize },
                3 => NameError::InvalidByte { at: second as usize },
                4 => NameError::InvalidStart { part: second as usize },
                _ => return Err(DecodeError),
            }),
            204 => Self::NoLease,
            205 => Self::NoName,
            206 => Self::ForeignName,
            207 => Self::NameTaken,
            208 => Self::Busy { readers: first as u32, writers: second as u32 },
            209 => Self::NoSegment,
            210 => Self::ReadOnly,
            211 => Self::UserQuota { limit_bytes: first, had_bytes: second, wanted_bytes: third },
            212 => Self::OutOfMemory { free_bytes: first, budget_bytes: second, wanted_bytes: third },
            213 => Self::TooMany { limit: first },
            214 => Self::NoTenant,
            215 => Self::ReceiverBusy { waiting: first as u32 },
            216 => Self::Device { code: first as u32 },
            217 => Self::ZeroBytes,
            218 => Self::NotAllowed { user: first as u32 },
            219 => Self::SizeMismatch { bytes: first },
            221 => Self::NoDescriptors,
            222 => Self::DeviceGone { code: first as u32 },
            223 => Self::NameDropped,
            224 => Self::WrongName,
            225 => Self::WrongMemoryKind { memory: MemoryKind::from_word(first)? },
            226 => Self::HostQuota { limit_bytes: first, had_bytes: second, wanted_bytes: third },
            227 => Self::QuotaTooSmall { least_bytes: first },
            228 => Self::NamesPublished { names: first, bytes: second },
            229 => Self::NoModule,
            230 => Self::ModuleTaken,
            231 => Self::InvalidModule { limit_bytes: first },
            232 => Self::NotAWorker,
            233 => Self::LeaseEnded,
            234 => Self::ForeignLease,
            220 => Self::TenantQuota { limit_bytes: first, had_bytes: second, wanted_bytes: third },
            _ => return Err(DecodeError),
        })
    }
}
