//! Launches of kernels and host functions, and what compilers emit for `<<<>>>`.

use std::ffi::c_void;

use freehold_driver::cuda::{Api, CUfunction, CUhostFn, CUkernel, CUlaunchConfig, CUlibrary, CUresult, CUstream};

use crate::code::{CudaError, cudaError_t};
use crate::process::{self, none};
use crate::registry;
use crate::thread;
use crate::types::{Dim3, cudaLaunchConfig_t, read, write};

pub(crate) unsafe fn cudaLaunchKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::get()?;
    let function = registry::function(process, function)?;
    let shape = Shape::new(grid, block, shared_bytes);
    // SAFETY: the C caller guarantees that the arguments and the stream are valid.
    process.retry_with_context(|api| unsafe { shape.launch(api, function, arguments, thread::stream(stream)) })
}

pub(crate) unsafe fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::get()?;
    let function = registry::function(process, function)?;
    let shape = Shape::new(grid, block, shared_bytes);
    let stream = thread::stream(stream);
    // SAFETY: the C caller guarantees that the arguments and the stream are valid.
    process.retry_with_context(|api| unsafe {
        (api.cuLaunchCooperativeKernel)(
            function,
            grid.x,
            grid.y,
            grid.z,
            block.x,
            block.y,
            block.z,
            shape.shared_bytes,
            stream,
            arguments,
        )
    })
}

pub(crate) unsafe fn cudaLaunchKernelExC(
    config: *const cudaLaunchConfig_t,
    function: *const c_void,
    arguments: *mut *mut c_void,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the configuration is valid.
    let config = unsafe { read(config) }?;
    let process = process::get()?;
    let function = registry::function(process, function)?;
    let config = driver_config(&config)?;
    // SAFETY: the C caller guarantees that the arguments, the attributes and the stream are valid.
    process.retry_with_context(|api| unsafe { (api.cuLaunchKernelEx)(&raw const config, function, arguments, none()) })
}

/// Returns the driver's form of a launch configuration.
pub(super) fn driver_config(config: &cudaLaunchConfig_t) -> Result<CUlaunchConfig, CudaError> {
    let shape = Shape::new(config.gridDim, config.blockDim, config.dynamicSmemBytes);
    Ok(CUlaunchConfig {
        gridDimX: shape.grid.x,
        gridDimY: shape.grid.y,
        gridDimZ: shape.grid.z,
        blockDimX: shape.block.x,
        blockDimY: shape.block.y,
        blockDimZ: shape.block.z,
        sharedMemBytes: shape.shared_bytes,
        hStream: thread::stream(config.stream),
        attrs: config.attrs,
        numAttrs: config.numAttrs,
    })
}

pub(crate) unsafe fn cudaLaunchHostFunc(stream: CUstream, work: CUhostFn, data: *mut c_void) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the stream is valid, and the function until it has run.
    Ok(unsafe { (process.api.cuLaunchHostFunc)(thread::stream(stream), work, data) }?)
}

pub(crate) unsafe fn __cudaGetKernel(kernel: *mut CUkernel, function: *const c_void) -> cudaError_t {
    let found = registry::kernel_or_stub(process::get()?, function)?;
    // SAFETY: the C caller guarantees that the place is valid.
    Ok(unsafe { write(kernel, found) }?)
}

pub(crate) unsafe fn cudaGetKernel(kernel: *mut CUkernel, function: *const c_void) -> cudaError_t {
    let found = registry::kernel(process::get()?, function)?;
    // The program may pass it wherever it may pass the stub, and no library that it could unload owns it.
    registry::remember_kernels(CUlibrary::NULL, &[found]);
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { write(kernel, found) }?)
}

pub(crate) unsafe fn cudaGetFuncBySymbol(function: *mut CUfunction, symbol: *const c_void) -> cudaError_t {
    let process = process::with_context()?;
    let kernel = registry::kernel(process, symbol).map_err(|error| match error {
        CudaError::INVALID_RESOURCE_HANDLE => CudaError::INVALID_DEVICE_FUNCTION,
        error => error,
    })?;
    // NVIDIA's runtime accepts no place, and loads the kernel.
    if function.is_null() {
        return Ok(());
    }
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process.api.cuKernelGetFunction)(function, kernel) }?)
}

pub(crate) unsafe fn __cudaLaunchKernel(
    kernel: CUkernel,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: CUstream,
) -> cudaError_t {
    let process = process::get()?;
    registry::check_loaded(kernel)?;
    let shape = Shape::new(grid, block, shared_bytes);
    // The driver takes a kernel wherever it takes a function.
    let function = CUfunction(kernel.0);
    // SAFETY: the C caller guarantees that the kernel, the arguments and the stream are valid.
    process.retry_with_context(|api| unsafe { shape.launch(api, function, arguments, thread::stream(stream)) })
}

pub(crate) unsafe fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared_bytes: *mut usize,
    stream: *mut CUstream,
) -> cudaError_t {
    let configuration = thread::pop_configuration().ok_or(CudaError::MISSING_CONFIGURATION)?;
    // SAFETY: compilers pass local variables of these types.
    unsafe { write(grid, configuration.grid) }?;
    // SAFETY: as above.
    unsafe { write(block, configuration.block) }?;
    // SAFETY: as above.
    unsafe { write(shared_bytes, configuration.shared_bytes) }?;
    // SAFETY: as above.
    Ok(unsafe { write(stream, configuration.stream) }?)
}

/// The shape of a launch.
#[derive(Clone, Copy)]
struct Shape {
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
}

impl Shape {
    /// Higher bits of the size of shared memory are ignored, as by NVIDIA's runtime.
    fn new(grid: Dim3, block: Dim3, shared_bytes: usize) -> Self {
        Self { grid, block, shared_bytes: shared_bytes as u32 }
    }

    /// # Safety
    /// As for `cuLaunchKernel`.
    unsafe fn launch(self, api: &Api, function: CUfunction, arguments: *mut *mut c_void, stream: CUstream) -> CUresult {
        let Self { grid, block, shared_bytes } = self;
        // SAFETY: the caller meets the conditions.
        unsafe {
            (api.cuLaunchKernel)(
                function,
                grid.x,
                grid.y,
                grid.z,
                block.x,
                block.y,
                block.z,
                shared_bytes,
                stream,
                arguments,
                none(),
            )
        }
    }
}
