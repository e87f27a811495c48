//! The source of an epoll event, encoded in its data. A tenant's index may be reused while events of its predecessor
//! are queued, so the data includes the generation.

use rustix::event::epoll;

use crate::protocol::types::Id;
use crate::state::slot_map::{generation, id, index};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventSource {
    Listener,
    FdStore,
    DriverThread,
    Scrubber,
    Handshake(u32),
    Connection(Id),
    Doorbell(Id),
    Process(Id),
}

/// Bits of the data: generation, index, and above them the kind.
const INDEX_BIT: u32 = 32;
const KIND_BIT: u32 = 56;

impl EventSource {
    pub(super) fn to_data(self) -> epoll::EventData {
        let of = |tenant: Id| u64::from(generation(tenant)) | (index(tenant) as u64) << INDEX_BIT;
        let (kind, rest) = match self {
            Self::Listener => (0, 0),
            Self::FdStore => (1, 0),
            Self::DriverThread => (2, 0),
            Self::Scrubber => (3, 0),
            Self::Handshake(number) => (4, u64::from(number)),
            Self::Connection(tenant) => (5, of(tenant)),
            Self::Doorbell(tenant) => (6, of(tenant)),
            Self::Process(tenant) => (7, of(tenant)),
        };
        debug_assert!(rest >> KIND_BIT == 0, "the index of a tenant fits");
        epoll::EventData::new_u64(kind << KIND_BIT | rest)
    }

    pub(super) fn from_data(data: u64) -> Self {
        let index = (data >> INDEX_BIT) as u32 & 0xff_ffff;
        let tenant = id(index, data as u32);
        match data >> KIND_BIT {
            0 => Self::Listener,
            1 => Self::FdStore,
            2 => Self::DriverThread,
            3 => Self::Scrubber,
            4 => Self::Handshake(data as u32),
            5 => Self::Connection(tenant),
            6 => Self::Doorbell(tenant),
            7 => Self::Process(tenant),
            _ => unreachable!("only these values are registered"),
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
            EventSource::Listener,
            EventSource::Scrubber,
            EventSource::Handshake(7),
            EventSource::Connection(first),
            EventSource::Connection(second),
            EventSource::Doorbell(id(1023, u32::MAX)),
            EventSource::Process(second),
        ] {
            assert_eq!(EventSource::from_data(source.to_data().u64()), source);
        }
        assert_ne!(EventSource::Connection(first).to_data().u64(), EventSource::Connection(second).to_data().u64());
    }
}
