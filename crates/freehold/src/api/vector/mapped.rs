//! The memory of a vector that grows in place: addresses that are reserved once, and chunks that are mapped there one
//! after the other. Knows bytes; the vector knows elements.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::api::stream::Stream;
use crate::device::context::Context;
use crate::device::device_inner::DeviceInner;
use crate::device::make_room;
use crate::device::memory_use::MemoryUse;
use crate::device::pending_unmap::{AddressRange, Mappings, PendingUnmap};
use crate::error::{Error, Result};
use crate::ledger::{BlockId, EndReason, Entry, Fence, Kind, Owner};
use crate::ordering::access_history::{Access, AccessHistory};
use crate::pool::{Chunk, DeviceWork, MapOutcome, MapRequest, PAGE_BYTES};
use freehold_driver::Permission;

/// A cached chunk may be longer than requested by at most this fraction of it.
const SURPLUS_PART: u64 = 8;

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) context: Context,
    pub(super) uses: AccessHistory,
    pub(super) base: u64,
    /// The reserved addresses, in whole pages.
    room_bytes: u64,
    chunks: Vec<Chunk>,
    pub(super) mapped_bytes: u64,
    /// No work has used memory beyond these bytes.
    pub(super) touched_bytes: u64,
    /// Its block in the ledger, unless nothing is mapped.
    block: Option<BlockId>,
    allocated_at: &'static Location<'static>,
    leaving: Arc<PendingUnmap>,
}

impl Mapped {
    pub(super) fn new(stream: &Stream, room_bytes: u64, at: &'static Location<'static>) -> Result<Self> {
        let context = &stream.inner.context;
        context.inner.check()?;
        let device = &context.inner.device;
        let room_bytes = room_bytes.next_multiple_of(PAGE_BYTES);
        let base = device.mapping().reserve(room_bytes, PAGE_BYTES).map_err(|error| device.failed(error))?;
        Ok(Self {
            context: context.clone(),
            // Memory is mapped here only when it is no longer used.
            uses: AccessHistory::begin(Fence { stream: stream.id(), seq: 0 }),
            base,
            room_bytes,
            chunks: Vec::new(),
            mapped_bytes: 0,
            touched_bytes: 0,
            block: None,
            allocated_at: at,
            leaving: Arc::default(),
        })
    }

    pub(super) fn used(&self, access: Access) -> MemoryUse<'_> {
        MemoryUse {
            uses: &self.uses,
            context: &self.context,
            base: self.base,
            start: self.base,
            bytes: self.mapped_bytes,
            access,
            is_ordered: true,
            permission: Permission::ReadWrite,
        }
    }

    pub(super) fn owner(&self) -> Option<Owner> {
        let device = &self.context.inner.device;
        if device.is_child() { None } else { device.ledger().owner(self.block?) }
    }

    /// Maps at least `least_bytes` in total, and `preferred_bytes` if they are easily available. An error changes
    /// nothing.
    pub(super) fn grow(&mut self, least_bytes: u64, preferred_bytes: u64) -> Result<()> {
        self.context.inner.check()?;
        let pages = |bytes: u64| bytes.next_multiple_of(PAGE_BYTES).min(self.room_bytes);
        let (least_bytes, preferred_bytes) = (pages(least_bytes), pages(preferred_bytes));
        if least_bytes <= self.mapped_bytes {
            return Ok(());
        }
        let device = self.context.inner.device.clone();
        let asked = device.timeline.is_on().then(|| device.now());
        let (mut chunks, fences) = self.leaving.take_back();
        let had_bytes = self.mapped_bytes + length(&chunks);
        let mut outcome = Ok(());
        if had_bytes < least_bytes {
            match self.map(&device, had_bytes, least_bytes, preferred_bytes) {
                Ok(mut mapped) => chunks.append(&mut mapped),
                Err(error) => outcome = Err(error),
            }
        }
        let outcome = outcome.and_then(|()| self.enter(&device, self.mapped_bytes + length(&chunks)));
        if outcome.is_err() {
            if !chunks.is_empty() {
                self.leaving.unmap_after(&device, chunks, &fences);
            }
            return outcome;
        }
        let mapped_bytes = self.mapped_bytes + length(&chunks);
        self.chunks.append(&mut chunks);
        self.has(&device, mapped_bytes, asked);
        Ok(())
    }

    /// Records how much is mapped from now on; `asked` is set during a recording.
    fn has(&mut self, device: &DeviceInner, mapped_bytes: u64, asked: Option<Duration>) {
        let had_bytes = std::mem::replace(&mut self.mapped_bytes, mapped_bytes);
        if let Some(asked) = asked {
            device.timeline.resized(self.base, had_bytes, mapped_bytes, asked, device.now(), device.stats());
        }
    }

    /// Maps memory after `had_bytes`.
    fn map(&self, device: &DeviceInner, had_bytes: u64, least_bytes: u64, preferred_bytes: u64) -> Result<Vec<Chunk>> {
        let room_bytes = self.room_bytes - had_bytes;
        let need = |bytes: u64| {
            MapRequest::outside(self.base + had_bytes, bytes, room_bytes.min(bytes + surplus_bytes(bytes)))
        };
        let failed = |error| device.failed(error);
        let preferred = need(preferred_bytes.max(least_bytes) - had_bytes);
        if let MapOutcome::Chunks(chunks) = device.pool.map_outside(preferred).map_err(failed)? {
            return Ok(chunks);
        }
        let missing_bytes = least_bytes - had_bytes;
        if let MapOutcome::Chunks(chunks) =
            device.pool.map_outside_from_heaps(device, need(missing_bytes)).map_err(failed)?
        {
            return Ok(chunks);
        }
        // Other vectors may have given back memory whose work is complete, and a chunk that is too long is better than
        // none.
        device.unmap_completed().map_err(failed)?;
        make_room::make_room(device, &device.pool, missing_bytes).map_err(failed)?;
        let any = MapRequest::outside(self.base + had_bytes, missing_bytes, room_bytes);
        match device.pool.map_outside_from_heaps(device, any).map_err(failed)? {
            MapOutcome::Chunks(chunks) => Ok(chunks),
            MapOutcome::OutOfMemory => Err(make_room::out_of_memory(device, &device.pool, missing_bytes)),
        }
    }

    /// Records in the ledger how much is mapped.
    fn enter(&mut self, device: &DeviceInner, bytes: u64) -> Result<()> {
        // Nothing is recorded for a closed context.
        let _shared = self.context.inner.enter()?;
        let block = device.entering(|ledger| match self.block {
            // Another thread is closing the context.
            Some(block) if ledger.owner(block).is_none() => Err(Error::ContextClosed { context: self.context.id() }),
            Some(block) => Ok(ledger.resize(block, bytes).map(|()| block)?),
            None => Ok(ledger.enter(self.entry(device, bytes))?),
        })?;
        self.block = Some(block);
        Ok(())
    }

    fn entry(&self, device: &DeviceInner, bytes: u64) -> Entry {
        Entry {
            base: self.base,
            bytes,
            capacity_bytes: bytes,
            context: self.context.id(),
            stream: Some(self.uses.last_home_use().stream),
            process: device.process,
            kind: Kind::Own,
            tag: None,
            allocated_at: self.allocated_at,
        }
    }

    /// Gives back chunks without any of the first `used_bytes`, once all work so far is complete. An error changes
    /// nothing.
    pub(super) fn shrink(&mut self, used_bytes: u64) -> Result<()> {
        self.context.inner.check()?;
        let device = self.context.inner.device.clone();
        let end = self.base + used_bytes;
        let kept = self.chunks.partition_point(|chunk| chunk.base < end);
        if kept == self.chunks.len() {
            return Ok(());
        }
        let asked = device.timeline.is_on().then(|| device.now());
        let fences = self.pending(&device);
        device.record_fences(&fences)?;
        if kept > 0 {
            self.enter(&device, self.mapped_bytes - length(&self.chunks[kept..]))?;
        } else {
            self.forget(&device);
        }
        let chunks = self.chunks.split_off(kept);
        let mapped_bytes = self.mapped_bytes - length(&chunks);
        self.leaving.unmap_after(&device, chunks, &fences);
        self.leaving.unmap_now(&device);
        self.has(&device, mapped_bytes, asked);
        Ok(())
    }

    /// Removes the block from the ledger, unless it ended with its context.
    fn forget(&mut self, device: &DeviceInner) {
        let mut ledger = device.ledger();
        if let Some(block) = self.block.take().filter(|&block| ledger.owner(block).is_some()) {
            ledger.forget(block, EndReason::Returned);
        }
    }

    /// Returns the uses that may be pending.
    fn pending(&self, device: &DeviceInner) -> Vec<Fence> {
        let mut fences = self.uses.all();
        fences.retain(|&fence| !device.streams.is_complete(fence));
        fences
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let device = self.context.inner.device.clone();
        if device.is_child() {
            return;
        }
        let asked = device.timeline.is_on().then(|| device.now()).filter(|_| self.mapped_bytes > 0);
        let fences = self.pending(&device);
        let addresses = Some(AddressRange { base: self.base, bytes: self.room_bytes });
        let chunks = std::mem::take(&mut self.chunks);
        self.leaving.end(&device, Mappings { chunks, addresses, block: self.block, ..Mappings::default() }, &fences);
        self.has(&device, 0, asked);
    }
}

fn length(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| chunk.bytes).sum()
}

fn surplus_bytes(bytes: u64) -> u64 {
    bytes / SURPLUS_PART / PAGE_BYTES * PAGE_BYTES
}
