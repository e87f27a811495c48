//! Libraries that the program loads itself, entry points of the driver, and the driver's log.

use std::ffi::{c_char, c_void};
use std::slice;

use freehold_driver::cuda::{
    CUdeviceptr, CUdriverProcAddressQueryResult, CUerror, CUjit_option, CUkernel, CUlibrary, CUlibraryOption,
    CUlogIterator, CUlogsCallback, CUlogsCallbackHandle, CUstream, proc_address_flags,
};

use super::device::RUNTIME_VERSION;
use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::registry;
use crate::thread;

forward! {
    fn cudaLibraryLoadData(
        library: *mut CUlibrary,
        code: *const c_void,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        library_options: *mut CUlibraryOption,
        library_values: *mut *mut c_void,
        library_count: u32,
    ) = cuLibraryLoadData(library, code, options, values, count, library_options, library_values, library_count);
    fn cudaLibraryLoadFromFile(
        library: *mut CUlibrary,
        path: *const c_char,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        count: u32,
        library_options: *mut CUlibraryOption,
        library_values: *mut *mut c_void,
        library_count: u32,
    ) = cuLibraryLoadFromFile(library, path, options, values, count, library_options, library_values, library_count);
    fn cudaLibraryGetGlobal(start: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char) =
        cuLibraryGetGlobal(start.cast::<CUdeviceptr>(), bytes, library, name);
    fn cudaLibraryGetManaged(start: *mut *mut c_void, bytes: *mut usize, library: CUlibrary, name: *const c_char) =
        cuLibraryGetManaged(start.cast::<CUdeviceptr>(), bytes, library, name);
    fn cudaLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char) =
        cuLibraryGetUnifiedFunction(function, library, name);
    fn cudaLibraryGetKernelCount(count: *mut u32, library: CUlibrary) = cuLibraryGetKernelCount(count, library);
}

pub(crate) unsafe fn cudaLibraryUnload(library: CUlibrary) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the library is valid.
    unsafe { (process.api.cuLibraryUnload)(library) }?;
    registry::forget_library(library);
    Ok(())
}

pub(crate) unsafe fn cudaLibraryGetKernel(
    kernel: *mut CUkernel,
    library: CUlibrary,
    name: *const c_char,
) -> cudaError_t {
    let process = process::with_context()?;
    // SAFETY: the C caller guarantees that the output pointer, the library and the name are valid.
    unsafe { (process.api.cuLibraryGetKernel)(kernel, library, name) }?;
    // SAFETY: the call has written the handle.
    registry::remember_kernels(library, &[unsafe { kernel.read() }]);
    Ok(())
}

pub(crate) unsafe fn cudaLibraryEnumerateKernels(
    kernels: *mut CUkernel,
    count: u32,
    library: CUlibrary,
) -> cudaError_t {
    let process = process::with_context()?;
    let mut available = 0;
    // SAFETY: `available` is a valid place for the answer, and the C caller guarantees that the library is valid.
    unsafe { (process.api.cuLibraryGetKernelCount)(&raw mut available, library) }?;
    // SAFETY: the C caller guarantees `count` output pointers.
    unsafe { (process.api.cuLibraryEnumerateKernels)(kernels, count, library) }?;
    if !kernels.is_null() {
        // SAFETY: the call has written the handles of all kernels of the library, but at most `count`.
        let found = unsafe { slice::from_raw_parts(kernels, count.min(available) as usize) };
        registry::remember_kernels(library, found);
    }
    Ok(())
}

pub(crate) unsafe fn cudaGetDriverEntryPoint(
    name: *const c_char,
    function: *mut *mut c_void,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the name and both output pointers are valid.
    unsafe { cudaGetDriverEntryPointByVersion(name, function, RUNTIME_VERSION.cast_unsigned(), flags, status) }
}

pub(crate) unsafe fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    function: *mut *mut c_void,
    version: u32,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> cudaError_t {
    let process = process::get()?;
    let version = i32::try_from(version).map_err(|_| CudaError::INVALID_VALUE)?;
    let flags = match flags {
        proc_address_flags::DEFAULT if thread::stream(CUstream::NULL) == CUstream::PER_THREAD => {
            proc_address_flags::PER_THREAD_DEFAULT_STREAM
        }
        flags => flags,
    };
    let mut found = CUdriverProcAddressQueryResult::SUCCESS;
    let status = if status.is_null() { &raw mut found } else { status };
    // SAFETY: the C caller guarantees that the name and the function's output pointer are valid, and the status unless
    // it is `found`.
    match unsafe { (process.api.cuGetProcAddress_v2)(name, function, version, flags, status) } {
        // A name that the driver does not have is not an error: the address is null.
        Err(CUerror::NOT_FOUND) => Ok(()),
        result => Ok(result?),
    }
}

pub(crate) unsafe fn cudaLogsRegisterCallback(
    callback: CUlogsCallback,
    data: *mut c_void,
    handle: *mut CUlogsCallbackHandle,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the function, its data and the output pointer are valid.
    Ok(unsafe { (process::get()?.api.cuLogsRegisterCallback)(callback, data, handle) }?)
}

pub(crate) unsafe fn cudaLogsUnregisterCallback(handle: CUlogsCallbackHandle) -> cudaError_t {
    // SAFETY: the C caller guarantees that the handle is valid.
    Ok(unsafe { (process::get()?.api.cuLogsUnregisterCallback)(handle) }?)
}

pub(crate) unsafe fn cudaLogsCurrent(iterator: *mut CUlogIterator, flags: u32) -> cudaError_t {
    // SAFETY: the C caller guarantees that the output pointer is valid.
    Ok(unsafe { (process::get()?.api.cuLogsCurrent)(iterator, flags) }?)
}

pub(crate) unsafe fn cudaLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: u32) -> cudaError_t {
    // SAFETY: the C caller guarantees that the iterator and the path are valid.
    Ok(unsafe { (process::get()?.api.cuLogsDumpToFile)(iterator, path, flags) }?)
}

pub(crate) unsafe fn cudaLogsDumpToMemory(
    iterator: *mut CUlogIterator,
    text: *mut c_char,
    bytes: *mut usize,
    flags: u32,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the iterator is valid, and as many bytes as it states.
    Ok(unsafe { (process::get()?.api.cuLogsDumpToMemory)(iterator, text, bytes, flags) }?)
}
