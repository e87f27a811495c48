//! Spans: every block of memory that the driver knows, by address.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::imports::ImportedBlock;
use crate::engine::Engine;
use crate::memory::advice::AdviceMap;
use crate::memory::host_pages::HostPages;
use crate::memory::mapping::Mapping;
use crate::memory::page_heap::PAGE_BYTES;
use crate::objects::context::Context;
use crate::objects::graph_allocation::GraphAllocation;
use crate::objects::pool::Pool;

/// Number of freed blocks that are remembered, for error messages about accesses to freed memory.
const FREED_MAX: usize = 4096;

/// A block of memory, alive while it is in the [`SpanMap`]. Work that refers to it keeps its pages alive longer.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// The context that allocated it. `None` for memory of a pool.
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) kind: SpanKind,
    /// Unique within the process.
    pub(crate) id: u64,
    /// Whether synchronous calls on this block wait even if they could return early.
    pub(crate) sync_memops: AtomicBool,
}

#[derive(Debug)]
pub(crate) enum SpanKind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync`.
    Pool(Arc<Pool>),
    /// `cuMemHostAlloc`, with its flags.
    Pinned { pages: Arc<HostPages>, flags: u32 },
    /// `cuMemHostRegister`: pages of the program.
    Registered { flags: u32 },
    /// `cuMemAllocManaged`, or a managed variable of an image.
    Managed { pages: Arc<HostPages>, advice: Arc<AdviceMap>, is_variable: bool },
    /// A variable of a module: device memory that lives as long as the module.
    Variable { constant: bool },
    /// `cuMemMap`.
    Mapped(Arc<Mapping>),
    /// Memory of another process: `cuIpcOpenMemHandle`, or a block of an imported pool.
    Imported(ImportedBlock),
    /// Memory of an allocation node of a graph. The span lives as long as the node's address.
    Graph(Arc<GraphAllocation>),
    /// Memory that only kernels know: from their `malloc`, or the workspace of a cooperative launch.
    Internal { from_malloc: bool },
}

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes
    }

    /// Waits for all work of the span's context.
    pub(crate) fn synchronize_owner(&self, engine: &Engine) {
        if let Some(owner) = &self.context {
            owner.synchronize(engine);
        }
    }

    /// Returns whether it is a block of an imported pool.
    pub(crate) fn is_pool_import(&self) -> bool {
        matches!(&self.kind, SpanKind::Imported(opened) if opened.pool.is_some())
    }

    /// Returns whether it is mapped and no device has access to it.
    pub(crate) fn is_inaccessible(&self) -> bool {
        matches!(&self.kind, SpanKind::Mapped(mapping) if mapping.is_inaccessible())
    }

    /// Returns whether the host can access it at its address.
    pub(crate) fn is_on_host(&self) -> bool {
        matches!(self.kind, SpanKind::Pinned { .. } | SpanKind::Registered { .. })
    }
}

/// The live spans of all devices and of the host.
#[derive(Debug, Default)]
pub(crate) struct SpanMap {
    by_base: BTreeMap<u64, Arc<Span>>,
    /// Freed spans, which calls no longer find but kernels still access: work that was submitted before the free uses
    /// them. Several may start at one address, because pools reuse addresses at once.
    freeing: BTreeMap<(u64, u64), Arc<Span>>,
    /// Spans that only kernels access.
    internal: BTreeMap<u64, Arc<Span>>,
    /// Base and length of the spans freed last, the most recent at the end.
    freed: VecDeque<(u64, u64)>,
}

impl SpanMap {
    pub(crate) fn insert(&mut self, span: Arc<Span>) {
        let map = if matches!(span.kind, SpanKind::Internal { .. }) { &mut self.internal } else { &mut self.by_base };
        let replaced = map.insert(span.base, span);
        assert!(replaced.is_none(), "two live spans never start at one address");
    }

    /// Removes a span from the program's view. Kernels can access it until [`finish_free`](Self::finish_free).
    pub(crate) fn begin_free(&mut self, base: u64) -> Option<Arc<Span>> {
        let span = self.by_base.remove(&base)?;
        self.freeing.insert((base, span.id), Arc::clone(&span));
        Some(span)
    }

    /// Removes a span that is being freed from the kernels' view too.
    pub(crate) fn finish_free(&mut self, span: &Span) {
        self.freeing.remove(&(span.base, span.id));
        self.remember_freed(span);
    }

    /// Removes a span that only kernels access.
    pub(crate) fn remove_internal(&mut self, base: u64) -> Option<Arc<Span>> {
        let span = self.internal.remove(&base)?;
        self.remember_freed(&span);
        Some(span)
    }

    fn remember_freed(&mut self, span: &Span) {
        if self.freed.len() == FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((span.base, span.bytes));
    }

    /// Returns the span that starts at `base`.
    pub(crate) fn starting_at(&self, base: u64) -> Option<&Arc<Span>> {
        self.by_base.get(&base)
    }

    /// Returns the span that contains `address`.
    pub(crate) fn containing(&self, address: u64) -> Option<&Arc<Span>> {
        containing(&self.by_base, address)
    }

    /// Returns the span that contains `address` in the kernels' view.
    pub(crate) fn find_for_kernel(&self, address: u64) -> Option<&Arc<Span>> {
        let freeing = || {
            let before = self.freeing.range(..=(address, u64::MAX)).rev();
            before.map(|(_, span)| span).find(|span| address < span.end())
        };
        self.containing(address).or_else(|| containing(&self.internal, address)).or_else(freeing)
    }

    /// Returns a span with memory in the page that contains `address`.
    pub(crate) fn find_in_page(&self, address: u64) -> Option<&Arc<Span>> {
        let page = address - address % PAGE_BYTES;
        let before = self.by_base.range(..page + PAGE_BYTES).next_back();
        before.map(|(_, span)| span).filter(|span| span.end() > page)
    }

    /// Returns the blocks of all allocation nodes on a device.
    pub(crate) fn graph_allocations(&self, device: usize) -> Vec<Arc<GraphAllocation>> {
        let block = |span: &Arc<Span>| match &span.kind {
            SpanKind::Graph(block) if span.device == device => Some(Arc::clone(block)),
            _ => None,
        };
        self.by_base.values().filter_map(block).collect()
    }

    /// Returns the block of a kernel's `malloc` that starts at `base`.
    pub(crate) fn malloc_block(&self, base: u64) -> Option<&Arc<Span>> {
        self.internal.get(&base).filter(|span| matches!(span.kind, SpanKind::Internal { from_malloc: true }))
    }

    /// Returns the block of a kernel's `malloc` that contains `address`.
    pub(crate) fn malloc_block_containing(&self, address: u64) -> Option<&Arc<Span>> {
        containing(&self.internal, address).filter(|span| matches!(span.kind, SpanKind::Internal { from_malloc: true }))
    }

    /// Returns a span that overlaps `base..base + bytes`, which is not empty and does not wrap around.
    pub(crate) fn overlapping(&self, base: u64, bytes: u64) -> Option<&Arc<Span>> {
        let (_, span) = self.by_base.range(..base + bytes).next_back()?;
        (span.end() > base).then_some(span)
    }

    /// Returns the adjacent mappings that cover exactly `start..start + bytes`.
    pub(crate) fn mapped_run(&self, start: u64, bytes: u64) -> Option<Vec<Arc<Mapping>>> {
        let (mut at, end) = (start, start + bytes);
        let mut run = Vec::new();
        while at < end {
            let span = self.starting_at(at)?;
            let SpanKind::Mapped(mapping) = &span.kind else { return None };
            run.push(Arc::clone(mapping));
            at = span.end();
        }
        (at == end).then_some(run)
    }

    /// Returns the mappings that hold the bytes from `first` up to `last`.
    pub(crate) fn mappings_covering(&self, first: &Span, last: u64) -> Option<Vec<Arc<Mapping>>> {
        let mut run = Vec::new();
        let mut at = first.base;
        loop {
            let span = self.starting_at(at)?;
            let SpanKind::Mapped(mapping) = &span.kind else { return None };
            run.push(Arc::clone(mapping));
            at = span.end();
            if last < at {
                return Some(run);
            }
        }
    }

    /// Removes all spans in `start..start + bytes`, also from the kernels' view. Returns `None` if a span lies there
    /// only in part.
    pub(crate) fn unmap(&mut self, start: u64, bytes: u64) -> Option<Vec<Arc<Span>>> {
        let end = start + bytes;
        let is_cut = |at: u64| containing(&self.by_base, at).is_some_and(|span| span.base < at);
        if is_cut(start) || is_cut(end) {
            return None;
        }
        let ended: Vec<_> = self.by_base.extract_if(start..end, |_, _| true).map(|(_, span)| span).collect();
        ended.iter().for_each(|span| self.remember_freed(span));
        Some(ended)
    }

    /// Removes every span for which `unwanted` returns true.
    pub(crate) fn remove_if(&mut self, unwanted: impl Fn(&Span) -> bool) -> Vec<Arc<Span>> {
        let (live, internal) = (&mut self.by_base, &mut self.internal);
        let live = live.extract_if(.., |_, span| unwanted(span)).map(|(_, span)| span);
        let internal = internal.extract_if(.., |_, span| unwanted(span)).map(|(_, span)| span);
        let out: Vec<_> = live.chain(internal).collect();
        out.iter().for_each(|span| self.remember_freed(span));
        out
    }

    /// Describes an address at which a kernel found no memory, for an error message.
    pub(crate) fn describe(&self, address: u64) -> String {
        // If a newer block lies within a freed one, the kernel missed the newer one.
        let inside = |&&(base, bytes): &&(u64, u64)| {
            (base..base + bytes).contains(&address) && self.overlapping(base, bytes).is_none()
        };
        if let Some((base, bytes)) = self.freed.iter().rev().find(inside) {
            return format!("{} bytes into a freed block of {bytes} bytes at {base:#x}", address - base);
        }
        let below = [&self.by_base, &self.internal].map(|map| map.range(..=address).next_back().map(|(_, span)| span));
        if let Some(span) = below.into_iter().flatten().max_by_key(|span| span.base)
            && let beyond = address.saturating_sub(span.end())
            && beyond < NEAR_BYTES
        {
            return format!("{beyond} bytes beyond the end of a block of {} bytes at {:#x}", span.bytes, span.base);
        }
        if let Some((_, span)) = self.by_base.range(address..).next()
            && span.base - address < NEAR_BYTES
        {
            let before = span.base - address;
            return format!("{before} bytes before the start of a block of {} bytes at {:#x}", span.bytes, span.base);
        }
        "never allocated".to_owned()
    }
}

/// An address further from a block than this is not described relative to it.
const NEAR_BYTES: u64 = 1 << 20;

fn containing(spans: &BTreeMap<u64, Arc<Span>>, address: u64) -> Option<&Arc<Span>> {
    let (_, span) = spans.range(..=address).next_back()?;
    (address < span.end()).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(base: u64, bytes: u64, id: u64, kind: SpanKind) -> Arc<Span> {
        Arc::new(Span { base, bytes, device: 0, context: None, kind, id, sync_memops: false.into() })
    }

    #[test]
    fn a_span_being_freed_is_found_by_kernels_only() {
        let mut spans = SpanMap::default();
        spans.insert(span(512, 100, 1, SpanKind::Device));
        let left = spans.begin_free(512).unwrap();
        assert!(spans.containing(512).is_none());
        assert_eq!(spans.find_for_kernel(611).unwrap().id, 1);
        assert!(spans.find_for_kernel(612).is_none());
        spans.insert(span(512, 10, 2, SpanKind::Device));
        assert_eq!(spans.find_for_kernel(521).unwrap().id, 2);
        assert_eq!(spans.find_for_kernel(522).unwrap().id, 1);
        spans.finish_free(&left);
        assert!(spans.find_for_kernel(522).is_none());
        assert_eq!(spans.find_for_kernel(521).unwrap().id, 2);
    }

    #[test]
    fn an_internal_span_is_found_by_kernels_only() {
        let mut spans = SpanMap::default();
        spans.insert(span(512, 100, 1, SpanKind::Internal { from_malloc: true }));
        assert!(spans.containing(512).is_none());
        assert_eq!(spans.find_for_kernel(512).unwrap().id, 1);
        assert!(spans.remove_internal(512).is_some());
        assert!(spans.find_for_kernel(512).is_none());
    }

    #[test]
    fn a_stray_address_is_described_by_what_is_or_was_near() {
        let mut spans = SpanMap::default();
        spans.insert(span(0x10000, 64, 1, SpanKind::Device));
        spans.insert(span(0x20000, 64, 2, SpanKind::Device));
        assert_eq!(spans.describe(0x1004c), "12 bytes beyond the end of a block of 64 bytes at 0x10000");
        let left = spans.begin_free(0x20000).unwrap();
        spans.finish_free(&left);
        assert_eq!(spans.describe(0x20008), "8 bytes into a freed block of 64 bytes at 0x20000");
        assert_eq!(spans.describe(0xfff0), "16 bytes before the start of a block of 64 bytes at 0x10000");
        spans.insert(span(0x20000, 8, 3, SpanKind::Device));
        assert_eq!(spans.describe(0x20008), "0 bytes beyond the end of a block of 8 bytes at 0x20000");
        assert_eq!(spans.describe(0x9000_0000_0000), "never allocated");
    }
}
