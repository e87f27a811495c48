//! Kernels of libraries: their attributes, parameters and functions.

use std::ffi::c_char;

use freehold_driver::cuda::{
    CUdevice, CUerror, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUresult,
};

use super::function::write_param_info;
use crate::base::sync::lock;
use crate::ffi::args::Out;
use crate::modules::function;
use crate::objects::context::current;
use crate::state::driver_state::driver;

pub(crate) fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) -> CUresult {
    let driver = driver()?;
    let kernel = driver.code.kernels.get(kernel.0)?;
    function.set(driver.code.function_in(&driver.space, &kernel, &current()?)?.handle);
    Ok(())
}

pub(crate) fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) -> CUresult {
    let kernel = driver()?.code.kernels.get(kernel.0)?;
    library.set(kernel.library.upgrade().ok_or(CUerror::INVALID_HANDLE)?.handle);
    Ok(())
}

pub(crate) fn cuKernelGetAttribute(
    value: Out<i32>,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let driver = driver()?;
    let kernel = driver.code.kernels.get(kernel.0)?;
    let settings = kernel.settings(driver.space.device(device)?.ordinal);
    value.set(function::attribute(kernel.info(), kernel.constant_bytes(), &lock(settings), attribute)?);
    Ok(())
}

pub(crate) fn cuKernelSetAttribute(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let driver = driver()?;
    let kernel = driver.code.kernels.get(kernel.0)?;
    let settings = kernel.settings(driver.space.device(device)?.ordinal);
    lock(settings).set(kernel.info(), attribute, value)
}

pub(crate) fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) -> CUresult {
    let driver = driver()?;
    let kernel = driver.code.kernels.get(kernel.0)?;
    let settings = kernel.settings(driver.space.device(device)?.ordinal);
    if config.0 > CUfunc_cache::PREFER_EQUAL.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    lock(settings).cache_config = config.0;
    Ok(())
}

pub(crate) fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) -> CUresult {
    name.set(driver()?.code.kernels.get(kernel.0)?.name.as_ptr());
    Ok(())
}

pub(crate) fn cuKernelGetParamInfo(
    kernel: CUkernel,
    index: usize,
    offset: Out<usize>,
    bytes: Option<Out<usize>>,
) -> CUresult {
    write_param_info(driver()?.code.kernels.get(kernel.0)?.info(), index, offset, bytes)
}
