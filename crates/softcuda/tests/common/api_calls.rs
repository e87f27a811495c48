//! Calls every function of the table with arguments from a [`Source`].

use std::any::TypeId;
use std::ffi::{c_char, c_void};

use freehold_driver::cuda::*;

/// Size of a [`Scratch`].
pub(crate) const SCRATCH_BYTES: usize = 1 << 16;

/// A source of arguments.
pub(crate) trait Source {
    /// A plain number, a flag or a value of an enum, by the name of the argument.
    fn number(&mut self, name: &'static str) -> u64;
    fn handle(&mut self, kind: Handle) -> usize;
    fn address(&mut self) -> u64;
    fn device(&mut self) -> i32;
    /// A pointer that is null, misaligned for its type, or good for [`SCRATCH_BYTES`].
    fn pointer(&mut self, to: Pointee) -> *mut c_void;
    /// Whether a host function is passed.
    fn function(&mut self) -> bool;
    /// An IPC handle: random bytes, unless the source knows any.
    fn token(&mut self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&self.number("handle").to_le_bytes());
        }
        bytes
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Handle {
    Context,
    Stream,
    Event,
    Pool,
    Module,
    Function,
    Library,
    Kernel,
    Link,
    LogsCallback,
    Allocation,
    Graph,
    Exec,
    Node,
    UserObject,
    Array,
    Mipmap,
    Texture,
    Surface,
}

impl Handle {
    pub(crate) const ALL: [Self; 19] = [
        Self::Context,
        Self::Stream,
        Self::Event,
        Self::Pool,
        Self::Module,
        Self::Function,
        Self::Library,
        Self::Kernel,
        Self::Link,
        Self::LogsCallback,
        Self::Allocation,
        Self::Graph,
        Self::Exec,
        Self::Node,
        Self::UserObject,
        Self::Array,
        Self::Mipmap,
        Self::Texture,
        Self::Surface,
    ];
}

/// The target type of a pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointee {
    kind: TypeId,
    pub(crate) align: usize,
}

impl Pointee {
    fn of<T: 'static>() -> Self {
        Self { kind: TypeId::of::<T>(), align: align_of::<T>() }
    }

    pub(crate) fn is<T: 'static>(self) -> bool {
        self.kind == TypeId::of::<T>()
    }
}

/// A type of an argument.
trait Argument {
    fn take(source: &mut dyn Source, name: &'static str) -> Self;
}

macro_rules! numbers {
    ($($kind:ty),*) => {$(impl Argument for $kind {
        fn take(source: &mut dyn Source, name: &'static str) -> Self {
            source.number(name) as Self
        }
    })*};
}

numbers!(u8, u16, u32, u64, usize, i32);

macro_rules! enums {
    ($($kind:ident),*) => {$(impl Argument for $kind {
        fn take(source: &mut dyn Source, name: &'static str) -> Self {
            Self(source.number(name) as u32)
        }
    })*};
}

enums!(
    CUdevice_attribute,
    CUdevice_P2PAttribute,
    CUpointer_attribute,
    CUlimit,
    CUfunc_cache,
    CUmemPool_attribute,
    CUmemAllocationHandleType,
    CUmemAllocationGranularity_flags,
    CUfunction_attribute,
    CUjitInputType,
    CUtensorMapDataType,
    CUsharedconfig,
    CUstreamCaptureMode,
    CUmem_advise,
    CUmem_range_attribute,
    CUlaunchAttributeID,
    CUgraphMem_attribute
);

macro_rules! handles {
    ($($kind:ident = $handle:ident),*) => {$(impl Argument for $kind {
        fn take(source: &mut dyn Source, _: &'static str) -> Self {
            Self(source.handle(Handle::$handle))
        }
    })*};
}

handles!(
    CUcontext = Context,
    CUstream = Stream,
    CUevent = Event,
    CUmemoryPool = Pool,
    CUmodule = Module,
    CUfunction = Function,
    CUlibrary = Library,
    CUkernel = Kernel,
    CUlinkState = Link,
    CUlogsCallbackHandle = LogsCallback,
    CUgraph = Graph,
    CUgraphExec = Exec,
    CUgraphNode = Node,
    CUuserObject = UserObject,
    CUarray = Array,
    CUmipmappedArray = Mipmap,
    CUtexObject = Texture,
    CUsurfObject = Surface
);

impl Argument for CUdevice {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        Self(source.device())
    }
}

impl Argument for CUmemLocation {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        Self { kind: CUmemLocationType(source.number("kind") as u32), id: source.device() }
    }
}

impl Argument for CUdeviceptr {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        Self(source.address())
    }
}

impl Argument for CUmemGenericAllocationHandle {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        Self(source.handle(Handle::Allocation) as u64)
    }
}

macro_rules! tokens {
    ($($kind:ident),*) => {$(impl Argument for $kind {
        fn take(source: &mut dyn Source, _: &'static str) -> Self {
            Self { bytes: source.token() }
        }
    })*};
}

tokens!(CUipcMemHandle, CUipcEventHandle);

impl<T: 'static> Argument for *mut T {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        source.pointer(Pointee::of::<T>()).cast()
    }
}

impl<T: 'static> Argument for *const T {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        source.pointer(Pointee::of::<T>()).cast_const().cast()
    }
}

impl Argument for CUhostFn {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        source.function().then_some(nothing)
    }
}

impl Argument for CUstreamCallback {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        unsafe extern "C" fn nothing(_: CUstream, _: CUresult, _: *mut c_void) {}
        source.function().then_some(nothing)
    }
}

impl Argument for CUoccupancyB2DSize {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        unsafe extern "C" fn nothing(_: i32) -> usize {
            0
        }
        source.function().then_some(nothing)
    }
}

impl Argument for CUlogsCallback {
    fn take(source: &mut dyn Source, _: &'static str) -> Self {
        unsafe extern "C" fn nothing(_: *mut c_void, _: CUlogLevel, _: *mut c_char, _: usize) {}
        source.function().then_some(nothing)
    }
}

macro_rules! call {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// Calls a function with arguments of a source.
        pub(crate) fn call(api: &Api, function: Function, source: &mut dyn Source) -> CUresult {
            match function {
                $(Function::$name => {
                    $(let $argument = <$kind as Argument>::take(source, stringify!($argument));)*
                    // SAFETY: a pointer of a source is refused by the driver, or good for more than any call of these
                    // tests reads and writes; all other arguments are the driver's to check.
                    unsafe { (api.$name)($($argument),*) }
                })*
            }
        }
    };
}

freehold_driver::with_functions!(call);

/// Calls every function with arguments of a source.
pub(crate) fn call_all(api: &Api, source: &mut dyn Source) -> Vec<(Function, CUresult)> {
    Function::ALL.iter().map(|&function| (function, call(api, function, source))).collect()
}

/// Zeroed memory followed by a wide unwritable gap, so that a write beyond its end hits nothing else.
#[derive(Debug)]
pub(crate) struct Scratch {
    start: *mut u8,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        const GAP_BYTES: usize = 64 << 30;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), SCRATCH_BYTES + GAP_BYTES, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "the system has the addresses");
        // SAFETY: the range was just mapped and is this value's own.
        let changed = unsafe { libc::mprotect(start, SCRATCH_BYTES, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(changed, 0);
        Self { start: start.cast() }
    }

    pub(crate) fn at(&self, offset: usize) -> *mut c_void {
        assert!(offset < SCRATCH_BYTES, "the offset lies in the scratch");
        self.start.wrapping_add(offset).cast()
    }

    pub(crate) fn write(&self, offset: usize, word: u64) {
        let at = self.at(offset).cast::<u64>();
        assert!(at.is_aligned() && offset + 8 <= SCRATCH_BYTES, "a word lies in the scratch");
        // SAFETY: aligned and within the mapping, which is never unmapped; no reference to it exists.
        unsafe { at.write_volatile(word) };
    }

    pub(crate) fn read(&self, offset: usize) -> u64 {
        let at = self.at(offset).cast::<u64>();
        assert!(at.is_aligned() && offset + 8 <= SCRATCH_BYTES, "a word lies in the scratch");
        // SAFETY: as in `write`.
        unsafe { at.read_volatile() }
    }
}

/// Zero for everything.
#[derive(Debug)]
pub(crate) struct Zeros;

impl Source for Zeros {
    fn number(&mut self, _: &'static str) -> u64 {
        0
    }

    fn handle(&mut self, _: Handle) -> usize {
        0
    }

    fn address(&mut self) -> u64 {
        0
    }

    fn device(&mut self) -> i32 {
        0
    }

    fn pointer(&mut self, _: Pointee) -> *mut c_void {
        std::ptr::null_mut()
    }

    fn function(&mut self) -> bool {
        false
    }
}

/// Numbers and handles with all bits set, and misaligned pointers.
#[derive(Debug)]
pub(crate) struct Ones;

impl Source for Ones {
    fn number(&mut self, _: &'static str) -> u64 {
        u64::MAX
    }

    fn handle(&mut self, _: Handle) -> usize {
        usize::MAX
    }

    fn address(&mut self) -> u64 {
        u64::MAX
    }

    fn device(&mut self) -> i32 {
        -1
    }

    fn pointer(&mut self, to: Pointee) -> *mut c_void {
        // A text cannot be misaligned.
        if to.is::<c_char>() { std::ptr::null_mut() } else { usize::MAX as *mut c_void }
    }

    fn function(&mut self) -> bool {
        true
    }
}

/// Good pointers to zeros, and small numbers.
#[derive(Debug)]
pub(crate) struct Good {
    pub(crate) scratch: Scratch,
}

impl Source for Good {
    fn number(&mut self, _: &'static str) -> u64 {
        1
    }

    fn handle(&mut self, _: Handle) -> usize {
        0
    }

    fn address(&mut self) -> u64 {
        0
    }

    fn device(&mut self) -> i32 {
        0
    }

    fn pointer(&mut self, to: Pointee) -> *mut c_void {
        if to.is::<*mut c_void>() {
            // An array of pointers, all of which the driver may write to.
            (0..16).for_each(|index| self.scratch.write(1024 + index * 8, self.scratch.at(2048) as u64));
            return self.scratch.at(1024);
        }
        (0..128).for_each(|index| self.scratch.write(index * 8, 0));
        self.scratch.at(0)
    }

    fn function(&mut self) -> bool {
        true
    }
}
