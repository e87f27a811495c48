//! Modules: loading, unloading, and look-up of functions and variables.

use std::io::ErrorKind;
use std::time::Instant;

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult};
use freehold_ptx::Image;

use crate::ffi::args::{HostAddress, InArray, InStr, Out, WordArray};
use crate::modules::image::{LoadError, Source, build, ptx_at, ptx_in};
use crate::modules::jit::JitOptions;
use crate::modules::module::{Module, Variable};
use crate::objects::context::current;
use crate::state::driver_state::driver;

pub(crate) fn cuModuleLoad(module: Out<CUmodule>, path: InStr) -> CUresult {
    let image = build_logged(file_ptx(&path)).map_err(|error| error.code)?;
    load(module, &image)
}

pub(crate) fn cuModuleLoadData(module: Out<CUmodule>, image: HostAddress) -> CUresult {
    current()?;
    let image = build_logged(ptx_at(image.0)).map_err(|error| error.code)?;
    load(module, &image)
}

pub(crate) fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: HostAddress) -> CUresult {
    cuModuleLoadData(module, image)
}

pub(crate) fn cuModuleLoadDataEx(
    module: Out<CUmodule>,
    image: HostAddress,
    count: u32,
    options: InArray<CUjit_option>,
    values: WordArray,
) -> CUresult {
    current()?;
    let image = build_with(count, &options, values, || ptx_at(image.0))?;
    load(module, &image)
}

/// Compiles texts with options, and writes the logs that the options request.
pub(super) fn build_with(
    count: u32,
    options: &InArray<CUjit_option>,
    values: WordArray,
    texts: impl FnOnce() -> Result<Vec<Source>, LoadError>,
) -> Result<Image, CUerror> {
    let start = Instant::now();
    let options = JitOptions::read(count, options, values)?;
    options.write_logs(build_logged(texts()), start.elapsed())
}

/// Compiles texts. What is wrong with them is also told in the driver's log.
fn build_logged(texts: Result<Vec<Source>, LoadError>) -> Result<Image, LoadError> {
    let image = texts.and_then(|texts| build(&texts));
    if let Err(error) = &image {
        let log = &driver()?.log;
        error.log.lines().for_each(|line| log.error(line));
    }
    image
}

/// Returns the PTX texts of the image in a file.
pub(super) fn file_ptx(path: &InStr) -> Result<Vec<Source>, LoadError> {
    ptx_in(&file_bytes(path)?)
}

/// Reads a file.
pub(super) fn file_bytes(path: &InStr) -> Result<Vec<u8>, CUerror> {
    if path.0.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    std::fs::read(&path.0).map_err(|error| match error.kind() {
        // The real driver takes the reported size of a directory for that of a file.
        ErrorKind::IsADirectory => CUerror::OUT_OF_MEMORY,
        _ => CUerror::FILE_NOT_FOUND,
    })
}

/// Loads an image into the current context, after the pending work there is done.
fn load(module: Out<CUmodule>, image: &Image) -> CUresult {
    let driver = driver()?;
    let context = current()?;
    context.synchronize(&driver.engine);
    driver.engine.check_fault()?;
    module.set(driver.code.load_module(&driver.space, &context, image, None)?.handle);
    Ok(())
}

pub(crate) fn cuModuleUnload(module: CUmodule) -> CUresult {
    let driver = driver()?;
    let module = driver.code.modules.get(module.0)?;
    if module.is_from_library {
        return Err(CUerror::NOT_PERMITTED);
    }
    driver.code.unload_module(&driver.space, &driver.engine, &module)
}

pub(crate) fn cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode>) -> CUresult {
    mode.set(CUmoduleLoadingMode::LAZY);
    Ok(())
}

pub(crate) fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: InStr) -> CUresult {
    let module = driver()?.code.modules.get(module.0)?;
    if name.0.is_empty() {
        return Err(CUerror::INVALID_VALUE);
    }
    function.set(module.function(&name.0).ok_or(CUerror::NOT_FOUND)?.handle);
    Ok(())
}

pub(crate) fn cuModuleGetFunctionCount(count: Out<u32>, module: CUmodule) -> CUresult {
    let module = driver()?.code.modules.get(module.0)?;
    count.set(module.functions().len() as u32);
    Ok(())
}

pub(crate) fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, module: CUmodule) -> CUresult {
    let module = driver()?.code.modules.get(module.0)?;
    let handles: Vec<_> = module.functions().iter().take(count as usize).map(|function| function.handle).collect();
    functions.set_slice(&handles);
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(
    start: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    module: CUmodule,
    name: Option<InStr>,
) -> CUresult {
    let module = driver()?.code.modules.get(module.0)?;
    if start.is_none() && bytes.is_none() {
        return Err(CUerror::INVALID_VALUE);
    }
    let found = variable(&module, name.as_ref().map_or("", |name| &name.0));
    let (address, size) = found.map_or((0, 0), |variable| (variable.address, variable.bytes));
    // For a name that is not found, the outputs are set to zero.
    write_symbol(address, size, start, bytes);
    found.map(|_| ())
}

fn variable<'m>(module: &'m Module, name: &str) -> Result<&'m Variable, CUerror> {
    if name.is_empty() || module.function(name).is_some() {
        return Err(CUerror::INVALID_VALUE);
    }
    module.variable(name).ok_or(CUerror::NOT_FOUND)
}

/// Writes the address and size of a variable.
pub(super) fn write_symbol(address: u64, size: u64, start: Option<Out<CUdeviceptr>>, bytes: Option<Out<usize>>) {
    if let Some(start) = start {
        start.set(CUdeviceptr(address));
    }
    if let Some(bytes) = bytes {
        bytes.set(size as usize);
    }
}
