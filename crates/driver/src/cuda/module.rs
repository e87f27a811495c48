//! Modules: images of kernels and variables, loaded into the current context.

use std::ffi::{CStr, c_void};

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode};
use super::memory::Range;
use super::types::CUdeviceptr;

/// Options of a load or of a link, and their values: numbers, or addresses that the driver reads or writes.
#[derive(Debug, Default)]
pub struct Options {
    names: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
}

impl Options {
    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an option whose value is a number, or an address as a number.
    #[must_use]
    pub fn with(mut self, name: CUjit_option, value: usize) -> Self {
        self.names.push(name);
        self.values.push(value as *mut c_void);
        self
    }

    /// Returns the current value of an option: the driver writes some of them.
    pub fn value(&self, name: CUjit_option) -> Option<usize> {
        let at = self.names.iter().position(|&given| given == name)?;
        Some(self.values[at] as usize)
    }

    /// Returns the count, the names and the values, as the C functions take them.
    pub(super) fn parts(&mut self) -> (u32, *mut CUjit_option, *mut *mut c_void) {
        let count = u32::try_from(self.names.len()).expect("the number of options fits a u32");
        (count, self.names.as_mut_ptr(), self.values.as_mut_ptr())
    }
}

/// Loads the image in a file.
pub fn load_file(api: &Api, path: &CStr) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it; `path` ends in a NUL.
    unsafe { call!(api.cuModuleLoad(&mut module, path.as_ptr())) }?;
    Ok(module)
}

/// Loads an image, which may be overwritten after the call has returned.
///
/// # Safety
/// `image` is text that ends in a NUL, or a binary image that is as long as its own headers say.
pub unsafe fn load(api: &Api, image: *const c_void) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it; the caller guarantees that the image is valid.
    unsafe { call!(api.cuModuleLoadData(&mut module, image)) }?;
    Ok(module)
}

/// [`load`] with options.
///
/// # Safety
/// As for [`load`]; and an option whose value is an address is valid for what the driver reads or writes there.
pub unsafe fn load_with(api: &Api, image: *const c_void, options: &mut Options) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    let (count, names, values) = options.parts();
    // SAFETY: `module` outlives the call, which writes one handle to it; `names` and `values` hold `count` elements
    // each; the caller guarantees that the image, and what the values point to, is valid.
    unsafe { call!(api.cuModuleLoadDataEx(&mut module, image, count, names, values)) }?;
    Ok(module)
}

/// Loads a fat binary.
///
/// # Safety
/// `image` is a fat binary, as long as its own headers say.
pub unsafe fn load_fat(api: &Api, image: *const c_void) -> Result<CUmodule, DriverError> {
    let mut module = CUmodule::NULL;
    // SAFETY: `module` outlives the call, which writes one handle to it; the caller guarantees that the image is valid.
    unsafe { call!(api.cuModuleLoadFatBinary(&mut module, image)) }?;
    Ok(module)
}

/// Unloads a module, with its variables and functions, once the work of its context is done.
pub fn unload(api: &Api, module: CUmodule) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuModuleUnload(module)) }
}

/// Returns whether kernels are loaded with their module, or lazily at their first use.
pub fn loading_mode(api: &Api) -> Result<CUmoduleLoadingMode, DriverError> {
    let mut mode = CUmoduleLoadingMode::default();
    // SAFETY: `mode` outlives the call, which writes one value to it.
    unsafe { call!(api.cuModuleGetLoadingMode(&mut mode)) }?;
    Ok(mode)
}

/// Returns the kernel with this name.
pub fn function(api: &Api, module: CUmodule, name: &CStr) -> Result<CUfunction, DriverError> {
    let mut function = CUfunction::NULL;
    // SAFETY: `function` outlives the call, which writes one handle to it; `name` ends in a NUL.
    unsafe { call!(api.cuModuleGetFunction(&mut function, module, name.as_ptr())) }?;
    Ok(function)
}

/// Returns the number of kernels.
pub fn function_count(api: &Api, module: CUmodule) -> Result<u32, DriverError> {
    let mut count = 0;
    // SAFETY: `count` outlives the call, which writes one `u32` to it.
    unsafe { call!(api.cuModuleGetFunctionCount(&mut count, module)) }?;
    Ok(count)
}

/// Returns the first `count` kernels, in the driver's order; null if there are fewer.
pub fn functions(api: &Api, module: CUmodule, count: u32) -> Result<Vec<CUfunction>, DriverError> {
    let mut functions = vec![CUfunction::NULL; count as usize];
    // SAFETY: `functions` outlives the call, which writes at most the `count` handles that it holds.
    unsafe { call!(api.cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module)) }?;
    Ok(functions)
}

/// Returns the address and the size of the variable with this name.
pub fn global(api: &Api, module: CUmodule, name: &CStr) -> Result<Range, DriverError> {
    let (mut base, mut bytes) = (CUdeviceptr::NULL, 0);
    // SAFETY: `base` and `bytes` outlive the call, which writes one value to each; `name` ends in a NUL.
    unsafe { call!(api.cuModuleGetGlobal_v2(&mut base, &mut bytes, module, name.as_ptr())) }?;
    Ok(Range { base, bytes })
}
