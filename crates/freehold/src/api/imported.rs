//! Memory of another process, imported from a descriptor: mapped, cut into typed slices, and unmapped after the last
//! work with it. Does not see what other processes do there.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Range, RangeBounds};
use std::os::fd::BorrowedFd;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freehold_driver::CallError;
pub use freehold_driver::Permission;

use crate::api::device::Device;
use crate::api::memory::sealed::Sealed;
use crate::api::memory::{Pod, Source, Target};
use crate::api::stream::Stream;
use crate::api::view::{View, ViewMut};
use crate::device::context::Context;
use crate::device::device_inner::DeviceInner;
use crate::device::memory_use::MemoryUse;
use crate::device::pending_unmap::{AddressRange, Mappings, PendingUnmap};
use crate::device::pinned::Pinned;
use crate::error::{Error, Result};
use crate::ledger::{BlockId, Entry, Fence, Kind};
use crate::ordering::access_history::{Access, AccessHistory, RangeFences};
use crate::ordering::context_state::PRIMARY;
use crate::pool::PAGE_BYTES;

/// A handle to memory that another process shares by a descriptor, mapped in this one. It is unmapped when the last
/// handle and the last [`ImportedSlice`] are dropped and all work with it is complete; nothing waits for that.
///
/// ```
/// use std::os::fd::AsFd;
/// use freehold::{Error, Permission};
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let block = stream.alloc_shareable::<u32>(4)?;
/// let exported = block.export()?;
/// // In another process that has the descriptor:
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, Permission::Read)?;
/// let mut part = memory.slice::<u32>(&stream, exported.offset_bytes, 4)?;
/// assert_eq!(stream.download(&part)?.len(), 4);
/// assert!(matches!(stream.fill_bytes(&mut part, 0), Err(Error::ReadOnly { .. })));
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Imported {
    inner: Arc<Inner>,
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Imported")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("bytes", &self.bytes())
            .field("permission", &self.permission())
            .finish_non_exhaustive()
    }
}

/// Shared device or host memory, as the streams of this process use it.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The primary one: mappings and registrations belong to the device.
    context: Context,
    addresses: AddressRange,
    permission: Permission,
    mapped: Mapped,
    /// The uses of slices that were dropped.
    past: Mutex<RangeFences>,
}

/// What has to be undone after the last work.
#[derive(Debug)]
enum Mapped {
    /// A mapping, its block in the ledger, and how it is unmapped.
    Device(BlockId, Arc<PendingUnmap>),
    Host(Pinned),
}

impl Device {
    /// Maps the memory that a descriptor names: all `bytes` that were exported. The descriptor may be closed
    /// afterwards.
    ///
    /// # Errors
    /// [`Error::NotShared`] if the descriptor names something else, [`Error::OtherLength`] if its memory has another
    /// length, [`Error::CannotShare`] on a device that cannot share memory. Nothing stays mapped then.
    #[track_caller]
    pub fn import(&self, descriptor: BorrowedFd<'_>, bytes: u64, permission: Permission) -> Result<Imported> {
        Imported::new(&self.primary, descriptor, bytes, permission, Location::caller())
    }
}

impl Imported {
    fn new(
        context: &Context,
        descriptor: BorrowedFd<'_>,
        bytes: u64,
        permission: Permission,
        at: &'static Location<'static>,
    ) -> Result<Self> {
        let device = &context.inner.device;
        device.run_deferred()?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) || bytes > device.pool.chunks.total_bytes {
            return Err(Error::OtherLength { bytes });
        }
        let mut mappings = Mappings::default();
        let made = make(device, &mut mappings, descriptor, bytes, permission)
            .and_then(|addresses| Ok((addresses, enter(device, addresses, at)?)));
        match made {
            Ok((addresses, block)) => {
                let (mapped, past) = (Mapped::Device(block, Arc::default()), Mutex::default());
                let inner = Inner { context: context.clone(), addresses, permission, mapped, past };
                Ok(Self { inner: Arc::new(inner) })
            }
            Err(error) => {
                Arc::<PendingUnmap>::default().end(device, mappings, &[]);
                Err(error)
            }
        }
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> u64 {
        self.inner.addresses.bytes
    }

    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.inner.addresses.base
    }

    /// Returns the access that it was imported with.
    pub fn permission(&self) -> Permission {
        self.inner.permission
    }

    /// Returns `len` elements from `offset_bytes` on, which live in `stream`. Uses of one slice are ordered across
    /// streams, and after those of dropped slices; overlapping slices are not ordered against each other, nor against
    /// other processes.
    ///
    /// # Errors
    /// [`Error::OutsideOfImport`], [`Error::Misaligned`] if the offset is not aligned for the elements,
    /// [`Error::NothingAsked`] for zero bytes.
    pub fn slice<T: Pod>(&self, stream: &Stream, offset_bytes: u64, len: usize) -> Result<ImportedSlice<T>> {
        Inner::slice(&self.inner, stream, offset_bytes, len)
    }

    /// Returns a value that shows when the memory is unmapped, without keeping it mapped.
    pub fn unmap_status(&self) -> UnmapStatus {
        let Mapped::Device(_, pending_unmap) = &self.inner.mapped else { unreachable!("an import is device memory") };
        UnmapStatus { context: self.inner.context.clone(), pending_unmap: pending_unmap.clone() }
    }
}

/// Shows when imported memory is unmapped: the last handle and the last [`ImportedSlice`] are dropped, their work is
/// complete, and the driver has unmapped it.
///
/// ```
/// use std::os::fd::AsFd;
/// use freehold::Permission;
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let block = stream.alloc_shareable::<u32>(4)?;
/// let exported = block.export()?;
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, Permission::Read)?;
/// let status = memory.unmap_status();
/// assert!(!status.is_complete()?);
/// drop(memory);
/// assert!(status.is_complete()?); // nothing used it
/// # Ok::<(), freehold::Error>(())
/// ```
#[must_use = "it only reports when the memory is unmapped"]
pub struct UnmapStatus {
    context: Context,
    pending_unmap: Arc<PendingUnmap>,
}

impl fmt::Debug for UnmapStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnmapStatus").field("context", &self.context).finish_non_exhaustive()
    }
}

impl UnmapStatus {
    /// Whether it is unmapped. First unmaps memory whose work is complete; does not wait itself.
    ///
    /// # Errors
    /// Those of the driver, and [`Error::ForkedChild`].
    pub fn is_complete(&self) -> Result<bool> {
        let device = &self.context.inner.device;
        device.check()?;
        self.pending_unmap.is_over(device).map_err(|error| device.failed(error))
    }
}

/// Imports, reserves addresses and maps. `mappings` has what was created, even after a failure.
fn make(
    device: &DeviceInner,
    mappings: &mut Mappings,
    descriptor: BorrowedFd<'_>,
    bytes: u64,
    permission: Permission,
) -> Result<AddressRange> {
    let failed = |error| device.failed(error);
    // Converts a refusal into the error that it means.
    let blaming = |error: CallError, blame: Error| {
        if error.is_out_of_memory() || error.is_sticky() { device.failed(error) } else { blame }
    };
    let sharing = device.backend.sharing().ok_or(Error::CannotShare)?;
    let handle = sharing.import(descriptor).map_err(|error| blaming(error, Error::NotShared { code: error.code }))?;
    mappings.handle = Some(handle);
    let mapping = device.mapping();
    let base = mapping.reserve(bytes, PAGE_BYTES).map_err(failed)?;
    let addresses = AddressRange { base, bytes };
    mappings.addresses = Some(addresses);
    // SAFETY: the addresses were reserved and the memory imported above; a driver refuses memory of another length.
    let mapped = unsafe { mapping.map(base, bytes, handle) };
    mapped.map_err(|error| blaming(error, Error::OtherLength { bytes }))?;
    mappings.mapping = Some(addresses);
    // SAFETY: all of it is mapped, and nothing uses it yet.
    unsafe { mapping.set_access(base, bytes, permission) }.map_err(failed)?;
    // SAFETY: the mapping keeps the memory, and the handle is not used again.
    unsafe { mapping.release(handle) }.map_err(failed)?;
    mappings.handle = None;
    Ok(addresses)
}

fn enter(device: &DeviceInner, addresses: AddressRange, at: &'static Location<'static>) -> Result<BlockId> {
    let entry = || Entry {
        base: addresses.base,
        bytes: addresses.bytes,
        capacity_bytes: addresses.bytes,
        context: PRIMARY,
        stream: None,
        // A descriptor does not say.
        process: 0,
        kind: Kind::Imported,
        tag: None,
        allocated_at: at,
    };
    device.entering(|ledger| Ok(ledger.enter(entry())?))
}

impl Inner {
    /// Makes shared memory of registered host memory, at its device address.
    pub(crate) fn of_host(context: &Context, pinned: Pinned, address: u64) -> Arc<Self> {
        let addresses = AddressRange { base: address, bytes: pinned.bytes() as u64 };
        let (permission, mapped, past) = (Permission::ReadWrite, Mapped::Host(pinned), Mutex::default());
        Arc::new(Self { context: context.clone(), addresses, permission, mapped, past })
    }

    pub(crate) fn device(&self) -> &Arc<DeviceInner> {
        &self.context.inner.device
    }

    pub(crate) fn slice<T: Pod>(
        self: &Arc<Self>,
        stream: &Stream,
        offset_bytes: u64,
        len: usize,
    ) -> Result<ImportedSlice<T>> {
        let device = self.device();
        device.check()?;
        if !Arc::ptr_eq(&stream.inner.context.inner.device, device) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        let range = self.range_of::<T>(offset_bytes, len)?;
        let uses = AccessHistory::begin(Fence { stream: stream.id(), seq: 0 });
        let mut past = self.past();
        past.forget(|fence| device.streams.is_complete(fence));
        past.within(&range).for_each(|fence| uses.note_unordered(fence, Access::Write));
        drop(past);
        Ok(ImportedSlice { import: self.clone(), uses, range, len, elements: PhantomData })
    }

    /// Returns the range of elements in bytes, from the import's first byte on.
    pub(crate) fn range_of<T>(&self, offset_bytes: u64, len: usize) -> Result<Range<u64>> {
        let (element_bytes, alignment_bytes) = (size_of::<T>(), align_of::<T>());
        let slice_bytes =
            len.checked_mul(element_bytes).ok_or(Error::TooManyElements { elements: len, element_bytes })? as u64;
        if slice_bytes == 0 {
            return Err(Error::NothingAsked);
        }
        let bytes = self.addresses.bytes;
        let end = offset_bytes.checked_add(slice_bytes).filter(|&end| end <= bytes);
        let end = end.ok_or(Error::OutsideOfImport { offset_bytes, slice_bytes, bytes })?;
        if !(self.addresses.base + offset_bytes).is_multiple_of(alignment_bytes as u64) {
            return Err(Error::Misaligned { offset_bytes, alignment_bytes });
        }
        Ok(offset_bytes..end)
    }

    fn past(&self) -> MutexGuard<'_, RangeFences> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let device = self.device();
        if device.is_child() {
            return;
        }
        let mut past = self.past();
        past.forget(|fence| device.streams.is_complete(fence));
        let fences: Vec<Fence> = past.fences().collect();
        drop(past);
        match &self.mapped {
            Mapped::Device(block, pending_unmap) => {
                let addresses = Some(self.addresses);
                let mappings = Mappings { mapping: addresses, addresses, block: Some(*block), ..Mappings::default() };
                pending_unmap.end(device, mappings, &fences);
            }
            Mapped::Host(pinned) => pinned.stop(&self.context, fences),
        }
    }
}

/// Elements in imported memory, or in shared host memory, used like a [`Block`](crate::Block).
///
/// ```
/// use std::os::fd::AsFd;
/// use freehold::Permission;
///
/// # let device = freehold::open()?;
/// # let stream = device.new_stream()?;
/// let block = stream.alloc_shareable::<u32>(4)?;
/// let exported = block.export()?;
/// let memory = device.import(exported.descriptor.as_fd(), exported.chunk_bytes, Permission::ReadWrite)?;
/// let mut part = memory.slice::<u32>(&stream, exported.offset_bytes, 4)?;
/// stream.write(&mut part.view_mut(1..3)?, &[7, 8])?;
/// assert_eq!(stream.download(&part.view(1..3)?)?, [7, 8]);
/// assert_eq!(stream.download(&block.view(1..3)?)?, [7, 8]); // the same memory
/// # Ok::<(), freehold::Error>(())
/// ```
pub struct ImportedSlice<T> {
    import: Arc<Inner>,
    uses: AccessHistory,
    /// In bytes, from the import's first on.
    range: Range<u64>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> fmt::Debug for ImportedSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("range", &format_args!("{:#x?}", self.range))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<T: Pod> ImportedSlice<T> {
    /// Returns the first device address.
    pub fn address(&self) -> u64 {
        self.base()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns a view of a range of elements.
    pub fn view(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        View::new(self.whole(Access::Read), 0, self.len, range)
    }

    /// Returns a mutable view of a range of elements.
    pub fn view_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        ViewMut::new(self.whole(Access::Read), self.len, range)
    }

    /// Whether work of this process with the slice, or with dropped slices of the same memory, may be pending. Makes no
    /// driver call: work without a recorded fence counts as pending.
    pub fn pending(&self) -> bool {
        let device = self.device();
        !device.is_child() && self.uses.all().into_iter().any(|fence| !device.streams.is_complete(fence))
    }

    /// Makes work submitted to `stream` from now on wait, on the device, for all uses of the slice so far.
    pub fn gather(&self, stream: &Stream) -> Result<()> {
        stream.inner.context.inner.check()?;
        if !Arc::ptr_eq(&stream.inner.context.inner.device, self.device()) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        stream.order_after(&self.uses.all()).map(drop)
    }

    /// Records that foreign code submitted work to `stream` that uses the slice.
    ///
    /// # Errors
    /// [`Error::OtherDevice`] if the stream belongs to another device.
    pub fn note_use(&self, stream: &Stream) -> Result<()> {
        if !Arc::ptr_eq(&stream.inner.context.inner.device, self.device()) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        let seq = stream.inner.state.count_work();
        self.uses.note_unordered(Fence { stream: stream.id(), seq }, Access::Write);
        Ok(())
    }

    fn whole(&self, access: Access) -> MemoryUse<'_> {
        let Inner { context, permission, .. } = &*self.import;
        MemoryUse {
            uses: &self.uses,
            context,
            base: self.base(),
            start: self.base(),
            bytes: self.range.end - self.range.start,
            access,
            is_ordered: true,
            permission: *permission,
        }
    }
}

impl<T> ImportedSlice<T> {
    fn device(&self) -> &Arc<DeviceInner> {
        self.import.device()
    }

    fn base(&self) -> u64 {
        self.import.addresses.base + self.range.start
    }
}

impl<T> Drop for ImportedSlice<T> {
    /// Moves its uses to the import, which is unmapped after them.
    fn drop(&mut self) {
        let device = self.device();
        if device.is_child() {
            return;
        }
        let mut fences = self.uses.all();
        fences.retain(|&fence| !device.streams.is_complete(fence));
        if !fences.is_empty() {
            let mut past = self.import.past();
            fences.into_iter().for_each(|fence| past.note(fence, &self.range));
        }
    }
}

impl<T> Sealed for ImportedSlice<T> {}

impl<T: Pod> Source<T> for ImportedSlice<T> {
    fn address(&self) -> u64 {
        ImportedSlice::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self) -> MemoryUse<'_> {
        self.whole(Access::Read)
    }
}

impl<T: Pod> Target<T> for ImportedSlice<T> {
    fn address(&self) -> u64 {
        ImportedSlice::address(self)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        self.whole(access)
    }
}

/// A type that owns an [`ImportedSlice`] and does more than free it when dropped, such as a broker's lease. `&owner`
/// and `&mut owner` can be used in launches and copies like `&slice` and `&mut slice`. The type returns no
/// `&mut ImportedSlice`, because that could be swapped for another slice, which would outlive its owner.
///
/// # Safety
/// [`slice`](Self::slice) returns the same slice in every call, and that slice is reached only through this owner: a
/// holder of `&mut owner` may write it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not device memory",
    note = "device memory is a `Block`, a view or a part of one, or a lease; a kernel is given `&block` to read and `&mut block` to write"
)]
pub unsafe trait OwnsSlice {
    /// The element type of the slice.
    type Element: Pod;

    /// Returns the slice that it owns.
    fn slice(&self) -> &ImportedSlice<Self::Element>;
}

impl<O: OwnsSlice> Sealed for O {}

impl<O: OwnsSlice> Source<O::Element> for O {
    fn address(&self) -> u64 {
        self.slice().address()
    }

    fn len(&self) -> usize {
        self.slice().len
    }

    fn used(&self) -> MemoryUse<'_> {
        self.slice().whole(Access::Read)
    }
}

impl<O: OwnsSlice> Target<O::Element> for O {
    fn address(&self) -> u64 {
        self.slice().address()
    }

    fn len(&self) -> usize {
        self.slice().len
    }

    fn used(&self, access: Access) -> MemoryUse<'_> {
        self.slice().whole(access)
    }
}
