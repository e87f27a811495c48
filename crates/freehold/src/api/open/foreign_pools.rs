//! The foreign pools of a process, one for each device number.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use freehold_driver::cuda::{Api, CUcontext, CUdevice, DriverError, context, device, load, primary};

use super::choice::{self, Kind, Opened, opened};
use super::devices::{self, device_of};
use crate::api::device::Device;
use crate::api::foreign::ForeignPool;
use crate::error::Result as DeviceResult;
use crate::error::open_error::{OpenError, STREAMS_VARIABLE};

/// Whether each capture of this process is announced before it begins.
static CAPTURES_ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Promises for all foreign pools that each capture is announced: see [`ForeignPool::announce_captures`].
///
/// # Safety
/// As for [`ForeignPool::announce_captures`].
pub unsafe fn announce_captures() {
    CAPTURES_ANNOUNCED.store(true, Ordering::SeqCst);
    for foreign_pool in foreign_pools() {
        // SAFETY: the caller's promise is this function's.
        unsafe { foreign_pool.announce_captures() };
    }
}

/// How many private pools of all devices are begun and not ended.
pub(crate) static POOLS_OPEN: AtomicUsize = AtomicUsize::new(0);

/// How many devices of a process can have foreign pools.
const FOREIGN_POOLS_MAX: usize = 64;

/// Null where there is none. A pool stays until the process ends: its users have references.
static FOREIGN_POOLS: [AtomicPtr<ForeignPool>; FOREIGN_POOLS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; FOREIGN_POOLS_MAX];

/// Held while a foreign pool is created or ended, so that no device gets two.
static MAKING: Mutex<()> = Mutex::new(());

/// Returns the foreign pool of a device by its number, if it exists.
///
/// # Safety
/// As for [`foreign_pool`].
#[inline]
pub unsafe fn known_foreign_pool(ordinal: i32) -> Option<&'static ForeignPool> {
    known(FOREIGN_POOLS.get(usize::try_from(ordinal).ok()?)?)
}

/// Returns all foreign pools that exist.
///
/// # Safety
/// As for [`foreign_pool`].
pub unsafe fn known_foreign_pools() -> impl Iterator<Item = &'static ForeignPool> {
    foreign_pools()
}

/// Like [`known_foreign_pools`], for this crate, which names no foreign streams on its own.
pub(crate) fn foreign_pools() -> impl Iterator<Item = &'static ForeignPool> {
    FOREIGN_POOLS.iter().filter_map(known)
}

#[inline]
fn known(slot: &AtomicPtr<ForeignPool>) -> Option<&'static ForeignPool> {
    // SAFETY: null, or a foreign pool that was leaked.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Ends the foreign pool of a device, whose context is about to be destroyed: its blocks end, and all of its memory
/// goes back to the driver. The next call for the device creates another one.
///
/// # Errors
/// Those of the device. What could not be returned stays until the process ends.
///
/// # Safety
/// All work with the pool's memory is complete, and no more is submitted. No thread uses the pool, during the call or
/// after it.
pub unsafe fn end_foreign_pool(ordinal: i32) -> DeviceResult<()> {
    let Some(slot) = usize::try_from(ordinal).ok().and_then(|index| FOREIGN_POOLS.get(index)) else { return Ok(()) };
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = known(slot);
    slot.store(ptr::null_mut(), Ordering::Release);
    let Some(ended) = ended else { return Ok(()) };
    devices::forget(ended.device());
    ended.end()
}

/// Returns the foreign pool of a device by its number, creating it if necessary. The driver is the one that the process
/// has loaded, if any, otherwise the one that [`open`](crate::open::open) chooses. The context is the current one if it
/// belongs to that device, otherwise the primary one.
///
/// # Safety
/// The caller guarantees that the streams that it passes are valid: each handle is that of a stream of the device,
/// which is not destroyed before [`ForeignPool::retire`] was called with it, unless the foreign pool is checked or the
/// stream is named by its id. Allocated memory is used in the order of the streams that were passed to the foreign
/// pool.
pub unsafe fn foreign_pool(ordinal: i32) -> DeviceResult<&'static ForeignPool> {
    known_or_new(ordinal, || {
        // Foreign code calls the driver that the dynamic linker finds: under `freehold run`, the software driver.
        let is_others = load::is_loaded() || choice::is_library_software();
        let selector = is_others.then(|| format!("cuda:{ordinal}"));
        opened(selector.as_deref())
    })
}

/// Like [`foreign_pool`], with a driver that the caller has loaded and initialized.
///
/// # Safety
/// As for [`foreign_pool`]; the table's functions do what the driver API documents.
pub unsafe fn foreign_pool_on(api: Api, ordinal: i32) -> DeviceResult<&'static ForeignPool> {
    let why = "the caller has loaded its driver".to_owned();
    known_or_new(ordinal, || Ok(Opened { api, device: CUdevice(ordinal), kind: Kind::Cuda, why }))
}

/// Returns the foreign pool of a device, or a new one on the driver that `open` opens.
fn known_or_new(ordinal: i32, open: impl FnOnce() -> Result<Opened, OpenError>) -> DeviceResult<&'static ForeignPool> {
    let slot = usize::try_from(ordinal).ok().and_then(|index| FOREIGN_POOLS.get(index));
    let slot = slot.ok_or(OpenError::NoSuchNumber { ordinal })?;
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known(slot) {
        return Ok(known);
    }
    let is_checked = match std::env::var_os(STREAMS_VARIABLE).unwrap_or_default().to_string_lossy().as_ref() {
        "checked" => true,
        "trusted" | "" => false,
        said => return Err(OpenError::UnknownStreams { said: said.to_owned() }.into()),
    };
    let mut opened = open()?;
    let count = device::count(&opened.api)?;
    if ordinal >= count {
        return Err(OpenError::BeyondDevices { ordinal, count }.into());
    }
    opened.device = CUdevice(ordinal);
    let device = match others_context(&opened.api, opened.device)? {
        Some(context) => Device::adopting(opened.api, opened.device, context)?,
        None => device_of(opened)?,
    };
    let foreign_pool: &'static _ = Box::leak(Box::new(ForeignPool::new(&device, ordinal, is_checked)));
    slot.store(ptr::from_ref(foreign_pool).cast_mut(), Ordering::Release);
    // A thread that makes the promise after this finds the foreign pool.
    if CAPTURES_ANNOUNCED.load(Ordering::SeqCst) {
        // SAFETY: it was promised.
        unsafe { foreign_pool.announce_captures() };
    }
    Ok(foreign_pool)
}

/// Returns the current context, if it belongs to the device and is not the primary one.
fn others_context(api: &Api, device: CUdevice) -> Result<Option<CUcontext>, DriverError> {
    let current = context::current(api)?;
    if current == CUcontext::NULL || context::device(api)? != device {
        return Ok(None);
    }
    if !primary::state(api, device)?.active {
        return Ok(Some(current));
    }
    let primary = primary::retain(api, device)?;
    primary::release(api, device)?;
    Ok((current != primary).then_some(current))
}
