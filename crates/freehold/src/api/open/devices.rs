//! The devices that a process has opened, by selector.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use freehold_driver::cuda::{self, Api, CUcontext, CUdevice, DriverError};

use super::choice::{Opened, opened};
#[cfg(feature = "opencl")]
use super::opencl;
use crate::api::device::Device;
use crate::device::device_inner::DeviceInner;
use crate::error::{Error, Result as DeviceResult};

/// The devices that were opened. They stay open until the process ends: pending work is not waited for when the last
/// handle is dropped, and a device that is opened again finds its memory in the pool.
static DEVICES: Mutex<Option<HashMap<String, Device>>> = Mutex::new(None);

/// Opens the device that `selector` names (`soft`, `soft:N`, `cuda`, `cuda:N`, `opencl`, `opencl:N`), or else
/// `FREEHOLD_DEVICE`, or else the best CUDA device of this machine. Opening a device again returns the same device.
///
/// # Errors
/// [`OpenError`](super::OpenError), where the machine or this build of the crate lacks the device.
///
/// ```
/// let device = freehold::open::device(Some("soft"))?; // no GPU is needed
/// assert_eq!(device.name()?, "Freehold Software Device 0");
/// # Ok::<(), freehold::Error>(())
/// ```
pub fn device(selector: Option<&str>) -> DeviceResult<Device> {
    #[cfg(feature = "opencl")]
    if let Some(found) = opencl::open(selector)? {
        // SAFETY: a context of OpenCL's does what the trait says.
        return known_or(found.selector(), || unsafe { Device::on(Arc::new(found.context()?)) });
    }
    device_of(opened(selector)?)
}

pub(super) fn device_of(opened: Opened) -> DeviceResult<Device> {
    // SAFETY: the driver was opened by this module; other users of its table guarantee that their calls are valid.
    known_or(opened.selector(), || unsafe { Device::new(opened.api, opened.device) })
}

/// Returns the device known by a name, or the one that `make` makes.
fn known_or(name: String, make: impl FnOnce() -> DeviceResult<Device>) -> DeviceResult<Device> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    if let Some(device) = devices.get(&name) {
        return Ok(device.clone());
    }
    let device = make()?;
    devices.insert(name, device.clone());
    Ok(device)
}

/// Forgets a device whose context is destroyed, so that the next call opens it again. Resources of its handles stay
/// until the process ends.
pub(super) fn forget(ended: &Arc<DeviceInner>) {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_ended = |_: &String, device: &mut Device| Arc::ptr_eq(&device.primary.inner.device, ended);
    devices.get_or_insert_default().extract_if(is_ended).for_each(mem::forget);
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Call(error.into())
    }
}

impl Device {
    /// Makes a device of a CUDA driver that is initialized.
    ///
    /// # Safety
    /// The table's functions do what the driver API documents, as [`DriverContract::new`](cuda::DriverContract::new)
    /// requires. Memory, streams and contexts of the device are not destroyed by others, and are used only in the
    /// library's order.
    pub unsafe fn new(api: Api, ordinal: CUdevice) -> DeviceResult<Self> {
        let primary = Arc::new(cuda::Context::primary(api, ordinal)?);
        // SAFETY: a context of a CUDA driver does what the trait says.
        unsafe { Self::on(primary) }
    }

    /// Makes a device that uses a context of foreign code instead of the primary one, which is not touched. Foreign
    /// code destroys that context, after all uses here.
    pub(super) fn adopting(api: Api, ordinal: CUdevice, context: CUcontext) -> DeviceResult<Self> {
        let adopted = Arc::new(cuda::Context::adopt(api, ordinal, context)?);
        // SAFETY: as above.
        unsafe { Self::on(adopted) }
    }

    /// Returns the table of the driver's functions if it is a CUDA driver, for foreign code.
    ///
    /// # Safety
    /// As for [`open::open`](crate::open::open).
    pub unsafe fn api(&self) -> Option<&Api> {
        // SAFETY: the caller guarantees that its calls are valid.
        unsafe { self.inner().backend.cuda() }
    }
}
