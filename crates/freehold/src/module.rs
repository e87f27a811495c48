//! Modules: images loaded into a context, and their kernels. A module stays loaded while there are kernels of it, and until
//! its last launch has passed; nobody waits for that.

use std::ffi::CString;
use std::sync::Arc;

use freehold_driver::cuda::function::{self, Parameter};
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUdeviceptr, CUerror, CUfunction, CUjit_option, CUmodule, copy, module};

use crate::block::Plain;
use crate::context::Context;
use crate::current::within;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::later::Later;
use crate::stream::Stream;

/// Room for what the driver says of an image that it refuses.
const LOG_BYTES: usize = 8 << 10;

/// As many parameters as are asked for: more than a kernel can have.
const PARAMETERS_MAX: usize = 8192;

/// A loaded image. A handle: kernels of it keep it loaded too.
#[derive(Clone, Debug)]
pub struct Module {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: CUmodule,
    image: Image,
    context: Context,
}

/// A kernel of a module, which it keeps loaded.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) raw: CUfunction,
    name: Arc<str>,
    /// The name's number, for faults.
    pub(crate) number: u32,
    parameters: Arc<[Parameter]>,
    module: Module,
}

impl Module {
    pub(crate) fn load(context: Context, image: &Image) -> Result<Self> {
        let inner = &context.inner;
        inner.check()?;
        inner.core.tidy()?;
        let (core, asked) = (&inner.core, inner.core.now());
        let api = &core.api;
        let shared = inner.enter()?;
        let mut log = vec![0_u8; LOG_BYTES];
        let mut options = Options::new()
            .with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize)
            .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, log.len());
        let loaded = within(api, inner.hall.raw, || {
            // SAFETY: an `Image` ends in a NUL or is as long as its headers say; `log` has the length that is stated for
            // it and outlives the call.
            unsafe { module::load_with(api, image.bytes().as_ptr().cast(), &mut options) }
        });
        drop(shared);
        match loaded {
            Ok(raw) => {
                if core.timeline.is_on() {
                    core.timeline.of_module("load", raw.0 as u64, asked, core.now());
                }
                Ok(Self { inner: Arc::new(Inner { raw, image: image.clone(), context }) })
            }
            Err(error) if is_of_the_image(error.code) => {
                let text = log.split(|&byte| byte == 0).next().expect("what is split has a first part");
                let log = String::from_utf8_lossy(text).trim_end().into();
                Err(Error::ImageRefused { code: error.code, log })
            }
            Err(error) => Err(inner.core.failed(error)),
        }
    }

    /// Loads the image again: a module with variables of its own (fact 4.2).
    pub fn duplicate(&self) -> Result<Self> {
        Self::load(self.inner.context.clone(), &self.inner.image)
    }

    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The kernel with this name.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let (core, api) = (&context.core, &context.core.api);
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        let raw = match within(api, context.hall.raw, || module::function(api, self.inner.raw, &c_name)) {
            Ok(raw) => raw,
            Err(error) if error.code == CUerror::NOT_FOUND => {
                return Err(Error::NoSuchKernel { name: name.to_owned(), known: self.kernels()? });
            }
            Err(error) => return Err(core.failed(error)),
        };
        // Loaded now, so that no launch has to: a load waits for kernels that run.
        within(api, context.hall.raw, || function::load(api, raw)).map_err(|error| core.failed(error))?;
        let name: Arc<str> = name.into();
        let number = core.number_kernel(&name);
        Ok(Kernel { raw, number, parameters: self.parameters(raw)?, name, module: self.clone() })
    }

    /// The names of all kernels.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let api = &context.core.api;
        let names = within(api, context.hall.raw, || {
            let count = module::function_count(api, self.inner.raw)?;
            let functions = module::functions(api, self.inner.raw, count)?;
            functions.into_iter().map(|raw| function::name(api, raw)).collect()
        });
        names.map_err(|error| context.core.failed(error))
    }

    /// Where the variable with this name lies, and how many bytes it has.
    pub fn variable(&self, name: &str) -> Result<(CUdeviceptr, usize)> {
        let context = &self.inner.context.inner;
        context.check()?;
        let _shared = context.enter()?;
        let api = &context.core.api;
        let c_name = CString::new(name).map_err(|_| Error::NulInName { name: name.to_owned() })?;
        match within(api, context.hall.raw, || module::global(api, self.inner.raw, &c_name)) {
            Ok(range) => Ok((range.base, range.bytes)),
            Err(error) if error.code == CUerror::NOT_FOUND => Err(Error::NoSuchVariable { name: name.to_owned() }),
            Err(error) => Err(context.core.failed(error)),
        }
    }

    /// Lets go of the module. It is unloaded when its kernels are gone and no work of its context is pending: the driver
    /// waits for all of that, so it is not asked before (fact 4.1).
    pub fn close(self) {
        drop(self);
    }

    fn parameters(&self, raw: CUfunction) -> Result<Arc<[Parameter]>> {
        let context = &self.inner.context.inner;
        let api = &context.core.api;
        let at = |index| within(api, context.hall.raw, || function::parameter(api, raw, index));
        let mut parameters = Vec::new();
        while parameters.len() < PARAMETERS_MAX {
            // A refusal means that there are no more. It is asked for twice: a launch trusts the count.
            match at(parameters.len()).or_else(|_| at(parameters.len())) {
                Ok(parameter) => parameters.push(parameter),
                Err(error) if error.code == CUerror::INVALID_VALUE => break,
                Err(error) => return Err(context.core.failed(error)),
            }
        }
        Ok(parameters.into())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let inner = &self.context.inner;
        if inner.is_closed() || !inner.core.is_good() {
            return;
        }
        let core = &inner.core;
        core.later(Later::Unload { hall: inner.hall.clone(), raw: self.raw, asked: core.now() });
        if let Err(error) = core.tidy() {
            core.trouble(error);
        }
    }
}

impl Kernel {
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Where its parameters lie, in their order.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl Stream {
    /// What a variable of a module holds, in the order of this stream. This waits. Kernels use variables without saying so:
    /// with those of other streams the program itself keeps the order.
    pub fn read_variable<T: Plain>(&self, module: &Module, name: &str) -> Result<T> {
        let address = self.variable::<T>(module, name)?;
        let _shared = module.inner.context.inner.enter()?;
        let mut value = T::new_zeroed();
        let bytes = value.as_mut_bytes();
        self.put_and_wait("read variable", &[], |api, raw| {
            // SAFETY: `value` is borrowed until the wait for the copy is over.
            unsafe { copy::device_to_host_async(api, bytes.as_mut_ptr().cast(), address, bytes.len(), raw) }
        })?;
        Ok(value)
    }

    /// Sets a variable of a module, in the order of this stream. This waits for the copy, and for the work before it.
    pub fn write_variable<T: Plain>(&self, module: &Module, name: &str, value: &T) -> Result<()> {
        let address = self.variable::<T>(module, name)?;
        let _shared = module.inner.context.inner.enter()?;
        let bytes = value.as_bytes();
        self.put_and_wait("write variable", &[], |api, raw| {
            // SAFETY: `value` is borrowed until the wait for the copy is over.
            unsafe { copy::host_to_device_async(api, address, bytes.as_ptr().cast(), bytes.len(), raw) }
        })
    }

    fn variable<T: Plain>(&self, module: &Module, name: &str) -> Result<CUdeviceptr> {
        if !Arc::ptr_eq(&module.inner.context.inner.core, &self.context.inner.core) {
            return Err(Error::OtherDevice { what: "a variable" });
        }
        let (address, bytes) = module.variable(name)?;
        if bytes != size_of::<T>() {
            let (wanted_bytes, given_bytes) = (bytes, size_of::<T>());
            return Err(Error::VariableSize { name: name.to_owned(), wanted_bytes, given_bytes });
        }
        Ok(address)
    }
}

/// Whether a load failed because of what the image is.
fn is_of_the_image(code: CUerror) -> bool {
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
