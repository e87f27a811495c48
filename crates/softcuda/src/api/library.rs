//! Libraries: loading, unloading, and look-up of kernels and variables.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};
use freehold_ptx::Image;

use super::module::{build_with, file_ptx, write_symbol};
use crate::ffi::args::{HostAddress, InArray, InStr, Out, WordArray};
use crate::modules::image::ptx_at;
use crate::objects::context::current;
use crate::state::driver_state::driver;

/// Maximum number of library options, which is the number that exist.
const LIBRARY_OPTIONS_MAX: u32 = 2;

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLibraryLoadData(
    library: Out<CUlibrary>,
    code: HostAddress,
    options: InArray<CUjit_option>,
    values: WordArray,
    count: u32,
    library_options: InArray<CUlibraryOption>,
    _library_values: WordArray,
    library_count: u32,
) -> CUresult {
    let driver = driver()?;
    check_options(&library_options, library_count)?;
    let image = defer_image_errors(build_with(count, &options, values, || ptx_at(code.0)))?;
    library.set(driver.code.load_library(driver.space.devices.len(), image).handle);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLibraryLoadFromFile(
    library: Out<CUlibrary>,
    path: InStr,
    options: InArray<CUjit_option>,
    values: WordArray,
    count: u32,
    library_options: InArray<CUlibraryOption>,
    _library_values: WordArray,
    library_count: u32,
) -> CUresult {
    let driver = driver()?;
    check_options(&library_options, library_count)?;
    let image = defer_image_errors(build_with(count, &options, values, || file_ptx(&path)))?;
    library.set(driver.code.load_library(driver.space.devices.len(), image).handle);
    Ok(())
}

/// Libraries are loaded lazily: errors of an image are reported on first use, and only errors of the call itself at
/// once.
fn defer_image_errors(image: Result<Image, CUerror>) -> Result<Result<Image, CUerror>, CUerror> {
    match image {
        Err(code @ (CUerror::INVALID_VALUE | CUerror::FILE_NOT_FOUND | CUerror::OUT_OF_MEMORY)) => Err(code),
        image => Ok(image),
    }
}

/// Checks that the options are valid. They have no effect.
fn check_options(options: &InArray<CUlibraryOption>, count: u32) -> CUresult {
    if count > LIBRARY_OPTIONS_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let known = |option: &CUlibraryOption| option.0 <= CUlibraryOption::BINARY_IS_PRESERVED.0;
    if options.read(count as usize)?.iter().all(known) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

pub(crate) fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    let driver = driver()?;
    let library = driver.code.libraries.get(library.0)?;
    driver.code.unload_library(&driver.space, &driver.engine, &library)
}

pub(crate) fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: InStr) -> CUresult {
    let library = driver()?.code.libraries.get(library.0)?;
    let found = library.kernels()?.iter().find(|kernel| kernel.name.to_str() == Ok(&name.0));
    kernel.set(found.ok_or(CUerror::NOT_FOUND)?.handle);
    Ok(())
}

pub(crate) fn cuLibraryGetKernelCount(count: Out<u32>, library: CUlibrary) -> CUresult {
    count.set(driver()?.code.libraries.get(library.0)?.kernels()?.len() as u32);
    Ok(())
}

pub(crate) fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: u32, library: CUlibrary) -> CUresult {
    let library = driver()?.code.libraries.get(library.0)?;
    let handles: Vec<_> = library.kernels()?.iter().take(count as usize).map(|kernel| kernel.handle).collect();
    kernels.set_slice(&handles);
    Ok(())
}

pub(crate) fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) -> CUresult {
    let driver = driver()?;
    let library = driver.code.libraries.get(library.0)?;
    module.set(driver.code.module_in(&driver.space, &library, &current()?)?.handle);
    Ok(())
}

pub(crate) fn cuLibraryGetGlobal(
    start: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    library: CUlibrary,
    name: InStr,
) -> CUresult {
    let driver = driver()?;
    let library = driver.code.libraries.get(library.0)?;
    let module = driver.code.module_in(&driver.space, &library, &current()?)?;
    let variable = module.variable(&name.0).ok_or(CUerror::NOT_FOUND)?;
    write_symbol(variable.address, variable.bytes, start, bytes);
    Ok(())
}

/// Finds a managed variable, which exists as soon as the library is loaded into one context.
pub(crate) fn cuLibraryGetManaged(
    start: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    library: CUlibrary,
    name: InStr,
) -> CUresult {
    let driver = driver()?;
    let library = driver.code.libraries.get(library.0)?;
    let (index, variable) = library.find_managed(&name.0)?;
    if let Ok(context) = current() {
        driver.code.module_in(&driver.space, &library, &context)?;
    }
    let address = *library.managed().addresses.get(&index).ok_or(CUerror::NOT_FOUND)?;
    write_symbol(address, variable.bytes, start, bytes);
    Ok(())
}

// Images of this driver have no functions that the host shares.
pub(crate) fn cuLibraryGetUnifiedFunction(_function: Out<*mut c_void>, library: CUlibrary, _name: InStr) -> CUresult {
    driver()?.code.libraries.get(library.0)?;
    Err(CUerror::INVALID_VALUE)
}
