//! Functions: the kernels of modules.

use super::api::Api;
use super::call::{DriverError, call};
use super::driver::string_from_c;
use super::kernel_types::{CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUsharedconfig};
use super::types::CUfunc_cache;

/// The offset and the size of a parameter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Where it begins.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
}

/// An attribute of a function, such as its registers.
pub fn attribute(api: &Api, function: CUfunction, attribute: CUfunction_attribute) -> Result<i32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuFuncGetAttribute(&mut value, attribute, function)) }?;
    Ok(value)
}

/// Changes an attribute of a function, such as its dynamic shared memory.
pub fn set_attribute(
    api: &Api,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetAttribute(function, attribute, value)) }
}

/// Sets the function's preferred split between L1 and shared memory.
pub fn set_cache_config(api: &Api, function: CUfunction, config: CUfunc_cache) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetCacheConfig(function, config)) }
}

/// Sets the block size for the launches of CUDA 3, which take it from here.
pub fn set_block_shape(api: &Api, function: CUfunction, [x, y, z]: [i32; 3]) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetBlockShape(function, x, y, z)) }
}

/// Sets the preferred width of the shared memory banks; without effect on current devices.
pub fn set_shared_config(api: &Api, function: CUfunction, config: CUsharedconfig) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetSharedMemConfig(function, config)) }
}

/// Returns the function's module.
pub fn module(api: &Api, function: CUfunction) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuFuncGetModule(&mut module, function)) }?;
    Ok(module)
}

/// Returns the function's name in the image.
pub fn name(api: &Api, function: CUfunction) -> Result<String, DriverError> {
    let mut text = c"".as_ptr();
    // SAFETY: `text` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuFuncGetName(&mut text, function)) }?;
    // SAFETY: `text` is the empty string above or, since the call succeeded, one that lives as long as the function.
    Ok(unsafe { string_from_c(text) })
}

/// Returns the offset and the size of the parameter with this index.
pub fn parameter(api: &Api, function: CUfunction, index: usize) -> Result<Parameter, DriverError> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: `offset` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuFuncGetParamInfo(function, index, &mut offset, &mut bytes)) }?;
    Ok(Parameter { offset, bytes })
}

/// Returns whether the function is loaded.
pub fn loading_state(api: &Api, function: CUfunction) -> Result<CUfunctionLoadingState, DriverError> {
    let mut state = CUfunctionLoadingState::default();
    // SAFETY: `state` outlives the call, which writes one value to it.
    unsafe { call!(api.cuFuncIsLoaded(&mut state, function)) }?;
    Ok(state)
}

/// Loads the function now, if its module loads functions lazily.
pub fn load(api: &Api, function: CUfunction) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncLoad(function)) }
}
