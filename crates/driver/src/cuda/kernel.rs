//! The kernels of libraries.

use super::api::Api;
use super::call::{DriverError, call};
use super::driver::string_from_c;
use super::function::Parameter;
use super::kernel_types::{CUfunction, CUfunction_attribute, CUkernel, CUlibrary};
use super::types::{CUdevice, CUfunc_cache};

/// Returns the kernel as a function of the current context.
pub fn function(api: &Api, kernel: CUkernel) -> Result<CUfunction, DriverError> {
    let mut function = CUfunction::NULL;
    // SAFETY: `function` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuKernelGetFunction(&mut function, kernel)) }?;
    Ok(function)
}

/// Returns the kernel's library.
pub fn library(api: &Api, kernel: CUkernel) -> Result<CUlibrary, DriverError> {
    let mut library = CUlibrary::NULL;
    // SAFETY: `library` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuKernelGetLibrary(&mut library, kernel)) }?;
    Ok(library)
}

/// Returns an attribute of the kernel on a device.
pub fn attribute(
    api: &Api,
    kernel: CUkernel,
    attribute: CUfunction_attribute,
    device: CUdevice,
) -> Result<i32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuKernelGetAttribute(&mut value, attribute, kernel, device)) }?;
    Ok(value)
}

/// Sets an attribute of the kernel on a device.
pub fn set_attribute(
    api: &Api,
    kernel: CUkernel,
    attribute: CUfunction_attribute,
    value: i32,
    device: CUdevice,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuKernelSetAttribute(attribute, value, kernel, device)) }
}

/// Sets the kernel's preferred split between L1 and shared memory on a device.
pub fn set_cache_config(
    api: &Api,
    kernel: CUkernel,
    config: CUfunc_cache,
    device: CUdevice,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuKernelSetCacheConfig(kernel, config, device)) }
}

/// Returns the kernel's name in the image.
pub fn name(api: &Api, kernel: CUkernel) -> Result<String, DriverError> {
    let mut text = c"".as_ptr();
    // SAFETY: `text` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuKernelGetName(&mut text, kernel)) }?;
    // SAFETY: `text` is the empty string above or, since the call succeeded, one that lives as long as the kernel.
    Ok(unsafe { string_from_c(text) })
}

/// Returns the offset and the size of the parameter with this index.
pub fn parameter(api: &Api, kernel: CUkernel, index: usize) -> Result<Parameter, DriverError> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: `offset` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuKernelGetParamInfo(kernel, index, &mut offset, &mut bytes)) }?;
    Ok(Parameter { offset, bytes })
}
