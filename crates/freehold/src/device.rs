//! A device: the entrance to everything else, and the place for what concerns all of its memory.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;

use freehold_driver::Backend;

use crate::block::Block;
use crate::context::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::ledger::{BlockId, Entry, Gone, Kind, Owner};
use crate::module::Module;
use crate::pool::Totals;
use crate::stream::Stream;
use crate::timeline::Recording;

/// A device and its primary context. A handle: all handles of a device that was opened once are of one.
///
/// ```
/// let device = freehold::open()?;
/// let block = device.stream()?.alloc_tagged::<f32>(1000, "weights")?;
/// let owner = device.owner_of(block.address() + 17).expect("the address lies in the block");
/// assert_eq!((owner.bytes, owner.tag.as_deref()), (4000, Some("weights")));
/// assert_eq!(device.totals().owned_bytes, 4000);
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) primary: Context,
}

/// Memory that somebody else allocated, entered in the ledger for as long as this lives.
#[derive(Debug)]
pub struct Adopted {
    core: Arc<Core>,
    block: BlockId,
}

impl Device {
    /// A device by a context of it, which is the primary one here. It is closed when the last that lives in it has gone, and now
    /// where this fails.
    pub fn on(backend: Arc<dyn Backend>) -> Result<Self> {
        Ok(Self { primary: Context::primary(Arc::new(Core::new(backend)?)) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.primary.inner.core
    }

    /// What the driver calls the device.
    pub fn name(&self) -> Result<String> {
        self.core().check()?;
        self.core().backend.name().map_err(|error| self.core().failed(error))
    }

    /// What tells the device from all others, in every process.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        self.core().check()?;
        self.core().backend.uuid().map_err(|error| self.core().failed(error))
    }

    /// Whether the host reads and writes the memory of blocks, by itself, where the device does. The driver is asked once, for the
    /// memory of a block: a device may share addresses with the host, and keep memory of its own to itself all the same.
    pub fn is_host_visible(&self) -> Result<bool> {
        let core = self.core();
        core.check()?;
        if let Some(&is_visible) = core.is_host_visible.get() {
            return Ok(is_visible);
        }
        let block = self.stream()?.alloc::<u8>(1)?;
        let is_visible = core.backend.is_host_visible(block.address()).map_err(|error| core.failed(error))?;
        Ok(*core.is_host_visible.get_or_init(|| is_visible))
    }

    /// The primary context as its driver has it, for other people's code. What they put into streams is not known here: see
    /// [`Stream::foreign_work`].
    pub fn backend(&self) -> &dyn Backend {
        &*self.core().backend
    }

    /// The primary context.
    pub fn primary(&self) -> &Context {
        &self.primary
    }

    /// A context of its own.
    ///
    /// # Errors
    /// [`Error::OneContext`] on a device that has no others.
    pub fn context(&self) -> Result<Context> {
        Context::create(self.core())
    }

    /// A stream of the primary context.
    pub fn stream(&self) -> Result<Stream> {
        self.primary.stream()
    }

    /// Loads an image into the primary context. See [`Context::module`] for what the driver waits for.
    pub fn module(&self, image: &Image) -> Result<Module> {
        self.primary.module(image)
    }

    /// Who owns the memory at an address: of a block's beginning, or of any byte of it. Nobody, in a forked child.
    pub fn owner_of(&self, address: u64) -> Option<Owner> {
        // The lock may be held for ever in a fork, by a thread that is not there.
        if self.core().is_child() {
            return None;
        }
        self.core().owner_of(address)
    }

    /// All blocks that are owned, by address.
    pub fn blocks(&self) -> Vec<Owner> {
        if self.core().is_child() {
            return Vec::new();
        }
        self.core().owned()
    }

    /// How much memory the pool has: owned, released, to be handed out again.
    pub fn totals(&self) -> Totals {
        if self.core().is_child() {
            return Totals::default();
        }
        self.core().totals()
    }

    /// The bytes that the driver has free.
    pub fn free_bytes(&self) -> Result<u64> {
        let core = self.core();
        core.check()?;
        let room = core.backend.room().map_err(|error| core.failed(error))?;
        Ok(room.free_bytes)
    }

    /// Releases a block by its address, for other people's code: one that was let go of with
    /// [`Block::into_address`]. In any thread, whatever context is current there.
    ///
    /// # Errors
    /// [`Error::WrongRelease`], which says which wrong it is; the block at the address is as it was.
    #[track_caller]
    pub fn release(&self, address: u64) -> Result<()> {
        let mut holding = self.core().taken(address)?;
        match holding.release(Some(Location::caller())) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.core().let_go(holding);
                Err(error)
            }
        }
    }

    /// Takes a block back that was let go of with [`Block::into_address`], as bytes.
    pub fn claim(&self, address: u64) -> Result<Block<u8>> {
        Ok(Block::holding(self.core().taken(address)?))
    }

    /// Says that other people's code put work into `stream` that uses the block at an address: it is not handed out again
    /// before that work has passed.
    pub fn note_use(&self, address: u64, stream: &Stream) -> Result<()> {
        self.core().check()?;
        if !Arc::ptr_eq(&stream.home.context.inner.core, self.core()) {
            return Err(Error::OtherDevice { what: "a stream" });
        }
        self.core().note_use(address, stream)
    }

    /// Enters memory of others in the ledger, where it has an owner's name but is not ours to release.
    #[track_caller]
    pub fn adopt(&self, address: u64, bytes: u64, kind: Adoption, tag: &str) -> Result<Adopted> {
        let core = self.core();
        core.check()?;
        let (kind, process) = match kind {
            Adoption::Foreign => (Kind::Adopted, core.process),
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
        let block = core.ledger().enter(entry)?;
        Ok(Adopted { core: core.clone(), block })
    }

    /// Waits until all work of the library's streams is done, and all other work of the primary context, and does what waited
    /// for that.
    pub fn synchronize(&self) -> Result<()> {
        self.core().synchronize_all()?;
        self.primary.synchronize()?;
        let threshold_bytes = self.core().pool.threshold_bytes();
        if self.core().pool.supply.reserved_bytes() > threshold_bytes {
            self.trim_to(threshold_bytes)?;
        }
        Ok(())
    }

    /// Does what can be done by now without waiting: unloads closed modules, destroys closed contexts.
    pub fn tidy(&self) -> Result<()> {
        self.core().tidy()
    }

    /// Gives memory that nobody has back to the driver, as far as all work with it has passed. How many bytes went.
    pub fn trim(&self) -> Result<u64> {
        self.trim_to(0)
    }

    /// [`trim`](Self::trim), until the pool has no more than `keep_bytes`.
    pub fn trim_to(&self, keep_bytes: u64) -> Result<u64> {
        self.core().tidy()?;
        self.core().trim(&self.primary.inner.hall, keep_bytes)
    }

    /// Says how much the pool may have of the device: what would be more is refused. What it has already stays.
    pub fn set_budget(&self, bytes: u64) {
        self.core().pool.supply.set_budget_bytes(bytes);
    }

    /// Says how much may be live under a name, and those within it (`model/cache` is within `model`). What is live already stays.
    ///
    /// # Errors
    /// [`Error::TooManyTags`] beyond 4096 names.
    pub fn set_tag_budget(&self, tag: &str, bytes: u64) -> Result<()> {
        if self.core().tags.set_budget(tag, bytes) { Ok(()) } else { Err(Error::TooManyTags { tag: tag.into() }) }
    }

    /// What is live under each name, the most first.
    pub fn live_by_tag(&self) -> Vec<(Arc<str>, u64)> {
        self.core().tags.live()
    }

    /// Says how much the pool keeps when the device is synchronised: beyond it, memory that nobody has goes back to the driver.
    /// Without this everything is kept.
    pub fn set_release_threshold(&self, bytes: u64) {
        self.core().pool.set_threshold_bytes(bytes);
    }

    /// Records what happens from now on: as events of `tracing`, and in a file that Perfetto opens, if one is named.
    ///
    /// # Errors
    /// [`Error::AlreadyRecording`], and [`Error::File`] where the file cannot be made.
    pub fn record(&self, file: Option<&Path>) -> Result<Recording> {
        Recording::begin(self.core(), file)
    }

    /// What failed in drops since the last time this was asked.
    pub fn troubles(&self) -> Vec<Error> {
        if self.core().is_child() { Vec::new() } else { self.core().take_troubles() }
    }
}

/// Whose the memory is that is entered without being owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// Other people's code of this process allocated it.
    Foreign,
    /// The process with this id shared it: it is closed, not released.
    Imported {
        /// Its id.
        process: u32,
    },
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if self.core.is_child() {
            return;
        }
        let ledger = &mut *self.core.ledger();
        // It is there no more where the driver gave the address to somebody else, or its context is gone.
        if ledger.owner(self.block).is_some() {
            ledger.forget(self.block, Gone::GivenBack);
        }
    }
}
