//! Receives the events of a program, and writes findings.

mod at_end;
mod capture_groups;
mod forget;
mod pools;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use capture_groups::CaptureGroups;

use crate::access::Spot;
use crate::blocks::{Block, BlockKind, Blocks};
use crate::clock::{Epoch, QueueId};
use crate::conflict::{Pair, Side};
use crate::finding::{Access, Finding, Kind, Location, Memory};
use crate::origin::{Launch, Origin};
use crate::report::{Place, Reporter};
use crate::shadow::{Conflict, Effect, LINE_BYTES, Record, Shadow, ShadowView, mask_of};
use crate::shared_frees::Foreign;
use crate::sites::Site;
use crate::tasks::{Submission, Task, TaskId, TaskView, Tasks};
use crate::wrong_free::{self, Around, FreeFunction};

/// The checker of a process.
#[derive(Debug)]
pub struct Checker {
    tasks: Tasks,
    shadow: Shadow,
    blocks: Mutex<Blocks>,
    /// The captures that are not ended, and where they were begun.
    captures: Mutex<HashMap<QueueId, Origin>>,
    /// Which memory of pools the captures were handed out.
    capture_groups: Mutex<CaptureGroups>,
    /// For each module, the last work of each stream that runs its code.
    module_uses: Mutex<HashMap<usize, HashMap<QueueId, u64>>>,
    /// The last allocation in stream order of each address, even if its stream has not got there.
    grants: Mutex<BTreeMap<u64, Grant>>,
    /// The kernels that wait for the host in their own way: they have read host memory with strong accesses.
    polling: Mutex<HashSet<TaskId>>,
    /// The tasks whose conflicts were reported.
    conflicting: Mutex<HashSet<TaskId>>,
    /// Held by the thread that looks which tasks are named.
    looking: Mutex<()>,
    /// Whether a kernel was aborted: the program cannot free anything afterwards.
    is_failed: AtomicBool,
    reporter: Reporter,
}

/// A block that a call has returned.
#[derive(Debug)]
struct Grant {
    bytes: u64,
    task: Task,
}

/// Why a kernel was aborted.
#[derive(Debug)]
pub struct KernelFault {
    /// What kind of error it is.
    pub kind: Kind,
    /// The line of the PTX.
    pub line: u32,
    /// The block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
    /// What the thread does, as `reads 4 bytes`.
    pub action: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The global memory that it is about.
    pub address: Option<u64>,
}

/// The function of the runtime that unloads the kernels of an object of the program, when the program ends.
const UNREGISTER: &str = "__cudaUnregisterFatBinary";

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Checker {
    /// Creates a checker that passes each finding to `write`: when it first occurs, and again in [`Self::report_repeats`] if it has
    /// occurred more often.
    pub fn new(write: impl Fn(&Finding) + Send + Sync + 'static) -> Self {
        Self {
            tasks: Tasks::default(),
            shadow: Shadow::default(),
            blocks: Mutex::default(),
            captures: Mutex::default(),
            capture_groups: Mutex::default(),
            module_uses: Mutex::default(),
            grants: Mutex::default(),
            polling: Mutex::default(),
            conflicting: Mutex::default(),
            looking: Mutex::default(),
            is_failed: AtomicBool::new(false),
            reporter: Reporter::new(write),
        }
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    pub(crate) fn shadow_view(&self, view: &TaskView) -> ShadowView<'_> {
        ShadowView::new(&self.shadow, view.id)
    }

    /// Notes that the program creates a stream: reports name it by its number.
    pub fn create_stream(&self, queue: QueueId) {
        self.reporter.number_stream(queue);
    }

    /// Names a stream that the program does not create, such as `the default stream`.
    pub fn name_stream(&self, queue: QueueId, name: &str) {
        self.reporter.name_stream(queue, name);
    }

    /// Notes that the program submits work in a call of `function`.
    pub fn submit(&self, function: &'static str, launch: Option<Launch>) -> Submission {
        self.tasks.submit(Origin::current(function, launch))
    }

    /// Notes that the driver submits work of its own, which accesses no memory of the program.
    pub fn submit_unnamed(&self) -> Submission {
        self.tasks.submit(Origin { function: "", launch: None, site: None, elsewhere: None })
    }

    /// Begins a task of a stream. The work that it depends on has completed.
    pub fn begin(&self, epoch: Epoch, dependencies: &[Epoch], submission: &Submission) -> TaskView {
        self.drop_tasks();
        self.tasks.begin(epoch, dependencies, submission)
    }

    /// Begins a task of a graph that these captures have made.
    pub fn begin_of_graph(
        &self,
        epoch: Epoch,
        dependencies: &[Epoch],
        submission: &Submission,
        captures: &[u64],
    ) -> TaskView {
        let mut view = self.begin(epoch, dependencies, submission);
        view.groups = locked(&self.capture_groups).of(captures);
        view
    }

    /// Begins a task of the host: the accesses of a call.
    pub fn begin_on_host(&self, function: &'static str) -> TaskView {
        self.drop_tasks();
        self.tasks.begin_on_host(Origin::current(function, None))
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
    pub fn access(&self, view: &TaskView, effect: Effect, address: u64, bytes: u64) {
        // The driver hands out memory again only when what the program did with it before is over.
        let is_over = |task| effect.is_allocation() && self.tasks.is_submitted_before(task, view);
        let is_before = &mut |task| self.tasks.is_before(task, view) || is_over(task);
        match self.shadow_view(view).touch_range(address, bytes, effect, is_before) {
            Some((at, Conflict::With(record))) => {
                let line = at / LINE_BYTES * LINE_BYTES;
                let common = record.mask & mask_of(at - line, address.saturating_add(bytes) - at);
                let first = if common == 0 { at } else { line + u64::from(common.trailing_zeros()) };
                self.report_conflict(view, effect, Spot::default(), first, bytes, record)
            }
            // A copy may contain padding.
            Some((_, Conflict::Undefined)) | None => {}
        }
    }

    /// Notes a load or store of the program at `address`, in memory that devices use too. `within` is the function that it runs in
    /// a stream, if it does. Returns whether it conflicts with anything.
    pub fn access_of_program(&self, within: Option<&mut TaskView>, site: Site, address: u64, is_write: bool) -> bool {
        let origin = Origin::program(site);
        let view = &match &within {
            Some(view) => self.tasks.begin_within(view, origin),
            None => self.tasks.begin_on_host(origin),
        };
        let effect = if is_write { Effect::Write } else { Effect::Read };
        let is_before = &mut |task| self.tasks.is_before(task, view);
        let met = self.shadow_view(view).touch_range(address, 1, effect, is_before);
        let Some((_, Conflict::With(record))) = met else { return false };
        if effect == Effect::Read && record.effect == Effect::Atomic {
            // The program waits for the value.
            let epoch = self.tasks.get(record.task).epoch;
            match within {
                Some(view) => self.acquire(view, epoch),
                None => self.observe(epoch),
            }
            return false;
        }
        self.report_conflict(view, effect, Spot::default(), address, 1, record);
        true
    }

    /// Returns whether the host knows that work has completed.
    pub fn is_observed(&self, epoch: Epoch) -> bool {
        self.tasks.is_observed(epoch)
    }

    /// Notes that a kernel makes a strong read, with which it may wait for the host. Returns whether it does.
    #[cold]
    pub(crate) fn poll(&self, view: &TaskView, address: u64) -> bool {
        let kind = locked(&self.blocks).around(address).map(|block| block.kind);
        let is_of_host = matches!(kind, Some(BlockKind::Host | BlockKind::Registered | BlockKind::Defined));
        if is_of_host {
            locked(&self.polling).insert(view.id);
        }
        is_of_host
    }

    /// Notes that a call has returned a block, which its stream allocates later.
    pub fn grant(&self, submission: &Submission, epoch: Epoch, address: u64, bytes: u64) {
        let mut grants = locked(&self.grants);
        let end = address.saturating_add(bytes);
        // What these blocks were is past. No two overlap.
        if let Some((&before, grant)) = grants.range(..address).next_back()
            && before.saturating_add(grant.bytes) > address
        {
            grants.remove(&before);
        }
        grants.extract_if(address..end.max(address), |_, _| true).for_each(drop);
        grants.insert(address, Grant { bytes, task: submission.task(epoch) });
    }

    /// Returns the allocation of the block that the second access is for, if the first one freed the block that was there before.
    fn granted_between(&self, pair: &Pair, address: u64) -> Option<Task> {
        let grants = locked(&self.grants);
        let (start, Grant { bytes, task }) = grants.range(..=address).next_back()?;
        let is_between = pair.first.task.submitted < task.submitted && task.submitted < pair.second.task.submitted;
        (pair.first.effect == Effect::Free && address - start < *bytes && is_between).then(|| task.clone())
    }

    /// Notes an allocation, by a task.
    pub fn allocate(&self, view: &TaskView, address: u64, bytes: u64, kind: BlockKind) {
        let block = Block { address, bytes, kind, allocated: view.id, freed: None, group: None };
        locked(&self.blocks).allocate(block, |task| self.tasks.is_submitted_after(task, view));
        let effect = if kind == BlockKind::Device { Effect::Allocate } else { Effect::AllocateDefined };
        self.access(view, effect, address, bytes);
    }

    /// Notes a free of a block of `bytes`, by a task. The stream that allocates it may not have got there yet.
    pub fn free(&self, view: &TaskView, address: u64, bytes: u64) {
        locked(&self.blocks).free(address, view.id);
        self.access(view, Effect::Free, address, bytes);
    }

    /// Returns where the program calls `function`.
    pub fn location(&self, function: &'static str) -> Location {
        Origin::current(function, None).location(Spot::default())
    }

    /// Notes that another process has freed memory that is open here. It may have known that the work at some epochs was done.
    pub fn free_elsewhere(&self, call: Foreign, known: impl Iterator<Item = Epoch>, address: u64, bytes: u64) {
        let mut view = self.tasks.begin_on_host(Origin::elsewhere(call));
        known.for_each(|epoch| self.acquire(&mut view, epoch));
        self.free(&view, address, bytes);
    }

    /// Notes that the driver uses memory itself from now on: for variables of modules, or for `malloc` in kernels.
    pub fn forget(&self, address: u64, bytes: u64) {
        locked(&self.blocks).forget_range(address..address.saturating_add(bytes));
        self.shadow.forget(address, bytes);
    }

    /// Notes that freed memory of the host was unmapped: later memory at its addresses is not the freed block.
    pub fn unmap_host(&self, address: u64) {
        locked(&self.blocks).forget(address);
    }

    /// Notes that a stream is captured from now on.
    pub fn begin_capture(&self, queue: QueueId, function: &'static str) {
        let origin = Origin::current(function, None);
        locked(&self.captures).insert(queue, origin);
    }

    /// Notes that the capture of a stream ends, with or without a graph.
    pub fn end_capture(&self, queue: QueueId) {
        locked(&self.captures).remove(&queue);
    }

    /// Notes that submitted work runs the code of a module.
    pub fn use_module(&self, module: usize, epoch: Epoch) {
        locked(&self.module_uses).entry(module).or_default().insert(epoch.queue, epoch.seq);
    }

    /// Notes that the program unloads a module.
    pub fn unload_module(&self, module: usize, function: &'static str) {
        // Not without the lock: streams may be forgotten meanwhile.
        let mut module_uses = locked(&self.module_uses);
        let uses = module_uses.remove(&module).unwrap_or_default();
        let is_in_use = uses.into_iter().any(|(queue, seq)| !self.tasks.is_observed(Epoch { queue, seq }));
        drop(module_uses);
        // Many programs end without waiting for their kernels, which is not an error. After a fault no wait succeeds.
        if self.is_failed.load(Ordering::Relaxed) || Origin::current(function, None).name() == UNREGISTER {
            return;
        }
        if is_in_use {
            let what = "unloads a module before the program has waited for its kernels";
            self.report_call(Kind::ModuleInUse, function, what, None);
        }
    }

    /// Writes a finding about a free that the driver refuses.
    pub fn report_wrong_free(&self, function: &'static str, address: u64, is_host: bool) {
        self.report_free(function, address, FreeFunction::of_driver(is_host));
    }

    /// Writes a finding about a wrong free in a call of `function`, which is one that frees memory of `what`.
    fn report_free(&self, function: &'static str, address: u64, what: FreeFunction) {
        let block = locked(&self.blocks).around(address).map(|block| {
            let (start, kind, is_freed) = (block.address, block.kind, block.freed.is_some());
            Around { start, kind, is_freed }
        });
        let (kind, what) = wrong_free::describe(address, what, block);
        self.report_call(kind, function, &what, Some(address));
    }

    /// Writes a finding about the current call of the host. `what` says what the function does.
    pub fn report_call(&self, kind: Kind, function: &'static str, what: &str, address: Option<u64>) {
        let origin = Origin::current(function, None);
        self.report_origin(kind, &origin, "calls", || format!("{} {what}", origin.name()), address);
    }

    fn report_origin(
        &self,
        kind: Kind,
        origin: &Origin,
        action: &str,
        message: impl FnOnce() -> String,
        address: Option<u64>,
    ) {
        let finding = || self.finding_at(kind, origin, action, message(), address);
        self.reporter.report(kind, Place::new(origin, Spot::default()), finding);
    }

    /// Describes a finding about one call.
    fn finding_at(&self, kind: Kind, origin: &Origin, action: &str, message: String, address: Option<u64>) -> Finding {
        let location = origin.location(Spot::default());
        Finding {
            access: Some(Access { action: action.to_owned(), location, position: None }),
            memory: address.and_then(|address| self.memory_of(kind, address)),
            ..Finding::new(kind, message)
        }
    }

    /// Writes a finding about a thread of a kernel.
    pub(crate) fn report_kernel(
        &self,
        view: &TaskView,
        kind: Kind,
        spot: Spot,
        action: String,
        message: String,
        address: Option<u64>,
    ) {
        let task = self.tasks.get(view.id);
        self.reporter.report(kind, Place::new(&task.origin, spot), || Finding {
            access: Some(self.reporter.access(&task, action, spot)),
            memory: address.and_then(|address| self.memory_of(kind, address)),
            ..Finding::new(kind, message)
        });
    }

    /// Writes a finding about a kernel that was aborted.
    pub fn report_fault(&self, view: &TaskView, fault: KernelFault) {
        self.is_failed.store(true, Ordering::Relaxed);
        let origin = self.tasks.get(view.id).origin;
        let Some(launch) = &origin.launch else { return };
        let KernelFault { kind, line, block, thread, action, message, address } = fault;
        let spot = launch.spot(line, block, thread);
        if kind == Kind::UseAfterFree {
            // The conflict says more: it names the free.
            if locked(&self.conflicting).contains(&view.id) {
                return;
            }
            let freed = |address: u64| locked(&self.blocks).around(address).and_then(|block| block.freed);
            if let Some(address) = address
                && let Some(task) = freed(address)
                && !self.tasks.is_before(task, view)
            {
                let free = Record { mask: 1, task, effect: Effect::Free, spot: Spot::default() };
                return self.report_conflict(view, Effect::Write, spot, address, 1, free);
            }
        }
        self.report_kernel(view, kind, spot, action, message, address);
    }

    /// Writes a finding about an access of a task, and an earlier one that it conflicts with.
    #[cold]
    pub(crate) fn report_conflict(
        &self,
        view: &TaskView,
        effect: Effect,
        spot: Spot,
        address: u64,
        bytes: u64,
        earlier: Record,
    ) {
        let (task, earlier_task) = (self.tasks.get(view.id), self.tasks.get(earlier.task));
        if task.origin.is_program() || earlier_task.origin.is_program() {
            let polling = locked(&self.polling);
            if polling.contains(&view.id) || polling.contains(&earlier.task) {
                return;
            }
        }
        if earlier.effect == Effect::Free && self.is_programs(view, address, earlier.task) {
            return;
        }
        locked(&self.conflicting).insert(view.id);
        let mut pair = Pair::new(
            Side { task: earlier_task, effect: earlier.effect, spot: earlier.spot },
            Side { task, effect, spot },
        );
        // It came before the stream of the allocation had got to the free.
        if let Some(task) = self.granted_between(&pair, address) {
            pair.first = Side { task, effect: Effect::Allocate, spot: Spot::default() };
        }
        let kind = pair.kind(address, &locked(&self.blocks), &self.tasks);
        let (first, second) = (&pair.first, &pair.second);
        self.reporter.report_pair(kind, [second, first].map(|side| Place::new(&side.task.origin, side.spot)), || {
            let (message, advice) = pair.message_and_advice(kind, &self.reporter);
            let action = match second.task.origin.is_program() {
                true => second.effect.verb().to_owned(),
                false => format!("{} {bytes} bytes", second.effect.verb()),
            };
            Finding {
                advice: Some(advice),
                access: Some(self.reporter.access(&second.task, action, second.spot)),
                other: Some(self.reporter.access(&first.task, first.effect.verb().to_owned(), first.spot)),
                memory: self.memory_at(address),
                ..Finding::new(kind, message)
            }
        });
    }

    /// Returns whether the program has other memory at an address since `freed`, which a task comes after, or the same for itself.
    fn is_programs(&self, view: &TaskView, address: u64, freed: TaskId) -> bool {
        let kind = locked(&self.blocks).around(address).map(|block| block.kind);
        matches!(kind, None | Some(BlockKind::Registered)) && self.tasks.is_before(freed, view)
    }

    pub(crate) fn memory_at(&self, address: u64) -> Option<Memory> {
        let block = *locked(&self.blocks).around(address)?;
        Some(self.memory(block, address))
    }

    /// Returns what an error at an address is about: outside of every block, the nearest one.
    fn memory_of(&self, kind: Kind, address: u64) -> Option<Memory> {
        let near = || locked(&self.blocks).nearest(address).copied();
        let near = || if kind == Kind::OutOfBounds { near() } else { None };
        self.memory_at(address).or_else(|| near().map(|block| self.memory(block, address)))
    }

    fn memory(&self, block: Block, address: u64) -> Memory {
        let location = |task: TaskId| self.tasks.get(task).origin.location(Spot::default());
        Memory {
            address: block.address,
            bytes: block.bytes,
            offset: address.wrapping_sub(block.address).cast_signed(),
            allocated: Some(location(block.allocated)),
            freed: block.freed.map(location),
        }
    }
}
