//! Images, kernels and launches of a CUDA context.

use std::ffi::CStr;

use super::{Context, Result, converted, with_current};
use crate::backend::{ArgKind, Arguments, ImageKind, Kernels, LaunchConfig, LaunchLimits, Parameter};
use crate::cuda::call::DriverError;
use crate::cuda::code::CUerror;
use crate::cuda::extension::ReadArgument;
use crate::cuda::kernel_types::{CUfunction, CUfunction_attribute, CUjit_option, CUmodule};
use crate::cuda::types::CUdevice_attribute;
use crate::cuda::{device, function, launch, module};
use crate::error::LoadError;
use crate::handle::{Kernel, Module, Stream};

/// The size of the buffer for the driver's message about a rejected image.
const LOG_BYTES: usize = 8 << 10;

/// The number of parameters to query: more than a kernel can have.
const PARAMETERS_MAX: usize = 8192;

impl Kernels for Context {
    fn supports(&self, kind: ImageKind) -> bool {
        match kind {
            ImageKind::Ptx | ImageKind::Binary => true,
            ImageKind::OpenCl | ImageKind::SpirV => false,
        }
    }

    unsafe fn load(&self, _kind: ImageKind, image: &[u8]) -> std::result::Result<Module, LoadError> {
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = module::Options::new()
            .with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize)
            .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, log.len());
        let loaded = with_current(&self.api, self.raw, || {
            // SAFETY: the caller guarantees that the image ends in a NUL or is as long as its headers say; `log` has
            // the length that is stated for it and outlives the call.
            unsafe { module::load_with(&self.api, image.as_ptr().cast(), &mut options) }
        });
        match loaded {
            Ok(module) => Ok(Module::made(module)),
            Err(error) if is_image_error(error.code) => {
                let text = log.split(|&byte| byte == 0).next().expect("split yields at least one part");
                Err(LoadError::Image { code: error.code.into(), log: String::from_utf8_lossy(text).trim_end().into() })
            }
            Err(error) => Err(LoadError::Call(error.into())),
        }
    }

    unsafe fn unload(&self, module: Module) -> Result<()> {
        self.with_current_relaxed(|api| module::unload(api, module.into()))
    }

    unsafe fn kernel(&self, module: Module, name: &CStr) -> Result<Option<Kernel>> {
        self.with_current(|api| {
            let Some(function) = optional(module::function(api, module.into(), name))? else { return Ok(None) };
            // Loaded now, so that no launch has to: a load waits for running kernels.
            function::load(api, function)?;
            Ok(Some(Kernel::made(function)))
        })
    }

    unsafe fn kernel_names(&self, module: Module) -> Result<Vec<String>> {
        self.with_current(|api| {
            let count = module::function_count(api, module.into())?;
            let functions = module::functions(api, module.into(), count)?;
            functions.into_iter().map(|function| function::name(api, function)).collect()
        })
    }

    unsafe fn parameters(&self, kernel: Kernel) -> Result<Vec<Parameter>> {
        self.with_current(|api| {
            let at = |index| function::parameter(api, kernel.into(), index);
            let mut parameters = Vec::new();
            while parameters.len() < PARAMETERS_MAX {
                // An error means that there are no more. It is asked for twice, because a launch relies on the count.
                match at(parameters.len()).or_else(|_| at(parameters.len())) {
                    Ok(parameter) => parameters.push(Parameter { bytes: Some(parameter.bytes) }),
                    Err(error) if error.code == CUerror::INVALID_VALUE => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(parameters)
        })
    }

    unsafe fn limits(&self, kernel: Kernel) -> Result<LaunchLimits> {
        self.with_current(|api| {
            let of_device = |attribute| Ok(device::attribute(api, self.device, attribute)?.cast_unsigned().into());
            let of_kernel = |attribute| {
                let value = function::attribute(api, kernel.into(), attribute)?;
                Ok::<u64, DriverError>(value.cast_unsigned().into())
            };
            let axes = |[x, y, z]: [CUdevice_attribute; 3]| {
                Ok::<[u64; 3], DriverError>([of_device(x)?, of_device(y)?, of_device(z)?])
            };
            Ok(LaunchLimits {
                threads_max: of_device(CUdevice_attribute::MAX_THREADS_PER_BLOCK)?,
                block_threads: axes([
                    CUdevice_attribute::MAX_BLOCK_DIM_X,
                    CUdevice_attribute::MAX_BLOCK_DIM_Y,
                    CUdevice_attribute::MAX_BLOCK_DIM_Z,
                ])?,
                grid_blocks: axes([
                    CUdevice_attribute::MAX_GRID_DIM_X,
                    CUdevice_attribute::MAX_GRID_DIM_Y,
                    CUdevice_attribute::MAX_GRID_DIM_Z,
                ])?,
                kernel_threads_max: of_kernel(CUfunction_attribute::MAX_THREADS_PER_BLOCK)?,
                kernel_shared_bytes_max: of_kernel(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            })
        })
    }

    unsafe fn global(&self, module: Module, name: &CStr) -> Result<Option<(u64, usize)>> {
        self.with_current(|api| {
            let range = optional(module::global(api, module.into(), name))?;
            Ok(range.map(|range| (range.base.0, range.bytes)))
        })
    }

    #[inline]
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: LaunchConfig,
        stream: Stream,
        arguments: Arguments<'_>,
    ) -> Result<()> {
        let Arguments { pointers, kinds: passed } = arguments;
        let mut launch = || {
            // SAFETY: the caller guarantees an argument of its size for each parameter, and what the kernel does.
            unsafe { launch::kernel(&self.api, kernel.into(), shape, stream.into(), pointers) }
        };
        let Some(extension) = self.extension else { return Ok(launch()?) };
        match read_only_arguments(passed) {
            reads if reads.is_empty() => Ok(launch()?),
            reads => Ok(extension.with_read_only(&reads, launch)?),
        }
    }
}

/// Returns the arguments that the kernel only reads.
fn read_only_arguments(passed: &[ArgKind]) -> Vec<ReadArgument> {
    let read = |(parameter, passed): (usize, &ArgKind)| match *passed {
        ArgKind::ReadOnly { start, bytes } => Some(ReadArgument { start, bytes, parameter: parameter as u32, pad: 0 }),
        ArgKind::Address | ArgKind::Value { .. } => None,
    };
    passed.iter().enumerate().filter_map(read).collect()
}

/// Returns the result of a lookup by name, or `None` if nothing has the name.
fn optional<T>(outcome: std::result::Result<T, DriverError>) -> std::result::Result<Option<T>, DriverError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == CUerror::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a load failed because of the image.
fn is_image_error(code: CUerror) -> bool {
    matches!(
        code,
        CUerror::INVALID_IMAGE
            | CUerror::NO_BINARY_FOR_GPU
            | CUerror::INVALID_PTX
            | CUerror::UNSUPPORTED_PTX_VERSION
            | CUerror::INVALID_SOURCE
            | CUerror::SHARED_OBJECT_SYMBOL_NOT_FOUND
    )
}

converted! {
    Module = CUmodule;
    Kernel = CUfunction;
}
