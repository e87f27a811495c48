//! Contexts: their contents, the primary context of a device, and each thread's stack of current contexts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use freehold_driver::cuda::{CUcontext, CUerror, CUlimit, CUresult};

use super::device::Device;
use super::stream::Stream;
use crate::base::sync::lock;
use crate::base::{check, stdio};
use crate::engine::Engine;
use crate::engine::queue::{Fence, Queue, VectorClock};
use crate::engine::work::Work;

thread_local! {
    /// The contexts that this thread pushed; the last one is current. Never dropped, so that it works in the
    /// destructors of other thread-locals, in any order.
    static STACK: ManuallyDrop<RefCell<Vec<Arc<Context>>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };

    /// Empties the stack when the thread ends.
    static CLEANUP: Cleanup = const { Cleanup };
}

struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        drop(STACK.with(|stack| stack.take()));
    }
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: CUcontext,
    /// Unique within the process.
    pub(crate) id: u64,
    pub(crate) device: Arc<Device>,
    pub(crate) flags: AtomicU32,
    pub(crate) is_primary: bool,
    /// Number of users in addition to the creator.
    pub(crate) attach_count: AtomicU32,
    is_destroyed: AtomicBool,
    legacy: Arc<Stream>,
    /// The queues of all streams, including those of destroyed streams until their work is done.
    queues: Mutex<Vec<Arc<Queue>>>,
    /// The queue of points after all other queues.
    joint_queue: OnceLock<Arc<Queue>>,
    pub(crate) settings: Mutex<Settings>,
    /// Ids of the contexts whose memory this one may access.
    pub(crate) peers: Mutex<BTreeSet<u64>>,
    /// Bytes that kernels have allocated with `malloc`.
    pub(crate) malloc_bytes: AtomicU64,
    /// Whether any kernel has called `malloc`, which fixes the size of the heap.
    pub(crate) malloc_is_used: AtomicBool,
    /// Output of kernels that was not written yet.
    printf_buffer: Mutex<Vec<u8>>,
}

/// Settings of a context.
#[derive(Debug)]
pub(crate) struct Settings {
    /// By number of the limit, in its own unit.
    pub(crate) limits: BTreeMap<u32, usize>,
    pub(crate) cache_config: u32,
}

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct PrimaryContext {
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) retain_count: usize,
    pub(crate) flags: u32,
}

impl Context {
    /// Creates a context whose legacy default stream uses `queue`.
    pub(crate) fn new(
        handle: CUcontext,
        id: u64,
        device: &Arc<Device>,
        queue: Arc<Queue>,
        flags: u32,
        is_primary: bool,
    ) -> Self {
        check::note_context();
        Self {
            handle,
            id,
            device: Arc::clone(device),
            flags: flags.into(),
            is_primary,
            attach_count: 0.into(),
            is_destroyed: false.into(),
            legacy: Arc::new(Stream::new_legacy(id, Arc::clone(&queue))),
            queues: Mutex::new(vec![queue]),
            joint_queue: OnceLock::new(),
            settings: Mutex::new(Settings { limits: crate::objects::attributes::limits(), cache_config: 0 }),
            peers: Mutex::default(),
            malloc_bytes: 0.into(),
            malloc_is_used: false.into(),
            printf_buffer: Mutex::default(),
        }
    }

    /// Returns whether `reference` refers to this context.
    pub(crate) fn is(&self, reference: &Weak<Self>) -> bool {
        std::ptr::eq(reference.as_ptr(), self)
    }

    /// Returns an error if the context is destroyed.
    pub(crate) fn check_alive(&self) -> CUresult {
        if self.is_destroyed.load(Ordering::Acquire) { Err(CUerror::CONTEXT_IS_DESTROYED) } else { Ok(()) }
    }

    pub(crate) fn legacy(&self) -> &Arc<Stream> {
        &self.legacy
    }

    /// Creates a queue in this context.
    pub(crate) fn new_queue(&self, engine: &Engine, is_blocking: bool) -> Arc<Queue> {
        let queue = engine.new_queue(is_blocking);
        let mut queues = lock(&self.queues);
        if queues.len().is_power_of_two() {
            queues.retain(|queue| !queue.is_finished() || !queue.is_known_idle());
        }
        queues.push(Arc::clone(&queue));
        queue
    }

    /// Returns whether a blocking stream other than the legacy default one has work that is not complete.
    pub(crate) fn has_pending_blocking_work(&self) -> bool {
        self.any_blocking(|queue| !queue.is_idle())
    }

    /// Returns whether work of the legacy default stream would have to wait for another blocking stream.
    pub(crate) fn has_blocking_work(&self) -> bool {
        self.any_blocking(|queue| !queue.is_known_idle())
    }

    fn any_blocking(&self, holds: impl Fn(&Queue) -> bool) -> bool {
        let legacy = self.legacy.queue.id;
        lock(&self.queues).iter().any(|queue| queue.is_blocking && queue.id != legacy && holds(queue))
    }

    /// Notes that the program knows that the work of all blocking streams is complete.
    pub(crate) fn mark_blocking_observed(&self) {
        for queue in lock(&self.queues).iter().filter(|queue| queue.is_blocking && queue.is_idle()) {
            queue.mark_observed(queue.last_seq());
        }
    }

    /// Adds work to a queue of this context: after the work that legacy default stream rules require, and after
    /// `after`.
    pub(crate) fn submit(
        &self,
        engine: &Arc<Engine>,
        queue: &Arc<Queue>,
        mut after: Vec<Fence>,
        work: Work,
    ) -> Result<Fence, CUerror> {
        let legacy = &self.legacy.queue;
        if queue.id == legacy.id {
            let others = lock(&self.queues);
            let pending =
                others.iter().filter(|other| other.is_blocking && other.id != legacy.id && !other.is_known_idle());
            after.extend(pending.map(|other| Fence { queue: Arc::clone(other), seq: other.last_seq() }));
        } else if queue.is_blocking && !legacy.is_known_idle() {
            after.push(Fence { queue: Arc::clone(legacy), seq: legacy.last_seq() });
        }
        for fence in &after {
            // Only the fence itself is known: the queue's clock may have advanced since that fence.
            queue.order_after(fence, &VectorClock::default());
        }
        engine.submit(queue, after, work)
    }

    /// Adds work that starts when all work submitted to this context so far has completed. Returns its fence, and what
    /// it is known to come after.
    pub(crate) fn submit_after_all(
        &self,
        engine: &Arc<Engine>,
        work: Work,
    ) -> Result<(Fence, Arc<VectorClock>), CUerror> {
        let joint = self.joint_queue.get_or_init(|| self.new_queue(engine, false));
        let pending: Vec<Fence> = lock(&self.queues)
            .iter()
            .filter(|queue| queue.id != joint.id && !queue.is_known_idle())
            .map(|queue| Fence { queue: Arc::clone(queue), seq: queue.last_seq() })
            .collect();
        for fence in &pending {
            joint.order_after(fence, &fence.queue.clock());
        }
        let clock = joint.clock();
        Ok((engine.submit(joint, pending, work)?, clock))
    }

    /// Waits for all work submitted to this context so far, for a reason that the program cannot rely on.
    pub(crate) fn synchronize_internally(&self, engine: &Engine) {
        let queues = lock(&self.queues).clone();
        for queue in queues {
            let seq = queue.last_seq();
            engine.wait_internally(&Fence { queue, seq });
        }
    }

    /// Waits for all work submitted to this context so far.
    pub(crate) fn synchronize(&self, engine: &Engine) {
        let queues = lock(&self.queues).clone();
        for queue in queues {
            let seq = queue.last_seq();
            engine.wait(&Fence { queue, seq });
        }
    }

    /// Marks the context as destroyed.
    ///
    /// # Errors
    /// Another call has destroyed it, or is doing so.
    pub(crate) fn mark_destroyed(&self) -> CUresult {
        if self.is_destroyed.swap(true, Ordering::AcqRel) { Err(CUerror::CONTEXT_IS_DESTROYED) } else { Ok(()) }
    }

    /// Closes all queues to new work.
    pub(crate) fn close_queues(&self) {
        for queue in lock(&self.queues).iter() {
            queue.close();
        }
    }

    /// Returns the value of a limit of this context.
    pub(crate) fn limit(&self, limit: CUlimit) -> u64 {
        lock(&self.settings).limits.get(&limit.0).map_or(0, |&value| value as u64)
    }

    /// Buffers the output of a kernel until the program synchronizes. New output replaces the oldest.
    pub(crate) fn buffer_printf(&self, bytes: &[u8]) {
        let most = self.limit(CUlimit::PRINTF_FIFO_SIZE) as usize;
        let mut printed = lock(&self.printf_buffer);
        printed.extend_from_slice(bytes);
        let excess = printed.len().saturating_sub(most);
        printed.drain(..excess);
    }

    /// Writes the output of kernels to the program's standard output.
    pub(crate) fn flush_printf(&self) {
        let printed = std::mem::take(&mut *lock(&self.printf_buffer));
        if !printed.is_empty() {
            stdio::to_stdout(&printed);
        }
    }

    /// Returns whether work of `other` may access memory that belongs to this context.
    pub(crate) fn may_be_accessed_by(&self, other: &Context) -> bool {
        self.id == other.id || lock(&other.peers).contains(&self.id)
    }

    /// Pushes this context onto the calling thread's stack.
    pub(crate) fn push(self: &Arc<Self>) {
        // Registers the clean-up, unless it has run.
        let _has_run = CLEANUP.try_with(|_| ());
        STACK.with(|stack| stack.borrow_mut().push(Arc::clone(self)));
    }

    /// Returns whether this is the calling thread's current context.
    pub(crate) fn is_current(&self) -> bool {
        top().is_some_and(|top| top.id == self.id)
    }
}

/// Pops the current context off the calling thread's stack.
pub(crate) fn pop() -> Option<Arc<Context>> {
    STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        let popped = stack.pop();
        // After the clean-up, nothing else frees the stack's memory.
        if stack.is_empty() && CLEANUP.try_with(|_| ()).is_err() {
            *stack = Vec::new();
        }
        popped
    })
}

/// Returns the current context of the calling thread, dead or alive.
pub(crate) fn top() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow().last().cloned())
}

/// For calls that need no current context: returns an error only if there is one and it is destroyed.
pub(crate) fn check_current_if_any() -> CUresult {
    top().map_or(Ok(()), |context| context.check_alive())
}

/// Returns the current context of the calling thread.
///
/// # Errors
/// There is none, or it is destroyed.
pub(crate) fn current() -> Result<Arc<Context>, CUerror> {
    let context = top().ok_or(CUerror::INVALID_CONTEXT)?;
    context.check_alive()?;
    Ok(context)
}
