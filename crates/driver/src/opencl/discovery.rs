//! The OpenCL platforms of this machine, which are vendors' drivers, and their devices.

use opencl3::device::{CL_DEVICE_TYPE_ALL, get_device_ids};
use opencl3::platform::platform::{
    CL_PLATFORM_NAME, CL_PLATFORM_VERSION, cl_platform_info, get_platform_data, get_platform_ids,
};
use std::fmt;

use super::call::{self, check};
use super::device::{self, DeviceInfo};
use super::handle::{DeviceId, PlatformId};
use crate::error::CallError;

/// The name by which the system's loader finds OpenCL.
pub const LIBRARY: &str = "libOpenCL.so.1";

/// A device, its platform, and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledDevice {
    pub(crate) device: DeviceId,
    /// The platform's name: `Portable Computing Language`, `NVIDIA CUDA`.
    pub platform_name: String,
    /// `OpenCL 3.0 CUDA 13.0.97`.
    pub platform_version: String,
    /// Its properties.
    pub info: DeviceInfo,
}

impl InstalledDevice {
    /// Returns the device's handle, from which all other handles of OpenCL are made.
    ///
    /// # Safety
    /// Code that has the handle is responsible for every call with it, and with the handles made from it: each is
    /// passed only before it is released, to calls of its own kind, and nothing refers to memory while kernels and
    /// copies access it.
    pub unsafe fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns an id that no other device has, the same in every process: the driver's, or else one derived from the
    /// properties.
    pub fn uuid(&self) -> [u8; 16] {
        device::uuid(self.device).unwrap_or_else(|| self.derived_uuid())
    }

    fn derived_uuid(&self) -> [u8; 16] {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut uuid = [0; 16];
        for (half, salt) in uuid.chunks_mut(8).zip([0_u8, 1]) {
            let mut hasher = DefaultHasher::new();
            (salt, &self.platform_name, &self.info.name, &self.info.driver).hash(&mut hasher);
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        uuid
    }
}

/// Why there is no OpenCL device.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// There is no library.
    #[error("libOpenCL.so.1 is not on this machine")]
    NoLibrary,
    /// The library finds no driver.
    #[error("libOpenCL.so.1 finds no platform: install a vendor's OpenCL driver")]
    NoPlatform,
    /// There are drivers, and none has a device.
    #[error("no OpenCL platform has a device")]
    NoDevice,
    /// A call failed.
    #[error("cannot list OpenCL devices: {0}")]
    Call(CallError),
}

/// Prints the same text as `Display`, for `unwrap` and for a `main` that returns the error.
impl fmt::Debug for DiscoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<CallError> for DiscoveryError {
    fn from(error: CallError) -> Self {
        match error.code.number {
            call::NO_LIBRARY => Self::NoLibrary,
            call::NO_PLATFORM => Self::NoPlatform,
            _ => Self::Call(error),
        }
    }
}

/// Returns every device of every platform, at least one: GPUs first, and otherwise in the order of the platforms. A
/// device's number is its index here.
///
/// # Safety
/// No other thread is inside this call: drivers initialize at the first query, and PoCL's initialization is not
/// thread-safe.
pub unsafe fn devices() -> Result<Vec<InstalledDevice>, DiscoveryError> {
    let mut all = Vec::new();
    let platforms = check("clGetPlatformIDs", get_platform_ids())?;
    if platforms.is_empty() {
        return Err(DiscoveryError::NoPlatform);
    }
    for raw in platforms {
        let platform = PlatformId::of(raw);
        let platform_name = text(platform, CL_PLATFORM_NAME)?;
        let platform_version = text(platform, CL_PLATFORM_VERSION)?;
        for raw in check("clGetDeviceIDs", get_device_ids(platform.raw(), CL_DEVICE_TYPE_ALL))? {
            let device = DeviceId::of(raw);
            let (platform_name, platform_version) = (platform_name.clone(), platform_version.clone());
            all.push(InstalledDevice { device, platform_name, platform_version, info: device::info(device)? });
        }
    }
    if all.is_empty() {
        return Err(DiscoveryError::NoDevice);
    }
    all.sort_by_key(|found| !found.info.is_gpu);
    Ok(all)
}

fn text(platform: PlatformId, what: cl_platform_info) -> Result<String, CallError> {
    let bytes = check("clGetPlatformInfo", get_platform_data(platform.raw(), what))?;
    Ok(device::text(&bytes))
}
