//! The trait of an observer, which is notified of the accesses and the synchronization of a kernel's threads.
//!
//! The host thread that runs the thread block makes each call, after the event and before the next instruction. If
//! blocks run at the same time, the order of calls for two of them can differ from the order in which they accessed
//! memory. An observer that needs the order of writes takes a lock before each.

/// Threads of a warp.
pub const LANES: usize = 32;

/// Watches the threads of kernels. By default, a method ignores its event.
pub trait Observer {
    /// A thread block starts, with zeroed shared memory of a size in bytes.
    fn start(&mut self, _block: u64, _threads: u32, _shared_bytes: u64) {}

    /// All threads of a block have ended.
    fn end(&mut self, _block: u64) {}

    /// Threads of a warp are about to write global memory, or to change it atomically: [`global`](Self::global)
    /// follows, unless the access is a fault. It is not known yet which of them change anything.
    fn before_write(&mut self, _access: &WarpAccess<'_>) {}

    /// Threads of a warp have accessed global or constant memory.
    fn global(&mut self, _access: &WarpAccess<'_>) {}

    /// Threads of a warp have accessed shared memory: the addresses are offsets in that of the block.
    fn shared(&mut self, _access: &WarpAccess<'_>) {}

    /// All threads of a warp have read words of shared memory. By default, this calls [`shared`](Self::shared).
    fn shared_words(&mut self, read: &WordsRead) {
        self.shared(&WarpAccess {
            place: read.place,
            kind: AccessKind::Read,
            ordering: read.ordering,
            is_async: false,
            bytes: 4,
            addresses: &read.addresses(),
            lanes: u32::MAX,
            unchanged: 0,
            is_range: false,
        });
    }

    /// Threads of a warp have executed a memory fence.
    fn fence(&mut self, _place: Place, _lanes: u32, _scope: Scope) {}

    /// Threads of a warp have waited for each other: at `bar.warp.sync`, or any other instruction for several lanes.
    fn warp_sync(&mut self, _place: Place, _lanes: u32) {}

    /// A barrier of the block is complete: all threads that it waits for have arrived. `threads` is their number;
    /// `None` for all threads of the block.
    fn barrier(&mut self, _place: Place, _id: u32, _threads: Option<u32>) {}

    /// A barrier of all threads of the block is complete, but they did not reach it together.
    fn diverged_barrier(&mut self, _barrier: &DivergedBarrier) {}
}

/// Where an instruction is, and which warp executes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The number of the thread block in the grid.
    pub block: u64,
    /// The number of the warp in the block. The thread of a lane has the number `32 * warp + lane` in the block.
    pub warp: u32,
    /// The function, for [`Program::source`](crate::Program::source).
    pub function: u32,
    /// The line of the function's PTX text.
    pub line: u32,
}

/// An access of several threads of a warp with one instruction.
#[derive(Debug, Clone, Copy)]
pub struct WarpAccess<'a> {
    /// Where it is.
    pub place: Place,
    /// The kind of the access.
    pub kind: AccessKind,
    /// How it is ordered with others.
    pub ordering: Ordering,
    /// Whether other instructions of the thread may be executed before it is complete: `cp.async`.
    pub is_async: bool,
    /// The number of bytes of each thread, from 1 to 32.
    pub bytes: u64,
    /// The address of each lane.
    pub addresses: &'a [u64; LANES],
    /// A mask of the lanes that take part. They take part in ascending order.
    pub lanes: u32,
    /// A mask of the lanes whose writes did not change the memory.
    pub unchanged: u32,
    /// Whether it is known that all lanes take part, and access one range, in ascending order and without gaps.
    pub is_range: bool,
}

/// A read of a word of shared memory by each thread of a warp, at equal distances in each half of the warp.
#[derive(Debug, Clone, Copy)]
pub struct WordsRead {
    /// Where it is.
    pub place: Place,
    /// How it is ordered with others.
    pub ordering: Ordering,
    /// The offset of the first lane of each half.
    pub first: [u32; 2],
    /// How far the lanes of each half are apart.
    pub distance: [u32; 2],
}

impl WordsRead {
    /// Returns the offset of each lane.
    pub fn addresses(&self) -> [u64; LANES] {
        const HALF: usize = LANES / 2;
        std::array::from_fn(|lane| {
            let distance = self.distance[lane / HALF].wrapping_mul((lane % HALF) as u32);
            self.first[lane / HALF].wrapping_add(distance).into()
        })
    }
}

/// A barrier that some threads of the block reached and others did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DivergedBarrier {
    /// The number of the barrier.
    pub id: u32,
    /// Threads that wait at one instruction.
    pub arrived: WarpLanes,
    /// Threads that do not: of the same warp if they diverged there.
    pub missing: WarpLanes,
    /// Whether the missing threads went past the barrier and ended: `missing` is where. Otherwise they wait at another
    /// instruction.
    pub has_ended: bool,
}

/// Lanes of a warp at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpLanes {
    /// Where they are.
    pub place: Place,
    /// A mask of them.
    pub lanes: u32,
}

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes, with nothing in between.
    Atomic,
}

/// How an access is ordered with those of other threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ordering {
    /// The threads that it is strong for: accesses that are strong for each other do not race. `None` for a weak
    /// access.
    pub scope: Option<Scope>,
    /// Whether it orders accesses after it: an acquire.
    pub acquires: bool,
    /// Whether it orders accesses before it: a release.
    pub releases: bool,
}

/// A set of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Those of the thread block.
    Block,
    /// Those of the device, and of a cluster.
    Device,
    /// All, and the host.
    System,
}
