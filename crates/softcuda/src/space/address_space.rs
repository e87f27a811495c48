//! What lies at each address: the devices, the addresses that programs reserved, and the live spans.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use freehold_driver::cuda::{CUdevice, CUerror, CUmemAccess_flags, CUresult};

use super::span::{Span, SpanKind, SpanMap};
use crate::base::sync::{read, write};
use crate::memory::mapping::{AddressReservations, Mapping};
use crate::memory::mem_ref::MemRef;
use crate::objects::context::Context;
use crate::objects::device::Device;

#[derive(Debug)]
pub(crate) struct AddressSpace {
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) reservations: AddressReservations,
    spans: RwLock<SpanMap>,
    /// Goes up whenever kernels lose sight of a span.
    span_epoch: AtomicU64,
    last_id: AtomicU64,
}

impl AddressSpace {
    pub(crate) fn new(devices: Vec<Arc<Device>>, reservations: AddressReservations) -> Self {
        Self { devices, reservations, spans: RwLock::default(), span_epoch: 0.into(), last_id: 0.into() }
    }

    pub(crate) fn device(&self, device: CUdevice) -> Result<&Arc<Device>, CUerror> {
        usize::try_from(device.0).ok().and_then(|ordinal| self.devices.get(ordinal)).ok_or(CUerror::INVALID_DEVICE)
    }

    /// A number that nothing else in this process has.
    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn spans(&self) -> RwLockReadGuard<'_, SpanMap> {
        read(&self.spans)
    }

    pub(crate) fn spans_mut(&self) -> RwLockWriteGuard<'_, SpanMap> {
        write(&self.spans)
    }

    /// How often kernels lost sight of a span so far: while it is the same, every span that was found is there.
    pub(crate) fn span_epoch(&self) -> u64 {
        self.span_epoch.load(Ordering::Acquire)
    }

    /// Says that kernels may have lost something that they had found.
    pub(crate) fn bump_span_epoch(&self) {
        self.span_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes away the mappings within these reserved addresses, of which there may be none. Nothing waits for work at
    /// them.
    ///
    /// # Errors
    /// The addresses are not reserved, or a mapping lies in them only in part.
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

    /// Where work of `device` reaches the bytes from `start` to `last`, to read or to write: nothing if the driver knows
    /// nothing at `start`.
    ///
    /// # Errors
    /// They lie in several blocks, or the device may not use them so.
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
            _ => return Err(CUerror::INVALID_VALUE),
        };
        Ok(Some((Arc::clone(span), mem)))
    }

    /// Takes a span that leaves, from kernels too.
    pub(crate) fn finish_free(&self, span: &Span) {
        self.spans_mut().finish_free(span);
        self.bump_span_epoch();
    }

    /// Takes a span that starts at `base` from the program, if `wanted` says so. Kernels reach it until its end.
    pub(crate) fn begin_free(&self, base: u64, wanted: impl Fn(&Span) -> bool) -> Result<Arc<Span>, CUerror> {
        let mut spans = self.spans_mut();
        if !spans.starting_at(base).is_some_and(|span| wanted(span)) {
            return Err(CUerror::INVALID_VALUE);
        }
        spans.begin_free(base).ok_or(CUerror::INVALID_VALUE)
    }

    /// Ends a span and gives its memory back, if one starts there. Nothing may be at work on it any more.
    pub(crate) fn free(&self, base: u64) {
        let left = { self.spans_mut().begin_free(base) };
        if let Some(span) = left {
            self.finish_free(&span);
            self.free_backing(&span);
        }
    }

    /// Ends a span that kernels alone reach, and gives its memory back. False if none starts there.
    pub(crate) fn free_internal(&self, base: u64) -> bool {
        let Some(span) = ({ self.spans_mut().remove_internal(base) }) else { return false };
        self.bump_span_epoch();
        self.free_backing(&span);
        true
    }

    /// Takes out every span that `unwanted` picks and gives their memory back. Nothing may be at work on it any more.
    pub(crate) fn free_spans_if(&self, unwanted: impl Fn(&Span) -> bool) {
        let ended = self.spans_mut().remove_if(unwanted);
        self.bump_span_epoch();
        for span in ended {
            self.free_backing(&span);
        }
    }

    /// The span that `address` lies in.
    pub(crate) fn find_span(&self, address: u64) -> Option<Arc<Span>> {
        self.spans().containing(address).cloned()
    }

    /// Enters a new span.
    ///
    /// # Errors
    /// Its context was destroyed meanwhile: the memory is still the caller's.
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
        // A context is dead before its spans are taken out, so that none is entered behind its back.
        span.context.as_ref().map_or(Ok(()), |context| context.check_alive())?;
        spans.insert(span);
        Ok(())
    }

    /// Allocates memory of a context's device and enters it.
    pub(crate) fn alloc(&self, context: &Arc<Context>, bytes: u64, kind: SpanKind) -> Result<u64, CUerror> {
        let device = &context.device;
        let address = device.alloc(bytes, context.id)?;
        let entered = self.insert_span(address, bytes, device.ordinal, Some(Arc::clone(context)), kind);
        if entered.is_err() {
            device.memory.free(address, bytes);
        }
        entered.map(|()| address)
    }

    /// Enters a span of the program's own memory, unless it overlaps with one that is alive.
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

    /// A span that is not entered yet.
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

    /// How work reaches `address` in `span`.
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
            SpanKind::Pinned { pages, .. } | SpanKind::Managed { pages, .. } => {
                MemRef::host_pages(pages, address - span.base)
            }
            SpanKind::Registered { .. } => MemRef::host(address),
        }
    }

    /// Gives back the memory of a span that was taken out of the spans. Nothing may be at work on it any more.
    pub(crate) fn free_backing(&self, span: &Span) {
        if let SpanKind::Device | SpanKind::Variable { .. } | SpanKind::Internal { .. } = span.kind {
            self.devices[span.device].memory.free(span.base, span.bytes);
        }
    }
}
