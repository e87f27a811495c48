//! GPU memory with an owner: a pool, stream ordering, and a record of who owns which address.
//!
//! ```
//! use freehold::{Grid, Image};
//!
//! # fn main() -> freehold::Result<()> {
//! let device = freehold::open()?; // an NVIDIA GPU if there is one, else the software device
//! let module = device.module(&Image::ptx(include_str!("../examples/kernels.ptx"))?)?;
//! // SAFETY: nothing checks a kernel's code. Both stay within the first `n` elements of what they are given, and `n` is `x.len()`.
//! let (scale, sum) = unsafe { (module.kernel("scale")?, module.kernel("sum")?) };
//! let (stream, other, n) = (device.new_stream()?, device.new_stream()?, 1000u32);
//!
//! let mut x = stream.upload(&vec![1.0f32; n as usize])?; // a block, owned
//! let mut total = other.zeros::<f32>(1)?;
//! stream.launch(&scale, Grid::cover(n, 256), (&mut x, 2.0f32, n))?;
//! other.launch(&sum, Grid::cover(n, 256), (&x, &mut total, n))?; // waits for the first launch, on the device
//! drop(x); // never waits; the memory is reused when both streams are done with it
//! assert_eq!(other.download(&total)?, [2000.0]);
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! |---|---|
//! | choose a device: NVIDIA, software or OpenCL | [`open()`], [`open::device`], [`open::list`] |
//! | allocate and free | [`Stream::alloc`], [`Block`], [`Block::close`], [`Block::release_after`], [`Block::release_now`], [`Arena`] |
//! | grow | [`DeviceVec`], [`Block::resize`] |
//! | copy and launch | [`Stream::upload`], [`Stream::download`], [`Stream::copy`], [`Device::module`], [`Stream::launch`] |
//! | share in the process | [`Block::share`], [`Block::view`]; with the host, a NIC or another library: [`Stream::lend`], [`ExternalAccess`] |
//! | share with other processes | [`Stream::alloc_shareable`], [`Block::export`], [`Device::import`], [`Device::shared_semaphores`] |
//! | give memory back, keep addresses | [`Device::set_sleepable`], [`Device::sleep`], [`Device::wake`] |
//! | limit and inspect | [`Device::set_budget`], [`Stream::alloc_tagged`], [`Device::stats`], [`Device::owner_of`], [`Shortage`], [`timeline`] |
//!
//! # Safety
//!
//! Nothing checks a kernel's code, so [`Module::kernel`] is `unsafe`. So is every call that bypasses the library:
//! [`RawAddress`], [`Block::unordered`], [`DynArg::memory_shared`], a driver's table ([`open::open()`],
//! [`Device::api`]) and [`open::foreign_pool`]. Every other call is safe, whatever its arguments; `docs/unsafe.md` has
//! the reasons.
//!
//! # Features
//!
//! All are on by default. Without them the crate supports only NVIDIA GPUs, and compiles in less than half the time.
//!
//! | feature | what it adds |
//! |---|---|
//! | `soft` | the software device: a CUDA driver and a PTX interpreter, for machines without a GPU |
//! | `opencl` | OpenCL devices |
//! | `timeline` | [`Device::record`] and [`timeline`] |
//!
//! A device whose feature is off is refused with [`open::OpenError::NotBuilt`], which names the feature.
//!
//! # Modules, lowest layer first
//!
//! Each is a folder. A file imports files of its own folder and of folders listed before it;
//! `crates/testing/src/imports` checks that.
//!
//! - `base`: the fork guard, tags, PTX signatures, and the points at which tests stop a thread. Imports nothing else of
//!   the crate.
//! - [`ledger`]: who owns which address outside the pool. No driver, no clock, no `unsafe`.
//! - `error`: [`Error`], with faults, shortages, and why no device could be opened.
//! - `ordering`: sequence numbers and fences of streams and of transfers, and the uses of a block. `Streams` holds all
//!   streams of a device.
//! - `pool`: memory that is reused. It asks its device for memory through `freehold_driver::DeviceMemory`, and about fences
//!   through `DeviceWork`.
//! - `trace`: the log of a recording, and its file.
//! - `device`: the state that all handles of a device share; contexts, untyped blocks, and deferred operations.
//! - `api`: the public types. On top of it [`foreign`], the pool by device number, stream handle and address, for C,
//!   and [`mod@open`], the choice of a driver.
//!
//! # Invariants
//!
//! - Work gets its sequence number after the driver has accepted it; a fence gets its number before it is written. So a
//!   complete fence covers all work up to its number, whichever thread submitted it.
//! - The fences of a freed block are known before the pool gets it.
//! - A driver call about a context holds its destroy lock shared; one that waits for the whole context holds it
//!   exclusively, with nothing pending.
//! - The ledger's lock is never held during a driver call.
//! - An error changes nothing; errors of a drop go to [`Device::drop_errors`].
//! - A call waits for the device only if that is its purpose, like [`Stream::download`] and [`Stream::synchronize`].
//! - After a sticky fault, and in a forked child, no driver is called and nothing waits.

#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod base;
mod device;
mod error;
#[forbid(unsafe_code)]
pub mod ledger;
mod ordering;
mod pool;
mod trace;

pub use api::arena::{Arena, ArenaSlice, Scope};
pub use api::arguments::{Argument, Arguments, DynArg, RawAddress, Value};
pub use api::block::{Block, Shared, Unordered};
pub use api::device::{Adopted, Adoption, Device};
pub use api::event::Event;
pub use api::external_access::ExternalAccess;
pub use api::host_memory::HostMemory;
pub use api::image::Image;
pub use api::imported::{Imported, ImportedSlice, OwnsSlice, Permission, UnmapStatus};
pub use api::launch::Grid;
pub use api::memory::{Pod, Source, Target};
pub use api::module::{Kernel, Module, PendingUnload};
pub use api::semaphores::SharedSemaphores;
pub use api::stream::Stream;
#[cfg(feature = "timeline")]
pub use api::timeline;
pub use api::vector::DeviceVec;
pub use api::view::{View, ViewMut};
pub use api::{foreign, open};
pub use base::fork::ForkGuard;
pub use base::pool_stats::PoolStats;
pub use base::signature;
pub use device::context::Context;
pub use device::exported::Exported;
pub use device::memory_use::MemoryUse;
pub use device::sleepers::Contents;
pub use error::fault::{Fault, Suspect};
pub use error::shortage::{Remedy, Shortage};
pub use error::{CloseError, Error, Result};
pub use freehold_driver::{FaultDetails, Parameter};
pub use ordering::access_history::Access;

/// Opens the device that `FREEHOLD_DEVICE` names, or else the best device of this machine. Opening a device again
/// returns the same device: a process has one pool and one record of owners for it.
///
/// ```
/// let device = freehold::open()?;
/// let x = device.new_stream()?.upload(&[1, 2, 3])?;
/// assert_eq!(freehold::open()?.blocks().len(), 1); // the same device
/// # drop(x);
/// # Ok::<(), freehold::Error>(())
/// ```
pub fn open() -> Result<Device> {
    open::device(None)
}

/// The pages whose programs need nothing but this crate; doctests compile and run them. They are read through links in
/// `tests/newcomer/program/src`, next to which `tests/newcomer/freehold` stands for a clone of the repository, so that
/// the path of each `include_str!` is also right in the `src/main.rs` of a reader's program.
#[cfg(doctest)]
mod docs_pages {
    #[doc = include_str!("../tests/newcomer/program/src/crate-README.md")]
    mod crate_readme {}
    #[doc = include_str!("../tests/newcomer/program/src/README.md")]
    mod readme {}
    #[doc = include_str!("../tests/newcomer/program/src/growth.md")]
    mod growth {}
    #[doc = include_str!("../tests/newcomer/program/src/images.md")]
    mod images {}
    #[doc = include_str!("../tests/newcomer/program/src/opencl.md")]
    mod opencl {}
    #[doc = include_str!("../../../docs/ownership.md")]
    mod ownership {}
    #[doc = include_str!("../tests/newcomer/program/src/release.md")]
    mod release {}
    #[doc = include_str!("../tests/newcomer/program/src/rust.md")]
    mod rust {}
}
