//! Properties of devices, and the choice of a device by them.

use freehold_driver::cuda::{CUdevice, CUdevice_attribute, CUerror, CUuuid};

use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::types::device_prop::{Attributes, Identity, RequestedProps, cudaDeviceProp, cudaDeviceProp_v12};
use crate::types::{check, read, read_slice, write};

pub(crate) unsafe fn cudaGetDeviceProperties(properties: *mut cudaDeviceProp, device: i32) -> cudaError_t {
    check(properties)?;
    let process = process::get()?;
    let device = process.device(device)?;
    let found = cudaDeviceProp::new(&identity(process, device)?, &attributes(process, device)?);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(properties, found) }?)
}

/// `cudaGetDeviceProperties_v2` of CUDA 12.
pub(crate) unsafe fn cudaGetDeviceProperties_v12(properties: *mut cudaDeviceProp_v12, device: i32) -> cudaError_t {
    check(properties)?;
    let process = process::get()?;
    let device = process.device(device)?;
    let found = cudaDeviceProp_v12::new(&identity(process, device)?, &attributes(process, device)?);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(properties, found) }?)
}

pub(crate) unsafe fn cudaChooseDevice(device: *mut i32, requested: *const cudaDeviceProp) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let requested = unsafe { read(requested) }?.as_requested();
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(device, choose(process::get()?, &requested)?) }?)
}

/// `cudaChooseDevice` of CUDA 12.
pub(crate) unsafe fn cudaChooseDevice_v12(device: *mut i32, requested: *const cudaDeviceProp_v12) -> cudaError_t {
    // SAFETY: the C caller guarantees that the struct is valid.
    let requested = unsafe { read(requested) }?.as_requested();
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(device, choose(process::get()?, &requested)?) }?)
}

/// Returns the first of the devices that meet the most of the requested properties.
fn choose(process: &Process, requested: &RequestedProps) -> Result<i32, CudaError> {
    let mut best = (0, 0);
    for ordinal in 0..process.device_count() as i32 {
        let device = process.device(ordinal)?;
        let found = cudaDeviceProp::new(&identity(process, device)?, &attributes(process, device)?);
        let fulfilled = requested.count_met_by(&found);
        if fulfilled > best.1 {
            best = (ordinal, fulfilled);
        }
    }
    Ok(best.0)
}

pub(crate) unsafe fn cudaSetValidDevices(devices: *mut i32, count: i32) -> cudaError_t {
    let process = process::get()?;
    let count = usize::try_from(count).map_err(|_| CudaError::INVALID_VALUE)?;
    if count > process.device_count() {
        return Err(CudaError::INVALID_VALUE);
    }
    // SAFETY: the C caller guarantees `count` numbers.
    let ordinals = if count == 0 { Vec::new() } else { unsafe { read_slice(devices, count) }? };
    for &ordinal in &ordinals {
        process.device(ordinal)?;
    }
    process.set_valid_ordinals(ordinals);
    Ok(())
}

fn identity(process: &Process, device: CUdevice) -> Result<Identity, CudaError> {
    let mut name = vec![0u8; 256];
    // SAFETY: `name` has as many bytes as the call is told.
    unsafe { (process.api.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as i32, device) }?;
    let mut uuid = CUuuid::default();
    // SAFETY: `uuid` is a valid place for the answer.
    unsafe { (process.api.cuDeviceGetUuid_v2)(&raw mut uuid, device) }?;
    let mut memory_bytes = 0;
    // SAFETY: `memory_bytes` is a valid place for the answer.
    unsafe { (process.api.cuDeviceTotalMem_v2)(&raw mut memory_bytes, device) }?;
    Ok(Identity { name, uuid, memory_bytes })
}

fn attributes(process: &Process, device: CUdevice) -> Result<Attributes, CudaError> {
    let mut values = Attributes([0; Attributes::COUNT]);
    for (number, value) in values.0.iter_mut().enumerate().skip(1) {
        // SAFETY: `value` is a valid place for the answer.
        match unsafe { (process.api.cuDeviceGetAttribute)(value, CUdevice_attribute(number as u32), device) } {
            // An older driver does not know each attribute.
            Ok(()) | Err(CUerror::INVALID_VALUE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(values)
}

/// Returns an attribute of the device that the thread uses.
pub(super) fn attribute(process: &Process, attribute: CUdevice_attribute) -> Result<i32, CudaError> {
    let device = process.device(process.current_ordinal()?)?;
    let mut value = 0;
    // SAFETY: `value` is a valid place for the answer.
    unsafe { (process.api.cuDeviceGetAttribute)(&raw mut value, attribute, device) }?;
    Ok(value)
}
