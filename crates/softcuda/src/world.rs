//! All that the software driver knows in one process: its devices, its live handles and its live memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use freehold_driver::cuda::{CUdevice, CUerror, CUmemAccess_flags, CUresult};
use freehold_ptx::Fault;

use crate::capture::Captures;
use crate::config::{Config, LogFile};
use crate::context::Context;
use crate::described::Described;
use crate::device::Device;
use crate::engine::Engine;
use crate::event::Event;
use crate::function::Function;
use crate::graph::{Exec, Graph};
use crate::ipc::Imports;
use crate::library::{Kernel, Library};
use crate::link::Link;
use crate::log::Log;
use crate::mapping::{Addresses, Allocation, Mapping};
use crate::memory::place::Place;
use crate::module::Module;
use crate::pool::Pool;
use crate::registry::{HandleRange, Kind, Registry, Return};
use crate::span::{Span, SpanKind, Spans};
use crate::stream::Stream;

static WORLD: OnceLock<World> = OnceLock::new();

/// Set in the child of a fork after initialisation, where nothing works any more (fact 0.6).
static FORKED: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) contexts: Registry<Context>,
    pub(crate) streams: Registry<Stream>,
    pub(crate) events: Registry<Event>,
    pub(crate) pools: Registry<Pool>,
    pub(crate) modules: Registry<Module>,
    pub(crate) functions: Registry<Function>,
    pub(crate) libraries: Registry<Library>,
    pub(crate) kernels: Registry<Kernel>,
    pub(crate) links: Registry<Link>,
    pub(crate) allocations: Registry<Allocation>,
    pub(crate) addresses: Addresses,
    pub(crate) imports: Imports,
    pub(crate) graphs: Registry<Graph>,
    pub(crate) execs: Registry<Exec>,
    pub(crate) captures: Captures,
    pub(crate) handle_range: HandleRange,
    pub(crate) log: Log,
    pub(crate) described: Described,
    /// How the first kernel that went wrong did so.
    pub(crate) first_fault: OnceLock<Fault>,
    spans: RwLock<Spans>,
    /// Goes up whenever kernels lose sight of a span.
    losses: AtomicU64,
    numbers: AtomicU64,
}

pub(crate) fn world() -> Result<&'static World, CUerror> {
    WORLD.get().ok_or(CUerror::NOT_INITIALIZED)
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Makes the world, once.
pub(crate) fn init() -> CUresult {
    if WORLD.get().is_some() {
        return Ok(());
    }
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = lock(&MAKING);
    if WORLD.get().is_none() {
        let config = Config::from_environment().map_err(|_| CUerror::INVALID_VALUE)?;
        let world = World::new(&config)?;
        // SAFETY: the handler stores to an atomic, reads what never changes and closes files, all of which is allowed in
        // the child of a fork.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        // SAFETY: the handler touches nothing but the world, which is never dropped, and returns.
        unsafe { libc::atexit(leave) };
        assert!(WORLD.set(world).is_ok(), "the world is made once");
    }
    Ok(())
}

extern "C" fn note_fork() {
    // The child of a child may have given the numbers of those files to others.
    let was_forked = FORKED.swap(true, Ordering::Relaxed);
    let world = WORLD.get().filter(|_| !was_forked);
    for device in world.into_iter().flat_map(|world| &world.devices) {
        device.book.abandon_in_fork();
    }
}

/// Ends this process's accounts when it exits. Where it cannot, the kernel does when the process is gone.
extern "C" fn leave() {
    let world = WORLD.get().filter(|_| !is_forked());
    for device in world.into_iter().flat_map(|world| &world.devices) {
        drop(device.book.close());
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    fn new(config: &Config) -> Result<Self, CUerror> {
        let log = Log::new(LogFile::from_environment());
        let open = |ordinal| {
            let opened = Device::open(config, ordinal).map(Arc::new);
            opened.map_err(|error| {
                log.error(&format!("the device {ordinal} cannot be opened: {error}"));
                CUerror::OPERATING_SYSTEM
            })
        };
        let devices = (0..config.devices).map(open).collect::<Result<_, _>>()?;
        let range = HandleRange::reserve().map_err(|error| {
            log.error(&format!("handles cannot be made: {error}"));
            CUerror::OUT_OF_MEMORY
        })?;
        Ok(Self {
            engine: Engine::start(config.schedule, config.kernel_limit),
            devices,
            contexts: Registry::new(range.of(Kind::Context), Return::Comes),
            streams: Registry::new(range.of(Kind::Stream), Return::Comes),
            events: Registry::new(range.of(Kind::Event), Return::Never),
            pools: Registry::new(range.of(Kind::Pool), Return::Never),
            modules: Registry::new(range.of(Kind::Module), Return::Never),
            functions: Registry::new(range.of(Kind::Function), Return::Never),
            libraries: Registry::new(range.of(Kind::Library), Return::Never),
            kernels: Registry::new(range.of(Kind::Kernel), Return::Never),
            links: Registry::new(range.of(Kind::Link), Return::Never),
            allocations: Registry::new(range.of(Kind::Allocation), Return::Never),
            addresses: Addresses::reserve(config.is_coherent).map_err(|_| CUerror::OUT_OF_MEMORY)?,
            imports: Imports::default(),
            graphs: Registry::new(range.of(Kind::Graph), Return::Never),
            execs: Registry::new(range.of(Kind::Exec), Return::Never),
            captures: Captures::default(),
            handle_range: range,
            log,
            described: Described::default(),
            first_fault: OnceLock::new(),
            spans: RwLock::new(Spans::default()),
            losses: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
        })
    }

    pub(crate) fn device(&self, device: CUdevice) -> Result<&Arc<Device>, CUerror> {
        usize::try_from(device.0).ok().and_then(|ordinal| self.devices.get(ordinal)).ok_or(CUerror::INVALID_DEVICE)
    }

    /// A number that nothing else in this process has.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn spans(&self) -> RwLockReadGuard<'_, Spans> {
        self.spans.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn spans_mut(&self) -> RwLockWriteGuard<'_, Spans> {
        self.spans.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often kernels lost sight of a span so far: while it is the same, every span that was found is there.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Says that kernels may have lost something that they had found.
    pub(crate) fn lose(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes away the mappings within these reserved addresses, of which there may be none. Nothing waits for work at
    /// them.
    ///
    /// # Errors
    /// The addresses are not reserved, or a mapping lies in them only in part.
    pub(crate) fn unmap(&self, start: u64, bytes: u64) -> Result<Vec<Arc<Span>>, CUerror> {
        let mut spans = self.spans_mut();
        if !self.addresses.holds(start, bytes) {
            return Err(CUerror::INVALID_VALUE);
        }
        let ended = spans.unmap(start, bytes).ok_or(CUerror::INVALID_VALUE)?;
        for span in &ended {
            if let SpanKind::Mapped(mapping) = &span.kind {
                mapping.presence.end();
            }
        }
        self.lose();
        for span in &ended {
            self.addresses.arena().detach(span.base, span.bytes);
        }
        Ok(ended)
    }

    /// Where work of `device` reaches the bytes from `start` to `last`, to read or to write: nothing if the driver knows
    /// nothing at `start`.
    ///
    /// # Errors
    /// They lie in several blocks, or the device may not use them so.
    pub(crate) fn reach(
        &self,
        start: u64,
        last: u64,
        device: usize,
        access: CUmemAccess_flags,
    ) -> Result<Option<(Arc<Span>, Place)>, CUerror> {
        let spans = self.spans();
        let Some(span) = spans.containing(start) else { return Ok(None) };
        let place = match &span.kind {
            SpanKind::Mapped(_) => {
                let run = spans.mapped_around(span, last).ok_or(CUerror::INVALID_VALUE)?;
                let allowed = |mapping: &Arc<Mapping>| mapping.access(device).0 & access.0 == access.0;
                if !run.iter().all(allowed) {
                    return Err(CUerror::INVALID_VALUE);
                }
                let presences = run.iter().map(|mapping| Arc::clone(&mapping.presence)).collect();
                Place::mapped(self.addresses.arena(), start, presences)
            }
            _ if last < span.end() => self.place(span, start),
            _ => return Err(CUerror::INVALID_VALUE),
        };
        Ok(Some((Arc::clone(span), place)))
    }

    /// Takes a span that leaves, from kernels too.
    pub(crate) fn end(&self, span: &Span) {
        self.spans_mut().end(span);
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a span and gives its memory back, if one starts there. Nothing may be at work on it any more.
    pub(crate) fn release(&self, base: u64) {
        let left = { self.spans_mut().leave(base) };
        if let Some(span) = left {
            self.end(&span);
            self.give_back(&span);
        }
    }

    /// Ends a span that kernels alone reach, and gives its memory back. False if none starts there.
    pub(crate) fn end_hidden(&self, base: u64) -> bool {
        let Some(span) = ({ self.spans_mut().end_hidden(base) }) else { return false };
        self.losses.fetch_add(1, Ordering::AcqRel);
        self.give_back(&span);
        true
    }

    /// Takes out every span that `unwanted` picks and gives their memory back. Nothing may be at work on it any more.
    pub(crate) fn end_all(&self, unwanted: impl Fn(&Span) -> bool) {
        let ended = self.spans_mut().extract(unwanted);
        self.losses.fetch_add(1, Ordering::AcqRel);
        for span in ended {
            self.give_back(&span);
        }
    }

    /// The span that `address` lies in.
    pub(crate) fn span(&self, address: u64) -> Option<Arc<Span>> {
        self.spans().containing(address).cloned()
    }

    /// Enters a new span.
    ///
    /// # Errors
    /// Its context was destroyed meanwhile: the memory is still the caller's.
    pub(crate) fn enter(
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
        span.context.as_ref().map_or(Ok(()), |context| context.alive())?;
        spans.insert(span);
        Ok(())
    }

    /// Allocates memory of a context's device and enters it.
    pub(crate) fn allocate(&self, context: &Arc<Context>, bytes: u64, kind: SpanKind) -> Result<u64, CUerror> {
        let device = &context.device;
        let address = device.allocate(bytes, context.number)?;
        let entered = self.enter(address, bytes, device.ordinal, Some(Arc::clone(context)), kind);
        if entered.is_err() {
            device.release(address, bytes);
        }
        entered.map(|()| address)
    }

    /// Enters a span of the program's own memory, unless it overlaps with one that is alive.
    pub(crate) fn register(&self, base: u64, bytes: u64, context: Arc<Context>, flags: u32) -> CUresult {
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
        Arc::new(Span { base, bytes, device, context, kind, id: self.number(), sync_memops: false.into() })
    }

    /// How work reaches `address` in `span`.
    pub(crate) fn place(&self, span: &Arc<Span>, address: u64) -> Place {
        match &span.kind {
            SpanKind::Device
            | SpanKind::Pool(_)
            | SpanKind::Variable { .. }
            | SpanKind::Hidden { .. }
            | SpanKind::Opened(_) => Place::device(&self.devices[span.device].arena, address),
            SpanKind::Mapped(mapping) => {
                Place::mapped(self.addresses.arena(), address, [Arc::clone(&mapping.presence)].into())
            }
            SpanKind::Pinned { pages, .. } | SpanKind::Managed { pages, .. } => {
                Place::pages(pages, address - span.base)
            }
            SpanKind::Registered { .. } => Place::program(address),
        }
    }

    /// Gives back the memory of a span that was taken out of the spans. Nothing may be at work on it any more.
    pub(crate) fn give_back(&self, span: &Span) {
        if let SpanKind::Device | SpanKind::Variable { .. } | SpanKind::Hidden { .. } = span.kind {
            self.devices[span.device].give_back(span);
        }
    }
}
