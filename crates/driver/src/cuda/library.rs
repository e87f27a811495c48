//! Libraries: images that belong to no context, and are loaded into each context that uses one of their kernels.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUkernel, CUlibrary, CUmodule};
use super::memory::Range;
use super::module::Options;
use super::types::CUdeviceptr;

/// Loads an image.
///
/// # Safety
/// As for [`module::load_with`](super::module::load_with).
pub unsafe fn load(api: &Api, image: *const c_void, options: &mut Options) -> Result<CUlibrary, DriverError> {
    let mut library = CUlibrary::NULL;
    let (count, names, values) = options.parts();
    // SAFETY: `library` outlives the call, which writes one handle to it; `names` and `values` hold `count` elements
    // each; there are no options of a library; the caller guarantees that the image, and what the values point to, is
    // valid.
    unsafe { call!(api.cuLibraryLoadData(&mut library, image, names, values, count, null_mut(), null_mut(), 0)) }?;
    Ok(library)
}

/// Loads the image in a file.
///
/// # Safety
/// An option whose value is an address is valid for what the driver reads or writes there.
pub unsafe fn load_file(api: &Api, path: &CStr, options: &mut Options) -> Result<CUlibrary, DriverError> {
    let mut library = CUlibrary::NULL;
    let (count, names, values) = options.parts();
    let path = path.as_ptr();
    // SAFETY: `library` outlives the call, which writes one handle to it; `path` ends in a NUL; `names` and `values`
    // hold `count` elements each; there are no options of a library; the caller guarantees that what the values point
    // to is valid.
    unsafe { call!(api.cuLibraryLoadFromFile(&mut library, path, names, values, count, null_mut(), null_mut(), 0)) }?;
    Ok(library)
}

/// Unloads a library from every context, once the work there is done.
pub fn unload(api: &Api, library: CUlibrary) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuLibraryUnload(library)) }
}

/// Returns the kernel with this name.
pub fn kernel(api: &Api, library: CUlibrary, name: &CStr) -> Result<CUkernel, DriverError> {
    let mut kernel = CUkernel::NULL;
    // SAFETY: `kernel` outlives the call, which writes one handle to it; `name` ends in a NUL.
    unsafe { call!(api.cuLibraryGetKernel(&mut kernel, library, name.as_ptr())) }?;
    Ok(kernel)
}

/// Returns the number of kernels.
pub fn kernel_count(api: &Api, library: CUlibrary) -> Result<u32, DriverError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuLibraryGetKernelCount(&mut count, library)) }?;
    Ok(count)
}

/// Returns the first `count` kernels, in the driver's order; null if there are fewer.
pub fn kernels(api: &Api, library: CUlibrary, count: u32) -> Result<Vec<CUkernel>, DriverError> {
    let mut kernels = vec![CUkernel::NULL; count as usize];
    // SAFETY: `kernels` outlives the call, which writes at most the `count` handles that it holds.
    unsafe { call!(api.cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library)) }?;
    Ok(kernels)
}

/// Returns the library as a module of the current context.
pub fn module(api: &Api, library: CUlibrary) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it.
    unsafe { call!(api.cuLibraryGetModule(&mut module, library)) }?;
    Ok(module)
}

/// Returns the address and the size of the variable with this name in the current context.
pub fn global(api: &Api, library: CUlibrary, name: &CStr) -> Result<Range, DriverError> {
    let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `base` and `bytes` outlive the call, which writes one value to each; `name` ends in a NUL.
    unsafe { call!(api.cuLibraryGetGlobal(&mut base, &mut bytes, library, name.as_ptr())) }?;
    Ok(Range { base, bytes })
}

/// Returns the address and the size of the managed variable with this name.
pub fn managed(api: &Api, library: CUlibrary, name: &CStr) -> Result<Range, DriverError> {
    let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `base` and `bytes` outlive the call, which writes one value to each; `name` ends in a NUL.
    unsafe { call!(api.cuLibraryGetManaged(&mut base, &mut bytes, library, name.as_ptr())) }?;
    Ok(Range { base, bytes })
}

/// Returns the unified function with this name, which host and device both call.
pub fn unified_function(api: &Api, library: CUlibrary, name: &CStr) -> Result<*mut c_void, DriverError> {
    let mut function = null_mut();
    // SAFETY: `function` outlives the call, which writes one pointer to it; `name` ends in a NUL.
    unsafe { call!(api.cuLibraryGetUnifiedFunction(&mut function, library, name.as_ptr())) }?;
    Ok(function)
}
