//! The envelope: the header of every message except those sent directly from device memory to device memory. It gives
//! the length, and how the rest arrives.

use crate::node_peers::SharedMemoryKind;

/// The bytes before the first part of a message.
pub(crate) const ENVELOPE_BYTES: usize = 24;

/// How the data arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The first bytes follow the envelope; the rest follows in messages tagged by the message id.
    Staged,
    /// By a copy within the device: both sides are in this process, and the message id names the sender's offer.
    Local,
    /// Through memory that both processes have mapped, slot by slot, with control words tagged by the message id.
    Shared(SharedMemoryKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) delivery: Delivery,
    pub(crate) message_id: u32,
    pub(crate) bytes: u64,
}

/// Tells this crate's messages from those of other code.
const MAGIC: u64 = 0x7265_6568_6f6c_6401;

impl Envelope {
    pub(crate) fn encode(self) -> [u8; ENVELOPE_BYTES] {
        let means: u32 = match self.delivery {
            Delivery::Staged => 0,
            Delivery::Local => 1,
            Delivery::Shared(SharedMemoryKind::Device) => 2,
            Delivery::Shared(SharedMemoryKind::Host) => 3,
        };
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&means.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.message_id.to_le_bytes());
        bytes[16..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Returns `None` if this is not an envelope.
    pub(crate) fn decode(bytes: &[u8; ENVELOPE_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let means = match word(8) {
            0 => Delivery::Staged,
            1 => Delivery::Local,
            2 => Delivery::Shared(SharedMemoryKind::Device),
            3 => Delivery::Shared(SharedMemoryKind::Host),
            _ => return None,
        };
        (long(0) == MAGIC).then(|| Self { delivery: means, message_id: word(12), bytes: long(16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_read_as_it_was_written() {
        let shared = [SharedMemoryKind::Device, SharedMemoryKind::Host].map(Delivery::Shared);
        for means in [Delivery::Staged, Delivery::Local].into_iter().chain(shared) {
            let envelope = Envelope { delivery: means, message_id: 0x1234_5678, bytes: 0x1_0000_0007 };
            assert_eq!(Envelope::decode(&envelope.encode()), Some(envelope));
        }
    }

    #[test]
    fn other_bytes_do_not_decode() {
        assert_eq!(Envelope::decode(&[7; ENVELOPE_BYTES]), None);
        let mut bytes = Envelope { delivery: Delivery::Local, message_id: 1, bytes: 1 }.encode();
        bytes[8] = 9;
        assert_eq!(Envelope::decode(&bytes), None);
    }
}
