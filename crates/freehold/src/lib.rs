//! GPU memory that has an owner.
//!
//! ```
//! use freehold::{Grid, Image};
//!
//! # fn main() -> freehold::Result<()> {
//! let device = freehold::open()?; // an NVIDIA GPU if there is one, else the software device
//! let module = device.module(&Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
//! // SAFETY: nothing checks a kernel's code. Both stay within the first `n` elements of what they are given, and `n` is `x.len()`.
//! let (scale, sum) = unsafe { (module.kernel("scale")?, module.kernel("sum")?) };
//! let (stream, other) = (device.stream()?, device.stream()?);
//! let n = 1000u32;
//!
//! let mut x = stream.upload(&vec![1.0f32; n as usize])?; // a block, owned
//! let mut total = other.zeros::<f32>(1)?;
//! stream.launch(&scale, Grid::cover(n, 256), (&mut x, 2.0f32, n))?;
//! other.launch(&sum, Grid::cover(n, 256), (&x, &mut total, n))?; // waits for the first launch by itself
//! drop(x); // never waits; reused when both streams have passed it
//! assert_eq!(other.download(&total)?, [2000.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | to | here |
//! |---|---|
//! | choose an NVIDIA GPU, the software device or one of OpenCL's | [`open()`], [`open::device`], [`open::list`] |
//! | have memory | [`Stream::alloc`], [`Stream::upload`], [`Block`] |
//! | have short-lived memory, in scopes | [`Arena`] |
//! | have memory that grows | [`DeviceVec`], [`Block::resize`] |
//! | say how much may be had, in all or under a name | [`Device::set_budget`], [`Device::set_tag_budget`], [`Stream::alloc_tagged`] |
//! | know how much there is, and give some back | [`Device::stats`], [`Device::live_by_tag`], [`Device::trim_to`], [`Device::set_release_threshold`] |
//! | know why there was none | [`Error::OutOfMemory`], [`Shortage`] |
//! | copy it, or rows of it | [`Stream::copy`], [`Stream::copy_rows`] |
//! | share it, or a part of it | [`Block::share`], [`Block::view`] |
//! | lend it to the host, a network, or another library's engine | [`Stream::lend`], [`Stream::lend_mut`], [`ExternalAccess`] |
//! | let another process have it | [`Stream::alloc_shareable`], [`Block::export`] |
//! | release it | drop it; [`Block::close`], [`Block::release_after`], [`Block::release_now`], [`Device::release`] |
//! | use memory of another process | [`Device::import`], [`Imported`], [`ImportedSlice`] |
//! | let streams of several processes wait for each other | [`Device::clock`], [`Stream::write_word`], [`Stream::wait_word`] |
//! | run a kernel | [`Device::module`], [`Module::kernel`], [`Stream::launch`] |
//! | know whose memory it is | [`Device::owner_of`], [`Device::blocks`], [`ledger`] |
//! | see what happened when | [`Device::record`], [`timeline`] |
//! | wait | [`Stream::synchronize`], [`Event::synchronize`], [`Device::synchronize`] |
//!
//! # Safety
//!
//! A kernel is code that nothing checks, so looking one up is `unsafe`: [`Module::kernel`] states what its caller vouches for. So is
//! whatever reaches past the library: [`RawAddress`], [`Block::unordered`], [`DynArg::memory_shared`], a driver's table
//! ([`open::open()`], [`Device::api`]), calls of [`Device::backend`] that name handles or addresses, and [`open::foreign_pool`] for C.
//!
//! Every other call is safe, whatever it is given. Work that writes a block borrows it mutably while it is put in, and is ordered on the
//! device behind and before all other work with it; what is dropped, closed or resized meanwhile stays until that work has passed;
//! nothing relies on a destructor; numbers that are handed out as addresses are looked up when they come back; and blocks hold
//! [`Pod`] values, of which every bit pattern is one. `docs/unsafe.md` has the reasons one by one, and every unsafe function.
//!
//! # Waiting
//!
//! Beside those, a call waits for the device only where its purpose needs it, and then says so: [`Stream::download`] and
//! [`Stream::read`], those of variables, [`ExternalAccess::wait`], [`Block::release_now`], [`timeline::Recording::finish`].

#![warn(missing_docs)]

#[forbid(unsafe_code)]
mod access_history;
mod arena;
mod arguments;
mod block;
mod context;
mod deferred;
mod device;
mod device_inner;
mod error;
mod event;
mod external_access;
mod fault;
mod fence_words;
mod fill;
pub mod foreign;
mod fork;
mod host_memory;
mod image;
mod imported;
mod launch;
#[forbid(unsafe_code)]
pub mod ledger;
mod module;
pub mod open;
mod pending_unmap;
mod pinned;
#[forbid(unsafe_code)]
mod poisoned;
mod pool;
mod raw_block;
mod semaphores;
#[forbid(unsafe_code)]
mod sharing;
mod shortage;
pub mod signature;
mod staging;
mod stream;
mod stream_inner;
mod stream_state;
mod sync_point;
#[forbid(unsafe_code)]
mod tags;
pub mod timeline;
mod transfer_slot;
mod vector;

pub use access_history::Access;
pub use arena::{Arena, ArenaSlice, Scope};
pub use arguments::{Argument, Arguments, DynArg, RawAddress, Value};
pub use block::{Block, Pod, Shared, Source, Target, Unordered, View, ViewMut};
pub use context::Context;
pub use device::{Adopted, Adoption, Device};
pub use error::{Closed, Error, Result};
pub use event::Event;
pub use external_access::ExternalAccess;
pub use fault::{Fault, Suspect};
pub use fork::ForkGuard;
pub use freehold_driver::{FaultDetails, Parameter};
pub use host_memory::HostMemory;
pub use image::Image;
pub use imported::{Departure, Imported, ImportedSlice, OwnsSlice, Permission};
pub use launch::Grid;
pub use module::{Kernel, Module, PendingUnload};
pub use pool::PoolStats;
pub use semaphores::SharedSemaphores;
pub use sharing::Exported;
pub use shortage::{Remedy, Shortage};
pub use stream::{MemoryUse, Stream};
pub use vector::DeviceVec;

/// The best device that this machine has, or the one that `FREEHOLD_DEVICE` names. A device that was opened before is
/// that one again: there is one ledger for it in a process.
///
/// ```
/// let device = freehold::open()?;
/// let x = device.stream()?.upload(&[1, 2, 3])?;
/// assert_eq!(freehold::open()?.blocks().len(), 1); // the same device
/// # drop(x);
/// # Ok::<(), freehold::Error>(())
/// ```
pub fn open() -> Result<Device> {
    open::device(None)
}

/// The pages of the table whose programs need nothing but this crate, which the tests compile and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!("../../../docs/growth.md")]
    mod growth {}
    #[doc = include_str!("../../../docs/images.md")]
    mod images {}
    #[doc = include_str!("../../../docs/opencl.md")]
    mod opencl {}
    #[doc = include_str!("../../../docs/ownership.md")]
    mod ownership {}
    #[doc = include_str!("../../../docs/release.md")]
    mod release {}
    #[doc = include_str!("../../../docs/rust.md")]
    mod rust {}
}
