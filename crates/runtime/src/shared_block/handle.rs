//! The bytes of a handle.

use freehold_driver::cuda::CUipcMemHandle;

/// The first bytes of a handle of a block of the pool. Those of the driver begin otherwise.
const MARK: &[u8; 16] = b"freehold-block-1";

/// A block of the pool of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHandle {
    pub(super) process: u32,
    /// Part of the socket's name.
    pub(super) secret: u64,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl BlockHandle {
    pub(super) fn to_bytes(self) -> CUipcMemHandle {
        let mut bytes = [0; 64];
        bytes[..16].copy_from_slice(MARK);
        for (index, word) in [u64::from(self.process), self.secret, self.address, self.bytes].into_iter().enumerate() {
            bytes[16 + 8 * index..24 + 8 * index].copy_from_slice(&word.to_le_bytes());
        }
        CUipcMemHandle { bytes }
    }

    /// Returns `None` for a handle of the driver.
    pub(super) fn from_bytes(handle: &CUipcMemHandle) -> Option<Self> {
        let (mark, rest) = handle.bytes.split_at(16);
        let mut words = rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("it has 8 bytes")));
        let mut word = || words.next().expect("there are six");
        let (process, secret, address, bytes) = (word(), word(), word(), word());
        let process = u32::try_from(process).ok()?;
        let is_ours = mark == MARK && bytes > 0 && address.checked_add(bytes).is_some();
        is_ours.then_some(Self { process, secret, address, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_survives_its_bytes() {
        let handle = BlockHandle { process: 17, secret: u64::MAX - 3, address: 0x7f00_0000_0000, bytes: 5 };
        assert_eq!(BlockHandle::from_bytes(&handle.to_bytes()), Some(handle));
    }

    #[test]
    fn other_bytes_are_no_handle() {
        let handle = BlockHandle { process: 17, secret: 1, address: u64::MAX - 3, bytes: 5 };
        assert_eq!(BlockHandle::from_bytes(&handle.to_bytes()), None, "it would wrap around");
        let mut bytes = BlockHandle { address: 0, ..handle }.to_bytes();
        bytes.bytes[3] ^= 1;
        assert_eq!(BlockHandle::from_bytes(&bytes), None);
    }
}
