//! What an event of the system is of, as the number that goes with it. A tenant's place is used again, and its events may still be
//! on their way: so the number says which tenant, and not only where.

use rustix::event::epoll;

use crate::state::shelf::{generation, id, index};
use crate::wire::Id;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Listener,
    Keeper,
    Maker,
    Cleaner,
    Greeting(u32),
    Connection(Id),
    Bell(Id),
    Process(Id),
}

/// Bits of the number: a generation, a place, and above them the kind.
const PLACE_BIT: u32 = 32;
const KIND_BIT: u32 = 56;

impl Source {
    pub(super) fn data(self) -> epoll::EventData {
        let of = |tenant: Id| u64::from(generation(tenant)) | (index(tenant) as u64) << PLACE_BIT;
        let (kind, rest) = match self {
            Self::Listener => (0, 0),
            Self::Keeper => (1, 0),
            Self::Maker => (2, 0),
            Self::Cleaner => (3, 0),
            Self::Greeting(number) => (4, u64::from(number)),
            Self::Connection(tenant) => (5, of(tenant)),
            Self::Bell(tenant) => (6, of(tenant)),
            Self::Process(tenant) => (7, of(tenant)),
        };
        debug_assert!(rest >> KIND_BIT == 0, "there are fewer tenants than a place has bits for");
        epoll::EventData::new_u64(kind << KIND_BIT | rest)
    }

    pub(super) fn of(data: u64) -> Self {
        let place = (data >> PLACE_BIT) as u32 & 0xff_ffff;
        let tenant = id(place, data as u32);
        match data >> KIND_BIT {
            0 => Self::Listener,
            1 => Self::Keeper,
            2 => Self::Maker,
            3 => Self::Cleaner,
            4 => Self::Greeting(data as u32),
            5 => Self::Connection(tenant),
            6 => Self::Bell(tenant),
            7 => Self::Process(tenant),
            _ => unreachable!("only these are ever added"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_which_of_all_tenants_of_a_place_it_is_of() {
        let (first, second) = (id(5, 1), id(5, 2));
        for source in [
            Source::Listener,
            Source::Cleaner,
            Source::Greeting(7),
            Source::Connection(first),
            Source::Connection(second),
            Source::Bell(id(1023, u32::MAX)),
            Source::Process(second),
        ] {
            assert_eq!(Source::of(source.data().u64()), source);
        }
        assert_ne!(Source::Connection(first).data().u64(), Source::Connection(second).data().u64());
    }
}
