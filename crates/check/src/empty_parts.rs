//! Blocks without bytes that pools hand out: nothing can access them, and they may have the address of a block in use.

use std::collections::HashMap;

/// How many blocks without bytes are handed out at each address.
#[derive(Debug, Default)]
pub(crate) struct EmptyParts(HashMap<u64, u64>);

impl EmptyParts {
    /// Notes that a pool hands out a block. Returns whether it has no bytes, or is a null pointer.
    pub(crate) fn hand_out(&mut self, address: u64, bytes: u64) -> bool {
        if address != 0 && bytes == 0 {
            *self.0.entry(address).or_default() += 1;
        }
        address == 0 || bytes == 0
    }

    /// Notes that a block goes back to its pool. Returns whether it has no bytes, or is a null pointer.
    pub(crate) fn release(&mut self, address: u64) -> bool {
        let Some(count) = self.0.get_mut(&address) else { return address == 0 };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&address);
        }
        true
    }
}
