//! Failures of calls as a worker reports them: a kind and numbers. `client/calls` turns them into messages with names.

use crate::protocol::call_ring::FAILURE_WORDS;
use crate::protocol::request_error::RequestError;

/// Why a call was not executed, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    // Caused by the caller. Arguments are counted from 1.
    /// No client of this version writes such a slot.
    Malformed,
    NoModule,
    NoKernel,
    ArgumentCount {
        wanted: u32,
        given: u32,
    },
    /// The kind or size differs from the parameter.
    ArgumentKind {
        argument: u32,
    },
    /// The broker refused to lend the worker a lease.
    BorrowFailed {
        argument: u32,
        error: RequestError,
    },
    OutOfBounds {
        argument: u32,
        offset: u64,
        bytes: u64,
    },
    /// The driver refuses the grid, the block or the size of shared memory.
    UnsupportedShape,
    /// A fence of a process that this one may not wait for.
    ForeignFence,
    /// The module does not compile: the text of the message says why.
    CompileFailed,
    /// The bytes of the module do not match its hash.
    HashMismatch,
    /// The broker refused to let the worker load the module.
    LoadFailed {
        error: RequestError,
    },

    // Caused by the kernel. If several kernels are suspects, the text of the message names those of the tenant.
    Faulted {
        code: u32,
        among: SuspectCount,
    },
    Hung {
        limit_ms: u64,
        among: SuspectCount,
    },
    /// A kernel of another tenant ended the worker.
    SharedWorkerFaulted,

    // Caused by the device.
    Device {
        code: u32,
    },
    /// The device does not open: the text of the message says why.
    NoDevice,
}

impl CallFailure {
    /// The code of the driver if a kernel has faulted.
    pub(crate) fn fault_code(&self) -> Option<u32> {
        match *self {
            Self::Faulted { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// How many running kernels may have caused a failure. If it is one, the cause is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SuspectCount {
    pub(crate) own: u32,
    /// Of other tenants of the same worker.
    pub(crate) others: u32,
}

impl SuspectCount {
    fn to_word(self) -> u64 {
        u64::from(self.own) | u64::from(self.others) << 32
    }

    fn from_word(word: u64) -> Self {
        Self { own: word as u32, others: (word >> 32) as u32 }
    }

    pub(crate) fn is_certain(self) -> bool {
        self.own <= 1 && self.others == 0
    }
}

/// A worker's report of failed calls: the stream, and the first and last number in that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailureReport {
    pub(crate) stream: u32,
    pub(crate) number: u64,
    pub(crate) last: u64,
    pub(crate) failure: CallFailure,
}

impl FailureReport {
    pub(crate) fn to_words(self) -> [u64; FAILURE_WORDS] {
        let mut more = 0;
        let (kind, numbers) = match self.failure {
            CallFailure::Malformed => (1, [0; 3]),
            CallFailure::NoModule => (2, [0; 3]),
            CallFailure::NoKernel => (3, [0; 3]),
            CallFailure::ArgumentCount { wanted, given } => (4, [u64::from(wanted), u64::from(given), 0]),
            CallFailure::ArgumentKind { argument } => (5, [u64::from(argument), 0, 0]),
            CallFailure::BorrowFailed { argument, error } => {
                let (kind, [first, second, third]) = error.to_words();
                more = third;
                (6, [u64::from(argument) | u64::from(kind) << 32, first, second])
            }
            CallFailure::OutOfBounds { argument, offset, bytes } => (7, [u64::from(argument), offset, bytes]),
            CallFailure::UnsupportedShape => (8, [0; 3]),
            CallFailure::ForeignFence => (9, [0; 3]),
            CallFailure::CompileFailed => (10, [0; 3]),
            CallFailure::HashMismatch => (11, [0; 3]),
            CallFailure::Faulted { code, among } => (12, [u64::from(code), among.to_word(), 0]),
            CallFailure::Hung { limit_ms, among } => (13, [limit_ms, among.to_word(), 0]),
            CallFailure::Device { code } => (14, [u64::from(code), 0, 0]),
            CallFailure::NoDevice => (15, [0; 3]),
            CallFailure::SharedWorkerFaulted => (16, [0; 3]),
            CallFailure::LoadFailed { error } => {
                let (kind, [first, second, third]) = error.to_words();
                more = third;
                (17, [u64::from(kind) << 32, first, second])
            }
        };
        let [first, second, third] = numbers;
        [kind | u64::from(self.stream) << 32, self.number, first, second, third, self.last, 0, more]
    }

    /// `None` if no worker of this version sends these words.
    pub(crate) fn from_words(words: &[u64; FAILURE_WORDS]) -> Option<Self> {
        let [first, second, third] = [words[2], words[3], words[4]];
        let failure = match words[0] as u32 {
            1 => CallFailure::Malformed,
            2 => CallFailure::NoModule,
            3 => CallFailure::NoKernel,
            4 => CallFailure::ArgumentCount { wanted: first as u32, given: second as u32 },
            5 => CallFailure::ArgumentKind { argument: first as u32 },
            6 => {
                let error = RequestError::from_words((first >> 32) as u16, [second, third, words[7]]).ok()?;
                CallFailure::BorrowFailed { argument: first as u32, error }
            }
            7 => CallFailure::OutOfBounds { argument: first as u32, offset: second, bytes: third },
            8 => CallFailure::UnsupportedShape,
            9 => CallFailure::ForeignFence,
            10 => CallFailure::CompileFailed,
            11 => CallFailure::HashMismatch,
            12 => CallFailure::Faulted { code: first as u32, among: SuspectCount::from_word(second) },
            13 => CallFailure::Hung { limit_ms: first, among: SuspectCount::from_word(second) },
            14 => CallFailure::Device { code: first as u32 },
            15 => CallFailure::NoDevice,
            16 => CallFailure::SharedWorkerFaulted,
            17 => CallFailure::LoadFailed {
                error: RequestError::from_words((first >> 32) as u16, [second, third, words[7]]).ok()?,
            },
            _ => return None,
        };
        let stream = (words[0] >> 32) as u32 & 0xffff;
        Some(Self { stream, number: words[1], last: words[5], failure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_a_worker_round_trip() {
        for failure in [
            CallFailure::Malformed,
            CallFailure::ArgumentCount { wanted: 4, given: 3 },
            CallFailure::OutOfBounds { argument: 2, offset: 1 << 40, bytes: 4096 },
            CallFailure::BorrowFailed {
                argument: 3,
                error: RequestError::UserQuota { limit_bytes: 1 << 40, had_bytes: 2, wanted_bytes: 3 },
            },
            CallFailure::Faulted { code: 700, among: SuspectCount { own: 1, others: 0 } },
            CallFailure::Hung { limit_ms: 10_000, among: SuspectCount { own: 3, others: 7 } },
            CallFailure::NoDevice,
            CallFailure::SharedWorkerFaulted,
            CallFailure::LoadFailed {
                error: RequestError::OutOfMemory { free_bytes: 1, budget_bytes: 1 << 40, wanted_bytes: 3 },
            },
        ] {
            let told = FailureReport { stream: 3, number: 1 << 40, last: 1 << 41, failure };
            assert_eq!(FailureReport::from_words(&told.to_words()), Some(told));
        }
        assert_eq!(FailureReport::from_words(&[99, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
