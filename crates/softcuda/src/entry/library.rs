//! Libraries.

use std::ffi::c_void;
use std::sync::Arc;

use freehold_driver::cuda::{
    CUdeviceptr, CUerror, CUjit_option, CUkernel, CUlibrary, CUlibraryOption, CUmodule, CUresult,
};
use freehold_ptx::Image;

use super::module::{build_with, file_texts, tell};
use crate::boundary::{HostAddress, List, Out, Text, Words};
use crate::context::current;
use crate::image::texts_at;
use crate::library::Library;
use crate::world::{World, world};

/// As many options of a library as there are.
const LIBRARY_OPTIONS_MAX: u32 = 2;

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLibraryLoadData(
    library: Out<CUlibrary>,
    code: HostAddress,
    options: List<CUjit_option>,
    values: Words,
    count: u32,
    library_options: List<CUlibraryOption>,
    _library_values: Words,
    library_count: u32,
) -> CUresult {
    let world = world()?;
    check(&library_options, library_count)?;
    let image = unless_refused(build_with(count, &options, values, || texts_at(code.0)))?;
    library.set(Library::load(world, image).handle);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "as many as C has")]
pub(crate) fn cuLibraryLoadFromFile(
    library: Out<CUlibrary>,
    path: Text,
    options: List<CUjit_option>,
    values: Words,
    count: u32,
    library_options: List<CUlibraryOption>,
    _library_values: Words,
    library_count: u32,
) -> CUresult {
    let world = world()?;
    check(&library_options, library_count)?;
    let image = unless_refused(build_with(count, &options, values, || file_texts(&path)))?;
    library.set(Library::load(world, image).handle);
    Ok(())
}

/// Libraries are loaded lazily: what is wrong with an image shows where it is first needed (fact 4.5), and only what is
/// wrong with the call itself at once.
fn unless_refused(image: Result<Image, CUerror>) -> Result<Result<Image, CUerror>, CUerror> {
    match image {
        Err(code @ (CUerror::INVALID_VALUE | CUerror::FILE_NOT_FOUND | CUerror::OUT_OF_MEMORY)) => Err(code),
        image => Ok(image),
    }
}

/// The options of a library change nothing here: they have to be some, and that is all.
fn check(options: &List<CUlibraryOption>, count: u32) -> CUresult {
    if count > LIBRARY_OPTIONS_MAX {
        return Err(CUerror::INVALID_VALUE);
    }
    let known = |option: &CUlibraryOption| option.0 <= CUlibraryOption::BINARY_IS_PRESERVED.0;
    if options.read(count as usize)?.iter().all(known) { Ok(()) } else { Err(CUerror::INVALID_VALUE) }
}

fn find(world: &World, library: CUlibrary) -> Result<Arc<Library>, CUerror> {
    world.libraries.find(library.0).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn cuLibraryUnload(library: CUlibrary) -> CUresult {
    let world = world()?;
    find(world, library)?.unload(world)
}

pub(crate) fn cuLibraryGetKernel(kernel: Out<CUkernel>, library: CUlibrary, name: Text) -> CUresult {
    let library = find(world()?, library)?;
    let found = library.kernels()?.iter().find(|kernel| kernel.name.to_str() == Ok(&name.0));
    kernel.set(found.ok_or(CUerror::NOT_FOUND)?.handle);
    Ok(())
}

pub(crate) fn cuLibraryGetKernelCount(count: Out<u32>, library: CUlibrary) -> CUresult {
    count.set(find(world()?, library)?.kernels()?.len() as u32);
    Ok(())
}

pub(crate) fn cuLibraryEnumerateKernels(kernels: Out<CUkernel>, count: u32, library: CUlibrary) -> CUresult {
    let library = find(world()?, library)?;
    let handles: Vec<_> = library.kernels()?.iter().take(count as usize).map(|kernel| kernel.handle).collect();
    kernels.set_all(&handles);
    Ok(())
}

pub(crate) fn cuLibraryGetModule(module: Out<CUmodule>, library: CUlibrary) -> CUresult {
    let world = world()?;
    let library = find(world, library)?;
    module.set(library.module(world, &current()?)?.handle);
    Ok(())
}

pub(crate) fn cuLibraryGetGlobal(
    start: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    library: CUlibrary,
    name: Text,
) -> CUresult {
    let world = world()?;
    let module = find(world, library)?.module(world, &current()?)?;
    let variable = module.variable(&name.0).ok_or(CUerror::NOT_FOUND)?;
    tell(variable.address, variable.bytes, start, bytes);
    Ok(())
}

// No image that this driver loads has managed variables, or functions that the host calls too.
pub(crate) fn cuLibraryGetManaged(
    _start: Option<Out<CUdeviceptr>>,
    _bytes: Option<Out<usize>>,
    library: CUlibrary,
    _name: Text,
) -> CUresult {
    find(world()?, library)?;
    Err(CUerror::NOT_FOUND)
}

pub(crate) fn cuLibraryGetUnifiedFunction(_function: Out<*mut c_void>, library: CUlibrary, _name: Text) -> CUresult {
    find(world()?, library)?;
    Err(CUerror::INVALID_VALUE)
}
