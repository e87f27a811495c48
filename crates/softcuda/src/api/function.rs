//! Functions: the kernels of modules. A library kernel is not a function, though it can be launched as one.

use std::ffi::c_char;

use freehold_driver::cuda::{
    CUerror, CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule, CUresult, CUsharedconfig,
};
use freehold_ptx::Kernel;

use crate::base::sync::lock;
use crate::ffi::args::Out;
use crate::modules::function::attribute as attribute_of;
use crate::state::driver_state::driver;

pub(crate) fn cuFuncGetAttribute(value: Out<i32>, attribute: CUfunction_attribute, function: CUfunction) -> CUresult {
    let function = driver()?.code.functions.get(function.0)?;
    value.set(attribute_of(function.kernel(), function.constant_bytes, &function.settings(), attribute)?);
    Ok(())
}

pub(crate) fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: i32) -> CUresult {
    let function = driver()?.code.functions.get(function.0)?;
    lock(&function.settings).set(function.kernel(), attribute, value)
}

pub(crate) fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) -> CUresult {
    let function = driver()?.code.functions.get(function.0)?;
    if config.0 > CUfunc_cache::PREFER_EQUAL.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    lock(&function.settings).cache_config = config.0;
    Ok(())
}

pub(crate) fn cuFuncSetBlockShape(function: CUfunction, x: i32, y: i32, z: i32) -> CUresult {
    driver()?.code.functions.get(function.0)?;
    // The shape is checked and ignored: the launch functions that use it are not supported, but PyCUDA sets it before
    // others.
    if [x, y, z].iter().all(|&threads| threads > 0) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

pub(crate) fn cuFuncSetSharedMemConfig(function: CUfunction, config: CUsharedconfig) -> CUresult {
    driver()?.code.functions.get(function.0)?;
    // The width of memory banks is fixed: a valid setting is accepted and has no effect.
    if config.0 > CUsharedconfig::EIGHT_BYTE_BANK_SIZE.0 { Err(CUerror::INVALID_VALUE) } else { Ok(()) }
}

pub(crate) fn cuFuncGetModule(module: Out<CUmodule>, function: CUfunction) -> CUresult {
    module.set(driver()?.code.functions.get(function.0)?.module);
    Ok(())
}

pub(crate) fn cuFuncGetName(name: Out<*const c_char>, function: CUfunction) -> CUresult {
    name.set(driver()?.code.functions.get(function.0)?.name.as_ptr());
    Ok(())
}

pub(crate) fn cuFuncGetParamInfo(
    function: CUfunction,
    index: usize,
    offset: Out<usize>,
    bytes: Option<Out<usize>>,
) -> CUresult {
    write_param_info(driver()?.code.functions.get(function.0)?.kernel(), index, offset, bytes)
}

/// Writes the offset and size of a parameter.
pub(super) fn write_param_info(
    kernel: &Kernel,
    index: usize,
    offset: Out<usize>,
    bytes: Option<Out<usize>>,
) -> CUresult {
    let parameter = kernel.parameters.get(index).ok_or(CUerror::INVALID_VALUE)?;
    offset.set(parameter.offset as usize);
    if let Some(bytes) = bytes {
        bytes.set(parameter.bytes as usize);
    }
    Ok(())
}

pub(crate) fn cuFuncIsLoaded(state: Out<CUfunctionLoadingState>, function: CUfunction) -> CUresult {
    driver()?.code.functions.get(function.0)?;
    state.set(CUfunctionLoadingState::LOADED);
    Ok(())
}

pub(crate) fn cuFuncLoad(function: CUfunction) -> CUresult {
    driver()?.code.functions.get(function.0).map(|_| ())
}
