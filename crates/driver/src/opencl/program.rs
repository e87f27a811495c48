//! Programs: kernels from OpenCL C, or from SPIR-V if the device accepts it.

use std::ffi::CStr;
use std::ptr;

use opencl3::program as cl;

use super::call::check;
use super::device::{self, from_bytes};
use super::handle::{ContextId, DeviceId, Program};
use crate::error::CallError;

/// A program of OpenCL C, not built yet.
pub fn from_source(context: ContextId, source: &str) -> Result<Program, CallError> {
    check("clCreateProgramWithSource", cl::create_program_with_source(context.raw(), &[source])).map(Program::of)
}

/// A program of SPIR-V, not built yet.
pub fn from_spirv(context: ContextId, image: &[u8]) -> Result<Program, CallError> {
    check("clCreateProgramWithIL", cl::create_program_with_il(context.raw(), image)).map(Program::of)
}

/// Compiles and links the program for the device.
pub fn build(program: Program, device: DeviceId, options: &CStr) -> Result<(), CallError> {
    let built = cl::build_program(program.raw(), &[device.raw()], options, None, ptr::null_mut());
    check("clBuildProgram", built)
}

/// Returns the compiler's log of the last build.
pub fn log(program: Program, device: DeviceId) -> Result<String, CallError> {
    let bytes = cl::get_program_build_data(program.raw(), device.raw(), cl::CL_PROGRAM_BUILD_LOG);
    check("clGetProgramBuildInfo", bytes).map(|bytes| device::text(&bytes))
}

/// Returns the names of the kernels of a built program.
pub fn kernel_names(program: Program) -> Result<Vec<String>, CallError> {
    let bytes = check("clGetProgramInfo", cl::get_program_data(program.raw(), cl::CL_PROGRAM_KERNEL_NAMES))?;
    let all = device::text(&bytes);
    Ok(all.split(';').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Adds one to its reference count.
pub fn retain(program: Program) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainProgram", unsafe { cl::retain_program(program.raw()) })
}

/// Releases one reference. Its kernels keep it alive.
pub fn release(program: Program) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseProgram", unsafe { cl::release_program(program.raw()) })
}

/// Returns the number of references, including those of its kernels.
pub fn reference_count(program: Program) -> Result<u64, CallError> {
    let bytes = cl::get_program_data(program.raw(), cl::CL_PROGRAM_REFERENCE_COUNT);
    check("clGetProgramInfo", bytes).map(|bytes| from_bytes(&bytes))
}
