//! What goes wrong with a call, as a worker tells it: a kind, and numbers. Sentences are made of it by who knows the names
//! (`client/calls`).

use crate::calls::TOLD_WORDS;

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
    NoLease {
        argument: u32,
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

    // The kernel's.
    Faulted {
        code: u32,
    },
    TooLong {
        limit_ms: u64,
    },

    // The device's.
    Device {
        code: u32,
    },
    /// The device does not open: the message's text says why.
    NoDevice,
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
        let (kind, numbers) = match self.trouble {
            Trouble::Malformed => (1, [0; 3]),
            Trouble::NoModule => (2, [0; 3]),
            Trouble::NoKernel => (3, [0; 3]),
            Trouble::ArgumentCount { wanted, given } => (4, [u64::from(wanted), u64::from(given), 0]),
            Trouble::ArgumentKind { argument } => (5, [u64::from(argument), 0, 0]),
            Trouble::NoLease { argument } => (6, [u64::from(argument), 0, 0]),
            Trouble::OutsideOfLease { argument, offset, bytes } => (7, [u64::from(argument), offset, bytes]),
            Trouble::Shape => (8, [0; 3]),
            Trouble::Point => (9, [0; 3]),
            Trouble::Image => (10, [0; 3]),
            Trouble::OtherContent => (11, [0; 3]),
            Trouble::Faulted { code } => (12, [u64::from(code), 0, 0]),
            Trouble::TooLong { limit_ms } => (13, [limit_ms, 0, 0]),
            Trouble::Device { code } => (14, [u64::from(code), 0, 0]),
            Trouble::NoDevice => (15, [0; 3]),
        };
        let [first, second, third] = numbers;
        [kind | u64::from(self.stream) << 32, self.number, first, second, third, self.last, 0, 0]
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
            6 => Trouble::NoLease { argument: first as u32 },
            7 => Trouble::OutsideOfLease { argument: first as u32, offset: second, bytes: third },
            8 => Trouble::Shape,
            9 => Trouble::Point,
            10 => Trouble::Image,
            11 => Trouble::OtherContent,
            12 => Trouble::Faulted { code: first as u32 },
            13 => Trouble::TooLong { limit_ms: first },
            14 => Trouble::Device { code: first as u32 },
            15 => Trouble::NoDevice,
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
            Trouble::Faulted { code: 700 },
            Trouble::TooLong { limit_ms: 10_000 },
            Trouble::NoDevice,
        ] {
            let told = Told { stream: 3, number: 1 << 40, last: 1 << 41, trouble };
            assert_eq!(Told::of(&told.words()), Some(told));
        }
        assert_eq!(Told::of(&[99, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
