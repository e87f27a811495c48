//! The messages between broker and scrubber: what to zero, and whether it was zeroed.

use crate::os::seqpacket::Slot;
use crate::protocol::types::Id;

/// What is zeroed: a whole segment, or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ScrubTarget {
    Segment(Id),
    Block(Id),
}

impl ScrubTarget {
    fn to_words(self) -> [u64; 2] {
        match self {
            Self::Segment(id) => [1, id.0],
            Self::Block(id) => [2, id.0],
        }
    }

    fn from_words(words: [u64; 2]) -> Option<Self> {
        match words {
            [1, id] => Some(Self::Segment(Id(id))),
            [2, id] => Some(Self::Block(Id(id))),
            _ => None,
        }
    }
}

/// A range of a segment to zero. The descriptor of the segment is sent with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrubRequest {
    pub(crate) target: ScrubTarget,
    /// Size of the segment.
    pub(crate) whole_bytes: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl ScrubRequest {
    pub(crate) fn to_words(self) -> Slot {
        let [kind, id] = self.target.to_words();
        [kind, id, self.whole_bytes, self.offset, self.bytes, 0, 0, 0]
    }

    /// `None` if the words are not a request.
    pub(crate) fn from_words(words: &Slot) -> Option<Self> {
        let &[kind, id, whole_bytes, offset, bytes, ..] = words;
        Some(Self { target: ScrubTarget::from_words([kind, id])?, whole_bytes, offset, bytes })
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrubReply {
    pub(crate) target: ScrubTarget,
    pub(crate) is_zeroed: bool,
}

impl ScrubReply {
    pub(crate) fn to_words(self) -> Slot {
        let [kind, id] = self.target.to_words();
        [kind, id, u64::from(self.is_zeroed), 0, 0, 0, 0, 0]
    }

    /// `None` if the words are not a reply.
    pub(crate) fn from_words(words: &Slot) -> Option<Self> {
        Some(Self { target: ScrubTarget::from_words([words[0], words[1]])?, is_zeroed: words[2] == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_message_is_read_as_it_was_written() {
        for target in [ScrubTarget::Segment(Id(3)), ScrubTarget::Block(Id(7 << 32))] {
            let request = ScrubRequest { target, whole_bytes: 4096, offset: 512, bytes: 256 };
            assert_eq!(ScrubRequest::from_words(&request.to_words()), Some(request));
            let reply = ScrubReply { target, is_zeroed: true };
            assert_eq!(ScrubReply::from_words(&reply.to_words()), Some(reply));
        }
        assert_eq!(ScrubRequest::from_words(&[3, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
