//! The address space of a process: its devices, the addresses that the program reserved, and the live spans.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use freehold_driver::cuda::{CUdevice, CUerror, CUmemAccess_flags, CUresult};

use super::object_table::ObjectTable;
use super::span::{Span, SpanKind, SpanMap};
use crate::base::check;
use crate::base::handle_table::{HandleKind, HandleRange};
use crate::base::sync::{read, write};
use crate::memory::host_pages::HostPages;
use crate::memory::mapping::{AddressReservations, Mapping};
use crate::memory::mem_ref::MemRef;
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::graph_allocation::GraphAllocation;
use crate::objects::texture::{SurfaceObject, TextureObject};

#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) reservations: AddressReservations,
    pub(crate) textures: ObjectTable<TextureObject>,
    pub(crate) surfaces: ObjectTable<SurfaceObject>,
    spans: RwLock<SpanMap>,
    /// Incremented whenever kernels lose access to a span.
    span_epoch: AtomicU64,
    /// Number of spans of allocation nodes.
    graph_spans: AtomicUsize,
    last_id: AtomicU64,
    /// Whether accesses of kernels are checked against blocks, not against pages.
    pub(crate) are_bounds_exact: bool,
}

impl AddressSpace {
    pub(crate) fn new(
        devices: Vec<Arc<Device>>,
        reservations: AddressReservations,
        handles: &HandleRange,
        are_bounds_exact: bool,
    ) -> Self {
        Self {
            devices,
            reservations,
            textures: ObjectTable::new(handles.space(HandleKind::Texture)),
            surfaces: ObjectTable::new(handles.space(HandleKind::Surface)),
            spans: RwLock::default(),
            span_epoch: 0.into(),
            graph_spans: 0.into(),
            last_id: 0.into(),
            are_bounds_exact,
        }
    }

    pub(crate) fn device(&self, device: CUdevice) -> Result<&Arc<Device>, CUerror> {
        usize::try_from(device.0).ok().and_then(|ordinal| self.devices.get(ordinal)).ok_or(CUerror::INVALID_DEVICE)
    }

    /// Returns the device that other processes know by this number.
    pub(crate) fn device_at_index(&self, index: u32) -> Result<&Arc<Device>, CUerror> {
        self.devices.iter().find(|device| device.index == index as usize).ok_or(CUerror::INVALID_VALUE)
    }

    /// Returns a number that is unique within the process.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn spans(&self) -> RwLockReadGuard<'_, SpanMap> {
        read(&self.spans)
    }

    pub(crate) fn spans_mut(&self) -> RwLockWriteGuard<'_, SpanMap> {
        write(&self.spans)
    }

    /// Returns the span epoch. While it is unchanged, every span that a kernel has looked up is still accessible.
    pub(crate) fn span_epoch(&self) -> u64 {
        self.span_epoch.load(Ordering::Acquire)
    }

    /// Invalidates the spans that kernels have looked up.
    pub(crate) fn bump_span_epoch(&self) {
        self.span_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Unmaps the mappings within these reserved addresses, if there are any. Does not wait for work that accesses
    /// them.
    ///
    /// # Errors
    /// The addresses are not reserved, or they contain only a part of a mapping.
    pub(crate) fn unmap(&self, start: u64, bytes: u64) -> Result<Vec<Arc<Span>>, CUerror> {
        let mut spans = self.spans_mut();
        if !self.reservations.contains(start, bytes) {
            return Err(CUerror::INVALID_VALUE);
        }
        let ended = spans.unmap(start, bytes).ok_or(CUerror::INVALID_VALUE)?;
        for span in &ended {
            if let SpanKind::Mapped(mapping) = &span.kind {
                mapping.status.mark_unmapped();
            }
        }
        self.bump_span_epoch();
        for span in &ended {
            self.reservations.arena().detach(span.base, span.bytes);
        }
        Ok(ended)
    }

    /// Returns the memory from `start` to `last` for work of `device` that reads or writes it, or `None` if the driver
    /// knows no memory at `start`.
    ///
    /// # Errors
    /// The range lies in several blocks, or the device has no such access.
    pub(crate) fn resolve(
        &self,
        start: u64,
        last: u64,
        device: usize,
        access: CUmemAccess_flags,
    ) -> Result<Option<(Arc<Span>, MemRef)>, CUerror> {
        let spans = self.spans();
        let Some(span) = spans.containing(start) else { return Ok(None) };
        let mem = match &span.kind {
            SpanKind::Mapped(_) => {
                let run = spans.mappings_covering(span, last).ok_or(CUerror::INVALID_VALUE)?;
                let allowed = |mapping: &Arc<Mapping>| mapping.access(device).0 & access.0 == access.0;
                if !run.iter().all(allowed) {
                    return Err(CUerror::INVALID_VALUE);
                }
                let statuses = run.iter().map(|mapping| Arc::clone(&mapping.status)).collect();
                MemRef::mapped(self.reservations.arena(), start, statuses)
            }
            _ if last < span.end() => self.mem_ref(span, start),
            _ => {
                let end = span.end();
                // A report looks up the program's symbols.
                drop(spans);
                check::beyond(last, end);
                return Err(CUerror::INVALID_VALUE);
            }
        };
        Ok(Some((Arc::clone(span), mem)))
    }

    /// Removes a span that is being freed, so that kernels cannot access it either.
    pub(crate) fn finish_free(&self, span: &Span) {
        self.spans_mut().finish_free(span);
        self.bump_span_epoch();
    }

    /// Removes the span at `base` from the program's view if `wanted` returns true. Kernels can access it until
    /// [`finish_free`](Self::finish_free).
    pub(crate) fn begin_free(&self, base: u64, wanted: impl Fn(&Span) -> bool) -> Result<Arc<Span>, CUerror> {
        let mut spans = self.spans_mut();
        if !spans.starting_at(base).is_some_and(|span| wanted(span)) {
            return Err(CUerror::INVALID_VALUE);
        }
        spans.begin_free(base).ok_or(CUerror::INVALID_VALUE)
    }

    /// Removes the span at `base`, if there is one, and frees its memory. No pending work may access it.
    pub(crate) fn free(&self, base: u64) {
        let left = { self.spans_mut().begin_free(base) };
        if let Some(span) = left {
            self.finish_free(&span);
            self.free_backing(&span);
        }
    }

    /// Removes a span that only kernels access, and frees its memory. Returns false if none starts there.
    pub(crate) fn free_internal(&self, base: u64) -> bool {
        let Some(span) = ({ self.spans_mut().remove_internal(base) }) else { return false };
        self.bump_span_epoch();
        self.free_backing(&span);
        true
    }

    /// Removes every span for which `unwanted` returns true, and frees the memory. No pending work may access it.
    pub(crate) fn free_spans_if(&self, unwanted: impl Fn(&Span) -> bool) {
        let ended = self.spans_mut().remove_if(unwanted);
        self.bump_span_epoch();
        for span in ended {
            self.free_backing(&span);
        }
    }

    /// Releases the memory and the addresses of allocation nodes that nothing refers to any more.
    pub(crate) fn release_graph_memory(&self) {
        if !self.has_graph_memory() {
            return;
        }
        let is_unused = |span: &Span| match &span.kind {
            SpanKind::Graph(block) => Arc::strong_count(block) == 1 && block.is_idle(),
            _ => false,
        };
        let ended = self.spans_mut().remove_if(is_unused);
        self.graph_spans.fetch_sub(ended.len(), Ordering::AcqRel);
        self.bump_span_epoch();
        for span in ended {
            if let SpanKind::Graph(block) = &span.kind {
                block.release();
            }
        }
    }

    /// Returns whether there is an allocation node.
    pub(crate) fn has_graph_memory(&self) -> bool {
        self.graph_spans.load(Ordering::Acquire) > 0
    }

    /// Inserts the span of an allocation node.
    pub(crate) fn insert_graph_span(&self, block: &Arc<GraphAllocation>, device: usize) {
        let kind = SpanKind::Graph(Arc::clone(block));
        let span = self.new_span(block.address, block.bytes, device, None, kind);
        self.spans_mut().insert(span);
        self.graph_spans.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the blocks of all allocation nodes on a device.
    pub(crate) fn graph_allocations(&self, device: usize) -> Vec<Arc<GraphAllocation>> {
        self.spans().graph_allocations(device)
    }

    /// Returns the span that contains `address`.
    pub(crate) fn find_span(&self, address: u64) -> Option<Arc<Span>> {
        self.spans().containing(address).cloned()
    }

    /// Inserts a new span.
    ///
    /// # Errors
    /// Its context was destroyed in the meantime: the caller still owns the memory.
    pub(crate) fn insert_span(
        &self,
        base: u64,
        bytes: u64,
        device: usize,
        context: Option<Arc<Context>>,
        kind: SpanKind,
    ) -> CUresult {
        let span = self.new_span(base, bytes, device, context, kind);
        let mut spans = self.spans_mut();
        // A context is marked destroyed before its spans are removed, so no span is inserted after the removal.
        span.context.as_ref().map_or(Ok(()), |context| context.check_alive())?;
        spans.insert(span);
        Ok(())
    }

    /// Allocates memory of a context's device and inserts a span for it.
    pub(crate) fn alloc(&self, context: &Arc<Context>, bytes: u64, kind: SpanKind) -> Result<u64, CUerror> {
        let device = &context.device;
        let address = device.alloc(check::guarded(bytes), context.id)?;
        // Others are noted by the call that allocates them. This memory may have been a block that was freed.
        if matches!(kind, SpanKind::Variable { .. } | SpanKind::Internal { .. }) {
            check::forget(address, bytes);
        }
        let entered = self.insert_span(address, bytes, device.ordinal, Some(Arc::clone(context)), kind);
        if entered.is_err() {
            device.memory.free(address, check::guarded(bytes));
        }
        entered.map(|()| address)
    }

    /// Maps memory that the host and all devices access, and inserts a span for it. Without a context it lives until it is
    /// freed.
    pub(crate) fn alloc_managed(
        &self,
        context: Option<Arc<Context>>,
        device: usize,
        bytes: u64,
        is_variable: bool,
    ) -> Result<u64, CUerror> {
        let pages = Arc::new(HostPages::map(bytes).map_err(|_| CUerror::OUT_OF_MEMORY)?);
        let base = pages.address();
        let kind = SpanKind::Managed { pages, advice: Arc::default(), is_variable };
        self.insert_span(base, bytes, device, context, kind)?;
        Ok(base)
    }

    /// Inserts a span of the program's own memory, unless it overlaps a live one.
    pub(crate) fn register_host(&self, base: u64, bytes: u64, context: Arc<Context>, flags: u32) -> CUresult {
        let device = context.device.ordinal;
        let span = self.new_span(base, bytes, device, Some(context), SpanKind::Registered { flags });
        let mut spans = self.spans_mut();
        match spans.overlapping(base, bytes).map(|other| &other.kind) {
            None => spans.insert(span),
            Some(SpanKind::Registered { .. }) => return Err(CUerror::HOST_MEMORY_ALREADY_REGISTERED),
            Some(_) => return Err(CUerror::INVALID_VALUE),
        }
        Ok(())
    }

    /// Creates a span without inserting it.
    pub(crate) fn new_span(
        &self,
        base: u64,
        bytes: u64,
        device: usize,
        context: Option<Arc<Context>>,
        kind: SpanKind,
    ) -> Arc<Span> {
        Arc::new(Span { base, bytes, device, context, kind, id: self.next_id(), sync_memops: false.into() })
    }

    /// Returns a reference to `address` in `span`, for work.
    pub(crate) fn mem_ref(&self, span: &Arc<Span>, address: u64) -> MemRef {
        match &span.kind {
            SpanKind::Device
            | SpanKind::Pool(_)
            | SpanKind::Variable { .. }
            | SpanKind::Internal { .. }
            | SpanKind::Imported(_) => MemRef::device(&self.devices[span.device].memory.arena, address),
            SpanKind::Mapped(mapping) => {
                MemRef::mapped(self.reservations.arena(), address, [Arc::clone(&mapping.status)].into())
            }
            SpanKind::Graph(block) => {
                let arena = &self.devices[span.device].memory.arena;
                MemRef::mapped(arena, address, [Arc::clone(&block.status)].into())
            }
            SpanKind::Pinned { pages, .. } | SpanKind::Managed { pages, .. } => {
                MemRef::host_pages(pages, address - span.base)
            }
            SpanKind::Registered { .. } => MemRef::host(address),
        }
    }

    /// Frees the memory of a span that was removed. No pending work may access it.
    pub(crate) fn free_backing(&self, span: &Span) {
        if let SpanKind::Device | SpanKind::Variable { .. } | SpanKind::Internal { .. } = span.kind {
            self.devices[span.device].memory.free(span.base, check::guarded(span.bytes));
        }
    }
}
