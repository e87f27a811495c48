//! The broker's messages to a worker, over the socket that the worker was started with.

use std::time::Duration;

use crate::os::seqpacket::Slot;
use crate::protocol::types::Id;

/// A message of the broker to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerOrder {
    /// Its identity. Descriptors: its socket, ring, semaphores and doorbell.
    Begin { worker: Id, device: u128, limit: Duration },
    /// A tenant to serve. Descriptors: the call ring, and the doorbell for calls.
    Serve { tenant: Id, session_index: u32 },
    /// A tenant that is closing: the worker finishes its calls and reports that.
    Drain { tenant: Id },
    /// No tenant is left: exit.
    Stop,
}

impl WorkerOrder {
    pub(crate) fn to_words(self) -> Slot {
        match self {
            Self::Begin { worker, device, limit } => {
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                [1, worker.0, device as u64, (device >> 64) as u64, limit_ms, 0, 0, 0]
            }
            Self::Serve { tenant, session_index } => [2, tenant.0, u64::from(session_index), 0, 0, 0, 0, 0],
            Self::Drain { tenant } => [3, tenant.0, 0, 0, 0, 0, 0, 0],
            Self::Stop => [4, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    pub(crate) fn from_words(words: &Slot) -> Option<Self> {
        Some(match words[0] {
            1 => Self::Begin {
                worker: Id(words[1]),
                device: u128::from(words[2]) | u128::from(words[3]) << 64,
                limit: Duration::from_millis(words[4]),
            },
            2 => Self::Serve { tenant: Id(words[1]), session_index: words[2] as u32 },
            3 => Self::Drain { tenant: Id(words[1]) },
            4 => Self::Stop,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        for order in [
            WorkerOrder::Begin { worker: Id(7 << 32), device: 3 << 64 | 1, limit: Duration::from_millis(250) },
            WorkerOrder::Serve { tenant: Id(9), session_index: 30 },
            WorkerOrder::Drain { tenant: Id(9) },
            WorkerOrder::Stop,
        ] {
            assert_eq!(WorkerOrder::from_words(&order.to_words()), Some(order));
        }
        assert_eq!(WorkerOrder::from_words(&[5, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
