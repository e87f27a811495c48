//! Errors with which the broker refuses a request: a number on the wire for each, and a message that says what to do.

use crate::os::socket_path::user_text;
use crate::protocol::name::NameError;
use crate::protocol::types::{DecodeError, MemoryKind, VERSION};
use std::fmt;

/// Why the broker refused a request. [`std::fmt::Display`] explains the fields.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the broker did not understand the message: update the program or the broker")]
    Malformed,
    #[error("the broker speaks protocol version {theirs}, this program version {VERSION}: update the older one")]
    Version { theirs: u32 },
    #[error("{0}")]
    InvalidName(#[from] NameError),
    #[error("no such lease: it was returned, given away, or never belonged to this process")]
    NoLease,
    #[error("there is no such name")]
    NoName,
    #[error("the name belongs to another user")]
    ForeignName,
    #[error("the name is taken: drop it first, lease it for writing, or use `freehold put --replace`")]
    NameTaken,
    #[error("the name is in use: {readers} readers, {writers} writers")]
    Busy { readers: u32, writers: u32 },
    #[error("no such segment, or this process holds no lease in it")]
    NoSegment,
    #[error("the lease is read-only")]
    ReadOnly,
    #[error(
        "the user's quota is {} with {} in use, {} requested: drop a name, or raise the quota with `freehold quota SIZE`",
        Size(*.limit_bytes), Size(*.had_bytes), Size(*.wanted_bytes)
    )]
    UserQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error(
        "the quota of this process is {} with {} in use, {} requested: return a lease first",
        Size(*.limit_bytes), Size(*.had_bytes), Size(*.wanted_bytes)
    )]
    TenantQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error(
        "the broker has {} of {} free, {} requested: drop a name, or serve with more --memory",
        Size(*.free_bytes), Size(*.budget_bytes), Size(*.wanted_bytes)
    )]
    OutOfMemory { free_bytes: u64, budget_bytes: u64, wanted_bytes: u64 },
    #[error("limit of {limit} reached: return or drop some first")]
    TooMany { limit: u64 },
    #[error("no such process is connected to the broker")]
    NoTenant,
    #[error("the receiver has {waiting} leases to accept: give it more when it has accepted some")]
    ReceiverBusy { waiting: u32 },
    #[error("the device failed with code {code}")]
    Device { code: u32 },
    #[error("the GPU is lost or broken (code {code}): check `nvidia-smi`, then restart the broker")]
    DeviceGone { code: u32 },
    #[error("zero bytes requested: expected at least one")]
    ZeroBytes,
    #[error("only {} may do this", user_text(*.user))]
    NotAllowed { user: u32 },
    #[error("the broker has no descriptors left: end processes that use it, or start it with a higher `ulimit -n`")]
    NoDescriptors,
    #[error("the host memory of that name has {}: open it with that size", Size(*.bytes))]
    SizeMismatch { bytes: u64 },
    #[error("the name was dropped while this lease was being written: copy the data to a new lease and publish that")]
    NameDropped,
    #[error("{}", wrong_memory_text(*.memory))]
    WrongMemoryKind { memory: MemoryKind },
    #[error(
        "the user's quota is {} of host memory with {} in use, {} requested: drop a name, or raise the quota with `freehold \
        quota SIZE --host`",
        Size(*.limit_bytes), Size(*.had_bytes), Size(*.wanted_bytes)
    )]
    HostQuota { limit_bytes: u64, had_bytes: u64, wanted_bytes: u64 },
    #[error("a quota below {} allows no allocation: expected more, or none to remove the quota", Size(*.least_bytes))]
    QuotaTooSmall { least_bytes: u64 },
    #[error(
        "{} would be lost: drop {}, or use `freehold stop --force`",
        published_text(*.names, *.modules, *.bytes),
        pronoun(*.names, *.modules)
    )]
    NamesPublished { names: u32, modules: u32, bytes: u64 },
    #[error("the lease belongs to another name: publish it under that one, or copy the data to a new lease")]
    WrongName,
    #[error("there is no such module")]
    NoModule,
    #[error("a module of that name exists with a different text: drop it first")]
    ModuleTaken,
    #[error("a module must be a sealed memfd of 1 to {limit_bytes} bytes")]
    InvalidModule { limit_bytes: u64 },
    #[error("only a worker of the broker may send this request")]
    NotAWorker,
    #[error("the lease has ended")]
    LeaseEnded,
    #[error("the lease belongs to another process")]
    ForeignLease,
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A number of bytes for people: in a unit if it is whole there, otherwise exactly and in a unit.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|&(unit, _)| self.0 >= unit) {
            Some((unit, name)) if self.0.is_multiple_of(unit) => write!(f, "{} {name}", self.0 / unit),
            Some((unit, name)) => write!(f, "{} bytes ({:.1} {name})", self.0, self.0 as f64 / unit as f64),
            None => write!(f, "{} {}", self.0, if self.0 == 1 { "byte" } else { "bytes" }),
        }
    }
}

fn published_text(names: u32, modules: u32, bytes: u64) -> String {
    let count = |number: u32, noun: &str| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    let (names_text, modules_text) =
        (format!("{} under {}", Size(bytes), count(names, "name")), count(modules, "module"));
    match (names, modules) {
        (_, 0) => names_text,
        (0, _) => modules_text,
        _ => format!("{names_text}, and {modules_text},"),
    }
}

fn pronoun(names: u32, modules: u32) -> &'static str {
    if matches!((names, modules), (1, 0) | (0, 1)) { "it" } else { "them" }
}

fn wrong_memory_text(memory: MemoryKind) -> &'static str {
    match memory {
        MemoryKind::Device => "the name refers to device memory: lease it",
        MemoryKind::Host => "the name refers to host memory, which is not leased: open it with `Broker::open_host`",
    }
}

impl RequestError {
    /// Encodes the kind of the message and its numbers.
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
            Self::NamesPublished { names, modules, bytes } => (228, [u64::from(names), bytes, u64::from(modules)]),
            Self::NoModule => (229, [0; 3]),
            Self::ModuleTaken => (230, [0; 3]),
            Self::InvalidModule { limit_bytes } => (231, [limit_bytes, 0, 0]),
            Self::NotAWorker => (232, [0; 3]),
            Self::LeaseEnded => (233, [0; 3]),
            Self::ForeignLease => (234, [0; 3]),
            Self::TenantQuota { limit_bytes, had_bytes, wanted_bytes } => (220, [limit_bytes, had_bytes, wanted_bytes]),
        }
    }

    /// Decodes an error reply.
    ///
    /// # Errors
    /// [`DecodeError`] for a kind that no broker of this version sends.
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
            228 => Self::NamesPublished { names: first as u32, modules: third as u32, bytes: second },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable_and_exact() {
        let sizes = [0, 1, 8, 1024, 8193, 64 << 20, (64 << 20) + 1, 3 << 40].map(|bytes| Size(bytes).to_string());
        assert_eq!(
            sizes,
            [
                "0 bytes",
                "1 byte",
                "8 bytes",
                "1 KiB",
                "8193 bytes (8.0 KiB)",
                "64 MiB",
                "67108865 bytes (64.0 MiB)",
                "3 TiB"
            ]
        );
    }
}
