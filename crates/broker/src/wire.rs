//! What tenants and broker say to each other, as bytes. `docs/protocol.md` is this page in words.
//!
//! A message is 64 bytes: eight words, little end first. Over the ring that is all; over the socket text may follow, and
//! descriptors go beside it. Nothing here believes anything: bytes become a message, or an error that says why not.

use crate::name::{Name, NameError};
use crate::ring::Slot;

pub use crate::request_error::RequestError;

const _: () = assert!(cfg!(target_endian = "little"), "words travel as they lie in memory");

/// The version of the protocol. Both sides say theirs, and they are the same.
pub const VERSION: u32 = 3;

/// The first four bytes of a greeting: `FRHD`.
const MAGIC: u32 = u32::from_le_bytes(*b"FRHD");

/// The longest text behind a message.
pub const TAIL_BYTES_MAX: usize = 4096 - 64;

/// A number that names one thing for as long as it is: the place in its table, and which of all that were there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// What a lease lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// Which memory something is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    Device,
    Host,
}

/// What becomes of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// It is only asked for.
    Keep,
    Set {
        bytes: u64,
    },
    /// The user may have what any other may.
    Clear,
}

/// What becomes of a name whose writer dies before it has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A writer gets memory of its own, and what it publishes takes the name's place: who reads meanwhile reads what was there
    /// before, and a writer's death changes nothing.
    Restore,
    /// One writer or many readers, in place. A writer's death drops the name.
    Drop,
    /// Whoever leases it reads and writes in place, with others. A death changes nothing.
    Open,
}

/// A fence in work of a process: the word of its semaphores that its streams write, and the value that tells of it. The value 0 is
/// none: there is nothing to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    /// Whose semaphores. Work of one that is gone has passed.
    pub tenant: Id,
    /// Of 16 bits.
    pub semaphore: u32,
    /// Of 48 bits.
    pub value: u64,
}

/// What a tenant asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection, and the first alone.
    Hello { version: u32 },
    /// Memory of its own.
    Reserve { bytes: u64 },
    /// What has a name, by the number that [`Request::Find`] told.
    Lease { name: Id, access: Access },
    /// The lease is over, and its memory somebody else's when the fence has passed.
    Return { lease: Id, fence: Fence },
    /// The lease is another tenant's from now on, ready when the fence has passed.
    Give { lease: Id, to: Id, fence: Fence },
    /// The segment is mapped no more.
    Detach { segment: Id },
    /// The descriptor of a segment in which the tenant has a lease.
    Attach { segment: Id },
    /// The descriptor of another tenant's semaphores.
    Semaphores { tenant: Id },
    /// Leased memory gets a name, ready when the fence has passed. The lease stays.
    Publish { lease: Id, policy: Policy, fence: Fence, name: Name },
    /// The number of a name.
    Find { name: Name },
    /// All names behind this one, as many as fit.
    List { after: Option<Name> },
    /// The name is no more. Its memory goes with the last lease of it.
    Drop { name: Name },
    /// What a user may have, from now on.
    Quota { user: u32, memory: MemoryKind, change: QuotaChange },
    /// Sums of everything.
    Stats,
    /// Memory of the host under a name: made if there is none and bytes are asked for.
    Host { bytes: u64, name: Name },
    /// The tenant has given up everything and goes.
    Bye,
    /// The broker ends, and its fdstore with it. Names are lost only where that is wanted.
    Stop { is_forced: bool },
    /// A worker that runs the tenant's kernels: its own, or, with a label that is not zero, that of all processes of its user that
    /// say the same.
    OpenSession { label: u64 },
    /// A second lease of what a tenant has leased, for the worker that serves it.
    Borrow { lease: Id, of: Id },
    /// A module's text, in the descriptor beside it, gets a name; it has so much memory of the device for itself. Others see it when a worker has proved it.
    PutModule { bytes: u64, device_bytes: u64, hash: Hash, name: Name },
    /// A module, by its number, or by its name where that is said.
    Module { id: Id, name: Option<Name> },
    /// All modules behind this one, as many as fit.
    Modules { after: Option<Name> },
    /// The module was dropped. Workers of its user unload it after the calls queued before.
    DropModule { name: Name },
    /// The worker's driver has compiled a module.
    Compiled { module: Id },
    /// The worker has a module loaded no more: what that took of the device is free.
    Unload { module: Id },
    /// The worker has carried out, or refused, all that a tenant which goes had called. It has nothing of that one any more.
    Drained { tenant: Id },
}

/// What a module's bytes are, by SHA-256, its first byte the lowest of the first word.
pub type Hash = [u64; 4];

/// What the broker answers, or tells unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Who the tenant is. Descriptors: its ring, its semaphores, the broker's doorbell.
    Welcome {
        tenant: Id,
        /// The UUID of the device, its first byte the lowest. 0 where it is not known.
        device: u128,
    },
    /// A lease, ready when the fence has passed.
    Granted {
        lease: Id,
        segment: Id,
        offset: u64,
        bytes: u64,
        fence: Fence,
        access: Access,
    },
    Done,
    /// A number: of a name, of bytes.
    Number {
        id: Id,
        bytes: u64,
    },
    /// Text, in the message's tail.
    Text,
    /// With a descriptor beside it, of so many bytes.
    Descriptor {
        bytes: u64,
    },
    Stats(BrokerStats),
    /// Unasked: another tenant gave this one a lease.
    Given {
        lease: Id,
        segment: Id,
        offset: u64,
        bytes: u64,
        fence: Fence,
        from: Id,
    },
    /// Unasked: the process that gave a lease to this one ended before its work with it had passed. What is in it may be half written.
    Unfinished {
        lease: Id,
    },
    /// Unasked: nobody has anything in a segment any more. It is to be unmapped, and detached.
    Unmap {
        segment: Id,
    },
    /// Unasked, over the socket: another broker serves from now on. Who waits for a reply asks again.
    Resumed,
    /// The worker, and which of its tenants this one is. Descriptors: the ring of calls, the worker's semaphores, its doorbell.
    SessionOpened {
        worker: Id,
        session_index: u32,
    },
    /// Unasked: what a borrowed lease was borrowed of is over. It is to be returned behind the work with it.
    Recall {
        lease: Id,
    },
    /// Unasked: a module that a worker has loaded was dropped. It is to be unloaded behind the calls that were put in before.
    Unload {
        module: Id,
    },
    /// A module. Beside it the descriptor of its text.
    Module {
        id: Id,
        bytes: u64,
        hash: Hash,
        device_bytes: u64,
    },
    Error(RequestError),
}

/// Sums of everything, in bytes but for the last two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStats {
    pub budget_bytes: u64,
    pub segment_bytes: u64,
    pub leased_bytes: u64,
    pub named_bytes: u64,
    /// Given up, and not yet anybody else's.
    pub reclaiming_bytes: u64,
    pub tenants: u32,
    pub names: u32,
    pub leases: u32,
}

/// A message, with the number that a reply repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<M> {
    pub number: u32,
    /// Asked before, of a broker that is gone: what is done already is no error.
    pub is_retry: bool,
    pub message: M,
}

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

const VALUE_BITS: u32 = 48;
const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;

const RETRY: u64 = 1 << 16;

/// Whether a message of the broker's, by its first word, answers no request.
pub(crate) fn is_notification(first: u64) -> bool {
    matches!(first as u16, 109 | 110 | 113 | 115 | 116)
}

struct SlotBuilder(Slot);

impl SlotBuilder {
    fn begin(kind: u16, number: u32) -> Self {
        let mut slot = Slot::default();
        slot[0] = u64::from(kind) | u64::from(number) << 32;
        Self(slot)
    }

    fn with(mut self, words: &[u64]) -> Slot {
        self.0[1..=words.len()].copy_from_slice(words);
        self.0
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
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

impl Access {
    fn to_word(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
        }
    }

    fn from_word(word: u64) -> Result<Self, DecodeError> {
        match word {
            0 => Ok(Self::Read),
            1 => Ok(Self::Write),
            _ => Err(DecodeError),
        }
    }
}

impl MemoryKind {
    /// Nothing can be had with less: a segment of the device, or a header of the host's and a page behind it.
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

impl Frame<Request> {
    /// The message and its text.
    pub fn encode(&self) -> (Slot, &str) {
        let (kind, words, tail): (u16, &[u64], &str) = match &self.message {
            Request::Hello { version } => (1, &[pair(MAGIC, *version)], ""),
            Request::Reserve { bytes } => (2, &[*bytes], ""),
            Request::Lease { name, access } => (3, &[name.0, access.to_word()], ""),
            Request::Return { lease, fence } => {
                let [at, value] = fence.to_words();
                (4, &[lease.0, at, value], "")
            }
            Request::Give { lease, to, fence } => {
                let [at, value] = fence.to_words();
                (5, &[lease.0, at, value, to.0], "")
            }
            Request::Detach { segment } => (6, &[segment.0], ""),
            Request::Attach { segment } => (7, &[segment.0], ""),
            Request::Semaphores { tenant } => (8, &[tenant.0], ""),
            Request::Publish { lease, policy, fence, name } => {
                let [at, value] = fence.to_words();
                (9, &[lease.0, at, value, policy.to_word()], name.as_str())
            }
            Request::Find { name } => (10, &[], name.as_str()),
            Request::List { after } => (11, &[], after.as_ref().map_or("", Name::as_str)),
            Request::Drop { name } => (12, &[], name.as_str()),
            Request::Quota { user, memory, change } => {
                let (what, bytes) = match *change {
                    QuotaChange::Keep => (0, 0),
                    QuotaChange::Set { bytes } => (1, bytes),
                    QuotaChange::Clear => (2, 0),
                };
                (13, &[u64::from(*user), memory.to_word(), what, bytes], "")
            }
            Request::Stats => (14, &[], ""),
            Request::Host { bytes, name } => (15, &[*bytes], name.as_str()),
            Request::Bye => (16, &[], ""),
            Request::Stop { is_forced } => (17, &[u64::from(*is_forced)], ""),
            Request::OpenSession { label } => (18, &[*label], ""),
            Request::Borrow { lease, of } => (19, &[lease.0, of.0], ""),
            Request::PutModule { bytes, device_bytes, hash: [first, second, third, fourth], name } => {
                (20, &[*bytes, *first, *second, *third, *fourth, *device_bytes], name.as_str())
            }
            Request::Module { id, name } => (21, &[id.0], name.as_ref().map_or("", Name::as_str)),
            Request::Modules { after } => (22, &[], after.as_ref().map_or("", Name::as_str)),
            Request::DropModule { name } => (23, &[], name.as_str()),
            Request::Compiled { module } => (24, &[module.0], ""),
            Request::Drained { tenant } => (25, &[tenant.0], ""),
            Request::Unload { module } => (26, &[module.0], ""),
        };
        let mut slot = SlotBuilder::begin(kind, self.number).with(words);
        if self.is_retry {
            slot[0] |= RETRY;
        }
        (slot, tail)
    }

    /// # Errors
    /// The number of the request, and what to answer to it.
    pub fn decode(slot: &Slot, tail: &[u8]) -> Result<Self, (u32, RequestError)> {
        let number = high(slot[0]);
        let malformed = |DecodeError| (number, RequestError::Malformed);
        if slot[0] & 0xfffe_0000 != 0 {
            return Err(malformed(DecodeError));
        }
        let name = || {
            let text = std::str::from_utf8(tail).map_err(|error| NameError::InvalidByte { at: error.valid_up_to() });
            text.and_then(Name::parse).map_err(|wrong| (number, RequestError::InvalidName(wrong)))
        };
        let name_or_none = || if tail.is_empty() { Ok(None) } else { name().map(Some) };
        let fence = Fence::from_words([slot[2], slot[3]]);
        let (message, words, has_tail) = match slot[0] as u16 {
            1 if low(slot[1]) == MAGIC => (Request::Hello { version: high(slot[1]) }, 1, false),
            2 => (Request::Reserve { bytes: slot[1] }, 1, false),
            3 => {
                (Request::Lease { name: Id(slot[1]), access: Access::from_word(slot[2]).map_err(malformed)? }, 2, false)
            }
            4 => (Request::Return { lease: Id(slot[1]), fence }, 3, false),
            5 => (Request::Give { lease: Id(slot[1]), to: Id(slot[4]), fence }, 4, false),
            6 => (Request::Detach { segment: Id(slot[1]) }, 1, false),
            7 => (Request::Attach { segment: Id(slot[1]) }, 1, false),
            8 => (Request::Semaphores { tenant: Id(slot[1]) }, 1, false),
            9 => {
                let policy = Policy::from_word(slot[4]).map_err(malformed)?;
                (Request::Publish { lease: Id(slot[1]), policy, fence, name: name()? }, 4, true)
            }
            10 => (Request::Find { name: name()? }, 0, true),
            11 => (Request::List { after: name_or_none()? }, 0, true),
            12 => (Request::Drop { name: name()? }, 0, true),
            13 => {
                let user = u32::try_from(slot[1]).map_err(|_| malformed(DecodeError))?;
                let (change, words) = match slot[3] {
                    0 => (QuotaChange::Keep, 3),
                    1 => (QuotaChange::Set { bytes: slot[4] }, 4),
                    2 => (QuotaChange::Clear, 3),
                    _ => return Err(malformed(DecodeError)),
                };
                let memory = MemoryKind::from_word(slot[2]).map_err(malformed)?;
                (Request::Quota { user, memory, change }, words, false)
            }
            14 => (Request::Stats, 0, false),
            15 => (Request::Host { bytes: slot[1], name: name()? }, 1, true),
            16 => (Request::Bye, 0, false),
            17 if slot[1] <= 1 => (Request::Stop { is_forced: slot[1] == 1 }, 1, false),
            18 => (Request::OpenSession { label: slot[1] }, 1, false),
            19 => (Request::Borrow { lease: Id(slot[1]), of: Id(slot[2]) }, 2, false),
            20 => {
                let hash = [slot[2], slot[3], slot[4], slot[5]];
                (Request::PutModule { bytes: slot[1], device_bytes: slot[6], hash, name: name()? }, 6, true)
            }
            21 => (Request::Module { id: Id(slot[1]), name: name_or_none()? }, 1, true),
            22 => (Request::Modules { after: name_or_none()? }, 0, true),
            23 => (Request::DropModule { name: name()? }, 0, true),
            24 => (Request::Compiled { module: Id(slot[1]) }, 1, false),
            25 => (Request::Drained { tenant: Id(slot[1]) }, 1, false),
            26 => (Request::Unload { module: Id(slot[1]) }, 1, false),
            _ => return Err(malformed(DecodeError)),
        };
        // What means nothing is zero: a later version may give it a meaning.
        if slot[1 + words..].iter().any(|&word| word != 0) || (!has_tail && !tail.is_empty()) {
            return Err(malformed(DecodeError));
        }
        Ok(Self { number, is_retry: slot[0] & RETRY != 0, message })
    }
}

impl Frame<Reply> {
    pub fn encode(&self) -> Slot {
        let words = |kind: u16, words: &[u64]| SlotBuilder::begin(kind, self.number).with(words);
        match &self.message {
            Reply::Welcome { tenant, device } => words(101, &[tenant.0, *device as u64, (*device >> 64) as u64]),
            Reply::Granted { lease, segment, offset, bytes, fence, access } => {
                let [at, value] = fence.to_words();
                words(102, &[lease.0, segment.0, *offset, *bytes, at, value, access.to_word()])
            }
            Reply::Done => words(104, &[]),
            Reply::Number { id, bytes } => words(105, &[id.0, *bytes]),
            Reply::Text => words(106, &[]),
            Reply::Descriptor { bytes } => words(107, &[*bytes]),
            Reply::Stats(stats) => words(
                108,
                &[
                    stats.budget_bytes,
                    stats.segment_bytes,
                    stats.leased_bytes,
                    stats.named_bytes,
                    stats.reclaiming_bytes,
                    pair(stats.tenants, stats.names),
                    u64::from(stats.leases),
                ],
            ),
            Reply::Given { lease, segment, offset, bytes, fence, from } => {
                let [at, value] = fence.to_words();
                words(109, &[lease.0, segment.0, *offset, *bytes, at, value, from.0])
            }
            Reply::Unmap { segment } => words(110, &[segment.0]),
            Reply::Resumed => words(111, &[]),
            Reply::SessionOpened { worker, session_index } => words(112, &[worker.0, u64::from(*session_index)]),
            Reply::Recall { lease } => words(113, &[lease.0]),
            Reply::Module { id, bytes, hash: [first, second, third, fourth], device_bytes } => {
                words(114, &[id.0, *bytes, *first, *second, *third, *fourth, *device_bytes])
            }
            Reply::Unload { module } => words(115, &[module.0]),
            Reply::Unfinished { lease } => words(116, &[lease.0]),
            Reply::Error(error) => {
                let (kind, numbers) = error.to_words();
                words(kind, &numbers)
            }
        }
    }

    /// # Errors
    /// [`DecodeError`] for bytes that no broker of this version sends.
    pub fn decode(slot: &Slot) -> Result<Self, DecodeError> {
        let fence = |at: usize| Fence::from_words([slot[at], slot[at + 1]]);
        let message = match slot[0] as u16 {
            101 => Reply::Welcome { tenant: Id(slot[1]), device: u128::from(slot[2]) | u128::from(slot[3]) << 64 },
            102 => Reply::Granted {
                lease: Id(slot[1]),
                segment: Id(slot[2]),
                offset: slot[3],
                bytes: slot[4],
                fence: fence(5),
                access: Access::from_word(slot[7])?,
            },
            104 => Reply::Done,
            105 => Reply::Number { id: Id(slot[1]), bytes: slot[2] },
            106 => Reply::Text,
            107 => Reply::Descriptor { bytes: slot[1] },
            108 => Reply::Stats(BrokerStats {
                budget_bytes: slot[1],
                segment_bytes: slot[2],
                leased_bytes: slot[3],
                named_bytes: slot[4],
                reclaiming_bytes: slot[5],
                tenants: low(slot[6]),
                names: high(slot[6]),
                leases: low(slot[7]),
            }),
            109 => Reply::Given {
                lease: Id(slot[1]),
                segment: Id(slot[2]),
                offset: slot[3],
                bytes: slot[4],
                fence: fence(5),
                from: Id(slot[7]),
            },
            110 => Reply::Unmap { segment: Id(slot[1]) },
            111 => Reply::Resumed,
            112 => Reply::SessionOpened { worker: Id(slot[1]), session_index: low(slot[2]) },
            113 => Reply::Recall { lease: Id(slot[1]) },
            114 => {
                let hash = [slot[3], slot[4], slot[5], slot[6]];
                Reply::Module { id: Id(slot[1]), bytes: slot[2], hash, device_bytes: slot[7] }
            }
            115 => Reply::Unload { module: Id(slot[1]) },
            116 => Reply::Unfinished { lease: Id(slot[1]) },
            kind => Reply::Error(RequestError::from_words(kind, [slot[1], slot[2], slot[3]])?),
        };
        Ok(Self { number: high(slot[0]), is_retry: false, message })
    }
}
