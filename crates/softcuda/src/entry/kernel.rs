//! Kernels of libraries.

use std::ffi::c_char;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUdevice, CUerror, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUlibrary, CUresult,
};

use super::function::tell_parameter;
use crate::boundary::Out;
use crate::context::current;
use crate::function;
use crate::library::Kernel;
use crate::world::{World, lock, world};

fn find(world: &World, kernel: CUkernel) -> Result<Arc<Kernel>, CUerror> {
    world.kernels.find(kernel.0).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn cuKernelGetFunction(function: Out<CUfunction>, kernel: CUkernel) -> CUresult {
    let world = world()?;
    let kernel = find(world, kernel)?;
    function.set(kernel.function(world, &current()?)?.handle);
    Ok(())
}

pub(crate) fn cuKernelGetLibrary(library: Out<CUlibrary>, kernel: CUkernel) -> CUresult {
    let kernel = find(world()?, kernel)?;
    library.set(kernel.library.upgrade().ok_or(CUerror::INVALID_HANDLE)?.handle);
    Ok(())
}

pub(crate) fn cuKernelGetAttribute(
    value: Out<i32>,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let world = world()?;
    let kernel = find(world, kernel)?;
    let settings = kernel.settings(world.device(device)?.ordinal);
    value.set(function::attribute(kernel.facts(), kernel.constant_bytes(), &lock(settings), attribute)?);
    Ok(())
}

pub(crate) fn cuKernelSetAttribute(
    attribute: CUfunction_attribute,
    value: i32,
    kernel: CUkernel,
    device: CUdevice,
) -> CUresult {
    let world = world()?;
    let kernel = find(world, kernel)?;
    let settings = kernel.settings(world.device(device)?.ordinal);
    lock(settings).set(kernel.facts(), attribute, value)
}

pub(crate) fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) -> CUresult {
    let world = world()?;
    let kernel = find(world, kernel)?;
    let settings = kernel.settings(world.device(device)?.ordinal);
    if config.0 > CUfunc_cache::PREFER_EQUAL.0 {
        return Err(CUerror::INVALID_VALUE);
    }
    lock(settings).cache_config = config.0;
    Ok(())
}

pub(crate) fn cuKernelGetName(name: Out<*const c_char>, kernel: CUkernel) -> CUresult {
    name.set(find(world()?, kernel)?.name.as_ptr());
    Ok(())
}

pub(crate) fn cuKernelGetParamInfo(
    kernel: CUkernel,
    index: usize,
    offset: Out<usize>,
    bytes: Option<Out<usize>>,
) -> CUresult {
    tell_parameter(find(world()?, kernel)?.facts(), index, offset, bytes)
}
