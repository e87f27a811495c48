//! The bench that experiments work at: a driver, a device, and the calls that take memory of the host.

use std::ffi::c_void;
use std::ops::Deref;
use std::path::PathBuf;

use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUresult, CUstream, CallError, Function, context, ctx_flags, driver, host,
    primary,
};

use super::host_buffer::HostBuffer;

/// A driver that nothing was called of yet, and the device of it to use.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) api: Api,
    pub(crate) device: CUdevice,
    /// What names this device to another process of ours.
    pub(crate) selector: String,
    /// The part of a trace that the calls are added to, those of another process of ours too.
    pub(crate) trace: Option<PathBuf>,
}

impl Deref for Fixture {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Fixture {
    /// The device's primary context, retained and current: where most experiments begin.
    pub(crate) fn init_context(&self) -> Result<CUcontext, CallError> {
        driver::init(self, 0)?;
        let context = primary::retain(self, self.device)?;
        context::set_current(self, context)?;
        Ok(context)
    }

    /// A context of our own beside the primary one, current.
    pub(crate) fn second_context(&self) -> Result<CUcontext, CallError> {
        context::create(self, self.device, ctx_flags::SCHED_AUTO)
    }

    /// The address of new pinned memory. Addresses of the host are numbers here, as those of a device are.
    pub(crate) fn alloc_host(&self, bytes: usize) -> Result<CUdeviceptr, CallError> {
        host::alloc(self, bytes).map(number)
    }

    pub(crate) fn alloc_host_with(&self, bytes: usize, flags: u32) -> Result<CUdeviceptr, CallError> {
        host::alloc_with_flags(self, bytes, flags).map(number)
    }

    pub(crate) fn free_host(&self, start: CUdeviceptr) -> Result<(), CallError> {
        // SAFETY: pinned memory that an experiment reads or writes is a `Host`, which none of them frees.
        unsafe { host::free(self, pointer(start)) }
    }

    pub(crate) fn register(&self, start: CUdeviceptr, bytes: usize, flags: u32) -> Result<(), CallError> {
        // SAFETY: the memory is a `Host`, which stays mapped until the process ends and is used through atomics alone,
        // or it is none of the process's and the call is refused.
        unsafe { host::register(self, pointer(start), bytes, flags) }
    }

    pub(crate) fn unregister(&self, start: CUdeviceptr) -> Result<(), CallError> {
        // SAFETY: no experiment has work pending on memory that it unregisters.
        unsafe { host::unregister(self, pointer(start)) }
    }

    pub(crate) fn host_flags(&self, start: CUdeviceptr) -> Result<u32, CallError> {
        host::flags(self, pointer(start))
    }

    /// Where the device sees memory of the host.
    pub(crate) fn device_address(&self, start: CUdeviceptr, flags: u32) -> Result<CUdeviceptr, CallError> {
        host::device_address(self, pointer(start), flags)
    }

    pub(crate) fn copy_in(&self, to: CUdeviceptr, from: HostBuffer) -> Result<(), CallError> {
        // SAFETY: the memory of the host has these bytes, stays until the process ends, and is used through atomics
        // alone.
        let code = unsafe { (self.cuMemcpyHtoD_v2)(to, pointer(from.address()), from.bytes()) };
        check(Function::cuMemcpyHtoD_v2, code)
    }

    pub(crate) fn copy_out(&self, to: HostBuffer, from: CUdeviceptr) -> Result<(), CallError> {
        // SAFETY: as in `copy_in`.
        let code = unsafe { (self.cuMemcpyDtoH_v2)(pointer(to.address()), from, to.bytes()) };
        check(Function::cuMemcpyDtoH_v2, code)
    }

    pub(crate) fn copy_in_async(&self, to: CUdeviceptr, from: HostBuffer, stream: CUstream) -> Result<(), CallError> {
        // SAFETY: as in `copy_in`, also after the call has returned.
        let code = unsafe { (self.cuMemcpyHtoDAsync_v2)(to, pointer(from.address()), from.bytes(), stream) };
        check(Function::cuMemcpyHtoDAsync_v2, code)
    }

    pub(crate) fn copy_out_async(&self, to: HostBuffer, from: CUdeviceptr, stream: CUstream) -> Result<(), CallError> {
        // SAFETY: as in `copy_in`, also after the call has returned.
        let code = unsafe { (self.cuMemcpyDtoHAsync_v2)(pointer(to.address()), from, to.bytes(), stream) };
        check(Function::cuMemcpyDtoHAsync_v2, code)
    }

    /// The bytes at `from`, read back once all work of the current context is done.
    pub(crate) fn bytes_at(&self, from: CUdeviceptr, bytes: usize) -> Result<Vec<u8>, CallError> {
        context::synchronize(self)?;
        let host = HostBuffer::pageable(bytes);
        self.copy_out(host, from)?;
        Ok(host.to_vec())
    }
}

/// The outcome of a call of the table, with the call's name on its error.
pub(crate) fn check(call: Function, code: CUresult) -> Result<(), CallError> {
    code.map_err(|code| CallError { call, code })
}

fn number(pointer: *mut c_void) -> CUdeviceptr {
    CUdeviceptr(pointer.expose_provenance() as u64)
}

fn pointer(address: CUdeviceptr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}
