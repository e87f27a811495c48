//! Blocks of foreign code that other devices access, and that other processes map, chunk by chunk.

use super::ForeignPool;
use super::exported_chunk::ExportedChunk;
use super::lent_block::LentBlock;
use crate::error::{Error, Result};
use crate::pool::block_meta::BlockState;
use crate::pool::{Pool, PoolIndex};

impl ForeignPool {
    /// Makes all memory that the pool takes from the driver from now on exportable. Returns whether the device can
    /// export memory.
    pub fn make_exportable(&self) -> bool {
        self.device.pool.chunks.make_exportable()
    }

    /// Makes all memory that the pool maps from now on accessible to the devices with these numbers. They must be able
    /// to access this device's memory.
    pub fn set_peers(&self, peers: &[i32]) {
        self.private_pools().for_each(|pool| pool.chunks.set_peers(peers));
    }

    /// Like [`set_peers`](Self::set_peers), for the memory of blocks that the pool has mapped before, too.
    ///
    /// # Errors
    /// Those of the driver, for devices that cannot access this device's memory.
    pub fn permit_peers(&self, peers: &[i32]) -> Result<()> {
        self.device.check()?;
        let before = self.device.pool.chunks.peers();
        let permitted = self.private_pools().try_for_each(|pool| pool.permit_peers(peers));
        if permitted.is_err() {
            self.set_peers(&before);
        }
        permitted.map_err(|error| self.device.failed(error))
    }

    /// Returns the pools of blocks that no other process maps.
    fn private_pools(&self) -> impl Iterator<Item = &Pool> {
        std::iter::once(&self.device.pool).chain(self.device.sleepers.pools())
    }

    /// Exports the chunks of the block at an address, in the order of their addresses.
    ///
    /// # Errors
    /// [`Error::WrongUse`] if no block begins at the address, and those of the driver: for memory that the pool took
    /// before [`make_exportable`](Self::make_exportable), and if too many descriptors are open;
    /// [`Error::NotShareable`] for a block that can sleep.
    ///
    /// # Safety
    /// The block is not freed during the call.
    pub unsafe fn export_block(&self, address: u64) -> Result<Vec<ExportedChunk>> {
        self.device.check()?;
        let LentBlock { pool, meta } = self.lent_at(address).map_err(Error::into_use)?;
        let seen = meta.snapshot();
        if seen.state.state() != BlockState::Owned || seen.base != address {
            return Err(self.wrong(address).into_use());
        }
        if pool.index != PoolIndex::MAIN {
            // The memory would stay taken while the block sleeps.
            return Err(Error::NotShareable { address });
        }
        let (mut chunks, mut next) = (Vec::new(), seen.base);
        while next < seen.base + seen.bytes {
            let chunk = pool.chunk_at(seen.heap, next);
            let descriptor = pool.chunks.export(chunk).map_err(|error| self.device.failed(error))?;
            chunks.push(ExportedChunk { descriptor, address: chunk.base, bytes: chunk.bytes });
            next = chunk.base + chunk.bytes;
        }
        Ok(chunks)
    }
}
