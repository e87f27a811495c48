//! What goes wrong with a call, as a worker tells it: a kind, and numbers. Sentences are made of it by who knows the names
//! (`client/calls`).

use crate::calls::TOLD_WORDS;
use crate::wire::Refusal;

/// Why a call was not carried out, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    // The caller's. Arguments are counted from 1.
    /// The slot is none that a client of this version writes.
    Malformed,
    NoModule,
    NoKernel,
    ArgumentCount {
        wanted: u32,
        given: u32,
    },
    /// Of another kind or size than the parameter.
    ArgumentKind {
        argument: u32,
    },
    /// The broker does not let the worker have a lease.
    NotBorrowed {
        argument: u32,
        refusal: Refusal,
    },
    OutsideOfLease {
        argument: u32,
        offset: u64,
        bytes: u64,
    },
    /// The driver refuses the grid, the block or the shared memory.
    Shape,
    /// A point of a process that this one may not wait for.
    Point,
    /// The module does not compile: the message's text says why.
    Image,
    /// The bytes of the module are not those that its hash is of.
    OtherContent,
    /// The broker does not let the worker load the module.
    NotLoaded {
        refusal: Refusal,
    },

    // The kernel's. Where several may have been it, the message's text names those of the tenant's.
    Faulted {
        code: u32,
        among: Among,
    },
    TooLong {
        limit_ms: u64,
        among: Among,
    },
    /// The worker has ended with a kernel of another tenant's.
    Elsewhere,

    // The device's.
    Device {
        code: u32,
    },
    /// The device does not open: the message's text says why.
    NoDevice,
}

impl Trouble {
    /// The driver's code where a kernel has faulted.
    pub(crate) fn fault(&self) -> Option<u32> {
        match *self {
            Self::Faulted { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// How many kernels ran of which one went wrong: it is known which where that is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Among {
    pub(crate) own: u32,
    /// Of other tenants of the same worker.
    pub(crate) others: u32,
}

impl Among {
    fn word(self) -> u64 {
        u64::from(self.own) | u64::from(self.others) << 32
    }

    fn of(word: u64) -> Self {
        Self { own: word as u32, others: (word >> 32) as u32 }
    }

    pub(crate) fn is_known(self) -> bool {
        self.own <= 1 && self.others == 0
    }
}

/// What a worker tells of calls: in which stream, and their numbers there, the last one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) stream: u32,
    pub(crate) number: u64,
    pub(crate) last: u64,
    pub(crate) trouble: Trouble,
}

impl Told {
    pub(crate) fn words(&self) -> [u64; TOLD_WORDS] {
        let mut more = 0;
        let (kind, numbers) = match self.trouble {
            Trouble::Malformed => (1, [0; 3]),
            Trouble::NoModule => (2, [0; 3]),
            Trouble::NoKernel => (3, [0; 3]),
            Trouble::ArgumentCount { wanted, given } => (4, [u64::from(wanted), u64::from(given), 0]),
            Trouble::ArgumentKind { argument } => (5, [u64::from(argument), 0, 0]),
            Trouble::NotBorrowed { argument, refusal } => {
                let (kind, [first, second, third]) = refusal.numbers();
                more = third;
                (6, [u64::from(argument) | u64::from(kind) << 32, first, second])
            }
            Trouble::OutsideOfLease { argument, offset, bytes } => (7, [u64::from(argument), offset, bytes]),
            Trouble::Shape => (8, [0; 3]),
            Trouble::Point => (9, [0; 3]),
            Trouble::Image => (10, [0; 3]),
            Trouble::OtherContent => (11, [0; 3]),
            Trouble::Faulted { code, among } => (12, [u64::from(code), among.word(), 0]),
            Trouble::TooLong { limit_ms, among } => (13, [limit_ms, among.word(), 0]),
            Trouble::Device { code } => (14, [u64::from(code), 0, 0]),
            Trouble::NoDevice => (15, [0; 3]),
            Trouble::Elsewhere => (16, [0; 3]),
            Trouble::NotLoaded { refusal } => {
                let (kind, [first, second, third]) = refusal.numbers();
                more = third;
                (17, [u64::from(kind) << 32, first, second])
            }
        };
        let [first, second, third] = numbers;
        [kind | u64::from(self.stream) << 32, self.number, first, second, third, self.last, 0, more]
    }

    /// Nothing where no worker of this version tells that.
    pub(crate) fn of(words: &[u64; TOLD_WORDS]) -> Option<Self> {
        let [first, second, third] = [words[2], words[3], words[4]];
        let trouble = match words[0] as u32 {
            1 => Trouble::Malformed,
            2 => Trouble::NoModule,
            3 => Trouble::NoKernel,
            4 => Trouble::ArgumentCount { wanted: first as u32, given: second as u32 },
            5 => Trouble::ArgumentKind { argument: first as u32 },
            6 => {
                let refusal = Refusal::of((first >> 32) as u16, [second, third, words[7]]).ok()?;
                Trouble::NotBorrowed { argument: first as u32, refusal }
            }
            7 => Trouble::OutsideOfLease { argument: first as u32, offset: second, bytes: third },
            8 => Trouble::Shape,
            9 => Trouble::Point,
            10 => Trouble::Image,
            11 => Trouble::OtherContent,
            12 => Trouble::Faulted { code: first as u32, among: Among::of(second) },
            13 => Trouble::TooLong { limit_ms: first, among: Among::of(second) },
            14 => Trouble::Device { code: first as u32 },
            15 => Trouble::NoDevice,
            16 => Trouble::Elsewhere,
            17 => Trouble::NotLoaded { refusal: Refusal::of((first >> 32) as u16, [second, third, words[7]]).ok()? },
            _ => return None,
        };
        let stream = (words[0] >> 32) as u32 & 0xffff;
        Some(Self { stream, number: words[1], last: words[5], trouble })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_tells_is_read_as_it_was_told() {
        for trouble in [
            Trouble::Malformed,
            Trouble::ArgumentCount { wanted: 4, given: 3 },
            Trouble::OutsideOfLease { argument: 2, offset: 1 << 40, bytes: 4096 },
            Trouble::NotBorrowed {
                argument: 3,
                refusal: Refusal::UserQuota { limit_bytes: 1 << 40, had_bytes: 2, wanted_bytes: 3 },
            },
            Trouble::Faulted { code: 700, among: Among { own: 1, others: 0 } },
            Trouble::TooLong { limit_ms: 10_000, among: Among { own: 3, others: 7 } },
            Trouble::NoDevice,
            Trouble::Elsewhere,
            Trouble::NotLoaded { refusal: Refusal::Full { free_bytes: 1, budget_bytes: 1 << 40, wanted_bytes: 3 } },
        ] {
            let told = Told { stream: 3, number: 1 << 40, last: 1 << 41, trouble };
            assert_eq!(Told::of(&told.words()), Some(told));
        }
        assert_eq!(Told::of(&[99, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
