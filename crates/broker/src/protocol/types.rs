//! The values that messages carry, with their encoding as words: ids, fences, kinds of memory, and the limits that both
//! sides use.

/// Version of the protocol. Both sides send theirs, which must be equal.
pub const VERSION: u32 = 4;

/// Semaphores of a tenant.
pub(crate) const SEMAPHORES: u32 = 512;

/// Streams of a tenant at its worker.
pub(crate) const STREAMS: u32 = 16;

/// The most tenants of one worker. Each has one of the worker's semaphores per stream, after those that the worker uses
/// as a tenant itself.
pub(crate) const SESSIONS_MAX: u32 = 31;

/// Bit of a semaphore: its process has ended. The bits below keep the last value.
pub(crate) const PROCESS_ENDED: u64 = 1 << 62;

/// Identifies one object for its lifetime: an index into its table and a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// The access that a lease permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// Device memory or host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Memory of the device.
    Device,
    /// Memory of the host.
    Host,
}

/// A change of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// No change: the quota is only read.
    Keep,
    /// Sets the quota.
    Set {
        /// The quota.
        bytes: u64,
    },
    /// Remove the quota, so that the default applies.
    Clear,
}

/// What happens to a name when its writer dies before it has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A writer gets new memory, which replaces the old when it is published. Readers keep the old version, and the
    /// death of a writer changes nothing.
    Restore,
    /// One writer or many readers, in place. The death of a writer drops the name.
    Drop,
    /// Every lease reads and writes in place, together with others. A death changes nothing.
    Open,
}

/// A fence in the work of a process: one of its semaphores, and the value that its stream writes there. The value 0
/// means that there is nothing to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// The owner of the semaphore. Fences of a tenant that is gone are complete.
    pub tenant: Id,
    /// 16 bits.
    pub semaphore: u32,
    /// 48 bits.
    pub value: u64,
}

/// The SHA-256 of a module's bytes, the first byte lowest in the first word.
pub type Hash = [u64; 4];

/// The bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

const VALUE_BITS: u32 = 48;
const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

/// A word of two halves.
pub(crate) fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The low and the high half of a word.
pub(crate) fn halves(word: u64) -> [u32; 2] {
    [low(word), high(word)]
}

pub(crate) fn low(word: u64) -> u32 {
    word as u32
}

pub(crate) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

impl Fence {
    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.tenant.0, u64::from(self.semaphore) << VALUE_BITS | self.value & VALUE_MAX]
    }

    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        Self { tenant: Id(words[0]), semaphore: (words[1] >> VALUE_BITS) as u32, value: words[1] & VALUE_MAX }
    }
}

/// The versions of a name that fit beside the access of a lease.
const VERSION_BITS: u32 = 48;

/// A word with the access of a lease, and the version of the name that it is of, or 0.
pub(crate) fn access_word(access: Access, version: u64) -> u64 {
    access.to_word() | version << (64 - VERSION_BITS)
}

/// The access and the version of such a word.
pub(crate) fn parse_access_word(word: u64) -> Result<(Access, u64), DecodeError> {
    let version = word >> (64 - VERSION_BITS);
    Ok((Access::from_word(word & ((1 << (64 - VERSION_BITS)) - 1))?, version))
}

impl Access {
    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }

    pub(crate) fn from_word(word: u64) -> Result<Self, DecodeError> {
        match word {
            0 => Ok(Self::Read),
            1 => Ok(Self::Write),
            _ => Err(DecodeError),
        }
    }
}

impl MemoryKind {
    /// The smallest useful quota: one segment of the device, or a header and a page of the host.
    pub const fn least_bytes(self) -> u64 {
        match self {
            Self::Device => 2 << 20,
            Self::Host => 8 << 10,
        }
    }

    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Device => 0,
            Self::Host => 1,
        }
    }

    pub(crate) fn from_word(word: u64) -> Result<Self, DecodeError> {
        match word {
            0 => Ok(Self::Device),
            1 => Ok(Self::Host),
            _ => Err(DecodeError),
        }
    }
}

impl Policy {
    /// Returns its name, such as `restore`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Drop => "drop",
            Self::Open => "open",
        }
    }

    /// Returns the policy with a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Restore, Self::Drop, Self::Open].into_iter().find(|policy| policy.name() == name)
    }

    pub(crate) fn to_word(self) -> u64 {
        match self {
            Self::Restore => 0,
            Self::Drop => 1,
            Self::Open => 2,
        }
    }

    pub(crate) fn from_word(word: u64) -> Result<Self, DecodeError> {
        match word {
            0 => Ok(Self::Restore),
            1 => Ok(Self::Drop),
            2 => Ok(Self::Open),
            _ => Err(DecodeError),
        }
    }
}
