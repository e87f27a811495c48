//! The messages between tenants and broker, as bytes. `docs/protocol.md` specifies them.
//!
//! A message is 64 bytes: eight little-endian words. On the ring that is all; on the socket text and descriptors may
//! follow. The decoder trusts nothing: bytes are a valid message or an error.

use crate::os::seqpacket::Slot;
use crate::protocol::name::{Name, NameError};
use crate::protocol::request_error::RequestError;
use crate::protocol::types::{
    Access, DecodeError, Fence, Hash, Id, MemoryKind, Policy, QuotaChange, access_word, high, low, pair,
    parse_access_word,
};

const _: () = assert!(cfg!(target_endian = "little"), "words are sent in native byte order");

/// The first four bytes of a hello: `FRHD`.
const MAGIC: u32 = u32::from_le_bytes(*b"FRHD");

/// A request of a tenant.
#[allow(missing_docs, reason = "docs/protocol.md describes the words of each message")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message of a connection, and only the first.
    Hello { version: u32 },
    /// Creates a lease of new memory.
    Reserve { bytes: u64 },
    /// Leases a name, by the id that [`Request::Find`] returned. `bytes` is the length of the new memory that a writer
    /// gets under [`Policy::Restore`]; 0 for that of the current version.
    Lease { name: Id, access: Access, bytes: u64 },
    /// Ends a lease. Its memory can be reused when the fence is complete.
    Return { lease: Id, fence: Fence },
    /// Gives a lease to another tenant, ready when the fence is complete.
    Give { lease: Id, to: Id, fence: Fence },
    /// Reports that a segment is unmapped.
    Detach { segment: Id },
    /// Requests the descriptor of a segment in which the tenant has a lease.
    Attach { segment: Id },
    /// Requests the descriptor of another tenant's semaphores.
    Semaphores { tenant: Id },
    /// Publishes leased memory under a name, ready when the fence is complete. The lease stays.
    Publish { lease: Id, policy: Policy, fence: Fence, name: Name },
    /// Looks up the id of a name.
    Find { name: Name },
    /// Lists the names after this one, as many as fit.
    List { after: Option<Name> },
    /// Drops a name. Its memory is freed with the last lease of it.
    Drop { name: Name },
    /// Reads or changes the quota of a user.
    Quota { user: u32, memory: MemoryKind, change: QuotaChange },
    /// Requests the totals.
    Stats,
    /// Opens host memory by name. Creates it if there is none and `bytes` is not 0.
    Host { bytes: u64, name: Name },
    /// Ends the connection. The tenant has returned everything.
    Bye,
    /// Stops the broker and its fdstore. If names or modules are published, this must be forced.
    Stop { is_forced: bool },
    /// Requests a worker for the tenant's kernels: a private one, or, with a nonzero label, the one shared by all
    /// processes of the user with that label.
    OpenSession { label: u64 },
    /// Requests a second lease of memory that a tenant has leased, for the worker that serves the tenant.
    Borrow { lease: Id, of: Id },
    /// Stores the text of a module, whose descriptor is sent with the message, under a name. `device_bytes` is the
    /// device memory of the module's variables. Other tenants see the module when a worker has compiled it.
    PutModule { bytes: u64, device_bytes: u64, hash: Hash, name: Name },
    /// Looks up a module, by its id, or by its name if there is one.
    Module { id: Id, name: Option<Name> },
    /// Lists the modules after this one, as many as fit.
    Modules { after: Option<Name> },
    /// Drops a module. The workers of its user unload it after the calls queued before.
    DropModule { name: Name },
    /// From a worker: its driver has compiled a module.
    Compiled { module: Id },
    /// From a worker: a module is unloaded, and its device memory is free.
    Unload { module: Id },
    /// From a worker: every call of a closing tenant was executed or refused. The worker no longer holds anything of
    /// it.
    Drained { tenant: Id },
}

impl Request {
    /// Returns the name that the request is about.
    pub(crate) fn name(&self) -> Option<&Name> {
        match self {
            Self::Publish { name, .. }
            | Self::Find { name }
            | Self::Drop { name }
            | Self::Host { name, .. }
            | Self::PutModule { name, .. }
            | Self::DropModule { name } => Some(name),
            Self::Module { name, .. } => name.as_ref(),
            _ => None,
        }
    }
}

/// A reply or a notification of the broker.
#[allow(missing_docs, reason = "docs/protocol.md describes the words of each message")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The tenant's id. Descriptors: its ring, its semaphores, the broker's doorbell.
    Welcome {
        tenant: Id,
        /// The UUID of the device, first byte lowest. 0 if it is not known.
        device: u128,
    },
    /// A lease, ready when the fence is complete.
    Granted {
        lease: Id,
        segment: Id,
        offset: u64,
        bytes: u64,
        fence: Fence,
        access: Access,
        /// The version of its name, or 0: see [`Granted::version`](crate::Granted::version).
        version: u64,
    },
    Done,
    /// A number: an id or a number of bytes.
    Number {
        id: Id,
        bytes: u64,
    },
    /// Text, in the tail of the message.
    Text,
    /// A descriptor sent with the message, and its size in bytes.
    Descriptor {
        bytes: u64,
    },
    Stats(BrokerStats),
    /// Notification: another tenant gave this one a lease.
    Given {
        lease: Id,
        segment: Id,
        offset: u64,
        bytes: u64,
        fence: Fence,
        from: Id,
    },
    /// Notification: the giver of a lease died before its work was complete. The contents may be incomplete.
    Unfinished {
        lease: Id,
    },
    /// Notification: no lease is left in a segment. The tenant must unmap and detach it.
    Unmap {
        segment: Id,
    },
    /// Notification, on the socket: another broker serves from now on. Requests without a reply must be repeated.
    Resumed,
    /// The worker, and the index of the tenant's session there. Descriptors: the call ring, the worker's semaphores,
    /// its doorbell.
    SessionOpened {
        worker: Id,
        session_index: u32,
    },
    /// Notification: the lease that this one was borrowed from has ended. The worker must return it after the work that
    /// uses it.
    Recall {
        lease: Id,
    },
    /// Notification: a module that the worker has loaded was dropped. It must be unloaded after the calls that were
    /// queued before.
    Unload {
        module: Id,
    },
    /// A module, with the descriptor of its text.
    Module {
        id: Id,
        bytes: u64,
        hash: Hash,
        device_bytes: u64,
    },
    Error(RequestError),
}

/// Totals of the broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerStats {
    /// The most device memory that the broker may use.
    pub budget_bytes: u64,
    /// The device memory that it uses: the length of all segments.
    pub segment_bytes: u64,
    /// The memory that is leased.
    pub leased_bytes: u64,
    /// The memory that has a name.
    pub named_bytes: u64,
    /// The memory that was returned or dropped and is not reusable yet.
    pub reclaiming_bytes: u64,
    /// How many processes are connected.
    pub tenants: u32,
    /// How many names there are.
    pub names: u32,
    /// How many leases there are.
    pub leases: u32,
}

/// A message with its number, which the reply repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<M> {
    /// The number.
    pub number: u32,
    /// The request is repeated after a broker was replaced. If it was executed before, that is not an error.
    pub is_retry: bool,
    /// The message.
    pub message: M,
}

const RETRY: u64 = 1 << 16;

/// Whether a message of the broker, given its first word, is a notification.
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

impl Frame<Request> {
    /// Encodes a request. Returns the message and its text.
    pub fn encode(&self) -> (Slot, &str) {
        let (kind, words, tail): (u16, &[u64], &str) = match &self.message {
            Request::Hello { version } => (1, &[pair(MAGIC, *version)], ""),
            Request::Reserve { bytes } => (2, &[*bytes], ""),
            Request::Lease { name, access, bytes } => (3, &[name.0, access.to_word(), *bytes], ""),
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

    /// Decodes a request.
    ///
    /// # Errors
    /// The number of the request, and the error to reply with.
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
                let (access, bytes) = (Access::from_word(slot[2]).map_err(malformed)?, slot[3]);
                if access == Access::Read && bytes != 0 {
                    return Err(malformed(DecodeError));
                }
                (Request::Lease { name: Id(slot[1]), access, bytes }, 3, false)
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
        // Unused words must be 0: a later version may use them.
        if slot[1 + words..].iter().any(|&word| word != 0) || (!has_tail && !tail.is_empty()) {
            return Err(malformed(DecodeError));
        }
        Ok(Self { number, is_retry: slot[0] & RETRY != 0, message })
    }
}

impl Frame<Reply> {
    /// Its eight words.
    pub fn encode(&self) -> Slot {
        let words = |kind: u16, words: &[u64]| SlotBuilder::begin(kind, self.number).with(words);
        match &self.message {
            Reply::Welcome { tenant, device } => words(101, &[tenant.0, *device as u64, (*device >> 64) as u64]),
            Reply::Granted { lease, segment, offset, bytes, fence, access, version } => {
                let [at, value] = fence.to_words();
                words(102, &[lease.0, segment.0, *offset, *bytes, at, value, access_word(*access, *version)])
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

    /// Decodes a reply.
    ///
    /// # Errors
    /// [`DecodeError`] for bytes that no broker of this version sends.
    pub fn decode(slot: &Slot) -> Result<Self, DecodeError> {
        let fence = |at: usize| Fence::from_words([slot[at], slot[at + 1]]);
        let message = match slot[0] as u16 {
            101 => Reply::Welcome { tenant: Id(slot[1]), device: u128::from(slot[2]) | u128::from(slot[3]) << 64 },
            102 => {
                let (access, version) = parse_access_word(slot[7])?;
                let (lease, segment) = (Id(slot[1]), Id(slot[2]));
                Reply::Granted { lease, segment, offset: slot[3], bytes: slot[4], fence: fence(5), access, version }
            }
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
