//! Memory that is given back to the driver while its addresses stay with the heaps, and new memory at these addresses.
//!
//! After a failure all chunks are mapped, or all are asleep. What the driver refused to unmap or to free stays with the
//! source, stranded or spare, and the next call begins with it.

use freehold_driver::CallError;

use super::super::extent_map::Chunk;
use super::{ChunkSource, LockedChunks, MapOutcome, SpareChunk};

impl LockedChunks {
    pub(crate) fn is_asleep(&self) -> bool {
        self.is_asleep
    }
}

impl ChunkSource {
    /// Unmaps the chunks of all heaps, and keeps their memory as spare. If the driver refuses, maps those that were unmapped
    /// again; if it refuses that too, they are asleep nevertheless.
    pub(crate) fn unmap_all(&self, locked: &mut LockedChunks, chunks: &[Chunk]) -> Result<(), CallError> {
        self.unmap_stranded(locked)?;
        for (index, &chunk) in chunks.iter().enumerate() {
            if let Err(error) = self.unmap_mapped(locked, chunk) {
                let (unmapped, mapped) = chunks.split_at(index);
                if self.map_back(locked, unmapped).is_err() {
                    locked.stranded.extend(mapped);
                    locked.is_asleep = true;
                }
                return Err(error);
            }
        }
        locked.is_asleep = true;
        Ok(())
    }

    /// Maps chunks where they were, with the memory that they had. After a failure none of them is mapped for a heap.
    fn map_back(&self, locked: &mut LockedChunks, chunks: &[Chunk]) -> Result<(), CallError> {
        for (index, chunk) in chunks.iter().enumerate() {
            let at = locked.spare.iter().position(|spare| spare.handle == chunk.handle);
            let spare = locked.spare.swap_remove(at.expect("the memory of a chunk was just made spare"));
            if let Err(error) = self.map(locked, chunk.base, vec![spare]) {
                locked.stranded.extend(&chunks[..index]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Maps memory for all sleeping chunks, and returns them with it. They stay asleep until [`note_awake`]. Returns
    /// `None`, with nothing mapped, if there is not enough memory.
    ///
    /// [`note_awake`]: Self::note_awake
    pub(crate) fn map_all(&self, locked: &mut LockedChunks, asleep: &[Chunk]) -> Result<Option<Vec<Chunk>>, CallError> {
        self.unmap_stranded(locked)?;
        let mut mapped = Vec::with_capacity(asleep.len());
        for chunk in asleep {
            match self.map_one(locked, *chunk) {
                Ok(MapOutcome::Chunks(chunks)) => mapped.extend(chunks),
                Ok(MapOutcome::OutOfMemory) => return self.unmap_again(locked, mapped).map(|()| None),
                // The next call meets what was refused on the way back.
                Err(error) => return self.unmap_again(locked, mapped).and(Err(error)),
            }
        }
        Ok(Some(mapped))
    }

    fn map_one(&self, locked: &mut LockedChunks, chunk: Chunk) -> Result<MapOutcome, CallError> {
        let left = locked.spare.iter().position(|spare| spare.bytes == chunk.bytes);
        let memory: Option<SpareChunk> = match left {
            Some(index) => Some(locked.spare.swap_remove(index)),
            None => self.create(chunk.bytes)?,
        };
        memory.map_or(Ok(MapOutcome::OutOfMemory), |memory| self.map(locked, chunk.base, vec![memory]))
    }

    /// Gives the memory of chunks back that were mapped by [`map_all`](Self::map_all): they are asleep again.
    pub(crate) fn unmap_again(&self, locked: &mut LockedChunks, chunks: Vec<Chunk>) -> Result<(), CallError> {
        locked.stranded.extend(chunks);
        self.release(locked, 0).map(drop)
    }

    /// Notes that all chunks have memory again.
    pub(crate) fn note_awake(&self, locked: &mut LockedChunks) {
        locked.is_asleep = false;
    }
}
