//! Modules.

use std::sync::Arc;
use std::time::Instant;

use freehold_driver::cuda::{CUdeviceptr, CUerror, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult};
use freehold_ptx::Image;

use crate::boundary::{HostAddress, List, Out, Text, Words};
use crate::context::current;
use crate::image::{Refusal, build, texts_at, texts_of};
use crate::jit::Options;
use crate::module::{Module, Variable};
use crate::world::{World, world};

pub(crate) fn cuModuleLoad(module: Out<CUmodule>, path: Text) -> CUresult {
    let image = build(&file_texts(&path)?).map_err(|refusal| refusal.code)?;
    load(module, &image)
}

pub(crate) fn cuModuleLoadData(module: Out<CUmodule>, image: HostAddress) -> CUresult {
    current()?;
    let image = build(&texts_at(image.0)?).map_err(|refusal| refusal.code)?;
    load(module, &image)
}

pub(crate) fn cuModuleLoadFatBinary(module: Out<CUmodule>, image: HostAddress) -> CUresult {
    cuModuleLoadData(module, image)
}

pub(crate) fn cuModuleLoadDataEx(
    module: Out<CUmodule>,
    image: HostAddress,
    count: u32,
    options: List<CUjit_option>,
    values: Words,
) -> CUresult {
    current()?;
    let image = build_with(count, &options, values, || texts_at(image.0))?;
    load(module, &image)
}

/// Compiles texts with options, and writes the logs that those ask for.
pub(super) fn build_with(
    count: u32,
    options: &List<CUjit_option>,
    values: Words,
    texts: impl FnOnce() -> Result<Vec<String>, CUerror>,
) -> Result<Image, CUerror> {
    let start = Instant::now();
    let options = Options::read(count, options, values)?;
    let image = texts().map_err(Refusal::from).and_then(|texts| build(&texts));
    options.finish(image, start.elapsed())
}

/// The texts of the image in a file.
pub(super) fn file_texts(path: &Text) -> Result<Vec<String>, CUerror> {
    texts_of(&std::fs::read(&path.0).map_err(|_| CUerror::FILE_NOT_FOUND)?)
}

fn load(module: Out<CUmodule>, image: &Image) -> CUresult {
    let world = world()?;
    module.set(Module::load(world, &current()?, image)?.handle);
    Ok(())
}

fn find(world: &World, module: CUmodule) -> Result<Arc<Module>, CUerror> {
    world.modules.find(module.0).ok_or(CUerror::INVALID_HANDLE)
}

pub(crate) fn cuModuleUnload(module: CUmodule) -> CUresult {
    let world = world()?;
    current()?;
    let module = find(world, module)?;
    if module.is_of_library {
        return Err(CUerror::NOT_PERMITTED);
    }
    module.unload(world)
}

pub(crate) fn cuModuleGetLoadingMode(mode: Out<CUmoduleLoadingMode>) -> CUresult {
    mode.set(CUmoduleLoadingMode::LAZY);
    Ok(())
}

pub(crate) fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: Text) -> CUresult {
    let module = find(world()?, module)?;
    function.set(module.function(&name.0).ok_or(CUerror::NOT_FOUND)?.handle);
    Ok(())
}

pub(crate) fn cuModuleGetFunctionCount(count: Out<u32>, module: CUmodule) -> CUresult {
    let module = find(world()?, module)?;
    count.set(module.functions().len() as u32);
    Ok(())
}

pub(crate) fn cuModuleEnumerateFunctions(functions: Out<CUfunction>, count: u32, module: CUmodule) -> CUresult {
    let module = find(world()?, module)?;
    let handles: Vec<_> = module.functions().iter().take(count as usize).map(|function| function.handle).collect();
    functions.set_all(&handles);
    Ok(())
}

pub(crate) fn cuModuleGetGlobal_v2(
    start: Option<Out<CUdeviceptr>>,
    bytes: Option<Out<usize>>,
    module: CUmodule,
    name: Text,
) -> CUresult {
    let module = find(world()?, module)?;
    tell(module.variable(&name.0).ok_or(CUerror::NOT_FOUND)?, start, bytes);
    Ok(())
}

/// Says where a variable lies.
pub(super) fn tell(variable: &Variable, start: Option<Out<CUdeviceptr>>, bytes: Option<Out<usize>>) {
    if let Some(start) = start {
        start.set(CUdeviceptr(variable.address));
    }
    if let Some(bytes) = bytes {
        bytes.set(variable.bytes as usize);
    }
}
