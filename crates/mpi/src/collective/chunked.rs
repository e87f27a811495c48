//! A collective call in chunks: each is copied to the host, passed to the library and copied back, several at a time.
//! If the library accepts device memory, chunks are parts of the memory itself.

use std::collections::VecDeque;

use freehold::{Event, ExternalAccess};

use crate::element::Datatype;
use crate::error::{Error, Result, TransferError};
use crate::op::Op;
use crate::raw::{CallError, RawRequest, Redistribution, Span};
use crate::settings::Path;
use crate::staging::{CopySegment, StagingBuffer};
use crate::transfer::{MatchOrder, Operation, Received};
use crate::world_inner::WorldInner;

/// The memory that a rank sends, and the memory that it receives into; either may be absent.
pub(super) type Endpoints = (Option<ExternalAccess>, Option<ExternalAccess>);

/// How many chunks are in flight.
const DEPTH: usize = 4;

/// The longest chunk of device memory per call: counts have 31 bits.
const DIRECT_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) enum CollectiveKind {
    Broadcast {
        root: i32,
    },
    /// Without a root, every rank gets the result.
    Reduce {
        root: Option<i32>,
        op: Op,
        kind: Datatype,
    },
    Redistribute(Redistribution),
}

/// A pending collective call.
pub(crate) struct Collective {
    kind: CollectiveKind,
    endpoints: Endpoints,
    /// The length of each rank's part.
    part_bytes: usize,
    element_bytes: usize,
    /// How many bytes of each part are in chunks already.
    next_offset: usize,
    chunks: VecDeque<Chunk>,
    has_started: bool,
}

/// The same range of every part.
struct Chunk {
    start: usize,
    bytes: usize,
    /// `None` if the memory itself is passed, or there is nothing to send.
    from: Option<StagingBuffer>,
    to: Option<StagingBuffer>,
    stage: Stage,
}

enum Stage {
    CopyingToHost(Option<Event>),
    InLibrary(RawRequest),
    CopyingToDevice(Option<Event>),
}

impl Collective {
    pub(crate) fn new(what: CollectiveKind, ends: Endpoints, part_bytes: usize, element_bytes: usize) -> Self {
        let (taken, chunks) = (0, VecDeque::new());
        Self { kind: what, endpoints: ends, part_bytes, element_bytes, next_offset: taken, chunks, has_started: false }
    }

    /// Returns how many parts this rank sends, and how many it receives.
    fn parts(&self, world: &WorldInner) -> (usize, usize) {
        let size = world.size as usize;
        let (from, to) = match self.kind {
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => (1, 1),
            CollectiveKind::Redistribute(Redistribution::Gather(_)) => (1, size),
            CollectiveKind::Redistribute(Redistribution::Scatter(_)) => (size, 1),
            CollectiveKind::Redistribute(Redistribution::AllToAll) => (size, size),
        };
        let (has_from, has_to) = (self.endpoints.0.is_some(), self.endpoints.1.is_some());
        (if has_from { from } else { 0 }, if has_to { to } else { 0 })
    }

    /// Returns the most parts that any rank sends or receives: chunks have the same length everywhere.
    fn parts_max(&self, world: &WorldInner) -> usize {
        if matches!(self.kind, CollectiveKind::Redistribute(_)) { world.size as usize } else { 1 }
    }

    /// Returns whether device memory is passed to the library. The result is the same at all ranks.
    fn is_direct(&self, world: &WorldInner) -> bool {
        // Chunks of several parts are not contiguous.
        let is_whole = !matches!(self.kind, CollectiveKind::Redistribute(_)) || self.part_bytes <= DIRECT_BYTES_MAX;
        world.path_choice.collectives == Path::Direct && is_whole
    }

    fn chunk_bytes(&self, world: &WorldInner) -> usize {
        if self.is_direct(world) {
            return DIRECT_BYTES_MAX;
        }
        let bytes = world.settings.chunk_bytes / self.parts_max(world);
        (bytes / self.element_bytes * self.element_bytes).max(self.element_bytes)
    }

    /// Starts copies into free buffers.
    fn load(&mut self, world: &WorldInner) -> Result<()> {
        let (piece_bytes, is_direct, parts) = (self.chunk_bytes(world), self.is_direct(world), self.parts(world));
        while self.chunks.len() < DEPTH && self.next_offset < self.part_bytes {
            let (start, bytes) = (self.next_offset, piece_bytes.min(self.part_bytes - self.next_offset));
            let buffer = |parts: usize| -> Result<Option<StagingBuffer>> {
                let wanted = parts * piece_bytes.min(self.part_bytes.next_power_of_two());
                if is_direct || parts == 0 { Ok(None) } else { world.stager.buffer(wanted).map(Some) }
            };
            let (mut from, to) = (buffer(parts.0)?, buffer(parts.1)?);
            let loading = match (&mut from, &self.endpoints.0) {
                (Some(buffer), Some(access)) => {
                    let moves = self.copy_segments(access, parts.0, start, bytes);
                    // SAFETY: the memory is lent, and earlier work on it is complete; the chunk keeps the buffer, and
                    // the call keeps the memory.
                    Some(unsafe { world.stager.to_host(buffer, &moves) }?)
                }
                _ => None,
            };
            self.chunks.push_back(Chunk { start, bytes, from, to, stage: Stage::CopyingToHost(loading) });
            self.next_offset += bytes;
        }
        Ok(())
    }

    /// Returns where a range of each part lies, on the device and in a buffer.
    fn copy_segments(&self, access: &ExternalAccess, parts: usize, start: usize, bytes: usize) -> Vec<CopySegment> {
        let of = |part: usize| CopySegment {
            device: access.address() + (part * self.part_bytes + start) as u64,
            offset: part * bytes,
            bytes,
        };
        (0..parts).map(of).collect()
    }

    fn call(&self, chunk: &Chunk, world: &WorldInner) -> std::result::Result<RawRequest, CallError> {
        let parts = self.parts(world);
        let memory =
            |buffer: &Option<StagingBuffer>, access: &Option<ExternalAccess>, parts: usize| match (buffer, access) {
                (Some(buffer), _) => buffer.memory(parts * chunk.bytes),
                (None, Some(access)) => {
                    Span { address: access.address() + chunk.start as u64, bytes: parts * chunk.bytes }
                }
                (None, None) => Span { address: 0, bytes: 0 },
            };
        let from = memory(&chunk.from, &self.endpoints.0, parts.0);
        let to = memory(&chunk.to, &self.endpoints.1, parts.1);
        let (library, comm) = (&world.library, world.collectives);
        match self.kind {
            CollectiveKind::Broadcast { root } => {
                let memory = if root == world.rank { from } else { to };
                // SAFETY: the memory is a buffer that the chunk keeps until the call is complete, or device memory that
                // the library accepts and that is lent until then; earlier work on it is complete.
                unsafe { library.ibroadcast(comm, memory, root) }
            }
            CollectiveKind::Reduce { root, op, kind } => {
                let count = chunk.bytes / self.element_bytes;
                // SAFETY: as above, for both; each holds `count` elements.
                unsafe { library.ireduce(comm, (from, to), (count, kind, op), root) }
            }
            CollectiveKind::Redistribute(spread) => {
                // SAFETY: as above, for both; each holds `chunk.bytes` bytes for each of its parts.
                unsafe { library.iredistribute(comm, spread, (from, to), chunk.bytes) }
            }
        }
    }

    /// Advances each chunk, in order.
    fn advance_chunks(&mut self, world: &WorldInner) -> Result<()> {
        let (title, parts) = (self.describe(), self.parts(world));
        let refused =
            |code: CallError| Error::Transfer(Box::new(TransferError { message: code.message, ..title.clone() }));
        let mut chunks = std::mem::take(&mut self.chunks);
        let mut moved = Ok(());
        for chunk in &mut chunks {
            moved = self.advance_chunk(chunk, parts.1, world, &refused);
            // Chunks are passed to the library in order.
            if moved.is_err() || matches!(chunk.stage, Stage::CopyingToHost(_)) {
                break;
            }
        }
        self.chunks = chunks;
        moved
    }

    fn advance_chunk(
        &self,
        chunk: &mut Chunk,
        parts: usize,
        world: &WorldInner,
        refused: &impl Fn(CallError) -> Error,
    ) -> Result<()> {
        if let Stage::CopyingToHost(event) = &chunk.stage
            && event.as_ref().map_or(Ok(true), Event::is_complete)?
        {
            chunk.stage = Stage::InLibrary(self.call(chunk, world).map_err(refused)?);
        }
        if let Stage::InLibrary(pending) = &mut chunk.stage
            && world.library.test(pending).map_err(refused)?.is_some()
        {
            let storing = match (&chunk.to, &self.endpoints.1) {
                (Some(buffer), Some(access)) => {
                    let moves = self.copy_segments(access, parts, chunk.start, chunk.bytes);
                    // SAFETY: the memory is lent, and earlier work on it is complete; the chunk keeps the buffer, and
                    // the call keeps the memory.
                    Some(unsafe { world.stager.to_device(buffer, &moves) }?)
                }
                _ => None,
            };
            chunk.stage = Stage::CopyingToDevice(storing);
        }
        Ok(())
    }
}

impl Operation for Collective {
    fn order(&self) -> MatchOrder {
        MatchOrder::Collective
    }

    fn is_posted(&self) -> bool {
        let is_called = |chunk: &Chunk| !matches!(chunk.stage, Stage::CopyingToHost(_));
        self.has_started && self.next_offset == self.part_bytes && self.chunks.iter().all(is_called)
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        if !self.has_started {
            for access in [&self.endpoints.0, &self.endpoints.1].into_iter().flatten() {
                if !access.is_ready()? {
                    return Ok(None);
                }
            }
            self.has_started = true;
        }
        self.load(world)?;
        self.advance_chunks(world)?;
        while let Some(Chunk { stage: Stage::CopyingToDevice(event), .. }) = self.chunks.front() {
            if !event.as_ref().map_or(Ok(true), Event::is_complete)? {
                break;
            }
            self.chunks.pop_front();
        }
        if self.next_offset < self.part_bytes || !self.chunks.is_empty() {
            return Ok(None);
        }
        for access in [self.endpoints.0.take(), self.endpoints.1.take()].into_iter().flatten() {
            access.done();
        }
        Ok(Some(Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.first_dead()
    }

    fn describe(&self) -> TransferError {
        let (what, rank) = match self.kind {
            CollectiveKind::Broadcast { root } => ("broadcasting", Some(root)),
            CollectiveKind::Reduce { root, .. } => ("reducing", root),
            CollectiveKind::Redistribute(Redistribution::Gather(root)) => ("gathering", Some(root)),
            CollectiveKind::Redistribute(Redistribution::Scatter(root)) => ("scattering", Some(root)),
            CollectiveKind::Redistribute(Redistribution::AllToAll) => ("exchanging", None),
        };
        TransferError { what, rank, tag: None, bytes: self.part_bytes as u64, message: Box::default() }
    }

    fn abort(&mut self, world: &WorldInner) {
        if let Err(error) = world.stager.synchronize() {
            world.record_drop_error(error);
        }
        for chunk in self.chunks.drain(..) {
            if let Stage::InLibrary(_) = chunk.stage {
                // Collective calls cannot be cancelled: the library may still use the buffers.
                chunk.from.into_iter().chain(chunk.to).for_each(StagingBuffer::leak);
            }
        }
        let (from, to) = (self.endpoints.0.take(), self.endpoints.1.take());
        if let Some(from) = from {
            from.done();
        }
        if let Some(to) = to {
            if self.has_started { to.failed() } else { to.done() }
        }
    }
}

/// A pending barrier.
pub(crate) struct Barrier {
    pending: Option<RawRequest>,
}

impl Barrier {
    pub(crate) fn new() -> Self {
        Self { pending: None }
    }
}

impl Operation for Barrier {
    fn order(&self) -> MatchOrder {
        MatchOrder::Collective
    }

    fn is_posted(&self) -> bool {
        self.pending.is_some()
    }

    fn advance(&mut self, world: &WorldInner) -> Result<Option<Received>> {
        let title = self.describe();
        let refused = |code: CallError| Error::Transfer(Box::new(TransferError { message: code.message, ..title }));
        let pending = match &mut self.pending {
            Some(pending) => pending,
            None => self.pending.insert(world.library.ibarrier(world.collectives).map_err(&refused)?),
        };
        Ok(world.library.test(pending).map_err(&refused)?.map(|_| Received::EMPTY))
    }

    fn missing_rank(&self, world: &WorldInner) -> Option<i32> {
        world.liveness.first_dead()
    }

    fn describe(&self) -> TransferError {
        TransferError { what: "waiting for all ranks with", rank: None, tag: None, bytes: 0, message: Box::default() }
    }

    fn abort(&mut self, _: &WorldInner) {
        self.pending = None;
    }
}
