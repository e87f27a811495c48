//! The trait that each kind of driver implements: [`Backend`], one context on one device.
//!
//! The methods of [`Backend`] itself work on every device. Features that some devices lack are traits of their own,
//! which a method returns as an `Option` ([`DeviceMemory::virtual_memory`], [`Backend::stream_mem_ops`], …): a caller asks
//! once, and does not find out later from an error.
//!
//! Any thread may call, with any context current; each call restores the thread's current context. A handle is valid in
//! the backend that made it, until it is destroyed. Where a method says so, a handle of another context of the same
//! device is valid too.
//!
//! # What is unsafe here
//!
//! A driver dereferences the handles that it is given: NVIDIA's are pointers, and the driver does not check that it
//! handed them out. Copies and fills access any address, host memory included. So every call that takes a handle or an
//! address to work on is `unsafe`. Its caller guarantees:
//!
//! - **handles**: this backend made them, and they are not destroyed yet. Events and memory may be of another context
//!   of the device. A handle that other code made may be passed where that code guarantees the same;
//! - **addresses**: they are memory of this device, for the stated number of bytes, until the stream has completed the
//!   work;
//! - **order**: nothing else uses that memory during that time, except work that the caller has ordered before or after
//!   this work.
//!
//! Each `# Safety` section says which of them a call requires.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::cuda::api::Api;
use crate::error::{CallError, LoadError};
use crate::handle::{Event, Kernel, Memory, Module, Stream};

type Result<T> = std::result::Result<T, CallError>;

/// A context on a device.
pub trait Backend: DeviceMemory + Kernels {
    /// Returns the device's name, for display.
    fn name(&self) -> Result<String>;

    /// Returns an id that no other device has, the same in every process.
    fn uuid(&self) -> Result<[u8; 16]>;

    /// Returns the free and the total memory.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Waits until all work of the context is done, whichever stream or thread it comes from.
    fn synchronize(&self) -> Result<()>;

    /// Releases the context and everything left in it. No other method of this value may be called afterwards, unless
    /// this call failed. A context that other code made stays open.
    ///
    /// # Safety
    /// No method of this value is called afterwards, unless this call failed, and nothing uses objects that it created.
    unsafe fn close(&self) -> Result<()>;

    // Memory.

    /// Returns the alignment that memory passed to a kernel must have.
    fn alignment_bytes(&self) -> u64;

    /// Returns whether the host can read and write device memory directly, at the device's address.
    fn is_host_visible(&self, address: u64) -> Result<bool>;

    /// Allocates host memory from and to which copies are fast, in all contexts of the device.
    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Frees memory of [`alloc_host`](Self::alloc_host). This may wait for all work of the context.
    ///
    /// # Safety
    /// Nothing uses the memory from the call on, and no work that uses it is pending.
    unsafe fn free_host(&self, start: NonNull<u8>) -> Result<()>;

    // Streams, and events in them. An event is valid in all contexts of the device.

    /// Creates a stream that does not wait for any other implicitly.
    fn create_stream(&self) -> Result<Stream>;

    /// Destroys a stream. Its pending work still runs, and the call does not wait for it.
    ///
    /// # Safety
    /// The stream is a valid handle.
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()>;

    /// Returns whether all work of a stream is done.
    ///
    /// # Safety
    /// The stream is a valid handle.
    unsafe fn is_idle(&self, stream: Stream) -> Result<bool>;

    /// Waits on the host until all work of a stream is done.
    ///
    /// # Safety
    /// The stream is a valid handle.
    unsafe fn wait_until_idle(&self, stream: Stream) -> Result<()>;

    /// Creates an event without a time.
    fn create_event(&self) -> Result<Event>;

    /// Destroys an event. Streams and threads that wait for it keep waiting.
    ///
    /// # Safety
    /// The event is a valid handle.
    unsafe fn destroy_event(&self, event: Event) -> Result<()>;

    /// Records an event after all work submitted to a stream so far. Waits for an earlier recording are not affected.
    ///
    /// # Safety
    /// Both are valid handles.
    unsafe fn record(&self, event: Event, stream: Stream) -> Result<()>;

    /// Returns whether an event has completed; one that was never recorded has. Its stream may be destroyed.
    ///
    /// # Safety
    /// The event is a valid handle.
    unsafe fn is_complete(&self, event: Event) -> Result<bool>;

    /// Waits on the host until an event has completed.
    ///
    /// # Safety
    /// The event is a valid handle.
    unsafe fn wait(&self, event: Event) -> Result<()>;

    /// Makes work that is enqueued in a stream from now on wait, on the device, until an event has completed.
    ///
    /// # Safety
    /// Both are valid handles.
    unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()>;

    // Work in a stream. The memory may be of any context of the device.

    /// Enqueues a copy from the host.
    ///
    /// # Safety
    /// `bytes` at `from` may be read, and nothing writes there, until the stream has completed the copy. For the rest
    /// as for [`copy`](Self::copy).
    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()>;

    /// Like [`upload`](Self::upload), but uses a copy engine, if the device has one, instead of the engine that runs
    /// kernels: processes take turns on that engine, and a turn is long. The memory at `from` is pinned.
    ///
    /// # Safety
    /// As for [`upload`](Self::upload).
    unsafe fn upload_by_copy_engine(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.upload(to, from, bytes, stream) }
    }

    /// Enqueues a copy to the host.
    ///
    /// # Safety
    /// `bytes` at `to` may be written, and nothing else reads or writes there, until the stream has completed the copy.
    /// For the rest as for [`copy`](Self::copy).
    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Enqueues a copy from device memory to device memory.
    ///
    /// # Safety
    /// The stream is a valid handle, `to` and `from` are addresses of `bytes` bytes each, and the copy is ordered.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Enqueues a copy of `rows` rows of `row_bytes` each from device memory to device memory.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), for all rows.
    unsafe fn copy_2d(
        &self,
        to: PitchedPtr,
        from: PitchedPtr,
        row_bytes: usize,
        rows: usize,
        stream: Stream,
    ) -> Result<()>;

    /// Enqueues a fill with a repeated pattern. `to` and `bytes` are multiples of the pattern's length.
    ///
    /// # Safety
    /// The stream is a valid handle, `to` is an address of `bytes` bytes, and the fill is ordered.
    unsafe fn fill(&self, to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()>;

    // Features that some devices lack.

    /// Returns the operations on words in memory that streams write and wait for.
    fn stream_mem_ops(&self) -> Option<&dyn StreamMemOps>;

    /// Returns the operations that register host memory of the program, which streams then use in place.
    fn host_registration(&self) -> Option<&dyn HostRegistration>;

    /// Returns the operations that create more contexts of the device, which share its memory and its events.
    fn contexts(&self) -> Option<&dyn Contexts>;

    /// Events with a time.
    fn timing(&self) -> Option<&dyn Timing>;

    /// Returns the operations on streams that other code made, and on captures.
    fn foreign_streams(&self) -> Option<&dyn ForeignStreams>;

    /// Returns the operations that copy from memory of other devices of the same driver.
    fn peer_copies(&self) -> Option<&dyn PeerCopies>;

    // Diagnosis of faulting kernels. Only a device that runs kernels in software has it.

    /// Describes the first kernel that faulted.
    fn fault(&self) -> Option<FaultDetails> {
        None
    }

    /// Returns the driver's table of functions, if it is a CUDA driver.
    ///
    /// # Safety
    /// As for [`cuda::load::load`](crate::cuda::load::load): the caller is responsible for every call through the
    /// table, and does not destroy objects that this value created.
    unsafe fn cuda(&self) -> Option<&Api> {
        None
    }

    /// Returns whether this is a CUDA driver.
    fn is_cuda(&self) -> bool {
        false
    }

    /// Returns whether this is the software driver.
    fn is_software(&self) -> bool {
        false
    }
}

/// What a memory pool needs of a device: memory, and what it announces about blocks.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Returns the size of the device's memory.
    fn total_bytes(&self) -> Result<u64>;

    /// Allocates device memory and returns its address. The memory is not zeroed.
    fn alloc(&self, bytes: u64) -> Result<u64>;

    /// Frees memory of [`alloc`](Self::alloc). This may wait for all work of the context.
    ///
    /// # Safety
    /// `address` was returned by [`alloc`](Self::alloc) and was not freed yet. No work that uses the memory comes
    /// later.
    unsafe fn free(&self, address: u64) -> Result<()>;

    /// Returns the operations on memory that is mapped to reserved addresses.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory>;

    /// Returns the operations on memory that other processes can map. A device with this has
    /// [`virtual_memory`](Self::virtual_memory) too.
    fn sharing(&self) -> Option<&dyn Sharing>;

    /// Registers a look-up of the blocks in the `bytes` at `start`. The device calls it, on any thread, for each
    /// address that is passed to a launch, so that it detects a kernel that leaves its block. Dropping the result ends
    /// this. Returns `None` where the device does not check accesses.
    fn annotate_blocks(&self, _start: u64, _bytes: u64, _look_up: BlockLookupFn) -> Option<BlockAnnotation> {
        None
    }

    /// Returns whether the process is checked for races and memory errors. Then every change of a block is announced.
    fn is_checked(&self) -> bool {
        false
    }

    /// Tells the checker what a pool does with one of its blocks, in the order of the program's calls.
    fn announce(&self, _change: BlockChange) {}
}

/// A context, as other contexts of the same driver identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerContext {
    /// An address in the driver's code, the same for all contexts of one driver.
    pub(crate) driver: usize,
    pub(crate) raw: usize,
}

/// Copies from memory of other contexts, also of other devices. Peer access is not needed.
pub trait PeerCopies {
    /// Returns the value that identifies this context to other contexts.
    fn peer_context(&self) -> PeerContext;

    /// Returns whether a context belongs to the same driver, so that its memory can be copied.
    fn is_peer(&self, other: PeerContext) -> bool;

    /// Enqueues a copy to memory of this context.
    ///
    /// # Safety
    /// As for [`Backend::copy`], with `from` in memory of `from_context`, which is open and of the same driver.
    unsafe fn copy_from_peer(
        &self,
        to: u64,
        from: u64,
        from_context: PeerContext,
        bytes: usize,
        stream: Stream,
    ) -> Result<()>;
}

/// Returns the block that contains an address. It must not call the driver.
pub type BlockLookupFn = Box<dyn Fn(u64) -> Option<BlockBounds> + Send + Sync>;

/// A block, with the size that its owner requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockBounds {
    /// The address of its first byte.
    pub base: u64,
    /// How many bytes its owner asked for.
    pub bytes: u64,
    /// Whether it has an owner now.
    pub is_live: bool,
}

/// What a pool does with one of its blocks.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// It hands out a block: the last step of an allocation.
    HandedOut {
        /// The address of its first byte.
        address: u64,
        /// How many bytes its owner asked for.
        bytes: u64,
    },
    /// The owner gives a block back: the first step of a free, even of one that the pool refuses.
    Freed {
        /// The address that is freed.
        address: u64,
    },
    /// It changes the size of a block where it is.
    Resized {
        /// The address of its first byte.
        address: u64,
        /// How many bytes its owner asks for now.
        bytes: u64,
    },
}

/// A registered look-up. Dropping it ends the registration, and waits for look-ups in progress.
pub type BlockAnnotation = Box<dyn fmt::Debug + Send + Sync>;

/// How a kernel faulted, as far as the device reports it.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultDetails {
    /// The kernel's name.
    pub kernel: String,
    /// The line of the PTX text.
    pub line: u32,
    /// The index of the block in the grid.
    pub block: [u32; 3],
    /// The index of the thread in the block.
    pub thread: [u32; 3],
    /// The address that was accessed, if the fault is an access.
    pub address: Option<u64>,
    /// The whole report in one sentence.
    pub message: String,
}

/// Free and total memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// The memory that no process has allocated.
    pub free_bytes: u64,
    /// The total memory.
    pub total_bytes: u64,
}

/// A pattern that memory is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    U8(u8),
    /// Two bytes.
    U16([u8; 2]),
    /// Four bytes.
    U32([u8; 4]),
}

impl Pattern {
    /// Returns the shortest pattern whose repetition is `value` and whose length divides `address`.
    pub fn new(value: &[u8], address: u64) -> Option<Self> {
        let has_period = |length: usize| {
            let lies = address.is_multiple_of(length as u64) && value.len().is_multiple_of(length);
            lies && value.chunks(length).all(|part| part == &value[..length])
        };
        match value {
            [one, ..] if has_period(1) => Some(Self::U8(*one)),
            &[one, two, ..] if has_period(2) => Some(Self::U16([one, two])),
            &[one, two, three, four, ..] if has_period(4) => Some(Self::U32([one, two, three, four])),
            _ => None,
        }
    }

    /// Its bytes: one, two or four.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::U8(byte) => std::slice::from_ref(byte),
            Self::U16(pair) => pair,
            Self::U32(four) => four,
        }
    }
}

/// Rows in memory: the address of the first, and the distance from each to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PitchedPtr {
    /// The address of the first row.
    pub start: u64,
    /// From the start of a row to that of the next.
    pub pitch_bytes: usize,
}

/// Images, their kernels, and launches.
pub trait Kernels {
    /// Returns whether the device loads images of a kind. A device that does not run kernels loads none.
    fn supports(&self, kind: ImageKind) -> bool;

    /// Loads an image, which may change after the call has returned. This may wait for running kernels.
    ///
    /// # Safety
    /// The image is valid, as [`ImageKind`] describes its kind.
    unsafe fn load(&self, kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError>;

    /// Unloads a module, its kernels and its variables. This may wait for all work of the context.
    ///
    /// # Safety
    /// The module is a valid handle. Nothing of it is launched or used from now on.
    unsafe fn unload(&self, module: Module) -> Result<()>;

    /// Returns the kernel with a name, ready to launch. It is valid until its module is unloaded.
    ///
    /// # Safety
    /// The module is a valid handle.
    unsafe fn kernel(&self, module: Module, name: &CStr) -> Result<Option<Kernel>>;

    /// Returns the names of all kernels.
    ///
    /// # Safety
    /// The module is a valid handle.
    unsafe fn kernel_names(&self, module: Module) -> Result<Vec<String>>;

    /// Returns the parameters of a kernel, in order.
    ///
    /// # Safety
    /// The kernel is one of this context, and its module is loaded.
    unsafe fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>>;

    /// Returns the limits of a launch of a kernel. An unknown limit is [`u64::MAX`].
    ///
    /// # Safety
    /// The kernel is one of this context, and its module is loaded.
    unsafe fn limits(&self, kernel: Kernel) -> Result<LaunchLimits>;

    /// Returns the address and the size in bytes of the variable with a name.
    ///
    /// # Safety
    /// The module is a valid handle.
    unsafe fn global(&self, module: Module, name: &CStr) -> Result<Option<(u64, usize)>>;

    /// Enqueues a launch.
    ///
    /// # Safety
    /// The stream is a valid handle, and the kernel is one of its context whose module stays loaded until the stream
    /// has completed the launch. There is an argument for each parameter, of its size. All memory that the kernel
    /// touches satisfies what [`copy`](Backend::copy) requires.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: LaunchConfig,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Result<()>;
}

/// The format of an image.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PTX: text that ends in a NUL.
    Ptx,
    /// A cubin or a fat binary, as its compiler wrote it: drivers do not validate it.
    Binary,
    /// OpenCL C: text that ends in a NUL.
    OpenCl,
    /// SPIR-V, as its compiler wrote it: 32-bit words.
    SpirV,
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ptx => "PTX",
            Self::Binary => "binary for an NVIDIA GPU",
            Self::OpenCl => "OpenCL C",
            Self::SpirV => "SPIR-V",
        })
    }
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its size; `None` if the driver does not report it.
    pub bytes: Option<usize>,
}

/// The largest launch that the device and the kernel allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchLimits {
    /// Threads per block.
    pub threads_max: u64,
    /// Threads per block in each dimension.
    pub block_threads: [u64; 3],
    /// Blocks in each dimension.
    pub grid_blocks: [u64; 3],
    /// Threads per block of this kernel, which its registers limit.
    pub kernel_threads_max: u64,
    /// Dynamic shared memory per block of this kernel.
    pub kernel_shared_bytes_max: u64,
}

/// The grid and the blocks of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// Returns `blocks` blocks of `threads` threads in one dimension, without dynamic shared memory.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// The arguments of a launch: a pointer to each, and its kind. Both have the same length.
#[derive(Debug)]
pub struct Arguments<'a> {
    /// Pointers to values and to addresses of memory. They are read before the launch returns.
    pub pointers: &'a mut [*mut c_void],
    /// The kind of each argument.
    pub kinds: &'a [ArgKind],
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A value.
    Value {
        /// Length in bytes.
        bytes: usize,
    },
    /// The 8-byte address of device memory.
    Address,
    /// The address of memory that the kernel only reads: the bytes from `start` on.
    ReadOnly {
        /// The first address that the kernel may read.
        start: u64,
        /// How many bytes from there.
        bytes: u64,
    },
}

impl ArgKind {
    /// Returns the size of the parameter in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Value { bytes } => bytes,
            Self::Address | Self::ReadOnly { .. } => size_of::<u64>(),
        }
    }
}

/// Reserved addresses, memory without an address, and mapping one to the other. No call waits for the device. All of it
/// belongs to the device, and outlives a context.
pub trait VirtualMemory {
    /// Reserves addresses that start at a multiple of `alignment_bytes`.
    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64>;

    /// Releases addresses to which nothing is mapped.
    ///
    /// # Safety
    /// They are a whole range that [`reserve`](Self::reserve) returned, and nothing is mapped there.
    unsafe fn unreserve(&self, start: u64, bytes: u64) -> Result<()>;

    /// Allocates memory without an address, for this process only.
    fn create(&self, bytes: u64) -> Result<Memory>;

    /// Releases a handle. Mappings of the memory stay.
    ///
    /// # Safety
    /// The memory is a valid handle, and is not used afterwards.
    unsafe fn release(&self, memory: Memory) -> Result<()>;

    /// Maps all `bytes` of memory. It may be accessed only after [`set_access`](Self::set_access).
    ///
    /// # Safety
    /// The addresses are reserved, nothing is mapped there, and the memory is a valid handle of `bytes` bytes.
    unsafe fn map(&self, start: u64, bytes: u64, memory: Memory) -> Result<()>;

    /// Sets how kernels and copies may access mapped addresses.
    ///
    /// # Safety
    /// The whole range is mapped. No pending work makes an access that is no longer permitted.
    unsafe fn set_access(&self, start: u64, bytes: u64, permission: Permission) -> Result<()>;

    /// Lets the devices with these numbers read and write at mapped addresses.
    ///
    /// # Safety
    /// The whole range is mapped.
    unsafe fn set_peer_access(&self, start: u64, bytes: u64, peers: &[i32]) -> Result<()>;

    /// Removes mappings. Work that still uses the addresses faults.
    ///
    /// # Safety
    /// The range is one or several whole mappings. No work that uses them is pending or comes later.
    unsafe fn unmap(&self, start: u64, bytes: u64) -> Result<()>;
}

/// Permitted accesses to memory. The device rejects any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
}

/// Memory of the kind of [`VirtualMemory`] that processes share through a file descriptor.
pub trait Sharing {
    /// Allocates memory without an address that can be exported.
    fn create_shareable(&self, bytes: u64) -> Result<Memory>;

    /// Returns a descriptor of memory. The descriptor alone keeps the memory alive.
    ///
    /// # Safety
    /// The memory is a valid handle, made with [`create_shareable`](Self::create_shareable).
    unsafe fn export(&self, memory: Memory) -> Result<OwnedFd>;

    /// Returns the memory that a descriptor refers to. The descriptor may be closed afterwards.
    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Memory>;
}

/// 64-bit words that streams and the host write and wait for.
pub trait StreamMemOps {
    /// Allocates host memory for words, usable by streams of all contexts of the device. Returns the host's address and
    /// the device's.
    fn alloc_mapped_host(&self, bytes: usize) -> Result<(NonNull<u8>, u64)>;

    /// Frees memory of [`alloc_mapped_host`](Self::alloc_mapped_host). This may wait for all work of the context.
    ///
    /// # Safety
    /// As for [`Backend::free_host`].
    unsafe fn free_mapped_host(&self, start: NonNull<u8>) -> Result<()>;

    /// Enqueues an atomic write of a word, ordered after all earlier work of the stream.
    ///
    /// # Safety
    /// The stream is a valid handle, and `address` is that of a word that stays allocated until the stream has
    /// completed the write. The host accesses it with atomics only.
    unsafe fn write_value(&self, stream: Stream, address: u64, value: u64) -> Result<()>;

    /// Makes a stream wait until a word has reached `value`. The comparison wraps around: the 2^63 numbers before
    /// `value` count as smaller.
    ///
    /// # Safety
    /// As for [`write_value`](Self::write_value).
    unsafe fn wait_value(&self, stream: Stream, address: u64, value: u64) -> Result<()>;
}

/// Host memory of the program that streams of all contexts of the device use in place.
pub trait HostRegistration {
    /// Registers host memory for use by streams.
    ///
    /// # Safety
    /// The memory stays mapped until [`unregister`](Self::unregister) has returned, and the host accesses the parts
    /// that streams write with atomics only.
    unsafe fn register(&self, start: NonNull<c_void>, bytes: usize) -> Result<()>;

    /// Returns the device's address of registered memory.
    fn device_address(&self, start: NonNull<c_void>) -> Result<u64>;

    /// Undoes [`register`](Self::register). This may wait for all work of the context.
    ///
    /// # Safety
    /// No work that uses the memory is pending or comes later.
    unsafe fn unregister(&self, start: NonNull<c_void>) -> Result<()>;
}

/// More contexts of the device.
pub trait Contexts {
    /// Creates a context.
    fn create_context(&self) -> Result<Arc<dyn Backend>>;
}

/// Events with a time.
pub trait Timing {
    /// Creates an event that records the time.
    fn create_timed_event(&self) -> Result<Event>;

    /// Returns the time between two completed timed events; negative if the second completed first.
    ///
    /// # Safety
    /// Both are valid handles of [`create_timed_event`](Self::create_timed_event)'s.
    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Result<f64>;
}

/// The capture that a stream takes part in.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCapture {
    /// The capture is active. No other capture of the process ever has its id.
    Active(u64),
    /// The capture is invalidated: it will not yield a graph, and its id is no longer known.
    Invalidated,
}

/// Streams that other code made and passes by their handles, and streams that are captured.
pub trait ForeignStreams {
    /// Returns a number that distinguishes a stream from a later one with the same handle. Must not be called for a
    /// captured stream: that invalidates the capture.
    ///
    /// # Safety
    /// The stream is a valid handle, or one for which the code that passes it is responsible.
    unsafe fn id(&self, stream: Stream) -> Result<u64>;

    /// Returns whether events can be recorded in a stream: not while it is captured, or waits for a captured one.
    ///
    /// # Safety
    /// As for [`id`](Self::id).
    unsafe fn can_record(&self, stream: Stream) -> Result<bool>;

    /// Returns the capture that a stream takes part in.
    ///
    /// # Safety
    /// As for [`id`](Self::id).
    unsafe fn capture_id(&self, stream: Stream) -> Result<Option<StreamCapture>>;

    /// Records an event after all work submitted so far to all streams of the context, including destroyed ones. Must
    /// not be called while one of them is captured: that invalidates the capture, and nothing is recorded. Returns
    /// whether the event was recorded.
    ///
    /// # Safety
    /// The event is a valid handle.
    unsafe fn record_after_all(&self, event: Event) -> Result<bool>;

    /// Returns an id greater than those of all captures of the process so far, and smaller than those of all later
    /// ones.
    fn newest_capture(&self) -> Result<u64>;
}
