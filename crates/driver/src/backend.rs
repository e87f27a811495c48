//! What the library needs of a device: the one trait that each kind of driver implements.
//!
//! One value is one context on one device. The base is what every device can do. What some lack is asked for as a whole,
//! once ([`Backend::mapping`], [`Backend::words`], …), and not met later as an error.
//!
//! Any thread calls, whatever it has current, and finds that as it was. A handle is good in the backend that made it, and
//! until it is destroyed; one of another context of the same device may be named where this says so.
//!
//! # What is unsafe here
//!
//! A driver follows the handles that it is given: they are pointers to NVIDIA's, and it does not ask whether it ever handed
//! them out. Copies and fills go wherever an address leads, which may be memory of the host. So every call that takes a
//! handle or an address to work on is `unsafe`. Its caller vouches for all of this:
//!
//! - **handles**: this backend made them, and they are not destroyed yet. Events and memory may be of another context of the
//!   device. A handle that others made may be named where they vouch for it;
//! - **addresses**: they are memory of this device, for as many bytes as are named, until the stream has passed the work;
//! - **order**: nothing else uses that memory meanwhile but what the caller has ordered before or behind the work.
//!
//! Each `# Safety` says which of them a call asks for.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::cuda;
use crate::error::{CallError, LoadError};
use crate::handle::{Event, Kernel, Memory, Module, Stream};

type Result<T> = std::result::Result<T, CallError>;

/// A context on a device.
pub trait Backend: Kernels + fmt::Debug + Send + Sync {
    /// The device's name, for people.
    fn name(&self) -> Result<String>;

    /// What tells the device from all others, in every process.
    fn uuid(&self) -> Result<[u8; 16]>;

    /// All memory of the device.
    fn total_bytes(&self) -> Result<u64>;

    /// How much of it is free now.
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Waits until all work of the context is done, whoever put it in.
    fn synchronize(&self) -> Result<()>;

    /// Gives the context back, with all that is left in it. Nothing else is called of this value from then on, unless that
    /// failed. A context that others made stays theirs.
    ///
    /// # Safety
    /// Nothing is called of this value from then on, unless this failed, and nothing uses what it made.
    unsafe fn close(&self) -> Result<()>;

    // Memory.

    /// Memory with an address. It holds what was left there.
    fn alloc(&self, bytes: u64) -> Result<u64>;

    /// Takes memory of [`alloc`](Self::alloc) back. This may wait for all work of the context.
    ///
    /// # Safety
    /// The address is one of [`alloc`](Self::alloc)'s that was not freed yet. No work that uses the memory comes later.
    unsafe fn free(&self, address: u64) -> Result<()>;

    /// What is given to a kernel begins at a multiple of this.
    fn alignment_bytes(&self) -> u64;

    /// Whether the host reads and writes device memory, by itself, at the address at which the device does.
    fn is_host_visible(&self, address: u64) -> Result<bool>;

    /// Memory of the host that copies are fast from and to, in all contexts of the device.
    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Takes memory of [`alloc_host`](Self::alloc_host) back. This may wait for all work of the context.
    ///
    /// # Safety
    /// Nothing uses the memory from the call on, and no work that does is pending.
    unsafe fn free_host(&self, start: NonNull<u8>) -> Result<()>;

    // Streams, and events in them. An event can be named in all contexts of the device.

    /// A stream that waits for no other by itself.
    fn create_stream(&self) -> Result<Stream>;

    /// Destroys a stream. Its work goes on, and nobody waits for it.
    ///
    /// # Safety
    /// The stream is a good handle.
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()>;

    /// Whether all work of a stream is done.
    ///
    /// # Safety
    /// The stream is a good handle.
    unsafe fn is_idle(&self, stream: Stream) -> Result<bool>;

    /// Waits on the host until all work of a stream is done.
    ///
    /// # Safety
    /// The stream is a good handle.
    unsafe fn wait_until_idle(&self, stream: Stream) -> Result<()>;

    fn create_event(&self) -> Result<Event>;

    /// Destroys an event. What waits for it goes on waiting.
    ///
    /// # Safety
    /// The event is a good handle.
    unsafe fn destroy_event(&self, event: Event) -> Result<()>;

    /// Moves an event behind all that is in a stream now. Who waited for it where it was goes on waiting for that.
    ///
    /// # Safety
    /// Both are good handles.
    unsafe fn record(&self, event: Event, stream: Stream) -> Result<()>;

    /// Whether its stream has passed an event; one that was never recorded has been. The stream may be destroyed.
    ///
    /// # Safety
    /// The event is a good handle.
    unsafe fn is_complete(&self, event: Event) -> Result<bool>;

    /// Waits on the host until its stream has passed an event.
    ///
    /// # Safety
    /// The event is a good handle.
    unsafe fn wait(&self, event: Event) -> Result<()>;

    /// Holds what is put into a stream from now on, on the device, until an event's stream has passed it.
    ///
    /// # Safety
    /// Both are good handles.
    unsafe fn stream_wait_event(&self, stream: Stream, event: Event) -> Result<()>;

    // Work in a stream. The memory may be of any context of the device.

    /// Puts a copy from the host in.
    ///
    /// # Safety
    /// `bytes` at `from` may be read, and nothing writes there, until the stream has passed the copy. For the rest as for
    /// [`copy`](Self::copy).
    unsafe fn upload(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()>;

    /// [`upload`](Self::upload) without a part of the device that runs kernels, where another part copies, too: processes take turns on
    /// the first, and a turn is long. From memory that is pinned.
    ///
    /// # Safety
    /// As for [`upload`](Self::upload).
    unsafe fn upload_by_copy_engine(&self, to: u64, from: *const u8, bytes: usize, stream: Stream) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.upload(to, from, bytes, stream) }
    }

    /// Puts a copy to the host in.
    ///
    /// # Safety
    /// `bytes` at `to` may be written, and nothing else reads or writes there, until the stream has passed the copy. For the rest
    /// as for [`copy`](Self::copy).
    unsafe fn download(&self, to: *mut u8, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Puts a copy from device memory to device memory in.
    ///
    /// # Safety
    /// The stream is a good handle, both are addresses of so many bytes, and the copy is in order.
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Stream) -> Result<()>;

    /// Puts a copy of rows from device memory to device memory in: `rows` of them, each of `row_bytes`.
    ///
    /// # Safety
    /// As for [`copy`](Self::copy), of all rows.
    unsafe fn copy_2d(
        &self,
        to: PitchedPtr,
        from: PitchedPtr,
        row_bytes: usize,
        rows: usize,
        stream: Stream,
    ) -> Result<()>;

    /// Puts in that all bytes are set, to a pattern over and over. `to` and `bytes` are multiples of its length.
    ///
    /// # Safety
    /// The stream is a good handle, `to` an address of so many bytes, and the fill is in order.
    unsafe fn fill(&self, to: u64, pattern: Pattern, bytes: usize, stream: Stream) -> Result<()>;

    // What some devices lack.

    /// Memory that is mapped to addresses.
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory>;

    /// Memory that other processes can have. Who shares can map.
    fn sharing(&self) -> Option<&dyn Sharing>;

    /// Words that streams write and await.
    fn stream_mem_ops(&self) -> Option<&dyn StreamMemOps>;

    /// Memory of the program's own that streams use where it lies.
    fn host_registration(&self) -> Option<&dyn HostRegistration>;

    /// More contexts of the device, which share its memory and its events.
    fn contexts(&self) -> Option<&dyn Contexts>;

    /// Events that tell the time.
    fn timing(&self) -> Option<&dyn Timing>;

    /// Streams that others made, and captures.
    fn foreign_streams(&self) -> Option<&dyn ForeignStreams>;

    // What a device knows of kernels that go wrong. Only one that runs them in software does.

    /// Has the device ask which block lies at an address of the `bytes` from `start` on, for each address that a launch is
    /// given, so that it notices a kernel that leaves its block. It asks in any thread, until the answer is dropped.
    /// Nothing where the device does not check what kernels do.
    fn annotate_blocks(&self, _start: u64, _bytes: u64, _look_up: BlockLookupFn) -> Option<BlockAnnotation> {
        None
    }

    /// Where the first kernel that went wrong did so.
    fn fault(&self) -> Option<FaultDetails> {
        None
    }

    /// The table of the driver's functions, where it is a CUDA driver.
    ///
    /// # Safety
    /// As for [`cuda::load::load`]: whoever has a table vouches for all that is called of it. What this value made stays its own.
    unsafe fn cuda(&self) -> Option<&cuda::Api> {
        None
    }

    /// Whether it is a CUDA driver's.
    fn is_cuda(&self) -> bool {
        false
    }
}

/// Tells the block that an address lies in. It calls no driver.
pub type BlockLookupFn = Box<dyn Fn(u64) -> Option<BlockBounds> + Send + Sync>;

/// A block as its owner asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockBounds {
    pub base: u64,
    pub bytes: u64,
    /// Whether it has an owner now.
    pub is_live: bool,
}

/// Memory that was described. Dropping it ends that, and waits for look-ups that are under way.
pub type BlockAnnotation = Box<dyn fmt::Debug + Send + Sync>;

/// How a kernel went wrong, as far as the device tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultDetails {
    /// The kernel's name.
    pub kernel: String,
    /// Line of the PTX text.
    pub line: u32,
    /// The block of the grid.
    pub block: [u32; 3],
    /// The thread of the block.
    pub thread: [u32; 3],
    /// The address that was used, if it was one.
    pub address: Option<u64>,
    /// All of it in one sentence.
    pub sentence: String,
}

/// How much memory a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// What memory is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    U8(u8),
    U16([u8; 2]),
    U32([u8; 4]),
}

impl Pattern {
    /// The shortest that `value` is made of over and over, and that an address begins at a multiple of.
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

    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::U8(byte) => std::slice::from_ref(byte),
            Self::U16(pair) => pair,
            Self::U32(four) => four,
        }
    }
}

/// Where rows lie: the first one's address, and how far it is from each to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PitchedPtr {
    pub start: u64,
    pub pitch_bytes: usize,
}

/// Images, their kernels, and launches.
pub trait Kernels {
    /// Whether the device loads images of a kind. One that runs no kernels takes none.
    fn supports(&self, kind: ImageKind) -> bool;

    /// Loads an image, which may change when the call has returned. This may wait for kernels that run.
    ///
    /// # Safety
    /// The image is what [`ImageKind`] says of its kind.
    unsafe fn load(&self, kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError>;

    /// Unloads a module, and its kernels and variables with it. This may wait for all work of the context.
    ///
    /// # Safety
    /// The module is a good handle. Nothing of it is launched or used from now on.
    unsafe fn unload(&self, module: Module) -> Result<()>;

    /// The kernel with a name, ready to be launched. It is its module's, and goes with that.
    ///
    /// # Safety
    /// The module is a good handle.
    unsafe fn kernel(&self, module: Module, name: &CStr) -> Result<Option<Kernel>>;

    /// The names of all kernels.
    ///
    /// # Safety
    /// The module is a good handle.
    unsafe fn kernel_names(&self, module: Module) -> Result<Vec<String>>;

    /// What a kernel takes, in its order.
    ///
    /// # Safety
    /// The kernel is one of this context, and its module is loaded.
    unsafe fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>>;

    /// How large a launch of a kernel may be. What no limit is known of is [`u64::MAX`].
    ///
    /// # Safety
    /// The kernel is one of this context, and its module is loaded.
    unsafe fn limits(&self, kernel: Kernel) -> Result<LaunchLimits>;

    /// Where the variable with a name lies, and how many bytes it has.
    ///
    /// # Safety
    /// The module is a good handle.
    unsafe fn global(&self, module: Module, name: &CStr) -> Result<Option<(u64, usize)>>;

    /// Puts a launch into a stream.
    ///
    /// # Safety
    /// The stream is a good handle, and the kernel one of its context whose module stays loaded until the stream has passed the
    /// launch. There is an argument for each parameter, of its size. What the kernel does with them is as
    /// [`copy`](Backend::copy) asks, of all memory that it touches.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: LaunchConfig,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Result<()>;
}

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageKind {
    /// PTX: a text that ends in a NUL.
    Ptx,
    /// A cubin or a fat binary, as its compiler wrote it: drivers do not check one.
    Binary,
    /// OpenCL C: a text that ends in a NUL.
    OpenCl,
    /// SPIR-V, as its compiler wrote it: words of 32 bits.
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

/// What a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// How many bytes; nothing where the driver does not tell.
    pub bytes: Option<usize>,
}

/// How large a launch may be, as the device says, and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchLimits {
    /// Threads of a block.
    pub threads_max: u64,
    /// Threads of a block in each direction.
    pub block_threads: [u64; 3],
    /// Blocks in each direction.
    pub grid_blocks: [u64; 3],
    /// Threads of a block of this kernel, whose registers count.
    pub kernel_threads_max: u64,
    /// Dynamic shared memory of a block of this kernel.
    pub kernel_shared_bytes_max: u64,
}

/// How many threads, and in what groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// `blocks` blocks of `threads` threads in a line, without dynamic shared memory.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// The arguments of a launch: where each lies, and what it is. The two are as long as each other.
#[derive(Debug)]
pub struct Arguments<'a> {
    /// Of values, and of addresses of memory; read before the launch returns.
    pub pointers: &'a mut [*mut c_void],
    pub kinds: &'a [ArgKind],
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    Value {
        bytes: usize,
    },
    /// The address of device memory, of 8 bytes.
    Address,
    /// The same, of memory that the kernel only reads: the bytes from `start` on.
    ReadOnly {
        start: u64,
        bytes: u64,
    },
}

impl ArgKind {
    pub fn bytes(self) -> usize {
        match self {
            Self::Value { bytes } => bytes,
            Self::Address | Self::ReadOnly { .. } => size_of::<u64>(),
        }
    }
}

/// Addresses that are reserved, memory without addresses, and the one mapped to the other. None of it waits for the device,
/// nor goes with a context: it is the device's.
pub trait VirtualMemory {
    /// Reserves addresses that begin at a multiple of `alignment_bytes`.
    fn reserve(&self, bytes: u64, alignment_bytes: u64) -> Result<u64>;

    /// Gives addresses back to which nothing is mapped any more.
    ///
    /// # Safety
    /// They were reserved here, as a whole, and nothing is mapped there.
    unsafe fn unreserve(&self, start: u64, bytes: u64) -> Result<()>;

    /// Memory without an address, for this process alone.
    fn create(&self, bytes: u64) -> Result<Memory>;

    /// Gives a handle back. What is mapped of the memory stays.
    ///
    /// # Safety
    /// The memory is a good handle, and is not named any more.
    unsafe fn release(&self, memory: Memory) -> Result<()>;

    /// Maps all `bytes` of memory. Nobody may use them before [`set_access`](Self::set_access).
    ///
    /// # Safety
    /// The addresses are reserved, nothing is mapped there, and the memory is a good handle of so many bytes.
    unsafe fn map(&self, start: u64, bytes: u64, memory: Memory) -> Result<()>;

    /// Says what kernels and copies may do at mapped addresses.
    ///
    /// # Safety
    /// All of it is mapped. No work is pending that is permitted no more.
    unsafe fn set_access(&self, start: u64, bytes: u64, permission: Permission) -> Result<()>;

    /// Unmaps what was mapped there. Work that still uses it faults.
    ///
    /// # Safety
    /// It is one or several whole mappings. No work that uses them is pending or comes later.
    unsafe fn unmap(&self, start: u64, bytes: u64) -> Result<()>;
}

/// What may be done with memory. The device refuses the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Read,
    ReadWrite,
}

/// Memory of [`VirtualMemory`]'s kind that processes have together, by a descriptor.
pub trait Sharing {
    /// Memory without an address, which can be exported.
    fn create_shareable(&self, bytes: u64) -> Result<Memory>;

    /// A descriptor of memory, which keeps it alive alone.
    ///
    /// # Safety
    /// The memory is a good handle, made with [`create_shareable`](Self::create_shareable).
    unsafe fn export(&self, memory: Memory) -> Result<OwnedFd>;

    /// The memory that a descriptor names. The descriptor may be closed afterwards.
    fn import(&self, descriptor: BorrowedFd<'_>) -> Result<Memory>;
}

/// Words of 64 bits that streams write and await, and the host with them.
pub trait StreamMemOps {
    /// Memory of the host for words, for streams of all contexts of the device: where the host sees it, and where they do.
    fn alloc_mapped_host(&self, bytes: usize) -> Result<(NonNull<u8>, u64)>;

    /// Takes memory of [`alloc_mapped_host`](Self::alloc_mapped_host) back. This may wait for all work of the context.
    ///
    /// # Safety
    /// As for [`Backend::free_host`].
    unsafe fn free_mapped_host(&self, start: NonNull<u8>) -> Result<()>;

    /// Has a stream write a word when it comes to it, in one piece, and behind all that it did before.
    ///
    /// # Safety
    /// The stream is a good handle, and `address` one of a word that stays until the stream has passed this. The host refers to it
    /// with atomics alone.
    unsafe fn write_value(&self, stream: Stream, address: u64, value: u64) -> Result<()>;

    /// Holds a stream until a word has come to `value`. Words count round: up to 2^63 behind `value` is before it.
    ///
    /// # Safety
    /// As for [`write_value`](Self::write_value).
    unsafe fn wait_value(&self, stream: Stream, address: u64, value: u64) -> Result<()>;
}

/// Memory of the program's own that streams of all contexts of the device use where it lies.
pub trait HostRegistration {
    /// Lets streams use memory of the host.
    ///
    /// # Safety
    /// The memory stays mapped until [`unregister`](Self::unregister) has returned, and only atomics refer to what streams
    /// write of it.
    unsafe fn register(&self, start: NonNull<c_void>, bytes: usize) -> Result<()>;

    /// Where the device sees memory that is registered.
    fn device_address(&self, start: NonNull<c_void>) -> Result<u64>;

    /// Takes [`register`](Self::register) back. This may wait for all work of the context.
    ///
    /// # Safety
    /// No work that uses the memory is pending, and none comes.
    unsafe fn unregister(&self, start: NonNull<c_void>) -> Result<()>;
}

/// More contexts of the device.
pub trait Contexts {
    /// A context of its own.
    fn create_context(&self) -> Result<Arc<dyn Backend>>;
}

/// Events that tell the time.
pub trait Timing {
    /// An event between which and another time can be told.
    fn create_timed_event(&self) -> Result<Event>;

    /// The time between two such events that have passed: negative where the second was first.
    ///
    /// # Safety
    /// Both are good handles of [`create_timed_event`](Self::create_timed_event)'s.
    unsafe fn elapsed_ms(&self, from: Event, to: Event) -> Result<f64>;
}

/// A capture that a stream takes part in, until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCapture {
    /// It goes on, under an id that no other capture of the process ever has.
    Active(u64),
    /// It was spoilt: no graph comes of it, and its id is not known any more.
    Invalidated,
}

/// Streams that others made and name by their handles, and streams whose work is noted for later instead of carried out.
pub trait ForeignStreams {
    /// A number that tells a stream from another which has its handle later. Not for one that is captured: that spoils the
    /// capture.
    ///
    /// # Safety
    /// The stream is a good handle, or one for which whoever names it vouches.
    unsafe fn id(&self, stream: Stream) -> Result<u64>;

    /// Whether marks can be put into a stream: not while it is captured, or waits for one that is.
    ///
    /// # Safety
    /// As for [`id`](Self::id).
    unsafe fn can_record(&self, stream: Stream) -> Result<bool>;

    /// The capture that a stream takes part in.
    ///
    /// # Safety
    /// As for [`id`](Self::id).
    unsafe fn capture_id(&self, stream: Stream) -> Result<Option<StreamCapture>>;

    /// An id that is higher than those of all captures of the process that have begun, and lower than those of all that begin later.
    fn newest_capture(&self) -> Result<u64>;
}
