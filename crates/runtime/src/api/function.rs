//! Attributes and settings of kernels. Where a kernel has a setting per device, it is that of the current device.

use std::ffi::{c_char, c_int, c_void};

use freehold_driver::cuda::{
    CUdevice, CUerror, CUfunc_cache, CUfunction, CUfunction_attribute, CUkernel, CUsharedconfig,
};

use crate::code::{CudaError, cudaError_t};
use crate::process::{self, Process};
use crate::registry;
use crate::types::{check, cudaFuncAttributes, write};

pub(crate) unsafe fn cudaFuncGetAttributes(
    attributes: *mut cudaFuncAttributes,
    function: *const c_void,
) -> cudaError_t {
    check(attributes)?;
    let process = process::with_context()?;
    let kernel = registry::kernel(process, function)?;
    let found = attributes_of(process, kernel, current_device(process)?)?;
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(attributes, found) }?)
}

fn attributes_of(process: &Process, kernel: CUkernel, device: CUdevice) -> Result<cudaFuncAttributes, CudaError> {
    let number = |attribute| -> Result<c_int, CudaError> {
        let mut value = 0;
        // SAFETY: `value` is a valid place for the answer, and the kernel is loaded.
        match unsafe { (process.api.cuKernelGetAttribute)(&raw mut value, attribute, kernel, device) } {
            Ok(()) => Ok(value),
            // A driver before clusters.
            Err(CUerror::INVALID_VALUE) => Ok(0),
            Err(error) => Err(error.into()),
        }
    };
    let bytes = |attribute| number(attribute).map(|value| usize::try_from(value).unwrap_or(0));
    Ok(cudaFuncAttributes {
        sharedSizeBytes: bytes(CUfunction_attribute::SHARED_SIZE_BYTES)?,
        constSizeBytes: bytes(CUfunction_attribute::CONST_SIZE_BYTES)?,
        localSizeBytes: bytes(CUfunction_attribute::LOCAL_SIZE_BYTES)?,
        maxThreadsPerBlock: number(CUfunction_attribute::MAX_THREADS_PER_BLOCK)?,
        numRegs: number(CUfunction_attribute::NUM_REGS)?,
        ptxVersion: number(CUfunction_attribute::PTX_VERSION)?,
        binaryVersion: number(CUfunction_attribute::BINARY_VERSION)?,
        cacheModeCA: number(CUfunction_attribute::CACHE_MODE_CA)?,
        maxDynamicSharedSizeBytes: number(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
        preferredShmemCarveout: number(CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT)?,
        clusterDimMustBeSet: number(CUfunction_attribute::CLUSTER_SIZE_MUST_BE_SET)?,
        requiredClusterWidth: number(CUfunction_attribute::REQUIRED_CLUSTER_WIDTH)?,
        requiredClusterHeight: number(CUfunction_attribute::REQUIRED_CLUSTER_HEIGHT)?,
        requiredClusterDepth: number(CUfunction_attribute::REQUIRED_CLUSTER_DEPTH)?,
        clusterSchedulingPolicyPreference: number(CUfunction_attribute::CLUSTER_SCHEDULING_POLICY_PREFERENCE)?,
        nonPortableClusterSizeAllowed: number(CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED)?,
        reserved: [0; 16],
    })
}

fn current_device(process: &Process) -> Result<CUdevice, CudaError> {
    process.device(process.current_ordinal()?)
}

/// Returns the kernel of a host stub in the current context.
pub(super) fn in_context(process: &Process, stub: *const c_void) -> Result<CUfunction, CudaError> {
    let kernel = registry::kernel(process, stub)?;
    let mut function = CUfunction::NULL;
    // SAFETY: `function` is a valid place for the answer, and the kernel is loaded.
    unsafe { (process.api.cuKernelGetFunction)(&raw mut function, kernel) }?;
    Ok(function)
}

pub(crate) unsafe fn cudaFuncSetAttribute(
    function: *const c_void,
    attribute: CUfunction_attribute,
    value: i32,
) -> cudaError_t {
    let process = process::with_context()?;
    let kernel = registry::kernel(process, function)?;
    // SAFETY: the kernel is loaded.
    Ok(unsafe { (process.api.cuKernelSetAttribute)(attribute, value, kernel, current_device(process)?) }?)
}

pub(crate) unsafe fn cudaKernelSetAttributeForDevice(
    kernel: CUkernel,
    attribute: CUfunction_attribute,
    value: i32,
    device: i32,
) -> cudaError_t {
    let process = process::get()?;
    let device = process.device(device)?;
    // SAFETY: the C caller guarantees that the kernel is valid.
    Ok(unsafe { (process.api.cuKernelSetAttribute)(attribute, value, kernel, device) }?)
}

pub(crate) unsafe fn cudaFuncSetCacheConfig(function: *const c_void, config: CUfunc_cache) -> cudaError_t {
    let process = process::with_context()?;
    let kernel = registry::kernel(process, function)?;
    // SAFETY: the kernel is loaded.
    Ok(unsafe { (process.api.cuKernelSetCacheConfig)(kernel, config, current_device(process)?) }?)
}

pub(crate) unsafe fn cudaFuncSetSharedMemConfig(function: *const c_void, config: CUsharedconfig) -> cudaError_t {
    let process = process::with_context()?;
    let function = in_context(process, function)?;
    // SAFETY: the function is loaded.
    Ok(unsafe { (process.api.cuFuncSetSharedMemConfig)(function, config) }?)
}

pub(crate) unsafe fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) -> cudaError_t {
    let process = process::with_context()?;
    let kernel = registry::kernel(process, function)?;
    // SAFETY: the C caller guarantees that the output pointer is valid, and the kernel is loaded.
    Ok(unsafe { (process.api.cuKernelGetName)(name, kernel) }?)
}

pub(crate) unsafe fn cudaFuncGetParamInfo(
    function: *const c_void,
    index: usize,
    offset: *mut usize,
    bytes: *mut usize,
) -> cudaError_t {
    let process = process::with_context()?;
    let kernel = registry::kernel(process, function)?;
    // SAFETY: the C caller guarantees that both output pointers are valid, and the kernel is loaded.
    Ok(unsafe { (process.api.cuKernelGetParamInfo)(kernel, index, offset, bytes) }?)
}
