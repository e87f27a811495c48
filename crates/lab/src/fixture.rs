//! The fixture of experiments: a driver, a device, and the calls that take host memory.

use std::ffi::c_void;
use std::ops::Deref;
use std::path::PathBuf;
use std::ptr::NonNull;

use freehold_driver::cuda::{
    Api, CUcontext, CUdevice, CUdeviceptr, CUresult, CUstream, DriverError, Function, context, ctx_flags, driver, host,
    host_register_flags, primary,
};

use super::host_buffer::HostBuffer;

/// A driver on which nothing was called yet, and the device to use.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) api: Api,
    pub(crate) device: CUdevice,
    /// Names this device to another process of the lab.
    pub(crate) selector: String,
    /// The trace file for the calls, including those of partner processes.
    pub(crate) trace: Option<PathBuf>,
}

impl Deref for Fixture {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Fixture {
    /// Retains the device's primary context and makes it current: the start of most experiments.
    pub(crate) fn init_context(&self) -> Result<CUcontext, DriverError> {
        driver::init(self, 0)?;
        let context = primary::retain(self, self.device)?;
        context::set_current(self, context)?;
        Ok(context)
    }

    /// Creates another context next to the primary one, and makes it current.
    pub(crate) fn second_context(&self) -> Result<CUcontext, DriverError> {
        context::create(self, self.device, ctx_flags::SCHED_AUTO)
    }

    /// Allocates pinned memory. Host addresses are numbers here, like device addresses.
    pub(crate) fn alloc_host(&self, bytes: usize) -> Result<CUdeviceptr, DriverError> {
        host::alloc(self, bytes).map(number)
    }

    pub(crate) fn alloc_host_with(&self, bytes: usize, flags: u32) -> Result<CUdeviceptr, DriverError> {
        host::alloc_with_flags(self, bytes, flags).map(number)
    }

    pub(crate) fn free_host(&self, start: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: pinned memory that an experiment reads or writes is a `HostBuffer`, which none of them frees.
        unsafe { host::free(self, pointer(start)) }
    }

    pub(crate) fn register(&self, start: CUdeviceptr, bytes: usize, flags: u32) -> Result<(), DriverError> {
        // SAFETY: the memory is a `HostBuffer`, which stays mapped until the process ends and is used only through
        // atomics, or it does not belong to the process and the call fails.
        unsafe { host::register(self, pointer(start), bytes, flags) }
    }

    pub(crate) fn unregister(&self, start: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: no experiment has pending work on memory that it unregisters.
        unsafe { host::unregister(self, pointer(start)) }
    }

    pub(crate) fn host_flags(&self, start: CUdeviceptr) -> Result<u32, DriverError> {
        host::flags(self, pointer(start))
    }

    /// Returns the device address of host memory.
    pub(crate) fn device_address(&self, start: CUdeviceptr, flags: u32) -> Result<CUdeviceptr, DriverError> {
        host::device_address(self, pointer(start), flags)
    }

    /// Allocates host memory, registered for every context.
    pub(crate) fn registered_buffer(&self, bytes: usize) -> Result<HostBuffer, DriverError> {
        let host = HostBuffer::pageable(bytes);
        self.register(host.address(), bytes, host_register_flags::PORTABLE | host_register_flags::DEVICEMAP)?;
        Ok(host)
    }

    /// Allocates with `cuMemAllocHost`, for an experiment that frees neither the memory nor its context.
    pub(crate) fn pinned_buffer(&self, bytes: usize) -> Result<HostBuffer, DriverError> {
        let start = self.alloc_host(bytes)?;
        let start = NonNull::new(start.0 as *mut u8).expect("the driver does not return null");
        // SAFETY: pinned memory is aligned to a page, and has `bytes` bytes; the caller frees neither it nor its
        // context, and uses it only through this.
        let host = unsafe { HostBuffer::shared(start, bytes) };
        host.fill(0);
        Ok(host)
    }

    pub(crate) fn copy_in(&self, to: CUdeviceptr, from: HostBuffer) -> Result<(), DriverError> {
        // SAFETY: the host memory has these bytes, stays until the process ends, and is used only through atomics.
        let code = unsafe { (self.cuMemcpyHtoD_v2)(to, pointer(from.address()), from.bytes()) };
        check(Function::cuMemcpyHtoD_v2, code)
    }

    pub(crate) fn copy_out(&self, to: HostBuffer, from: CUdeviceptr) -> Result<(), DriverError> {
        // SAFETY: as in `copy_in`.
        let code = unsafe { (self.cuMemcpyDtoH_v2)(pointer(to.address()), from, to.bytes()) };
        check(Function::cuMemcpyDtoH_v2, code)
    }

    pub(crate) fn copy_in_async(&self, to: CUdeviceptr, from: HostBuffer, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: as in `copy_in`, also after the call has returned.
        let code = unsafe { (self.cuMemcpyHtoDAsync_v2)(to, pointer(from.address()), from.bytes(), stream) };
        check(Function::cuMemcpyHtoDAsync_v2, code)
    }

    pub(crate) fn copy_out_async(
        &self,
        to: HostBuffer,
        from: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        // SAFETY: as in `copy_in`, also after the call has returned.
        let code = unsafe { (self.cuMemcpyDtoHAsync_v2)(pointer(to.address()), from, to.bytes(), stream) };
        check(Function::cuMemcpyDtoHAsync_v2, code)
    }

    /// Returns the bytes at `from`, read once all work of the current context is complete.
    pub(crate) fn bytes_at(&self, from: CUdeviceptr, bytes: usize) -> Result<Vec<u8>, DriverError> {
        context::synchronize(self)?;
        let host = HostBuffer::pageable(bytes);
        self.copy_out(host, from)?;
        Ok(host.to_vec())
    }
}

/// Converts the result of a table's function, adding the call's name to an error.
pub(crate) fn check(call: Function, code: CUresult) -> Result<(), DriverError> {
    code.map_err(|code| DriverError { call, code })
}

fn number(pointer: *mut c_void) -> CUdeviceptr {
    CUdeviceptr(pointer.expose_provenance() as u64)
}

fn pointer(address: CUdeviceptr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address.0 as usize)
}
