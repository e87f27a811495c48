//! A device: the entry point to everything else, and the operations on all of its memory.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use freehold_driver::Backend;

use crate::api::block::Block;
use crate::api::image::Image;
use crate::api::module::Module;
use crate::api::stream::Stream;
use crate::base::pool_stats::PoolStats;
use crate::device::by_address;
use crate::device::context::Context;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result};
use crate::ledger::{BlockId, EndReason, Entry, Kind, Owner};

/// A handle to a device and its primary context. Clones refer to the same device.
///
/// ```
/// let device = freehold::open()?;
/// let block = device.new_stream()?.alloc_tagged::<f32>(1000, "weights")?;
/// let owner = device.owner_of(block.address() + 17).expect("the address lies in the block");
/// assert_eq!((owner.bytes, owner.tag.as_deref()), (4000, Some("weights")));
/// assert_eq!(device.stats().owned_bytes, 4000);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    pub(crate) primary: Context,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("context", &self.primary).finish_non_exhaustive()
    }
}

/// Memory that foreign code allocated, recorded in the ledger for as long as this lives.
///
/// ```
/// # let device = freehold::open()?;
/// use freehold::{Adoption, Error};
///
/// let theirs = 1 << 20; // an address that foreign code has allocated
/// let adopted = device.adopt(theirs, 4096, Adoption::Foreign, "theirs")?;
/// assert_eq!(device.owner_of(theirs + 1).and_then(|owner| owner.tag).as_deref(), Some("theirs"));
/// assert!(matches!(device.release(theirs), Err(Error::WrongRelease(_)))); // the library does not own it
/// drop(adopted);
/// assert_eq!(device.owner_of(theirs), None);
/// # Ok::<(), freehold::Error>(())
/// ```
#[must_use = "the ledger forgets the memory when this is dropped"]
pub struct Adopted {
    device: Arc<DeviceInner>,
    block: BlockId,
}

impl fmt::Debug for Adopted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted").field("block", &self.block).finish_non_exhaustive()
    }
}

impl Device {
    /// Makes a device from a backend, whose context becomes the primary one. The context is closed when the last object
    /// in it is dropped, or immediately if this call fails.
    ///
    /// # Safety
    /// The backend implements each call as [`Backend`] documents it: addresses, handles and host memory that it returns
    /// are valid and exclusive. No other code destroys them.
    pub unsafe fn on(backend: Arc<dyn Backend>) -> Result<Self> {
        Ok(Self { primary: Context::primary(Arc::new(DeviceInner::new(backend)?)) })
    }

    pub(crate) fn inner(&self) -> &Arc<DeviceInner> {
        &self.primary.inner.device
    }

    /// Returns the driver's name of the device.
    ///
    /// ```
    /// println!("{}", freehold::open()?.name()?);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn name(&self) -> Result<String> {
        self.inner().check()?;
        self.inner().backend.name().map_err(|error| self.inner().failed(error))
    }

    /// Returns the id of the device, which is unique and the same in every process.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        self.inner().check()?;
        self.inner().backend.uuid().map_err(|error| self.inner().failed(error))
    }

    /// Whether this is the software device, not hardware.
    ///
    /// ```
    /// let device = freehold::open::device(Some("soft"))?;
    /// assert!(device.is_software()); // what something costs here says nothing about a GPU
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn is_software(&self) -> bool {
        self.inner().backend.is_software()
    }

    /// Whether the host can read and write blocks at their device addresses. Asks the driver once, about the memory of
    /// a block: a device may share addresses with the host and still not let it access device memory.
    pub fn is_host_visible(&self) -> Result<bool> {
        let device = self.inner();
        device.check()?;
        if let Some(&is_visible) = device.is_host_visible.get() {
            return Ok(is_visible);
        }
        let block = self.new_stream()?.alloc::<u8>(1)?;
        let is_visible = device.backend.is_host_visible(block.address()).map_err(|error| device.failed(error))?;
        Ok(*device.is_host_visible.get_or_init(|| is_visible))
    }

    /// Returns the primary context's driver interface, for foreign code: each call that takes a handle or an address is
    /// `unsafe`. The library does not see work submitted that way: see [`Stream::foreign_work`].
    pub fn backend(&self) -> &dyn Backend {
        &*self.inner().backend
    }

    /// Returns the primary context.
    pub fn primary(&self) -> &Context {
        &self.primary
    }

    /// Creates a context.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// let context = device.new_context()?; // separate from the primary one
    /// assert_ne!(context.id(), device.primary().id());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OneContext`] on a device that supports only one.
    pub fn new_context(&self) -> Result<Context> {
        Context::create(self.inner())
    }

    /// Creates a stream in the primary context.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// let (stream, other) = (device.new_stream()?, device.new_stream()?);
    /// assert_ne!(stream.id(), other.id());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn new_stream(&self) -> Result<Stream> {
        self.primary.new_stream()
    }

    /// Loads an image into the primary context. See [`Context::module`] for what the driver waits for.
    ///
    /// ```
    /// use freehold::Image;
    ///
    /// # let device = freehold::open()?;
    /// let module = device.module(&Image::ptx(include_str!("../../examples/kernels.ptx"))?)?;
    /// assert!(module.kernels()?.iter().any(|name| name == "scale"));
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn module(&self, image: &Image) -> Result<Module> {
        self.primary.module(image)
    }

    /// Returns the owner of the block that contains an address, at its beginning or at any byte of it. Returns `None`
    /// in a forked child.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc::<u64>(10)?;
    /// let owner = device.owner_of(x.address() + 79).expect("its last byte");
    /// assert_eq!((owner.base, owner.bytes), (x.address(), 80));
    /// assert_eq!(device.owner_of(1), None);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        // In a fork the lock may be held forever, by a thread that does not exist there.
        if self.inner().is_child() {
            return None;
        }
        self.inner().owner_of(address)
    }

    /// Returns all owned blocks, by address.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc_tagged::<u64>(10, "counts")?;
    /// for owner in device.blocks() {
    ///     println!("{owner}"); // length, address, name, and where it was allocated
    /// }
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn blocks(&self) -> Vec<Owner> {
        if self.inner().is_child() {
            return Vec::new();
        }
        self.inner().owned()
    }

    /// Returns how much memory the pool has: owned, released and cached.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc::<u8>(1000)?;
    /// let stats = device.stats();
    /// assert_eq!(stats.owned_bytes, 1000);
    /// assert!(stats.reserved_bytes >= 1000); // what the pool has from the driver
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        if self.inner().is_child() {
            return PoolStats::default();
        }
        self.inner().stats()
    }

    /// Returns how many bytes of the device's memory are free, as the driver reports it.
    pub fn free_bytes(&self) -> Result<u64> {
        let device = self.inner();
        device.check()?;
        let room = device.backend.memory_info().map_err(|error| device.failed(error))?;
        Ok(room.free_bytes)
    }

    /// Releases a block by its address, for foreign code: one that [`Block::into_address`] leaked. Can be called on any
    /// thread, whatever context is current there. Address 0, that of an empty block, is ignored.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// use freehold::Error;
    ///
    /// let x = stream.alloc::<u8>(1000)?;
    /// let Err(Error::WrongRelease(wrong)) = device.release(x.address() + 8) else { panic!("the address is inside a block") };
    /// println!("{wrong}"); // 8 bytes into 1000 bytes at ..., allocated at ...: release the block by its first address
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongRelease`], which explains the mistake; the block at the address is unchanged.
    #[track_caller]
    pub fn release(&self, address: u64) -> Result<()> {
        if address == 0 {
            return Ok(());
        }
        let mut raw = by_address::take_by_address(self.inner(), address)?;
        match raw.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => {
                by_address::leak_to_address(self.inner(), raw);
                Err(error)
            }
        }
    }

    /// Takes back a block that [`Block::into_address`] leaked, as bytes.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let address = stream.upload(&[1u8, 2, 3])?.into_address();
    /// let x = device.claim(address)?; // a block again
    /// assert_eq!(stream.download(&x)?, [1, 2, 3]);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn claim(&self, address: u64) -> Result<Block<u8>> {
        Ok(Block::from_raw(by_address::take_by_address(self.inner(), address)?))
    }

    /// Records that foreign code submitted work to `stream` that uses the block at an address: its memory is not reused
    /// before that work is complete.
    ///
    /// # Errors
    /// [`Error::WrongUse`] if no block of foreign code begins at the address.
    pub fn note_use(&self, address: u64, stream: &Stream) -> Result<()> {
        self.inner().check()?;
        if !Arc::ptr_eq(&stream.inner.context.inner.device, self.inner()) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        by_address::note_use(self.inner(), address, &stream.inner).map_err(Error::into_use)
    }

    /// Records foreign memory in the ledger, with a name; the library does not release it.
    ///
    /// # Errors
    /// [`Error::NotEntered`] if one of the library's blocks lies there, or something else that was recorded.
    #[track_caller]
    pub fn adopt(&self, address: u64, bytes: u64, kind: Adoption, tag: &str) -> Result<Adopted> {
        let device = self.inner();
        device.check()?;
        let (kind, process) = match kind {
            Adoption::Foreign => (Kind::Adopted, device.process),
            Adoption::Imported { process } => (Kind::Imported, process),
        };
        let entry = Entry {
            base: address,
            bytes,
            capacity_bytes: bytes,
            context: self.primary.id(),
            stream: None,
            process,
            kind,
            tag: Some(tag.into()),
            allocated_at: Location::caller(),
        };
        device.check_outside_pools(address, bytes)?;
        let block = device.ledger().enter(entry)?;
        Ok(Adopted { device: device.clone(), block })
    }

    /// Waits until all work of the library's streams and all other work of the primary context is complete, and runs
    /// deferred operations.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.zeros::<u8>(1 << 20)?;
    /// device.synchronize()?; // waits for all streams
    /// assert!(stream.is_idle()?);
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn synchronize(&self) -> Result<()> {
        self.inner().synchronize_all()?;
        self.primary.synchronize()?;
        let threshold_bytes = self.inner().pool.threshold_bytes();
        if self.inner().pool.chunks.reserved_bytes() > threshold_bytes {
            self.trim_to(threshold_bytes)?;
        }
        Ok(())
    }

    /// Runs deferred operations that no longer have to wait: unloads closed modules, destroys closed contexts.
    pub fn tidy(&self) -> Result<()> {
        self.inner().run_deferred()
    }

    /// Returns free memory to the driver, except memory that pending work uses. Returns how many bytes went back.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// drop(stream.zeros::<u8>(64 << 20)?);
    /// device.synchronize()?;
    /// assert!(device.trim()? >= 64 << 20); // what the pool had cached
    /// assert_eq!(device.stats().cached_bytes, 0);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn trim(&self) -> Result<u64> {
        self.trim_to(0)
    }

    /// Like [`trim`](Self::trim), until the pool has at most `keep_bytes`.
    pub fn trim_to(&self, keep_bytes: u64) -> Result<u64> {
        self.inner().run_deferred()?;
        self.inner().trim(&self.primary.inner.state, keep_bytes)
    }

    /// Limits the memory that the pool may reserve; requests beyond the limit fail. Memory that is already reserved
    /// stays, and is reused, until [`trim`](Self::trim).
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// use freehold::Error;
    ///
    /// device.set_budget(64 << 20);
    /// assert!(matches!(stream.alloc::<u8>(65 << 20), Err(Error::OutOfMemory(_))));
    /// device.set_budget(u64::MAX); // without limit
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn set_budget(&self, bytes: u64) {
        self.inner().pool.chunks.set_budget_bytes(bytes);
    }

    /// Limits the live bytes under a name and the names within it (`model/cache` is within `model`). Live blocks stay.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// use freehold::Error;
    ///
    /// device.set_tag_budget("cache", 1 << 20)?;
    /// let x = stream.alloc_tagged::<u8>(600_000, "cache/keys")?;
    /// assert!(matches!(stream.alloc_tagged::<u8>(600_000, "cache/values"), Err(Error::BudgetFull { .. })));
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyTags`] beyond 4096 names.
    pub fn set_tag_budget(&self, tag: &str, bytes: u64) -> Result<()> {
        self.inner().check()?;
        if self.inner().tags.set_budget(tag, bytes) { Ok(()) } else { Err(Error::TooManyTags { tag: tag.into() }) }
    }

    /// Returns the live bytes under each name, the largest first.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// let x = stream.alloc_tagged::<u8>(1000, "weights")?;
    /// assert_eq!(device.live_by_tag(), [("weights".into(), 1000)]);
    /// # drop(x);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn live_by_tag(&self) -> Vec<(Arc<str>, u64)> {
        if self.inner().is_child() { Vec::new() } else { self.inner().tags.live() }
    }

    /// Sets how much memory the pool keeps when the device is synchronized: free memory beyond the threshold goes back
    /// to the driver. By default everything is kept.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// # let stream = device.new_stream()?;
    /// device.set_release_threshold(0);
    /// drop(stream.zeros::<u8>(64 << 20)?);
    /// device.synchronize()?;
    /// assert_eq!(device.stats().reserved_bytes, 0);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn set_release_threshold(&self, bytes: u64) {
        self.inner().pool.set_threshold_bytes(bytes);
    }

    /// Returns the errors of drops since the last call.
    ///
    /// ```
    /// # let device = freehold::open()?;
    /// for error in device.drop_errors() {
    ///     eprintln!("a drop failed: {error}");
    /// }
    /// # Ok::<(), freehold::Error>(())
    /// ```
    #[must_use = "each error is reported once"]
    pub fn drop_errors(&self) -> Vec<Error> {
        if self.inner().is_child() { Vec::new() } else { self.inner().take_drop_errors() }
    }
}

/// The origin of memory that is recorded without being owned.
///
/// ```
/// # let device = freehold::open()?;
/// use freehold::Adoption;
///
/// let adopted = device.adopt(1 << 20, 4096, Adoption::Imported { process: 77 }, "shared")?;
/// let error = device.release(1 << 20).expect_err("it is another process's");
/// assert!(error.to_string().ends_with("are imported from process 77: close the import instead"));
/// # drop(adopted);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// Foreign code in this process allocated it.
    Foreign,
    /// The process with this id shared it: it is closed, not released.
    Imported {
        /// The process id.
        process: u32,
    },
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if self.device.is_child() {
            return;
        }
        let ledger = &mut *self.device.ledger();
        // It no longer exists if the driver reused the address, or if its context is gone.
        if ledger.owner(self.block).is_some() {
            ledger.forget(self.block, EndReason::Returned);
        }
    }
}
