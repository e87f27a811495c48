//! Block look-up for libraries with their own pools, in whose memory only the library knows the blocks. At each launch,
//! the driver asks the library for the block of each pointer argument and stores the answer with the launch, because
//! the block may be freed and reused with another size before the kernel runs.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::RwLock;

use crate::base::check;
use crate::base::sync::{read, write};
use freehold_driver::cuda::extension::{FindBlock, FoundBlock, LIVE, RELEASED, ReadArgument};
use freehold_driver::cuda::{CUerror, CUresult};
use freehold_ptx::{Access, Extent, Kernel, Pointer};

thread_local! {
    /// The arguments that the next launch of this thread only reads.
    static READ_ONLY: RefCell<Vec<ReadArgument>> = const { RefCell::new(Vec::new()) };
}

/// Sets the arguments that the next launch of this thread only reads.
pub(crate) fn set_read_only(arguments: Vec<ReadArgument>) {
    READ_ONLY.set(arguments);
}

/// The memory regions that libraries registered.
#[derive(Debug, Default)]
pub(crate) struct BlockLookup {
    regions: RwLock<Regions>,
}

#[derive(Debug, Default)]
struct Regions {
    live: Vec<Region>,
    last_id: u64,
}

#[derive(Debug)]
struct Region {
    id: u64,
    addresses: Range<u64>,
    find: FindBlock,
    /// The library's pointer, which only its function dereferences.
    data: usize,
}

impl Region {
    fn find(&self, address: u64) -> Option<Extent> {
        let mut found = FoundBlock::default();
        // SAFETY: the caller of `register` guaranteed that the function and its data are valid until `unregister`,
        // which waits for the lock that the caller holds; `found` outlives the call, which writes one value to it.
        let answer = unsafe { (self.find)(self.data as *mut c_void, address, &mut found) };
        let access = match answer {
            LIVE => Access::ReadWrite,
            RELEASED => Access::Released,
            _ => return None,
        };
        Some(Extent { start: found.base, bytes: found.bytes, access })
    }

    /// Returns the block that contains an address, and the live block that ends there, because the address may be its
    /// end.
    fn blocks_at(&self, address: u64) -> Vec<Extent> {
        let around = self.find(address);
        let before = address.checked_sub(1).and_then(|last| self.find(last));
        let ends_here =
            |block: &Extent| block.access != Access::Released && block.start.checked_add(block.bytes) == Some(address);
        let before = before.filter(|block| ends_here(block) && Some(*block) != around);
        around.into_iter().chain(before).collect()
    }
}

impl BlockLookup {
    /// Registers memory. The returned id unregisters it.
    pub(crate) fn register(&self, start: u64, bytes: u64, find: FindBlock, data: usize) -> Result<u64, CUerror> {
        let end = start.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
        let mut regions = write(&self.regions);
        regions.last_id += 1;
        let id = regions.last_id;
        regions.live.push(Region { id, addresses: start..end, find, data });
        Ok(id)
    }

    /// Unregisters memory. No look-up in it is running afterwards.
    pub(crate) fn unregister(&self, id: u64) -> CUresult {
        let mut regions = write(&self.regions);
        let at = regions.live.iter().position(|region| region.id == id).ok_or(CUerror::INVALID_VALUE)?;
        regions.live.remove(at);
        Ok(())
    }

    /// Stops look-ups at addresses that were freed: the library does not know what is allocated there next.
    pub(crate) fn forget_range(&self, given: &Range<u64>) {
        let mut regions = write(&self.regions);
        let is_within =
            |region: &&mut Region| given.start <= region.addresses.start && region.addresses.end <= given.end;
        // The regions stay until they are unregistered.
        regions.live.iter_mut().filter(is_within).for_each(|region| region.addresses = 0..0);
    }

    /// Returns the pointers among the arguments of a launch whose blocks are known. `words` are the offsets of
    /// arguments that the kernel uses as addresses.
    pub(crate) fn pointers(&self, kernel: &Kernel, words: &[u32], arguments: &[u8]) -> Vec<Pointer> {
        // A launch is possible while the thread's locals are being destroyed.
        let read_only = READ_ONLY.try_with(RefCell::take).unwrap_or_default();
        let regions = read(&self.regions);
        if regions.live.is_empty() && read_only.is_empty() && !check::is_on() {
            return Vec::new();
        }
        let pointer = |&offset: &u32| {
            let word = arguments.get(offset as usize..)?.first_chunk()?;
            let is_it = |read: &&ReadArgument| {
                let parameter = kernel.parameters.get(read.parameter as usize);
                parameter.is_some_and(|parameter| parameter.offset == u64::from(offset))
            };
            let word = u64::from_le_bytes(*word);
            pointer_at(&regions.live, offset, word, read_only.iter().find(is_it))
                .or_else(|| checked_pointer(offset, word))
        };
        words.iter().filter_map(pointer).collect()
    }
}

/// Returns the block that a pool of the program has announced to the checker.
fn checked_pointer(offset: u32, word: u64) -> Option<Pointer> {
    let (block, region) = check::checker()?.pool_block(word)?;
    let extent = Extent { start: block.start, bytes: block.end - block.start, access: Access::ReadWrite };
    Some(Pointer { offset, region, extents: vec![extent] })
}

/// Returns what is known about a word at an offset of the arguments.
fn pointer_at(regions: &[Region], offset: u32, word: u64, read_only: Option<&ReadArgument>) -> Option<Pointer> {
    let leads_to = |addresses: &Range<u64>| !addresses.is_empty() && (addresses.start..=addresses.end).contains(&word);
    let around = regions.iter().filter(|region| leads_to(&region.addresses));
    let mut found: Vec<_> = around.map(|region| (region.addresses.clone(), region.blocks_at(word))).collect();
    // Several devices may have registered the same addresses; one of them knows the block.
    found.sort_by_key(|(_, blocks)| blocks.is_empty());
    match (found.into_iter().next(), read_only) {
        (Some((region, mut extents)), _) if !extents.is_empty() => {
            for extent in &mut extents {
                if read_only.is_some() && extent.access == Access::ReadWrite {
                    extent.access = Access::Read;
                }
            }
            Some(Pointer { offset, region, extents })
        }
        (_, Some(&ReadArgument { start, bytes, .. })) => {
            let extents = vec![Extent { start, bytes, access: Access::Read }];
            Some(Pointer { offset, region: start..start.saturating_add(bytes), extents })
        }
        (Some((region, _)), None) => Some(Pointer { offset, region, extents: Vec::new() }),
        (None, None) => None,
    }
}
