//! A block of foreign code, in whichever of the device's pools it lies.

use crate::device::device_inner::DeviceInner;
use crate::pool::block_meta::BlockMeta;
use crate::pool::{Pool, PoolIndex};

/// A block that foreign code has by its address alone.
#[derive(Clone, Copy)]
pub(super) struct LentBlock<'a> {
    pub(super) pool: &'a Pool,
    pub(super) meta: &'a BlockMeta,
}

impl<'a> LentBlock<'a> {
    /// Returns the block that begins at an address, whoever has it.
    pub(super) fn at(device: &'a DeviceInner, address: u64) -> Option<Self> {
        device.pools().find_map(|pool| pool.table.meta_at(address).map(|meta| Self { pool, meta }))
    }

    /// Returns the block with a number that [`number`](Self::number) returned.
    pub(super) fn numbered(device: &'a DeviceInner, number: u32) -> Self {
        let (index, meta) = PoolIndex::split(number);
        let pool = device.pool_of(index);
        Self { pool, meta: pool.table.metas.at(meta) }
    }

    /// The number of its meta, which is unique among the device's pools.
    pub(super) fn number(self) -> u32 {
        self.pool.number_of(self.meta.number())
    }

    pub(super) fn is_in_main_pool(self) -> bool {
        self.pool.index == PoolIndex::MAIN
    }
}
