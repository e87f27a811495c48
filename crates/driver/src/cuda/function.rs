//! Functions: the kernels of modules.

use super::api::Api;
use super::call::{CallError, call};
use super::driver::string_from_c;
use super::kernel_types::{CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUsharedconfig};
use super::types::CUfunc_cache;

/// Where a parameter lies among those of its kernel, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub offset: usize,
    pub bytes: usize,
}

pub fn attribute(api: &Api, function: CUfunction, attribute: CUfunction_attribute) -> Result<i32, CallError> {
    let mut value = 0;
    // SAFETY: `value` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuFuncGetAttribute(&mut value, attribute, function)) }?;
    Ok(value)
}

pub fn set_attribute(
    api: &Api,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetAttribute(function, attribute, value)) }
}

/// What the function would rather have of the cache's memory.
pub fn set_cache_config(api: &Api, function: CUfunction, config: CUfunc_cache) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetCacheConfig(function, config)) }
}

/// Says how many threads a block has in the launches of CUDA 3, which state it nowhere else.
pub fn set_block_shape(api: &Api, function: CUfunction, [x, y, z]: [i32; 3]) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetBlockShape(function, x, y, z)) }
}

/// How wide the banks of shared memory would rather be: without effect on today's devices.
pub fn set_shared_config(api: &Api, function: CUfunction, config: CUsharedconfig) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncSetSharedMemConfig(function, config)) }
}

/// The module that it is of.
pub fn module(api: &Api, function: CUfunction) -> Result<CUmodule, CallError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuFuncGetModule(&mut module, function)) }?;
    Ok(module)
}

/// The name in the image.
pub fn name(api: &Api, function: CUfunction) -> Result<String, CallError> {
    let mut text = c"".as_ptr();
    // SAFETY: `text` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuFuncGetName(&mut text, function)) }?;
    // SAFETY: `text` is the empty text above or, since the call succeeded, one that lives as long as the function.
    Ok(unsafe { string_from_c(text) })
}

/// Where the parameter with this index lies among the function's.
pub fn parameter(api: &Api, function: CUfunction, index: usize) -> Result<Parameter, CallError> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: `offset` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuFuncGetParamInfo(function, index, &mut offset, &mut bytes)) }?;
    Ok(Parameter { offset, bytes })
}

/// Whether it is loaded yet.
pub fn loading_state(api: &Api, function: CUfunction) -> Result<CUfunctionLoadingState, CallError> {
    let mut state = CUfunctionLoadingState::default();
    // SAFETY: `state` outlives the call, which writes one value to it.
    unsafe { call!(api.cuFuncIsLoaded(&mut state, function)) }?;
    Ok(state)
}

/// Loads it now, if its module loads functions when they are first used.
pub fn load(api: &Api, function: CUfunction) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuFuncLoad(function)) }
}
