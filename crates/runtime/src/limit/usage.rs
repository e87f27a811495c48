//! The program's usage of each device's memory, by what it frees: addresses, arrays, and memory without an address.
//!
//! Pure: the calls of the driver are made elsewhere. Memory of `cuMemCreate` is in use until its last handle is released and
//! its last mapping is removed, as the driver documents.

use std::collections::{BTreeMap, HashMap};

/// What a charge belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The address of linear memory.
    Block(u64),
    /// The handle of an array.
    Array(usize),
    /// The handle of a mipmapped array.
    Mipmap(usize),
}

/// The memory of a block or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) device: i32,
    pub(super) bytes: u64,
    /// The handle of its context, which frees it when it is destroyed.
    pub(super) context: usize,
}

/// Memory of `cuMemCreate`.
#[derive(Debug)]
struct Allocation {
    device: i32,
    bytes: u64,
    handles: u64,
    mappings: u64,
}

/// A range of addresses that memory is mapped to.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    allocation: u64,
}

/// The memory in use.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// By device.
    used_bytes: HashMap<i32, u64>,
    charges: HashMap<Key, Charge>,
    allocations: HashMap<u64, Allocation>,
    last_allocation: u64,
    /// The allocation of each handle. The driver may use a handle again for other memory while the first is mapped.
    handles: HashMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
}

impl Usage {
    pub(super) fn used_bytes(&self, device: i32) -> u64 {
        self.used_bytes.get(&device).copied().unwrap_or(0)
    }

    /// Counts memory, for a call that may still fail.
    pub(super) fn charge(&mut self, device: i32, bytes: u64) {
        *self.used_bytes.entry(device).or_default() += bytes;
    }

    pub(super) fn uncharge(&mut self, device: i32, bytes: u64) {
        let used = self.used_bytes.entry(device).or_default();
        *used = used.saturating_sub(bytes);
    }

    /// Notes what memory that was charged belongs to.
    pub(super) fn insert(&mut self, key: Key, charge: Charge) {
        if let Some(old) = self.charges.insert(key, charge) {
            // It was freed in a way that nothing announced.
            self.uncharge(old.device, old.bytes);
        }
    }

    /// Removes what is about to be freed. Its memory stays charged.
    pub(super) fn remove(&mut self, key: Key) -> Option<Charge> {
        self.charges.remove(&key)
    }

    /// Frees everything of a context.
    pub(super) fn free_context(&mut self, context: usize) {
        let freed: Vec<_> = self.charges.extract_if(|_, charge| charge.context == context).collect();
        for (_, charge) in freed {
            self.uncharge(charge.device, charge.bytes);
        }
    }

    /// Notes memory that was charged, and its first handle.
    pub(super) fn created(&mut self, handle: u64, device: i32, bytes: u64) {
        self.last_allocation += 1;
        self.allocations.insert(self.last_allocation, Allocation { device, bytes, handles: 1, mappings: 0 });
        self.handles.insert(handle, self.last_allocation);
    }

    /// Notes another handle of the memory that is mapped at an address.
    pub(super) fn retained(&mut self, handle: u64, address: u64) {
        let Some((start, mapping)) = self.mappings.range(..=address).next_back() else { return };
        if address - start >= mapping.bytes {
            return;
        }
        self.handles.insert(handle, mapping.allocation);
        if let Some(allocation) = self.allocations.get_mut(&mapping.allocation) {
            allocation.handles += 1;
        }
    }

    pub(super) fn released(&mut self, handle: u64) {
        let Some(&id) = self.handles.get(&handle) else { return };
        let Some(allocation) = self.allocations.get_mut(&id) else { return };
        allocation.handles -= 1;
        if allocation.handles == 0 {
            self.handles.retain(|_, of| *of != id);
        }
        self.free_unused(id);
    }

    pub(super) fn mapped(&mut self, start: u64, bytes: u64, handle: u64) {
        let Some(&id) = self.handles.get(&handle) else { return };
        let Some(allocation) = self.allocations.get_mut(&id) else { return };
        allocation.mappings += 1;
        self.mappings.insert(start, Mapping { bytes, allocation: id });
    }

    /// Notes that all mappings in a range are removed.
    pub(super) fn unmapped(&mut self, start: u64, bytes: u64) {
        let range = start..start.saturating_add(bytes);
        let removed: Vec<_> = self.mappings.extract_if(range, |_, _| true).collect();
        for (_, mapping) in removed {
            if let Some(allocation) = self.allocations.get_mut(&mapping.allocation) {
                allocation.mappings -= 1;
            }
            self.free_unused(mapping.allocation);
        }
    }

    fn free_unused(&mut self, id: u64) {
        let is_unused = |allocation: &Allocation| allocation.handles == 0 && allocation.mappings == 0;
        if self.allocations.get(&id).is_some_and(is_unused)
            && let Some(allocation) = self.allocations.remove(&id)
        {
            self.uncharge(allocation.device, allocation.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn created() -> Usage {
        let mut usage = Usage::default();
        usage.charge(0, 100);
        usage.created(7, 0, 100);
        usage
    }

    #[test]
    fn memory_without_an_address_is_used_until_its_handle_is_released() {
        let mut usage = created();
        assert_eq!(usage.used_bytes(0), 100);
        usage.released(7);
        assert_eq!(usage.used_bytes(0), 0);
    }

    #[test]
    fn a_mapping_keeps_memory_whose_handle_was_released() {
        let mut usage = created();
        usage.mapped(0x1000, 100, 7);
        usage.released(7);
        assert_eq!(usage.used_bytes(0), 100);
        usage.unmapped(0x1000, 100);
        assert_eq!(usage.used_bytes(0), 0);
    }

    #[test]
    fn a_retained_handle_keeps_memory_that_is_no_longer_mapped() {
        let mut usage = created();
        usage.mapped(0x1000, 100, 7);
        usage.retained(8, 0x1010);
        usage.released(7);
        usage.unmapped(0x1000, 100);
        assert_eq!(usage.used_bytes(0), 100);
        usage.released(8);
        assert_eq!(usage.used_bytes(0), 0);
    }

    #[test]
    fn a_handle_that_is_used_again_names_the_new_memory() {
        let mut usage = created();
        usage.mapped(0x1000, 100, 7);
        usage.released(7);
        usage.charge(0, 50);
        usage.created(7, 0, 50);
        usage.released(7);
        assert_eq!(usage.used_bytes(0), 100);
    }

    #[test]
    fn one_call_removes_all_mappings_of_a_range() {
        let mut usage = created();
        usage.mapped(0x1000, 100, 7);
        usage.mapped(0x2000, 100, 7);
        usage.released(7);
        usage.unmapped(0x1000, 0x1000);
        assert_eq!(usage.used_bytes(0), 100);
        usage.unmapped(0x1000, 0x2000);
        assert_eq!(usage.used_bytes(0), 0);
    }

    #[test]
    fn a_context_takes_its_memory_with_it() {
        let mut usage = Usage::default();
        for (address, context) in [(1, 10), (2, 10), (3, 11)] {
            usage.charge(0, 5);
            usage.insert(Key::Block(address), Charge { device: 0, bytes: 5, context });
        }
        usage.free_context(10);
        assert_eq!(usage.used_bytes(0), 5);
        assert_eq!(usage.remove(Key::Block(1)), None);
    }

    #[test]
    fn devices_are_counted_apart() {
        let mut usage = Usage::default();
        usage.charge(0, 5);
        usage.charge(1, 7);
        usage.uncharge(0, 5);
        assert_eq!((usage.used_bytes(0), usage.used_bytes(1)), (0, 7));
    }
}
