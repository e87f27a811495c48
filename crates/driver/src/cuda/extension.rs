//! The software driver's extension of the CUDA interface: the driver looks up the blocks within memory, describes the
//! first kernel that faulted, lists all devices of the machine, tells its checker what a pool does, and runs functions
//! of the host as if they were kernels. [`find`] asks for it by name with `cuGetProcAddress`; NVIDIA's driver does not
//! have the name, and then `find` returns `None`.
//!
//! In C it is `const struct freehold_extension *freeholdExtension(uint32_t version)`, which returns null if the version
//! is not the driver's own. The structure is [`Table`].

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::api::Api;
use super::code::{CUerror, CUresult};
use super::driver;
use super::types::CUstream;
use crate::backend::{BlockBounds, BlockChange, BlockLookupFn, FaultDetails};

/// The name for `cuGetProcAddress`.
pub const NAME: &CStr = c"freeholdExtension";

/// The version of [`Table`] and of everything it points to.
pub const VERSION: u32 = 4;

/// The type of the function with that name.
pub type Entry = unsafe extern "C" fn(version: u32) -> *const Table;

/// The functions of the extension.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Table {
    /// Makes the driver call `find` with `data` for each address in the `bytes` at `start` that is passed to a launch,
    /// during the launch call. `number` identifies the registration for `forget`.
    pub describe:
        unsafe extern "C" fn(start: u64, bytes: u64, find: FindBlock, data: *mut c_void, number: *mut u64) -> CUresult,
    /// Ends a registration. When it has returned, `find` is not running, and is not called again.
    pub forget: unsafe extern "C" fn(number: u64) -> CUresult,
    /// Sets which arguments the next launch of this thread only reads.
    pub read_only: unsafe extern "C" fn(arguments: *const ReadArgument, count: usize) -> CUresult,
    /// Describes the first kernel that faulted; `NOT_FOUND` if none did, or nothing is known of the fault.
    pub fault: unsafe extern "C" fn(report: *mut FaultReport) -> CUresult,
    /// Describes a device by its index on the machine, also before `cuInit` and if `CUDA_VISIBLE_DEVICES` hides it;
    /// `INVALID_DEVICE` after the last.
    pub device: unsafe extern "C" fn(index: u32, report: *mut DeviceReport) -> CUresult,
    /// Returns whether the process is checked for races and memory errors: 0 or 1. If it is, a pool calls the next
    /// three.
    pub is_checked: unsafe extern "C" fn() -> u32,
    /// A pool hands out a block: the last step of an allocation.
    pub handed_out: unsafe extern "C" fn(address: u64, bytes: u64),
    /// A block goes back to its pool: the first step of a free. If there is no such block, the free is an error of the
    /// program.
    pub freed: unsafe extern "C" fn(address: u64),
    /// A pool changes the size of a block where it is.
    pub resized: unsafe extern "C" fn(address: u64, bytes: u64),
    /// Submits a host task to a stream: a function of the program that accesses device memory as a kernel does. It runs
    /// after earlier work in the stream, becomes a node of the graph in a capture, and is checked for races. It must
    /// not call the driver. `accesses` lists all `count` ranges of device memory that it accesses; if one of them is
    /// unmapped when the task is due, the task does not run and the context faults. Findings of the checker call the
    /// task by its `name`, which is valid UTF-8 and lives as long as the process.
    pub launch_host: unsafe extern "C" fn(
        stream: CUstream,
        name: *const c_char,
        task: HostTask,
        data: *mut c_void,
        accesses: *const HostAccess,
        count: usize,
    ) -> CUresult,
    /// Writes the address at which a host task accesses the `bytes` of memory at the device address `start`.
    /// `INVALID_VALUE` if they do not lie in one block. The address is valid for as long as the memory, and only while a
    /// task runs that lists the range.
    pub host_view: unsafe extern "C" fn(start: u64, bytes: u64, view: *mut *mut c_void) -> CUresult,
}

/// A function that runs as a host task, called with the `data` of its launch.
pub type HostTask = unsafe extern "C" fn(data: *mut c_void);

/// A range of device memory that a host task accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HostAccess {
    /// The first address.
    pub start: u64,
    /// How many bytes from there.
    pub bytes: u64,
    /// [`HOST_READ`], [`HOST_WRITE`], or both.
    pub kind: u32,
    /// Not read: it fills the structure.
    pub pad: u32,
}

/// The task reads the range.
pub const HOST_READ: u32 = 1;
/// The task writes to the range.
pub const HOST_WRITE: u32 = 2;

/// A device of the machine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceReport {
    /// The device's name.
    pub name: ShortText<124>,
    /// The PCI bus id, as `cuDeviceGetPCIBusId` returns it.
    pub bus_id: ShortText<28>,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Memory in bytes.
    pub total_bytes: u64,
    /// Memory that no process uses, in bytes.
    pub free_bytes: u64,
    /// Compute capability.
    pub major: i32,
    /// The second number of the compute capability.
    pub minor: i32,
}

/// Writes the block that contains an address to `found`, and returns its state: [`LIVE`], [`RELEASED`], or 0 if there
/// is no block. Must not call the driver.
pub type FindBlock = unsafe extern "C" fn(data: *mut c_void, address: u64, found: *mut FoundBlock) -> u32;

/// The block has an owner.
pub const LIVE: u32 = 1;
/// The block was released.
pub const RELEASED: u32 = 2;

/// The block that an address lies in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FoundBlock {
    /// The address of its first byte.
    pub base: u64,
    /// The size that its owner asked for.
    pub bytes: u64,
}

/// An argument that is the address of memory that the kernel only reads: the bytes from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ReadArgument {
    /// The first address that the kernel may read.
    pub start: u64,
    /// How many bytes from there.
    pub bytes: u64,
    /// The index of the parameter, from 0.
    pub parameter: u32,
    /// Not read: it fills the structure.
    pub pad: u32,
}

/// A string of at most `N` bytes; a longer one is truncated.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ShortText<const N: usize> {
    bytes: [u8; N],
    length: u32,
}

impl<const N: usize> ShortText<N> {
    /// The text, or as many of its characters as fit into `N` bytes.
    pub fn new(text: &str) -> Self {
        let length = text.floor_char_boundary(N);
        let mut bytes = [0; N];
        bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
        Self { bytes, length: length as u32 }
    }
}

impl<const N: usize> fmt::Display for ShortText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = (self.length as usize).min(N);
        f.write_str(&String::from_utf8_lossy(&self.bytes[..length]))
    }
}

impl<const N: usize> fmt::Debug for ShortText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// How a kernel faulted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FaultReport {
    /// The kernel's name.
    pub kernel: ShortText<252>,
    /// The whole report in one sentence.
    pub message: ShortText<1020>,
    /// The address that was accessed, if the fault is an access.
    pub address: u64,
    /// Whether `address` is set: 0 or 1.
    pub has_address: u32,
    /// The line of the PTX text.
    pub line: u32,
    /// The block of the grid.
    pub block: [u32; 3],
    /// The thread of the block.
    pub thread: [u32; 3],
}

/// The extension of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    table: &'static Table,
}

/// Returns the extension of a driver, if it has one.
pub fn find(api: &Api) -> Option<Extension> {
    let found = driver::proc_address(api, NAME, 12_000, 0).ok()?;
    if found.function.is_null() {
        return None;
    }
    // SAFETY: a driver is trusted to be one, and only Freehold's has a function of this name, which is an `Entry`.
    let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(found.function) };
    // SAFETY: the function takes a number.
    let table = unsafe { entry(VERSION) };
    // SAFETY: the pointer is null or that of a table that lives as long as the process.
    let table = unsafe { table.as_ref() }?;
    Some(Extension { table })
}

impl Extension {
    /// Makes the driver call `lookup` for the blocks from `start` on, until the result is dropped.
    pub fn annotate_blocks(self, start: u64, bytes: u64, lookup: BlockLookupFn) -> Result<BlockAnnotation, CUerror> {
        let lookup = Box::into_raw(Box::new(lookup));
        let mut described = BlockAnnotation { table: self.table, lookup, number: None };
        let mut number = 0;
        // SAFETY: `find_block` takes `lookup`, which lives until `BlockAnnotation` has ended the calls; `number`
        // outlives the call, which writes one value to it.
        unsafe { (self.table.describe)(start, bytes, find_block, lookup.cast(), &mut number) }?;
        described.number = Some(number);
        Ok(described)
    }

    /// Returns whether the process is checked for races and memory errors.
    pub fn is_checked(self) -> bool {
        // SAFETY: the call has no conditions.
        unsafe { (self.table.is_checked)() != 0 }
    }

    /// Tells the checker what happens to a block of a pool.
    pub fn announce(self, change: BlockChange) {
        match change {
            // SAFETY: the call takes numbers.
            BlockChange::HandedOut { address, bytes } => unsafe { (self.table.handed_out)(address, bytes) },
            // SAFETY: as above.
            BlockChange::Freed { address } => unsafe { (self.table.freed)(address) },
            // SAFETY: as above.
            BlockChange::Resized { address, bytes } => unsafe { (self.table.resized)(address, bytes) },
        }
    }

    /// Makes a launch after telling the driver which arguments it only reads.
    pub(super) fn with_read_only<R>(self, arguments: &[ReadArgument], launch: impl FnOnce() -> R) -> R {
        // SAFETY: the slice has as many elements as it says, which the call copies.
        let told = unsafe { (self.table.read_only)(arguments.as_ptr(), arguments.len()) };
        let launched = launch();
        if told.is_ok() {
            // A launch that failed before it reached the driver has left them set.
            // SAFETY: no element is read of an empty slice.
            let forgotten = unsafe { (self.table.read_only)(std::ptr::null(), 0) };
            assert!(forgotten.is_ok(), "the driver accepts an empty list of arguments");
        }
        launched
    }

    /// Submits a host task to a stream: see [`Table::launch_host`].
    ///
    /// # Errors
    /// `INVALID_VALUE` for a range outside of the program's memory, and the errors of `cuLaunchHostFunc`.
    ///
    /// # Safety
    /// When the task runs, `task` may be called with `data`, once for each launch of a graph that it becomes part of. It
    /// accesses no device memory outside of `accesses`, and does not call the driver.
    pub unsafe fn launch_host(
        self,
        stream: CUstream,
        name: &'static CStr,
        task: HostTask,
        data: *mut c_void,
        accesses: &[HostAccess],
    ) -> CUresult {
        // SAFETY: the name lives as long as the process, the slice has as many elements as it says, which the call
        // copies, and the caller answers for the rest.
        unsafe { (self.table.launch_host)(stream, name.as_ptr(), task, data, accesses.as_ptr(), accesses.len()) }
    }

    /// Returns the address at which a host task accesses memory: see [`Table::host_view`].
    ///
    /// # Errors
    /// `INVALID_VALUE` if the range does not lie in one block.
    pub fn host_view(self, start: u64, bytes: u64) -> Result<*mut c_void, CUerror> {
        let mut view = std::ptr::null_mut();
        // SAFETY: `view` outlives the call, which writes one value to it.
        unsafe { (self.table.host_view)(start, bytes, &mut view) }?;
        Ok(view)
    }

    /// Describes a device by its index on the machine.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if there are not so many devices.
    pub fn device(self, index: u32) -> Result<DeviceReport, CUerror> {
        let mut report = DeviceReport {
            name: ShortText::new(""),
            bus_id: ShortText::new(""),
            uuid: [0; 16],
            total_bytes: 0,
            free_bytes: 0,
            major: 0,
            minor: 0,
        };
        // SAFETY: `report` outlives the call, which writes one value to it.
        unsafe { (self.table.device)(index, &mut report) }?;
        Ok(report)
    }

    /// Describes the first kernel that faulted.
    pub fn fault(self) -> Option<FaultDetails> {
        let mut report = FaultReport {
            kernel: ShortText::new(""),
            message: ShortText::new(""),
            address: 0,
            has_address: 0,
            line: 0,
            block: [0; 3],
            thread: [0; 3],
        };
        // SAFETY: `report` outlives the call, which writes one value to it.
        unsafe { (self.table.fault)(&mut report) }.ok()?;
        Some(FaultDetails {
            kernel: report.kernel.to_string(),
            line: report.line,
            block: report.block,
            thread: report.thread,
            address: (report.has_address != 0).then_some(report.address),
            message: report.message.to_string(),
        })
    }
}

/// A look-up registered with a driver. Dropping it ends the registration.
pub struct BlockAnnotation {
    table: &'static Table,
    lookup: *mut BlockLookupFn,
    /// `None` if the driver refused the registration.
    number: Option<u64>,
}

// SAFETY: `lookup` is the field that is not `Send`: what it points to is `Send`, and this value owns it.
unsafe impl Send for BlockAnnotation {}
// SAFETY: nothing is done with a shared reference.
unsafe impl Sync for BlockAnnotation {}

impl fmt::Debug for BlockAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Described").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for BlockAnnotation {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // SAFETY: the call takes a number.
            let forgotten = unsafe { (self.table.forget)(number) };
            assert!(forgotten.is_ok(), "a registered look-up can be removed");
        }
        // SAFETY: the pointer is of a box that nothing else frees, and the driver no longer uses it.
        drop(unsafe { Box::from_raw(self.lookup) });
    }
}

/// The function that the driver calls: calls the `BlockLookupFn` at `data`.
unsafe extern "C" fn find_block(data: *mut c_void, address: u64, found: *mut FoundBlock) -> u32 {
    // SAFETY: `data` is what was passed to `describe`, a `BlockLookupFn` that lives until the driver has ended its
    // calls.
    let lookup = unsafe { &*data.cast::<BlockLookupFn>() };
    let answer = catch_unwind(AssertUnwindSafe(|| lookup(address)));
    let Some(BlockBounds { base, bytes, is_live }) = answer.ok().flatten() else { return 0 };
    // SAFETY: the driver guarantees that `found` is writable for one value.
    unsafe { found.write(FoundBlock { base, bytes }) };
    if is_live { LIVE } else { RELEASED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        assert_eq!(ShortText::<4>::new("abc").to_string(), "abc");
        assert_eq!(ShortText::<4>::new("abcde").to_string(), "abcd");
        assert_eq!(ShortText::<4>::new("abcµ").to_string(), "abc");
    }
}
