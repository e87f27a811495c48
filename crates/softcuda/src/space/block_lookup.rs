//! Memory whose blocks a library knows: pools of its own within one allocation of the driver's. The library is asked at
//! each launch which block an argument leads to, and the answer stays with the launch: a block may be freed and handed out
//! again, with another size, before the kernel runs.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::RwLock;

use crate::base::sync::{read, write};
use freehold_driver::cuda::extension::{FindBlock, FoundBlock, LIVE, RELEASED, ReadArgument};
use freehold_driver::cuda::{CUerror, CUresult};
use freehold_ptx::{Access, Extent, Kernel, Pointer};

thread_local! {
    /// The arguments that the next launch of this thread only reads.
    static READ_ONLY: RefCell<Vec<ReadArgument>> = const { RefCell::new(Vec::new()) };
}

/// Says what the next launch of this thread only reads.
pub(crate) fn set_read_only(arguments: Vec<ReadArgument>) {
    READ_ONLY.set(arguments);
}

/// Memory that was described.
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
    /// The library's own pointer, which only its function follows.
    data: usize,
}

impl Region {
    fn find(&self, address: u64) -> Option<Extent> {
        let mut found = FoundBlock::default();
        // SAFETY: whoever described the memory vouched for the function and its data until it is forgotten, which waits
        // for the lock that the caller holds; `found` outlives the call, which writes one value to it.
        let answer = unsafe { (self.find)(self.data as *mut c_void, address, &mut found) };
        let access = match answer {
            LIVE => Access::ReadWrite,
            RELEASED => Access::Released,
            _ => return None,
        };
        Some(Extent { start: found.base, bytes: found.bytes, access })
    }

    /// Where an address leads: to the block that it lies in, and to the live one that ends there, for it may be the end of
    /// that.
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
    /// Adds memory. The id ends that.
    pub(crate) fn register(&self, start: u64, bytes: u64, find: FindBlock, data: usize) -> Result<u64, CUerror> {
        let end = start.checked_add(bytes).ok_or(CUerror::INVALID_VALUE)?;
        let mut regions = write(&self.regions);
        regions.last_id += 1;
        let id = regions.last_id;
        regions.live.push(Region { id, addresses: start..end, find, data });
        Ok(id)
    }

    /// Forgets memory. No look-up of it is under way afterwards.
    pub(crate) fn unregister(&self, id: u64) -> CUresult {
        let mut regions = write(&self.regions);
        let at = regions.live.iter().position(|region| region.id == id).ok_or(CUerror::INVALID_VALUE)?;
        regions.live.remove(at);
        Ok(())
    }

    /// Asks nobody any more about addresses that were given back: whoever described them knows nothing of what lies there next.
    pub(crate) fn forget_range(&self, given: &Range<u64>) {
        let mut regions = write(&self.regions);
        let is_within =
            |region: &&mut Region| given.start <= region.addresses.start && region.addresses.end <= given.end;
        // They stay until they are forgotten.
        regions.live.iter_mut().filter(is_within).for_each(|region| region.addresses = 0..0);
    }

    /// The pointers among the arguments of a launch whose blocks are known. `words` says where in them addresses come from.
    pub(crate) fn pointers(&self, kernel: &Kernel, words: &[u32], arguments: &[u8]) -> Vec<Pointer> {
        // A thread that ends may launch, too.
        let read_only = READ_ONLY.try_with(RefCell::take).unwrap_or_default();
        let regions = read(&self.regions);
        if regions.live.is_empty() && read_only.is_empty() {
            return Vec::new();
        }
        let pointer = |&offset: &u32| {
            let word = arguments.get(offset as usize..)?.first_chunk()?;
            let is_it = |read: &&ReadArgument| {
                let parameter = kernel.parameters.get(read.parameter as usize);
                parameter.is_some_and(|parameter| parameter.offset == offset.into())
            };
            pointer_at(&regions.live, offset, u64::from_le_bytes(*word), read_only.iter().find(is_it))
        };
        words.iter().filter_map(pointer).collect()
    }
}

/// What is known of a word at an offset of the arguments.
fn pointer_at(regions: &[Region], offset: u32, word: u64, read_only: Option<&ReadArgument>) -> Option<Pointer> {
    let leads_to = |addresses: &Range<u64>| !addresses.is_empty() && (addresses.start..=addresses.end).contains(&word);
    let around = regions.iter().filter(|region| leads_to(&region.addresses));
    let mut found: Vec<_> = around.map(|region| (region.addresses.clone(), region.blocks_at(word))).collect();
    // Several devices may describe the same addresses, and one of them knows what lies there.
    found.sort_by_key(|(_, blocks)| blocks.is_empty());
    match (found.into_iter().next(), read_only) {
        (Some((region, mut blocks)), _) if !blocks.is_empty() => {
            for block in &mut blocks {
                if read_only.is_some() && block.access == Access::ReadWrite {
                    block.access = Access::Read;
                }
            }
            Some(Pointer { offset, region, blocks })
        }
        (_, Some(&ReadArgument { start, bytes, .. })) => {
            let blocks = vec![Extent { start, bytes, access: Access::Read }];
            Some(Pointer { offset, region: start..start.saturating_add(bytes), blocks })
        }
        (Some((region, _)), None) => Some(Pointer { offset, region, blocks: Vec::new() }),
        (None, None) => None,
    }
}
