//! What lies at an address: every block of memory that the driver knows of, by address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::context::Context;
use crate::memory::arena::HostPages;
use crate::pool::Pool;

/// A block of memory, alive for as long as it is in the [`Spans`]. Work that was given it before keeps the pages.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    /// The context that allocated it. Memory of a pool belongs to none.
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) kind: SpanKind,
    /// Never the same for two allocations of one process.
    pub(crate) id: u64,
    /// Whether synchronous calls on this block wait also where they need not.
    pub(crate) sync_memops: AtomicBool,
}

#[derive(Debug)]
pub(crate) enum SpanKind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemAllocAsync`.
    Pool(Arc<Pool>),
    /// `cuMemHostAlloc`, with the flags of it.
    Pinned { pages: Arc<HostPages>, flags: u32 },
    /// `cuMemHostRegister`: the program's own pages.
    Registered { flags: u32 },
    /// `cuMemAllocManaged`.
    Managed { pages: Arc<HostPages> },
}

impl Span {
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes
    }

    /// Whether the host may touch it by its address.
    pub(crate) fn is_on_host(&self) -> bool {
        matches!(self.kind, SpanKind::Pinned { .. } | SpanKind::Registered { .. })
    }
}

/// The live spans of all devices and of the host.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    by_base: BTreeMap<u64, Arc<Span>>,
}

impl Spans {
    pub(crate) fn insert(&mut self, span: Arc<Span>) {
        let replaced = self.by_base.insert(span.base, span);
        assert!(replaced.is_none(), "two live spans never start at one address");
    }

    pub(crate) fn remove(&mut self, base: u64) -> Option<Arc<Span>> {
        self.by_base.remove(&base)
    }

    /// The span that starts at `base`.
    pub(crate) fn starting_at(&self, base: u64) -> Option<&Arc<Span>> {
        self.by_base.get(&base)
    }

    /// The span that `address` lies in.
    pub(crate) fn containing(&self, address: u64) -> Option<&Arc<Span>> {
        let (_, span) = self.by_base.range(..=address).next_back()?;
        (address < span.end()).then_some(span)
    }

    /// A span that overlaps `base..base + bytes`, which is not empty and does not wrap around.
    pub(crate) fn overlapping(&self, base: u64, bytes: u64) -> Option<&Arc<Span>> {
        let (_, span) = self.by_base.range(..base + bytes).next_back()?;
        (span.end() > base).then_some(span)
    }

    /// Takes out every span that `unwanted` picks.
    pub(crate) fn extract(&mut self, unwanted: impl Fn(&Span) -> bool) -> Vec<Arc<Span>> {
        self.by_base.extract_if(.., |_, span| unwanted(span)).map(|(_, span)| span).collect()
    }
}
