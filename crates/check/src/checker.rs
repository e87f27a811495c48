//! Receives what a program does, and writes findings.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::block::{AccessKind as BlockAccessKind, Race};
use crate::clock::{Epoch, QueueId};
use crate::finding::{Access, Finding, Kind, Location, Memory, Position};
use crate::grid::GridRace;
use crate::shadow::{AccessKind, Conflict, LINE_BYTES, Record, Shadow, ShadowView, Spot};
use crate::sites;
use crate::tasks::{Kernel, Origin, Submission, Task, TaskId, TaskView, Tasks};

/// How many freed blocks are remembered.
const FREED_MAX: usize = 1 << 14;

/// Threads of a warp.
const LANES: usize = 32;

/// The checker of a process.
pub struct Checker {
    tasks: Tasks,
    shadow: Shadow,
    blocks: Mutex<Blocks>,
    streams: Mutex<Streams>,
    reported: Mutex<HashSet<ReportKey>>,
    /// The captures that are not ended, and where they were begun.
    captures: Mutex<HashMap<QueueId, Origin>>,
    /// For each module, the last work of each stream that runs its code.
    module_uses: Mutex<HashMap<usize, HashMap<QueueId, u64>>>,
    /// The tasks that findings are about.
    conflicts: Mutex<HashSet<TaskId>>,
    /// Whether a kernel was aborted: the program cannot free anything afterwards.
    is_failed: AtomicBool,
    write: Box<dyn Fn(&Finding) + Send + Sync>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

/// The streams of the program, and their names in reports.
#[derive(Debug, Default)]
struct Streams {
    names: HashMap<QueueId, (String, u64)>,
    created: u64,
}

/// What makes two findings the same: the kind, and the call or the kernel's line of both accesses.
type ReportKey = (Kind, Option<PlaceKey>, Option<PlaceKey>);
type PlaceKey = (Option<sites::Site>, u32);

#[derive(Debug, Default)]
struct Blocks {
    live: BTreeMap<u64, Block>,
    freed: BTreeMap<u64, Block>,
    /// The blocks that pools have handed out of these.
    handed_out: BTreeMap<u64, Block>,
    released: BTreeMap<u64, Block>,
    /// The blocks that pools have handed out parts of.
    pooled: HashSet<u64>,
}

/// Whose memory a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A device's, with undefined values.
    Device,
    /// A device's, or managed memory that the host writes too, with defined values.
    Defined,
    /// Pinned or registered memory of the host.
    Host,
    /// Memory of another process.
    Imported,
    /// A part of a device's memory that a pool has handed out.
    Pool,
}

#[derive(Clone, Debug)]
struct Block {
    kind: BlockKind,
    bytes: u64,
    allocated: Arc<Origin>,
    freed: Option<Arc<Origin>>,
    /// The task that freed it.
    freed_by: Option<TaskId>,
    /// The number of the call that handed it out.
    since: u64,
}

impl Blocks {
    /// Returns the block around an address, live or freed, with its address.
    fn around(&self, address: u64) -> Option<(u64, &Block)> {
        let within = |blocks: &'_ BTreeMap<u64, Block>| {
            let (&base, block) = blocks.range(..=address).next_back()?;
            (address - base < block.bytes).then_some(base)
        };
        let all = [&self.handed_out, &self.released, &self.live, &self.freed];
        all.into_iter().find_map(|blocks| within(blocks).map(|base| (base, &blocks[&base])))
    }
}

impl Blocks {
    /// Returns whether a pool has handed out the block at an address after a call.
    fn is_reused_after(&self, address: u64, call: u64) -> bool {
        [&self.handed_out, &self.released].into_iter().any(|blocks| {
            let before = blocks.range(..=address).next_back();
            before.is_some_and(|(&base, block)| address - base < block.bytes && block.since > call)
        })
    }

    /// Returns whether an address is in a block that went back to its pool.
    fn is_released(&self, address: u64) -> bool {
        let before = self.released.range(..=address).next_back();
        before.is_some_and(|(&base, block)| address - base < block.bytes)
    }

    /// Forgets what pools did with memory that is allocated anew.
    fn forget_pools(&mut self, address: u64, bytes: u64) {
        self.pooled.remove(&address);
        let range = address..address.saturating_add(bytes);
        for blocks in [&mut self.handed_out, &mut self.released] {
            let gone: Vec<u64> = blocks.range(range.clone()).map(|(&base, _)| base).collect();
            gone.iter().for_each(|base| drop(blocks.remove(base)));
        }
    }
}

impl Checker {
    /// Creates a checker that passes each finding to `write` once.
    pub fn new(write: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        Self {
            tasks: Tasks::default(),
            shadow: Shadow::default(),
            blocks: Mutex::default(),
            streams: Mutex::default(),
            reported: Mutex::default(),
            captures: Mutex::default(),
            module_uses: Mutex::default(),
            conflicts: Mutex::default(),
            is_failed: AtomicBool::new(false),
            write: Box::new(write),
        }
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn origin(function: &'static str, kernel: Option<Arc<Kernel>>) -> Origin {
        Origin { function, kernel, site: Some(sites::capture()) }
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the program creates a stream: reports name it by its number.
    pub fn create_stream(&self, queue: QueueId) {
        let mut streams = self.streams();
        streams.created += 1;
        let number = streams.created;
        streams.names.insert(queue, (format!("stream {number}"), number));
    }

    /// Names a stream that the program does not create, such as `the default stream`.
    pub fn name_stream(&self, queue: QueueId, name: &str) {
        self.streams().names.insert(queue, (name.to_owned(), 0));
    }

    /// Notes that the program submits work in a call of `function`.
    pub fn submit(&self, function: &'static str, kernel: Option<Arc<Kernel>>) -> Submission {
        self.tasks.submit(Self::origin(function, kernel))
    }

    /// Notes that the driver submits work of its own, which accesses no memory of the program.
    pub fn submit_unnamed(&self) -> Submission {
        self.tasks.submit(Origin { function: "", kernel: None, site: None })
    }

    /// Begins a task of a stream. The work that it depends on has completed.
    pub fn begin(&self, epoch: Epoch, dependencies: &[Epoch], submission: &Submission) -> TaskView {
        self.tasks.begin(epoch, dependencies, submission)
    }

    /// Begins a task of the host: the accesses of a call.
    pub fn begin_on_host(&self, function: &'static str) -> TaskView {
        self.tasks.begin_on_host(Self::origin(function, None))
    }

    /// Notes that the host knows that work has completed.
    pub fn observe(&self, epoch: Epoch) {
        self.tasks.observe(epoch);
    }

    /// Notes that a running task knows that other work has reached an epoch.
    pub fn acquire(&self, view: &mut TaskView, from: Epoch) {
        self.tasks.acquire(view, from);
    }

    /// Returns the place of the last task that wrote a word.
    pub fn last_writer(&self, address: u64) -> Option<Epoch> {
        self.shadow.last_writer(address).map(|task| self.tasks.get(task).epoch)
    }

    /// Makes an access to a range in a task that is not a kernel.
    pub fn access(&self, view: &TaskView, kind: AccessKind, address: u64, bytes: u64) {
        let mut shadow = ShadowView::new(&self.shadow, view.id);
        let met = shadow.touch_range(address, bytes, kind, &mut |task| self.tasks.is_before(task, view));
        match met {
            Some((at, Conflict::With(record))) => self.report_conflict(view, kind, Spot::default(), at, bytes, record),
            // A copy may contain padding.
            Some((_, Conflict::Undefined)) | None => {}
        }
    }

    /// Notes an allocation, by a task.
    pub fn allocate(&self, view: &TaskView, address: u64, bytes: u64, kind: BlockKind) {
        let origin = self.tasks.get(view.id).origin;
        let mut blocks = self.blocks();
        blocks.forget_pools(address, bytes);
        blocks.freed.remove(&address);
        blocks.live.insert(address, Block { kind, bytes, allocated: origin, freed: None, freed_by: None, since: 0 });
        drop(blocks);
        let is_undefined = kind == BlockKind::Device;
        let access = if is_undefined { AccessKind::Allocate } else { AccessKind::AllocateDefined };
        self.access(view, access, address, bytes);
    }

    /// Notes a free, by a task.
    pub fn free(&self, view: &TaskView, address: u64) {
        let origin = self.tasks.get(view.id).origin;
        let mut blocks = self.blocks();
        let Some(mut block) = blocks.live.remove(&address) else { return };
        let bytes = block.bytes;
        block.freed = Some(origin);
        block.freed_by = Some(view.id);
        if blocks.freed.len() >= FREED_MAX {
            blocks.freed.pop_first();
        }
        blocks.freed.insert(address, block);
        drop(blocks);
        self.access(view, AccessKind::Free, address, bytes);
    }

    /// Notes that a pool hands out a block. What it has not handed out of the same allocation is not to be accessed.
    pub fn hand_out(&self, function: &'static str, address: u64, bytes: u64) {
        let view = &self.begin_on_host(function);
        let Task { origin, submitted: since, .. } = self.tasks.get(view.id);
        let mut blocks = self.blocks();
        let around = blocks.live.range(..=address).next_back().map(|(&base, block)| (base, block.bytes));
        let slab = around.filter(|&(base, bytes)| address - base < bytes && blocks.pooled.insert(base));
        blocks.released.remove(&address);
        blocks.handed_out.insert(
            address,
            Block { kind: BlockKind::Pool, bytes, allocated: origin, freed: None, freed_by: None, since },
        );
        drop(blocks);
        if let Some((base, bytes)) = slab {
            self.access(view, AccessKind::Release, base, bytes);
        }
        self.access(view, AccessKind::HandOut, address, bytes);
    }

    /// Notes that a block goes back to its pool.
    pub fn release(&self, function: &'static str, address: u64) {
        let mut blocks = self.blocks();
        let Some(mut block) = blocks.handed_out.remove(&address) else {
            drop(blocks);
            return self.report_wrong_free(function, address, false);
        };
        let view = &self.begin_on_host(function);
        let origin = self.tasks.get(view.id).origin;
        let bytes = block.bytes;
        block.freed = Some(origin);
        block.freed_by = Some(view.id);
        blocks.released.insert(address, block);
        drop(blocks);
        self.access(view, AccessKind::Release, address, bytes);
    }

    /// Returns the block that a pool has handed out around an address, and the allocation that it is part of.
    pub fn pool_block(&self, address: u64) -> Option<(Range<u64>, Range<u64>)> {
        let blocks = self.blocks();
        let within = |blocks: &BTreeMap<u64, Block>| {
            let (&base, block) = blocks.range(..=address).next_back()?;
            (address - base < block.bytes).then(|| base..base + block.bytes)
        };
        Some((within(&blocks.handed_out)?, within(&blocks.live)?))
    }

    fn captures(&self) -> MutexGuard<'_, HashMap<QueueId, Origin>> {
        self.captures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a stream is captured from now on.
    pub fn begin_capture(&self, queue: QueueId, function: &'static str) {
        self.captures().insert(queue, Self::origin(function, None));
    }

    /// Notes that the capture of a stream ends, with or without a graph.
    pub fn end_capture(&self, queue: QueueId) {
        self.captures().remove(&queue);
    }

    /// Writes a finding for each capture that was not ended.
    pub fn report_captures(&self) {
        for (_, origin) in self.captures().drain() {
            if self.is_new((Kind::UnjoinedCapture, Some((origin.site, 0)), None)) {
                let message =
                    format!("the capture that {} begins was never ended: its work did not run", name_of(&origin));
                let mut finding = Finding::new(Kind::UnjoinedCapture, message);
                let location = location(&origin, Spot::default());
                finding.access = Some(Access { action: "begins a capture".to_owned(), location, position: None });
                (self.write)(&finding);
            }
        }
    }

    /// Notes that submitted work runs the code of a module.
    pub fn use_module(&self, module: usize, epoch: Epoch) {
        let mut uses = self.module_uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.entry(module).or_default().insert(epoch.queue, epoch.seq);
    }

    /// Notes that the program unloads a module.
    pub fn unload_module(&self, module: usize, function: &'static str) {
        let uses = self.module_uses.lock().unwrap_or_else(PoisonError::into_inner).remove(&module).unwrap_or_default();
        if uses.into_iter().any(|(queue, seq)| !self.tasks.is_observed(Epoch { queue, seq })) {
            let name = sites::capture().function().unwrap_or_else(|| function.to_owned());
            let message = format!("{name} unloads a module before the program has waited for its kernels");
            self.report_call(Kind::ModuleInUse, function, message, None);
        }
    }

    /// Notes that the program uses a handle of an object that it has destroyed.
    pub fn report_stale(&self, kind: Kind, function: &'static str, object: &str) {
        let name = sites::capture().function().unwrap_or_else(|| function.to_owned());
        self.report_call(kind, function, format!("{name} uses {object} that is destroyed"), None);
    }

    /// Returns a view for the accesses of a kernel's block.
    pub fn kernel_view<'c>(&'c self, view: &'c TaskView) -> KernelView<'c> {
        let shadow = ShadowView::new(&self.shadow, view.id);
        KernelView { checker: self, view, shadow, known: [(TaskId(0), false); KNOWN] }
    }

    /// Writes a finding about a free that the driver refuses.
    pub fn report_wrong_free(&self, function: &'static str, address: u64, is_host: bool) {
        // A block that its function refuses to free is being freed, in the order of a stream.
        let is_freed = |block: &Block| block.freed.is_some() || is_host == (block.kind == BlockKind::Host);
        let found = self.blocks().around(address).map(|(base, block)| (base, is_freed(block)));
        let name = sites::capture().function().unwrap_or_else(|| function.to_owned());
        let (kind, message) = match found {
            Some((base, true)) if base == address => {
                (Kind::DoubleFree, format!("{name} frees a block that is already freed"))
            }
            Some((base, false)) if base == address => {
                (Kind::InvalidFree, format!("{name} frees a block that another function has to free"))
            }
            Some((_, _)) => (Kind::InteriorFree, format!("{name} frees an address inside a block")),
            None => (Kind::InvalidFree, format!("{name} frees {address:#x}, which was never allocated")),
        };
        self.report_call(kind, function, message, Some(address));
    }

    /// Writes a finding about the current call of the host, with its place.
    pub fn report_call(&self, kind: Kind, function: &'static str, message: String, address: Option<u64>) {
        let origin = Self::origin(function, None);
        let key = (kind, Some((origin.site, 0)), None);
        if !self.is_new(key) {
            return;
        }
        let mut finding = Finding::new(kind, message);
        finding.access =
            Some(Access { action: "calls".to_owned(), location: location(&origin, Spot::default()), position: None });
        finding.memory = address.and_then(|address| self.memory_at(address));
        (self.write)(&finding);
    }

    /// Writes a finding about a thread of a kernel.
    pub fn report_kernel(
        &self,
        view: &TaskView,
        kind: Kind,
        spot: Spot,
        action: String,
        message: String,
        address: Option<u64>,
    ) {
        let task = self.tasks.get(view.id);
        if !self.is_new((kind, Some((task.origin.site, spot.line())), None)) {
            return;
        }
        let mut finding = Finding::new(kind, message);
        finding.access = Some(self.described(&task, action, spot));
        finding.memory = address.and_then(|address| self.memory_at(address));
        (self.write)(&finding);
    }

    /// Writes a finding about a kernel that was aborted at a line of its PTX.
    #[expect(clippy::too_many_arguments, reason = "all of them describe one fault")]
    pub fn report_fault(
        &self,
        view: &TaskView,
        kind: Kind,
        line: u32,
        block: [u32; 3],
        thread: [u32; 3],
        action: String,
        message: String,
        address: Option<u64>,
    ) {
        self.is_failed.store(true, Ordering::Relaxed);
        let origin = self.tasks.get(view.id).origin;
        let Some(kernel) = &origin.kernel else { return };
        // The conflict says more: it names the free.
        let is_known = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).contains(&view.id);
        if is_known && kind == Kind::UseAfterFree {
            return;
        }
        let number = |at: [u32; 3], sizes: [u32; 3]| {
            let [x, y, z] = at.map(u64::from);
            (z * u64::from(sizes[1]) + y) * u64::from(sizes[0]) + x
        };
        let spot = Spot::new(line, number(block, kernel.grid), number(thread, kernel.block) as u32);
        let freed_by = address.and_then(|address| self.blocks().around(address).and_then(|(_, block)| block.freed_by));
        if let (Kind::UseAfterFree, Some(task), Some(address)) = (kind, freed_by, address)
            && !self.tasks.is_before(task, view)
        {
            let free = Record { mask: 1, task, kind: AccessKind::Free, spot: Spot::default() };
            return self.report_conflict(view, AccessKind::Write, spot, address, 1, free);
        }
        self.report_kernel(view, kind, spot, action, message, address);
    }

    /// Writes a finding for each block that is still allocated.
    pub fn report_leaks(&self) {
        if self.is_failed.load(Ordering::Relaxed) {
            return;
        }
        let live: Vec<_> = self.blocks().live.iter().map(|(&address, block)| (address, block.clone())).collect();
        for (address, block) in live {
            if self.is_new((Kind::Leak, Some((block.allocated.site, 0)), None)) {
                let function = name_of(&block.allocated);
                let mut finding =
                    Finding::new(Kind::Leak, format!("{} bytes of {function} were never freed", block.bytes));
                finding.memory = self.memory_at(address);
                finding.access = Some(Access {
                    action: format!("allocates {} bytes", block.bytes),
                    location: location(&block.allocated, Spot::default()),
                    position: None,
                });
                (self.write)(&finding);
            }
        }
    }

    fn is_new(&self, key: ReportKey) -> bool {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(key)
    }

    fn memory_at(&self, address: u64) -> Option<Memory> {
        let blocks = self.blocks();
        let (base, block) = blocks.around(address)?;
        Some(Memory {
            address: base,
            bytes: block.bytes,
            offset: address.wrapping_sub(base).cast_signed(),
            allocated: Some(location(&block.allocated, Spot::default())),
            freed: block.freed.as_ref().map(|origin| location(origin, Spot::default())),
        })
    }

    fn described(&self, task: &Task, action: String, spot: Spot) -> Access {
        let Epoch { queue, seq } = task.epoch;
        let stream = self.streams().names.get(&queue).map_or(queue.0, |(_, number)| *number);
        let position = (queue != QueueId::HOST).then_some(Position { stream, work: seq });
        Access { action, location: location(&task.origin, spot), position }
    }

    /// Names where a task runs: `stream 2`.
    fn stream_name(&self, task: &Task) -> String {
        let queue = task.epoch.queue;
        if queue == QueueId::HOST {
            return "the host".to_owned();
        }
        self.streams().names.get(&queue).map_or_else(|| "a branch of a graph".to_owned(), |(name, _)| name.clone())
    }

    #[cold]
    fn report_conflict(&self, view: &TaskView, kind: AccessKind, spot: Spot, address: u64, bytes: u64, other: Record) {
        let (task, first) = (self.tasks.get(view.id), self.tasks.get(other.task));
        let is_race = ![kind, other.kind].contains(&AccessKind::Release);
        self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).insert(view.id);
        // In the order of the program, which does not depend on the order of execution.
        let (task, kind, spot, first, other) = if is_race && first.submitted > task.submitted {
            (first, other.kind, other.spot, task, Record { kind, spot, ..other })
        } else {
            (task, kind, spot, first, other)
        };
        let is_host = |task: &Task| task.epoch.queue == QueueId::HOST;
        let found = match (other.kind, kind) {
            (AccessKind::Free, _) => match self.blocks().around(address).map(|(_, block)| block.kind) {
                Some(BlockKind::Host) => Kind::HostMemoryFreed,
                _ => Kind::UseAfterFree,
            },
            // Between the blocks that the pool has handed out.
            (AccessKind::Release, _) if !self.blocks().is_released(address) => Kind::OutOfBounds,
            (AccessKind::Release, _) => Kind::UseAfterFree,
            (_, AccessKind::Free) => match self.blocks().around(address).map(|(_, block)| block.kind) {
                Some(BlockKind::Host) => Kind::HostMemoryFreed,
                Some(BlockKind::Imported) => Kind::IpcClosed,
                _ => Kind::FreeInUse,
            },
            (AccessKind::Allocate | AccessKind::AllocateDefined, _) => Kind::UseBeforeAllocation,
            (_, AccessKind::Allocate | AccessKind::AllocateDefined) => Kind::ReuseRace,
            _ if self.blocks().is_reused_after(address, first.submitted) => Kind::ReuseRace,
            _ if is_host(&task) || is_host(&first) => Kind::HostRace,
            _ => Kind::StreamRace,
        };
        let mut places = [Some((task.origin.site, spot.line())), Some((first.origin.site, other.spot.line()))];
        places.sort();
        let key = (found, places[0], places[1]);
        if !self.is_new(key) {
            return;
        }
        let (name, first_name) = (name_of(&task.origin), name_of(&first.origin));
        let (stream, first_stream) = (self.stream_name(&task), self.stream_name(&first));
        let (verb, first_verb) = (verb(kind), verb(other.kind));
        let message = match found {
            Kind::OutOfBounds => {
                format!(
                    "{name} in {stream} {verb} memory of a pool that is outside of all blocks that it has handed out"
                )
            }
            Kind::UseAfterFree | Kind::HostMemoryFreed if other.kind == AccessKind::Free => {
                format!("{name} in {stream} {verb} memory that {first_name} in {first_stream} has freed")
            }
            Kind::FreeInUse | Kind::HostMemoryFreed | Kind::IpcClosed => {
                format!(
                    "{name} in {stream} frees memory that {first_name} in {first_stream} {first_verb}, and nothing orders them"
                )
            }
            Kind::ReuseRace => format!(
                "{name} in {stream} {verb} a block that the pool handed out again while {first_name} in {first_stream} {first_verb} it"
            ),
            _ => format!(
                "{name} in {stream} {verb} what {first_name} in {first_stream} {first_verb}, and nothing orders them"
            ),
        };
        let mut finding = Finding::new(found, message);
        finding.advice = Some(if is_host(&task) {
            format!(
                "The host never waits for {first_name} in {first_stream}: synchronize the stream, or an event after it, before {name}."
            )
        } else {
            format!(
                "{} never waits for {first_name} in {first_stream}: record an event after it, and let {stream} wait for the event before {name}.",
                capitalized(&stream)
            )
        });
        finding.access = Some(self.described(&task, format!("{verb} {bytes} bytes"), spot));
        finding.other = Some(self.described(&first, first_verb.to_owned(), other.spot));
        finding.memory = self.memory_at(address);
        (self.write)(&finding);
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn block_verb(kind: BlockAccessKind) -> &'static str {
    match kind {
        BlockAccessKind::Read => "reads",
        BlockAccessKind::Write => "writes",
        BlockAccessKind::Atomic => "changes atomically",
    }
}

fn verb(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "reads",
        AccessKind::Write => "writes",
        AccessKind::Atomic => "changes atomically",
        AccessKind::Allocate | AccessKind::AllocateDefined | AccessKind::HandOut => "allocates",
        AccessKind::Free | AccessKind::Release => "frees",
    }
}

/// Names a task: the kernel, or the function that the program called.
fn name_of(origin: &Origin) -> String {
    match &origin.kernel {
        Some(kernel) => format!("kernel {}", kernel.name),
        None => origin.site.and_then(sites::Site::function).unwrap_or_else(|| origin.function.to_owned()),
    }
}

fn location(origin: &Origin, spot: Spot) -> Location {
    let stack = origin.site.map(sites::Site::frames).unwrap_or_default();
    let Some(kernel) = &origin.kernel else {
        return Location { function: name_of(origin), stack, ..Location::default() };
    };
    let at = |index: u64, sizes: [u32; 3]| {
        let [x, y] = [sizes[0], sizes[1]].map(|size| u64::from(size.max(1)));
        [(index % x) as u32, (index / x % y) as u32, (index / x / y) as u32]
    };
    Location {
        function: kernel.name.clone(),
        source: (kernel.source)(spot.line()),
        ptx_line: Some(spot.line()),
        block: Some(at(spot.block(), kernel.grid)),
        thread: Some(at(u64::from(spot.thread()), kernel.block)),
        stack,
    }
}

/// How many tasks a view remembers, with whether they happen before its own.
const KNOWN: usize = 4;

/// The accesses of a block of a kernel.
#[derive(Debug)]
pub struct KernelView<'c> {
    checker: &'c Checker,
    view: &'c TaskView,
    shadow: ShadowView<'c>,
    known: [(TaskId, bool); KNOWN],
}

impl KernelView<'_> {
    /// Lanes of a warp access memory, `bytes` each. `thread` is the number of the warp's first thread in its block. An atomic
    /// access that `needs_value` is a read too.
    pub fn access(
        &mut self,
        kind: AccessKind,
        needs_value: bool,
        (line, block, thread): (u32, u64, u32),
        bytes: u64,
        addresses: &[u64; LANES],
        lanes: u32,
    ) {
        let mut left = lanes;
        while left != 0 {
            let first = left.trailing_zeros();
            let start = addresses[first as usize] / LINE_BYTES * LINE_BYTES;
            let mut mask = 0;
            // The lanes in the same line, which are neighbors in most kernels.
            while left != 0 {
                let lane = left.trailing_zeros();
                let offset = addresses[lane as usize].wrapping_sub(start);
                if offset >= LINE_BYTES {
                    break;
                }
                let ones = if bytes >= 64 { u64::MAX } else { (1 << bytes) - 1 };
                mask |= ones << offset;
                left &= left - 1;
            }
            let spot = Spot::new(line, block, thread + first);
            if needs_value && self.shadow.is_undefined(start, mask) {
                self.report(kind, spot, start, mask, Conflict::Undefined);
            }
            self.touch(kind, spot, start, mask);
        }
    }

    #[inline]
    fn touch(&mut self, kind: AccessKind, spot: Spot, start: u64, mask: u64) {
        let Self { checker, view, shadow, known } = self;
        let mut is_before = |task: TaskId| match known.iter().find(|(known, _)| *known == task) {
            Some(&(_, is_before)) => is_before,
            None => {
                let is_before = checker.tasks.is_before(task, view);
                known.rotate_right(1);
                known[0] = (task, is_before);
                is_before
            }
        };
        let met = shadow.touch_line(start, mask, kind, spot, &mut is_before);
        if let Some(conflict) = met {
            self.report(kind, spot, start, mask, conflict);
        }
    }

    /// Writes a finding about two threads of a block that race on its shared memory.
    #[cold]
    pub fn report_shared_race(&mut self, block: u64, race: &Race) {
        let checker = self.checker;
        let task = checker.tasks.get(self.view.id);
        let [second, first] = [race.second, race.first]
            .map(|access| (block_verb(access.kind), Spot::new(access.site.line, block, access.thread)));
        let mut places = [second.1, first.1].map(|spot| Some((task.origin.site, spot.line())));
        places.sort();
        if !checker.is_new((Kind::SharedRace, places[0], places[1])) {
            return;
        }
        let name = name_of(&task.origin);
        let message = format!(
            "in {name}, thread {} of a block {} a byte of shared memory that thread {} {}, and no barrier is in between",
            second.1.thread(),
            second.0,
            first.1.thread(),
            first.0
        );
        let mut finding = Finding::new(Kind::SharedRace, message);
        finding.advice = Some("Call __syncthreads (within a warp: __syncwarp) between the two accesses.".to_owned());
        let action = |verb: &str| format!("{verb} shared memory at offset {}", race.offset);
        finding.access = Some(checker.described(&task, action(second.0), second.1));
        finding.other = Some(checker.described(&task, action(first.0), first.1));
        (checker.write)(&finding);
    }

    /// Writes a finding about two threads of the kernel that race on global memory.
    #[cold]
    pub fn report_global_race(&mut self, race: &GridRace) {
        let checker = self.checker;
        let task = checker.tasks.get(self.view.id);
        let [second, first] = [race.second, race.first]
            .map(|access| (block_verb(access.kind), Spot::new(access.site.line, access.block, access.thread)));
        let mut places = [second.1, first.1].map(|spot| Some((task.origin.site, spot.line())));
        places.sort();
        if !checker.is_new((Kind::GlobalRace, places[0], places[1])) {
            return;
        }
        let name = name_of(&task.origin);
        let is_one_block = race.first.block == race.second.block;
        let who = |spot: Spot| {
            if is_one_block {
                format!("thread {}", spot.thread())
            } else {
                format!("thread {} of block {}", spot.thread(), spot.block())
            }
        };
        let message = format!(
            "in {name}, {} {} what {} {}, and nothing orders them",
            who(second.1),
            second.0,
            who(first.1),
            first.0
        );
        let mut finding = Finding::new(Kind::GlobalRace, message);
        finding.advice = Some(
            if is_one_block {
                "Call __syncthreads between the two accesses, or use an atomic function."
            } else {
                "Use an atomic function, or publish with __threadfence and a flag that is read atomically."
            }
            .to_owned(),
        );
        finding.access = Some(checker.described(&task, second.0.to_owned(), second.1));
        finding.other = Some(checker.described(&task, first.0.to_owned(), first.1));
        finding.memory = checker.memory_at(race.address);
        (checker.write)(&finding);
    }

    /// Writes a finding about a barrier that threads of a block did not reach together. The places are a line of the PTX, a
    /// block and a thread.
    #[cold]
    pub fn report_divergence(&mut self, arrived: (u32, u64, u32), missing: (u32, u64, u32), has_ended: bool) {
        let checker = self.checker;
        let task = checker.tasks.get(self.view.id);
        let [arrived, missing] = [arrived, missing].map(|(line, block, thread)| Spot::new(line, block, thread));
        let mut places = [arrived, missing].map(|spot| Some((task.origin.site, spot.line())));
        places.sort();
        if !checker.is_new((Kind::BarrierDivergence, places[0], places[1])) {
            return;
        }
        let does = if has_ended { "has ended without reaching it" } else { "waits at another one" };
        let (name, thread, other) = (name_of(&task.origin), arrived.thread(), missing.thread());
        let message = format!("in {name}, thread {thread} of a block waits at a barrier, and thread {other} {does}");
        let mut finding = Finding::new(Kind::BarrierDivergence, message);
        finding.advice =
            Some("Let all threads of the block reach the same __syncthreads: move it out of the condition.".to_owned());
        finding.access = Some(checker.described(&task, "waits at a barrier".to_owned(), arrived));
        let action = if has_ended { "ends" } else { "waits at a barrier" };
        finding.other = Some(checker.described(&task, action.to_owned(), missing));
        (checker.write)(&finding);
    }

    #[cold]
    fn report(&mut self, kind: AccessKind, spot: Spot, start: u64, mask: u64, conflict: Conflict) {
        match conflict {
            Conflict::With(record) => {
                let common = record.mask & mask;
                let common = if common == 0 { mask } else { common };
                let address = start + u64::from(common.trailing_zeros());
                self.checker.report_conflict(self.view, kind, spot, address, u64::from(common.count_ones()), record);
            }
            Conflict::Undefined => {
                let address = start + u64::from(mask.trailing_zeros());
                // Memory that the program did not allocate has no undefined bytes.
                let task = self.checker.tasks.get(self.view.id);
                let message = format!("{} reads memory that was never written", name_of(&task.origin));
                let action = format!("reads {} bytes", mask.count_ones());
                self.checker.report_kernel(self.view, Kind::UninitializedRead, spot, action, message, Some(address));
            }
        }
    }
}
