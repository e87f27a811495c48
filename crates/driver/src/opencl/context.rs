//! Contexts, which devices, memory and programs belong to.

use std::ptr;

use opencl3::context::context as cl;

use super::call::check;
use super::device::from_bytes;
use super::handle::{ContextId, DeviceId};
use crate::error::CallError;

/// A context on one device.
pub fn create(device: DeviceId) -> Result<ContextId, CallError> {
    let made = cl::create_context(&[device.raw()], ptr::null(), None, ptr::null_mut());
    check("clCreateContext", made).map(ContextId::of)
}

/// Adds one to its reference count.
pub fn retain(context: ContextId) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clRetainContext", unsafe { cl::retain_context(context.raw()) })
}

/// Releases one reference. Objects of the context keep it alive.
pub fn release(context: ContextId) -> Result<(), CallError> {
    // SAFETY: the call takes no pointer but the handle.
    check("clReleaseContext", unsafe { cl::release_context(context.raw()) })
}

/// Returns the number of references, including those of its objects.
pub fn reference_count(context: ContextId) -> Result<u64, CallError> {
    let bytes = cl::get_context_data(context.raw(), cl::CL_CONTEXT_REFERENCE_COUNT);
    check("clGetContextInfo", bytes).map(|bytes| from_bytes(&bytes))
}
