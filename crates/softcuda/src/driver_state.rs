//! All that the software driver knows in one process: its devices, its live handles and its live memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};

use freehold_driver::cuda::{CUdevice, CUerror, CUmemAccess_flags, CUresult, CUstream};
use freehold_ptx::Fault;

use crate::block_lookup::BlockLookup;
use crate::capture::Captures;
use crate::config::{Config, LogFile};
use crate::context::{Context, PrimaryContext};
use crate::device::Device;
use crate::engine::Engine;
use crate::event::Event;
use crate::function::Function;
use crate::graph::Graph;
use crate::graph_exec::GraphExec;
use crate::handle_table::{HandleKind, HandleRange, HandleReuse, HandleTable};
use crate::ipc::Imports;
use crate::library::{Kernel, Library};
use crate::link::Link;
use crate::log::Log;
use crate::mapping::{AddressReservations, Allocation, Mapping};
use crate::memory::mem_ref::MemRef;
use crate::module::Module;
use crate::pool::Pool;
use crate::span::{Span, SpanKind, SpanMap};
use crate::stream_ref::{StreamEntry, StreamRef};
use crate::sync::{lock, read, write};

static DRIVER: OnceLock<DriverState> = OnceLock::new();

/// Set in the child of a fork after initialisation, where nothing works any more.
static FORKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct DriverState {
    pub(crate) engine: Arc<Engine>,
    pub(crate) devices: Vec<Arc<Device>>,
    /// By ordinal of their devices.
    primaries: Vec<Mutex<PrimaryContext>>,
    pub(crate) contexts: HandleTable<Context>,
    pub(crate) streams: HandleTable<StreamEntry>,
    pub(crate) events: HandleTable<Event>,
    pub(crate) pools: HandleTable<Pool>,
    pub(crate) modules: HandleTable<Module>,
    pub(crate) functions: HandleTable<Function>,
    pub(crate) libraries: HandleTable<Library>,
    pub(crate) kernels: HandleTable<Kernel>,
    pub(crate) links: HandleTable<Link>,
    pub(crate) allocations: HandleTable<Allocation>,
    pub(crate) reservations: AddressReservations,
    pub(crate) imports: Imports,
    pub(crate) graphs: HandleTable<Graph>,
    pub(crate) graph_execs: HandleTable<GraphExec>,
    pub(crate) captures: Captures,
    pub(crate) handle_range: HandleRange,
    pub(crate) log: Log,
    pub(crate) block_lookup: BlockLookup,
    /// How the first kernel that went wrong did so.
    pub(crate) first_fault: OnceLock<Fault>,
    spans: RwLock<SpanMap>,
    /// Goes up whenever kernels lose sight of a span.
    span_epoch: AtomicU64,
    last_id: AtomicU64,
}

pub(crate) fn driver() -> Result<&'static DriverState, CUerror> {
    DRIVER.get().ok_or(CUerror::NOT_INITIALIZED)
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Makes the driver, once.
pub(crate) fn init() -> CUresult {
    if DRIVER.get().is_some() {
        return Ok(());
    }
    static INIT_LOCK: Mutex<()> = Mutex::new(());
    let _making = lock(&INIT_LOCK);
    if DRIVER.get().is_none() {
        let config = Config::from_env().map_err(|_| CUerror::INVALID_VALUE)?;
        let driver = DriverState::new(&config)?;
        // SAFETY: the handler stores to an atomic, reads what never changes and closes files, all of which is allowed in
        // the child of a fork.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        // SAFETY: the handler touches nothing but the driver, which is never dropped, and returns.
        unsafe { libc::atexit(at_exit) };
        assert!(DRIVER.set(driver).is_ok(), "the driver is made once");
    }
    Ok(())
}

extern "C" fn after_fork_in_child() {
    // The child of a child may have given the numbers of those files to others.
    let was_forked = FORKED.swap(true, Ordering::Relaxed);
    let driver = DRIVER.get().filter(|_| !was_forked);
    for device in driver.into_iter().flat_map(|driver| &driver.devices) {
        device.memory.usage.close_in_fork_child();
    }
}

/// Ends this process's accounts when it exits. Where it cannot, the kernel does when the process is gone.
extern "C" fn at_exit() {
    let driver = DRIVER.get().filter(|_| !is_forked());
    for device in driver.into_iter().flat_map(|driver| &driver.devices) {
        drop(device.memory.usage.close());
    }
}

impl DriverState {
    fn new(config: &Config) -> Result<Self, CUerror> {
        let log = Log::new(LogFile::from_env());
        let open = |ordinal| {
            let opened = Device::open(config, ordinal).map(Arc::new);
            opened.map_err(|error| {
                log.error(&format!("the device {ordinal} cannot be opened: {error}"));
                CUerror::OPERATING_SYSTEM
            })
        };
        let devices = (0..config.devices).map(open).collect::<Result<Vec<_>, _>>()?;
        let range = HandleRange::reserve().map_err(|error| {
            log.error(&format!("handles cannot be made: {error}"));
            CUerror::OUT_OF_MEMORY
        })?;
        Ok(Self {
            engine: Engine::start(config.schedule, config.kernel_timeout),
            primaries: devices.iter().map(|_| Mutex::default()).collect(),
            devices,
            contexts: HandleTable::new(range.space(HandleKind::Context), HandleReuse::Immediate),
            streams: HandleTable::new(range.space(HandleKind::Stream), HandleReuse::Immediate),
            events: HandleTable::new(range.space(HandleKind::Event), HandleReuse::Never),
            pools: HandleTable::new(range.space(HandleKind::Pool), HandleReuse::Never),
            modules: HandleTable::new(range.space(HandleKind::Module), HandleReuse::Never),
            functions: HandleTable::new(range.space(HandleKind::Function), HandleReuse::Never),
            libraries: HandleTable::new(range.space(HandleKind::Library), HandleReuse::Never),
            kernels: HandleTable::new(range.space(HandleKind::Kernel), HandleReuse::Never),
            links: HandleTable::new(range.space(HandleKind::Link), HandleReuse::Never),
            allocations: HandleTable::new(range.space(HandleKind::Allocation), HandleReuse::Never),
            reservations: AddressReservations::new(config.is_coherent).map_err(|_| CUerror::OUT_OF_MEMORY)?,
            imports: Imports::default(),
            graphs: HandleTable::new(range.space(HandleKind::Graph), HandleReuse::Never),
            graph_execs: HandleTable::new(range.space(HandleKind::GraphExec), HandleReuse::Never),
            captures: Captures::new(range.space(HandleKind::GraphNode)),
            handle_range: range,
            log,
            block_lookup: BlockLookup::default(),
            first_fault: OnceLock::new(),
            spans: RwLock::new(SpanMap::default()),
            span_epoch: AtomicU64::new(0),
            last_id: AtomicU64::new(0),
        })
    }

    pub(crate) fn device(&self, device: CUdevice) -> Result<&Arc<Device>, CUerror> {
        usize::try_from(device.0).ok().and_then(|ordinal| self.devices.get(ordinal)).ok_or(CUerror::INVALID_DEVICE)
    }

    /// The primary context of a device.
    pub(crate) fn primary(&self, device: CUdevice) -> Result<MutexGuard<'_, PrimaryContext>, CUerror> {
        Ok(lock(&self.primaries[self.device(device)?.ordinal]))
    }

    /// The stream that a handle names to the calling thread.
    pub(crate) fn stream_ref(&self, handle: CUstream) -> Result<StreamRef<'_>, CUerror> {
        StreamRef::new(&self.engine, &self.captures, &self.streams, handle)
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
