//! Contexts: what belongs to one, the primary one of a device, and the stack of current ones that each thread has.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use freehold_driver::cuda::{CUcontext, CUerror, CUlimit, CUresult};

use crate::device::Device;
use crate::engine::queue::{Clock, Point, Queue};
use crate::engine::work::Work;
use crate::print;
use crate::stream::Stream;
use crate::world::{World, lock};

thread_local! {
    /// The contexts that this thread pushed; the last one is current. Never dropped, so that it works in the destructors of other
    /// thread-locals, in whatever order they run.
    static STACK: ManuallyDrop<RefCell<Vec<Arc<Context>>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };

    /// Empties the stack at the thread's end.
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
    /// Never the same for two contexts of one process.
    pub(crate) number: u64,
    pub(crate) device: Arc<Device>,
    pub(crate) flags: AtomicU32,
    pub(crate) is_primary: bool,
    /// Users that were added to the one who created it.
    pub(crate) attached: AtomicU32,
    dead: AtomicBool,
    legacy: Arc<Stream>,
    /// The queues of all streams, of destroyed ones too until their work is done.
    queues: Mutex<Vec<Arc<Queue>>>,
    pub(crate) settings: Mutex<Settings>,
    /// Numbers of the contexts whose memory this one may use.
    pub(crate) peers: Mutex<BTreeSet<u64>>,
    /// Bytes that kernels hold from their `malloc`.
    pub(crate) heap_bytes: AtomicU64,
    /// Whether any kernel has allocated: the size of the heap is fixed then.
    pub(crate) heap_is_used: AtomicBool,
    /// What kernels printed and nobody has seen yet.
    printed: Mutex<Vec<u8>>,
}

/// What can be set in a context and read again.
#[derive(Debug)]
pub(crate) struct Settings {
    /// By number of the limit, in its own unit.
    pub(crate) limits: BTreeMap<u32, usize>,
    pub(crate) cache_config: u32,
}

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) retained: usize,
    pub(crate) flags: u32,
}

impl Context {
    pub(crate) fn create(world: &World, device: &Arc<Device>, flags: u32, is_primary: bool) -> Arc<Self> {
        let number = world.number();
        let queue = world.engine.open(true);
        let (_, context) = world.contexts.insert_with(|handle| {
            Arc::new_cyclic(|context| Self {
                handle: CUcontext(handle),
                number,
                device: Arc::clone(device),
                flags: flags.into(),
                is_primary,
                attached: 0.into(),
                dead: false.into(),
                legacy: Arc::new(Stream::default_of(context.clone(), Arc::clone(&queue))),
                queues: Mutex::new(vec![queue]),
                settings: Mutex::new(Settings { limits: crate::attributes::limits(), cache_config: 0 }),
                peers: Mutex::default(),
                heap_bytes: 0.into(),
                heap_is_used: false.into(),
                printed: Mutex::default(),
            })
        });
        context
    }

    /// An error if the context is destroyed.
    pub(crate) fn alive(&self) -> CUresult {
        if self.dead.load(Ordering::Acquire) { Err(CUerror::CONTEXT_IS_DESTROYED) } else { Ok(()) }
    }

    pub(crate) fn legacy(&self) -> &Arc<Stream> {
        &self.legacy
    }

    /// A new queue of this context.
    pub(crate) fn open_queue(&self, world: &World, blocking: bool) -> Arc<Queue> {
        let queue = world.engine.open(blocking);
        let mut queues = lock(&self.queues);
        if queues.len().is_power_of_two() {
            queues.retain(|queue| !queue.is_over());
        }
        queues.push(Arc::clone(&queue));
        queue
    }

    /// Whether a blocking stream other than the legacy default one has work.
    pub(crate) fn has_blocking_work(&self) -> bool {
        let legacy = self.legacy.queue.id;
        lock(&self.queues).iter().any(|queue| queue.blocking && queue.id != legacy && !queue.is_idle())
    }

    /// Adds work to a queue of this context: after what the legacy default stream demands, and after `after`.
    pub(crate) fn add(
        &self,
        world: &World,
        queue: &Arc<Queue>,
        mut after: Vec<Point>,
        work: Work,
    ) -> Result<Point, CUerror> {
        let legacy = &self.legacy.queue;
        if queue.id == legacy.id {
            let others = lock(&self.queues);
            let pending = others.iter().filter(|other| other.blocking && other.id != legacy.id && !other.is_idle());
            after.extend(pending.map(|other| Point { queue: Arc::clone(other), position: other.end() }));
        } else if queue.blocking && !legacy.is_idle() {
            after.push(Point { queue: Arc::clone(legacy), position: legacy.end() });
        }
        for point in &after {
            // Only the point itself: what its queue came after then, it may have learned later.
            queue.learn(point, &Clock::default());
        }
        world.engine.add(queue, after, work)
    }

    /// Waits for all work of this context so far.
    pub(crate) fn synchronize(&self, world: &World) {
        let queues = lock(&self.queues).clone();
        for queue in queues {
            let position = queue.end();
            world.engine.wait(&Point { queue, position });
        }
    }

    /// Ends the context: waits for its work, then gives back its memory and ends its streams and events.
    ///
    /// # Errors
    /// Somebody else has ended it, or is about to.
    pub(crate) fn destroy(&self, world: &World) -> CUresult {
        if self.dead.swap(true, Ordering::AcqRel) {
            return Err(CUerror::CONTEXT_IS_DESTROYED);
        }
        self.synchronize(world);
        world.contexts.remove(self.handle.0);
        self.flush_printed();
        world.end_all(|span| span.context.as_ref().is_some_and(|owner| owner.number == self.number));
        world.imports.forget_context(self.number);
        world.functions.remove_all(|function| function.is_of(self));
        world.modules.remove_all(|module| module.is_of(self));
        world.captures.abandon(world, |stream| std::ptr::eq(stream.context.as_ptr(), self));
        world.streams.remove_all(|stream| std::ptr::eq(stream.context.as_ptr(), self));
        world.events.remove_all(|event| std::ptr::eq(event.context.as_ptr(), self));
        for queue in lock(&self.queues).iter() {
            queue.close();
        }
        Ok(())
    }

    /// The value of a limit of this context.
    pub(crate) fn limit(&self, limit: CUlimit) -> u64 {
        lock(&self.settings).limits.get(&limit.0).map_or(0, |&value| value as u64)
    }

    /// Keeps what a kernel printed until the program synchronises. What is oldest gives way to what is new.
    pub(crate) fn print(&self, bytes: &[u8]) {
        let most = self.limit(CUlimit::PRINTF_FIFO_SIZE) as usize;
        let mut printed = lock(&self.printed);
        printed.extend_from_slice(bytes);
        let excess = printed.len().saturating_sub(most);
        printed.drain(..excess);
    }

    /// Writes what kernels printed to the program's standard output.
    pub(crate) fn flush_printed(&self) {
        let printed = std::mem::take(&mut *lock(&self.printed));
        if !printed.is_empty() {
            print::to_stdout(&printed);
        }
    }

    /// Puts this context on the calling thread's stack.
    pub(crate) fn push(self: &Arc<Self>) {
        // Registers the clean-up, unless it has run.
        let _has_run = CLEANUP.try_with(|_| ());
        STACK.with(|stack| stack.borrow_mut().push(Arc::clone(self)));
    }

    /// Whether this is the calling thread's current context.
    pub(crate) fn is_current(&self) -> bool {
        top().is_some_and(|top| top.number == self.number)
    }
}

/// Takes the current context off the calling thread's stack.
pub(crate) fn pop() -> Option<Arc<Context>> {
    STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        let popped = stack.pop();
        // Behind the clean-up nothing else frees the memory.
        if stack.is_empty() && CLEANUP.try_with(|_| ()).is_err() {
            *stack = Vec::new();
        }
        popped
    })
}

/// The current context of the calling thread, dead or alive.
pub(crate) fn top() -> Option<Arc<Context>> {
    STACK.with(|stack| stack.borrow().last().cloned())
}

/// For calls that need no current context: an error only if there is one and it is destroyed.
pub(crate) fn none_or_alive() -> CUresult {
    top().map_or(Ok(()), |context| context.alive())
}

/// The current context of the calling thread.
///
/// # Errors
/// There is none, or it is destroyed.
pub(crate) fn current() -> Result<Arc<Context>, CUerror> {
    let context = top().ok_or(CUerror::INVALID_CONTEXT)?;
    context.alive()?;
    Ok(context)
}

pub(crate) fn find(world: &World, handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    world.contexts.find(handle.0).ok_or(CUerror::INVALID_CONTEXT)
}

/// The context with a handle, or the last one that had it.
pub(crate) fn find_dead_or_alive(world: &World, handle: CUcontext) -> Result<Arc<Context>, CUerror> {
    world.contexts.find_dead_or_alive(handle.0).ok_or(CUerror::INVALID_CONTEXT)
}
