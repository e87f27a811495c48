//! Addresses of device memory. Shared virtual memory has addresses. Buffers have none: this module assigns them
//! numbers, and translates a number wherever it is used.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::super::device::DeviceInfo;
use super::super::handle::{ContextId, Event, Kernel, Memory, Queue};
use super::super::{call, kernel, memory, svm};
use super::lock::Result;
use crate::error::CallError;

/// How device memory is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryModel {
    /// As coarse-grained shared virtual memory, whose addresses kernels use.
    Svm,
    /// As buffers. Memory passed to a kernel is aligned as the device requires of a sub-buffer.
    Buffers,
}

/// The first number of a buffer, and the alignment of these numbers: outside the addresses of the process.
const FIRST_ADDRESS: u64 = 1 << 60;
const ADDRESS_STEP: u64 = 2 << 20;

/// The alignment requested of shared virtual memory. Drivers need not support more.
const ALIGN_BYTES: u32 = 128;

/// The least that is requested of a driver whose device is the CPU: it uses malloc, whose blocks are contiguous from
/// this size on, and are committed only as they are touched.
const CPU_BYTES_MIN: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct AddressSpace {
    context: ContextId,
    model: MemoryModel,
    total_bytes: u64,
    /// The least that is requested of the driver.
    bytes_min: u64,
    used_bytes: AtomicU64,
    /// The allocations, by address.
    blocks: RwLock<BTreeMap<u64, Block>>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    /// [`Memory::NULL`] for shared virtual memory.
    memory: Memory,
}

impl AddressSpace {
    pub(super) fn new(context: ContextId, model: MemoryModel, facts: &DeviceInfo) -> Self {
        let bytes_min = if facts.is_gpu { 0 } else { CPU_BYTES_MIN };
        let (total_bytes, taken_bytes) = (facts.memory_bytes, AtomicU64::new(0));
        Self { context, model, total_bytes, bytes_min, used_bytes: taken_bytes, blocks: RwLock::default() }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn alloc(&self, bytes: u64) -> Result<u64> {
        let before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        // A driver whose device is the CPU would allocate until the machine has no memory left.
        let made = if before.saturating_add(bytes) > self.total_bytes {
            Err(self.out_of_memory())
        } else {
            self.create_block(bytes)
        };
        if made.is_err() {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        made
    }

    fn out_of_memory(&self) -> CallError {
        call::out_of_memory(match self.model {
            MemoryModel::Svm => "clSVMAlloc",
            MemoryModel::Buffers => "clCreateBuffer",
        })
    }

    fn create_block(&self, bytes: u64) -> Result<u64> {
        match self.model {
            MemoryModel::Svm => {
                let start = svm::alloc(self.context, bytes.max(self.bytes_min) as usize, ALIGN_BYTES)?;
                self.write().insert(start, Block { bytes, memory: Memory::NULL });
                Ok(start)
            }
            MemoryModel::Buffers => {
                let memory = memory::create(self.context, bytes as usize)?;
                let mut blocks = self.write();
                let start = find_gap(&blocks, bytes);
                blocks.insert(start, Block { bytes, memory });
                Ok(start)
            }
        }
    }

    pub(super) fn free(&self, address: u64) -> Result<()> {
        let Some(block) = self.write().remove(&address) else { return Err(call::invalid_value("clReleaseMemObject")) };
        self.release(address, block)?;
        self.used_bytes.fetch_sub(block.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, address: u64, block: Block) -> Result<()> {
        match self.model {
            // SAFETY: the address is of an allocation that was just removed from the blocks; the caller guarantees that
            // nothing uses it.
            MemoryModel::Svm => unsafe { svm::free(self.context, address) },
            MemoryModel::Buffers => memory::release(block.memory),
        }
    }

    /// Frees all memory.
    pub(super) fn close(&self) -> Result<()> {
        let blocks = std::mem::take(&mut *self.write());
        blocks.into_iter().try_for_each(|(address, block)| self.release(address, block))
    }

    /// # Safety
    /// As for [`Backend::upload`](crate::Backend::upload).
    pub(super) unsafe fn upload(&self, queue: Queue, to: u64, from: *const u8, bytes: usize) -> Result<Event> {
        match self.model {
            // SAFETY: the caller guarantees that `from` is valid; `to` is in a block, whose owner keeps it until the
            // queue has completed the copy.
            MemoryModel::Svm => unsafe {
                svm::copy(queue, from.expose_provenance() as u64, self.check_range(to, bytes)?, bytes, &[])
            },
            MemoryModel::Buffers => {
                let (memory, offset) = self.resolve(to, bytes)?;
                // SAFETY: the caller guarantees that `from` is valid.
                unsafe { memory::write(queue, memory, offset, from.cast(), bytes, &[]) }
            }
        }
    }

    /// # Safety
    /// As for [`Backend::download`](crate::Backend::download).
    pub(super) unsafe fn download(&self, queue: Queue, to: *mut u8, from: u64, bytes: usize) -> Result<Event> {
        match self.model {
            // SAFETY: the caller guarantees that `to` is valid; `from` is in a block, whose owner keeps it until the
            // queue has completed the copy.
            MemoryModel::Svm => unsafe {
                svm::copy(queue, self.check_range(from, bytes)?, to.expose_provenance() as u64, bytes, &[])
            },
            MemoryModel::Buffers => {
                let (memory, offset) = self.resolve(from, bytes)?;
                // SAFETY: the caller guarantees that `to` is valid.
                unsafe { memory::read(queue, memory, offset, to.cast(), bytes, &[]) }
            }
        }
    }

    pub(super) fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize) -> Result<Event> {
        match self.model {
            // SAFETY: both ends are in blocks, whose owners keep them until the queue has completed the copy.
            MemoryModel::Svm => unsafe {
                svm::copy(queue, self.check_range(from, bytes)?, self.check_range(to, bytes)?, bytes, &[])
            },
            MemoryModel::Buffers => {
                memory::copy(queue, self.resolve(from, bytes)?, self.resolve(to, bytes)?, bytes, &[])
            }
        }
    }

    pub(super) fn fill(&self, queue: Queue, to: u64, pattern: &[u8], bytes: usize) -> Result<Event> {
        match self.model {
            // SAFETY: these bytes are in a block, whose owner keeps it until the queue has completed the fill.
            MemoryModel::Svm => unsafe { svm::fill(queue, self.check_range(to, bytes)?, bytes, pattern, &[]) },
            MemoryModel::Buffers => {
                let (memory, offset) = self.resolve(to, bytes)?;
                memory::fill(queue, memory, offset, bytes, pattern, &[])
            }
        }
    }

    /// Sets an argument of a kernel to an address. Returns the sub-buffer that was made for it, if any, to release once
    /// the launch, which keeps it alive, is enqueued.
    pub(super) fn set_argument(&self, kernel: Kernel, index: u32, address: u64) -> Result<Option<Memory>> {
        if self.model == MemoryModel::Svm {
            return kernel::set_address(kernel, index, address).map(|()| None);
        }
        // An empty slice may have no address.
        if address == 0 {
            return kernel::set_memory(kernel, index, Memory::NULL).map(|()| None);
        }
        let blocks = self.read();
        let Some((start, block)) = block_at(&blocks, address, 0) else {
            return Err(call::invalid_argument("clSetKernelArg"));
        };
        let (memory, offset, bytes) = (block.memory, (address - start) as usize, block.bytes as usize);
        drop(blocks);
        // Nor does OpenCL make a sub-buffer of no bytes, which an empty slice at the end of a block would be.
        if offset == bytes {
            return kernel::set_memory(kernel, index, Memory::NULL).map(|()| None);
        }
        if offset == 0 {
            return kernel::set_memory(kernel, index, memory).map(|()| None);
        }
        let part = memory::sub_buffer(memory, 0, offset, bytes - offset)?;
        match kernel::set_memory(kernel, index, part) {
            Ok(()) => Ok(Some(part)),
            Err(error) => memory::release(part).and(Err(error)),
        }
    }

    /// Returns the buffer that contains these bytes, and their offset in it.
    fn resolve(&self, address: u64, bytes: usize) -> Result<(Memory, usize)> {
        let blocks = self.read();
        let (start, block) =
            block_at(&blocks, address, bytes).ok_or_else(|| call::invalid_value("clEnqueueCopyBuffer"))?;
        Ok((block.memory, (address - start) as usize))
    }

    /// Returns the address, if these bytes are in a block: a driver that shares addresses with the host would take any
    /// other for host memory.
    fn check_range(&self, address: u64, bytes: usize) -> Result<u64> {
        match block_at(&self.read(), address, bytes) {
            Some(_) => Ok(address),
            None => Err(call::invalid_value("clEnqueueSVMMemcpy")),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Block>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Block>> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the block that contains all of these bytes, with its address.
fn block_at(blocks: &BTreeMap<u64, Block>, address: u64, bytes: usize) -> Option<(u64, Block)> {
    let (&start, &block) = blocks.range(..=address).next_back()?;
    let end = (address - start).checked_add(bytes as u64)?;
    (end <= block.bytes).then_some((start, block))
}

/// Returns the start of the first unused range of this size.
fn find_gap(blocks: &BTreeMap<u64, Block>, bytes: u64) -> u64 {
    let mut start = FIRST_ADDRESS;
    for (&taken, block) in blocks {
        if start + bytes <= taken {
            break;
        }
        // One more byte keeps the end of a block from being the start of the next.
        start = (taken + block.bytes + 1).next_multiple_of(ADDRESS_STEP);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(of: &[(u64, u64)]) -> BTreeMap<u64, Block> {
        of.iter().map(|&(start, bytes)| (start, Block { bytes, memory: Memory::NULL })).collect()
    }

    #[test]
    fn an_address_belongs_to_the_block_that_has_all_its_bytes() {
        let blocks = blocks(&[(1000, 100), (2000, 50)]);
        let found = |address, bytes| block_at(&blocks, address, bytes).map(|(start, _)| start);
        assert_eq!(found(1000, 100), Some(1000));
        assert_eq!(found(1099, 1), Some(1000));
        assert_eq!(found(1099, 2), None);
        assert_eq!(found(999, 1), None);
        assert_eq!(found(2049, 1), Some(2000));
        assert_eq!(found(u64::MAX, 1), None);
    }

    #[test]
    fn freed_addresses_are_reused() {
        assert_eq!(find_gap(&blocks(&[]), 1), FIRST_ADDRESS);
        let full = blocks(&[(FIRST_ADDRESS, ADDRESS_STEP - 1), (FIRST_ADDRESS + ADDRESS_STEP, 1)]);
        assert_eq!(find_gap(&full, 1), FIRST_ADDRESS + 2 * ADDRESS_STEP);
        assert_eq!(find_gap(&blocks(&[(FIRST_ADDRESS + ADDRESS_STEP, 1)]), ADDRESS_STEP), FIRST_ADDRESS);
        assert_eq!(
            find_gap(&blocks(&[(FIRST_ADDRESS + ADDRESS_STEP, 1)]), ADDRESS_STEP + 1),
            FIRST_ADDRESS + 2 * ADDRESS_STEP
        );
    }

    #[test]
    fn two_blocks_side_by_side_share_no_address() {
        assert_eq!(find_gap(&blocks(&[(FIRST_ADDRESS, ADDRESS_STEP)]), 1), FIRST_ADDRESS + 2 * ADDRESS_STEP);
    }
}
