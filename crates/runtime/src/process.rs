//! The driver of the process, and the primary context of each device.
//!
//! A thread without a current context gets the primary context of its device. A context that was made current through the
//! driver API is used as is.

use std::path::Path;
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use freehold_driver::cuda::{self, Api, CUcontext, CUdevice, CUerror};

use crate::calls;
use crate::code::CudaError;
use crate::limit;
use crate::log;
use crate::thread;

/// The driver, and its devices.
pub(crate) struct Process {
    pub(crate) api: Api,
    /// The same driver, with per-thread default streams.
    per_thread_api: Api,
    devices: Vec<Device>,
    /// The devices of `cudaSetValidDevices`, the first choice first. Empty means all devices.
    valid: RwLock<Vec<i32>>,
}

struct Device {
    handle: CUdevice,
    /// Retained once and released by a reset alone, as the runtime documents.
    primary: Mutex<PrimaryContext>,
}

#[derive(Default)]
struct PrimaryContext {
    context: Option<CUcontext>,
    /// Contexts that a reset destroyed. They may still be current in other threads.
    destroyed: Vec<CUcontext>,
}

impl Device {
    fn primary(&self) -> MutexGuard<'_, PrimaryContext> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static PROCESS: OnceLock<Result<Process, CudaError>> = OnceLock::new();

/// Returns the driver, which the first call loads.
///
/// # Errors
/// `cudaErrorInsufficientDriver` without a driver, `cudaErrorNoDevice` without a device.
pub(crate) fn get() -> Result<&'static Process, CudaError> {
    PROCESS.get_or_init(Process::open).as_ref().map_err(|error| *error)
}

/// Returns the driver, with a context current in this thread.
pub(crate) fn with_context() -> Result<&'static Process, CudaError> {
    let process = get()?;
    process.make_current()?;
    Ok(process)
}

/// Forgets the current context if it is a primary one that others have destroyed. Returns whether it is.
#[cold]
pub(crate) fn forget_destroyed_primary() -> bool {
    get().is_ok_and(|process| {
        let current = process.current();
        let is_current = |device: &&Device| device.primary().context.is_some_and(|context| current == Ok(context));
        process.devices.iter().find(is_current).is_some_and(|device| {
            let (mut flags, mut is_active) = (0, 0);
            // SAFETY: both are valid places for the answer.
            let asked =
                unsafe { (process.api.cuDevicePrimaryCtxGetState)(device.handle, &raw mut flags, &raw mut is_active) };
            let is_destroyed = asked.is_ok() && is_active == 0;
            if is_destroyed {
                let mut primary = device.primary();
                let context = primary.context.take();
                primary.destroyed.extend(context);
            }
            is_destroyed
        })
    })
}

impl Process {
    fn open() -> Result<Self, CudaError> {
        // SAFETY: the library of this name is a CUDA driver. Each function of the runtime passes on to its own caller what
        // the driver asks of handles and addresses.
        let api = unsafe { cuda::load::load(Path::new(cuda::load::LIBRARY)) }.map_err(no_driver)?;
        // SAFETY: as above.
        let per_thread_api =
            unsafe { cuda::load::load_per_thread(Path::new(cuda::load::LIBRARY)) }.map_err(no_driver)?;
        let (api, per_thread_api) = (limit::counted(api), limit::counted(per_thread_api));
        let (api, per_thread_api) = (calls::checked(api), calls::checked_per_thread(per_thread_api));
        // SAFETY: the call takes no pointer.
        unsafe { (api.cuInit)(0) }?;
        let mut count = 0;
        // SAFETY: `count` is a valid place for the answer.
        unsafe { (api.cuDeviceGetCount)(&raw mut count) }?;
        let mut devices = Vec::new();
        for ordinal in 0..count {
            let mut handle = CUdevice(0);
            // SAFETY: `handle` is a valid place for the answer.
            unsafe { (api.cuDeviceGet)(&raw mut handle, ordinal) }?;
            devices.push(Device { handle, primary: Mutex::default() });
        }
        if devices.is_empty() {
            return Err(CudaError::NO_DEVICE);
        }
        Ok(Self { api, per_thread_api, devices, valid: RwLock::default() })
    }

    /// Returns the driver for calls that take no stream: its default stream is that of the runtime's call.
    pub(crate) fn default_stream_api(&self) -> &Api {
        if thread::is_per_thread_stream() { &self.per_thread_api } else { &self.api }
    }

    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// Returns the driver's handle of the device with this ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Result<CUdevice, CudaError> {
        self.entry(ordinal).map(|device| device.handle)
    }

    fn entry(&self, ordinal: i32) -> Result<&Device, CudaError> {
        usize::try_from(ordinal).ok().and_then(|index| self.devices.get(index)).ok_or(CudaError::INVALID_DEVICE)
    }

    /// Returns the ordinal of a device of the driver.
    pub(crate) fn ordinal(&self, handle: CUdevice) -> Option<i32> {
        self.devices.iter().position(|device| device.handle == handle).map(|index| index as i32)
    }

    /// Returns the ordinal of the device that a context is the primary one of.
    pub(crate) fn ordinal_of_primary(&self, context: CUcontext) -> Option<i32> {
        let is_primary = |device: &Device| device.primary().context == Some(context);
        self.devices.iter().position(is_primary).map(|index| index as i32)
    }

    /// Returns the primary context of a device, if it exists.
    pub(crate) fn known_primary(&self, ordinal: i32) -> Option<CUcontext> {
        self.entry(ordinal).ok()?.primary().context
    }

    /// Returns the primary contexts that exist, of all devices but one.
    pub(crate) fn primaries_except(&self, ordinal: i32) -> impl Iterator<Item = CUcontext> {
        let others = self.devices.iter().enumerate().filter(move |(index, _)| *index != ordinal as usize);
        others.filter_map(|(_, device)| device.primary().context)
    }

    /// Returns whether each device can access the memory of all others.
    pub(crate) fn are_all_peers(&self) -> bool {
        let can_access = |device: &Device, peer: &Device| {
            let mut can = 0;
            // SAFETY: `can` is a valid place for the answer.
            let asked = unsafe { (self.api.cuDeviceCanAccessPeer)(&raw mut can, device.handle, peer.handle) };
            device.handle == peer.handle || (asked.is_ok() && can != 0)
        };
        self.devices.iter().all(|device| self.devices.iter().all(|peer| can_access(device, peer)))
    }

    /// Returns the primary context of a device, and creates it if necessary.
    pub(crate) fn primary(&self, ordinal: i32) -> Result<CUcontext, CudaError> {
        let device = self.entry(ordinal)?;
        let mut primary = device.primary();
        if let Some(context) = primary.context {
            return Ok(context);
        }
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a valid place for the answer.
        let retained = unsafe { (self.api.cuDevicePrimaryCtxRetain)(&raw mut context, device.handle) };
        if retained.is_err() && !primary.destroyed.is_empty() {
            // After a fault, the device is lost to this process even if it was reset.
            return Err(CudaError::DEVICES_UNAVAILABLE);
        }
        retained?;
        primary.destroyed.retain(|&destroyed| destroyed != context);
        primary.context = Some(context);
        Ok(context)
    }

    /// Destroys the primary context of a device with everything in it. The next call that needs it creates it again.
    pub(crate) fn reset(&self, ordinal: i32) -> Result<(), CudaError> {
        let device = self.entry(ordinal)?;
        let mut primary = device.primary();
        // SAFETY: the call takes no pointer. The C caller guarantees that nothing uses the device.
        unsafe { (self.api.cuDevicePrimaryCtxReset_v2)(device.handle) }?;
        let Some(context) = primary.context.take() else { return Ok(()) };
        primary.destroyed.push(context);
        // After a fault the driver refuses this. Nothing can be done with the device then.
        // SAFETY: the call takes no pointer.
        let _ = unsafe { (self.api.cuDevicePrimaryCtxSetFlags_v2)(device.handle, 0) };
        Ok(())
    }

    /// Returns whether a reset has destroyed a primary context of a device.
    pub(crate) fn was_reset(&self, ordinal: i32) -> Result<bool, CudaError> {
        Ok(!self.entry(ordinal)?.primary().destroyed.is_empty())
    }

    /// Makes the primary context of a device current in this thread.
    pub(crate) fn select(&self, ordinal: i32) -> Result<(), CudaError> {
        let context = self.primary(ordinal)?;
        // SAFETY: the primary context is retained until a reset, after which the driver refuses its handle.
        unsafe { (self.api.cuCtxSetCurrent)(context) }?;
        Ok(())
    }

    /// Returns the context that is current in this thread, null if there is none.
    pub(crate) fn current(&self) -> Result<CUcontext, CudaError> {
        let mut context = CUcontext::NULL;
        // SAFETY: `context` is a valid place for the answer.
        unsafe { (self.api.cuCtxGetCurrent)(&raw mut context) }?;
        Ok(context)
    }

    /// Returns whether this thread has no context, or one that a reset destroyed.
    fn lacks_context(&self) -> Result<bool, CudaError> {
        let current = self.current()?;
        let is_destroyed = |device: &Device| device.primary().destroyed.contains(&current);
        Ok(current == CUcontext::NULL || self.devices.iter().any(is_destroyed))
    }

    /// Makes a context current if none is: the primary one of the thread's device, or of the first valid device that has
    /// one if the thread has not chosen.
    pub(crate) fn make_current(&self) -> Result<(), CudaError> {
        if !self.lacks_context()? {
            return Ok(());
        }
        if let Some(ordinal) = thread::device() {
            return self.select(ordinal);
        }
        let mut result = Err(CudaError::DEVICES_UNAVAILABLE);
        for ordinal in self.valid_ordinals() {
            result = self.select(ordinal);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Sets the devices that threads without a choice use, the first choice first. None means all.
    pub(crate) fn set_valid_ordinals(&self, ordinals: Vec<i32>) {
        *self.valid.write().unwrap_or_else(PoisonError::into_inner) = ordinals;
    }

    fn valid_ordinals(&self) -> Vec<i32> {
        let valid = self.valid.read().unwrap_or_else(PoisonError::into_inner);
        if valid.is_empty() { (0..self.devices.len() as i32).collect() } else { valid.clone() }
    }

    /// Returns the ordinal of the device that this thread uses.
    pub(crate) fn current_ordinal(&self) -> Result<i32, CudaError> {
        if self.lacks_context()? {
            return Ok(thread::device().unwrap_or_else(|| self.valid_ordinals()[0]));
        }
        let mut handle = CUdevice(0);
        // SAFETY: `handle` is a valid place for the answer.
        unsafe { (self.api.cuCtxGetDevice)(&raw mut handle) }?;
        self.ordinal(handle).ok_or(CudaError::INVALID_DEVICE)
    }

    /// Makes a driver call. If it fails because this thread has no context, makes one current and calls again.
    ///
    /// This saves the launch path a call for each launch.
    pub(crate) fn retry_with_context(&self, call: impl Fn(&Api) -> Result<(), CUerror>) -> Result<(), CudaError> {
        match call(&self.api) {
            Err(CUerror::INVALID_CONTEXT | CUerror::CONTEXT_IS_DESTROYED) if self.lacks_context()? => {
                self.make_current()?;
                Ok(call(&self.api)?)
            }
            result => Ok(result?),
        }
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("devices", &self.devices.len()).finish_non_exhaustive()
    }
}

fn no_driver(error: cuda::load::LibraryError) -> CudaError {
    log::say(&format!("the runtime returns cudaErrorInsufficientDriver: {error}"));
    CudaError::INSUFFICIENT_DRIVER
}

/// A null pointer for parameters that a call does not need.
pub(crate) const fn none<T>() -> *mut T {
    ptr::null_mut()
}
