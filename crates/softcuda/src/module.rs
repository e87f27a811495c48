//! Modules: an image in a context, with its variables in the memory of the device.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use freehold_driver::cuda::{CUerror, CUfunction, CUmodule};
use freehold_ptx::{Image, Kernel};

use crate::context::Context;
use crate::driver_state::DriverState;
use crate::function::{Function, Settings};
use crate::memory::mem_ref::MemRef;
use crate::span::SpanKind;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) handle: CUmodule,
    context: Weak<Context>,
    /// Whether it ends with a library, and only then.
    pub(crate) is_from_library: bool,
    variables: Vec<Variable>,
    /// In the order of the image. Set once, when the module has a handle for them to name.
    functions: OnceLock<Vec<Arc<Function>>>,
}

#[derive(Debug)]
pub(crate) struct Variable {
    name: String,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Module {
    /// Loads an image into a context.
    pub(crate) fn load(driver: &DriverState, context: &Arc<Context>, image: &Image) -> Result<Arc<Self>, CUerror> {
        Self::load_with(driver, context, image, None)
    }

    /// Loads the image of a library, whose kernels have settings of their own.
    pub(crate) fn load_from_library(
        driver: &DriverState,
        context: &Arc<Context>,
        image: &Image,
        settings: &[Arc<Mutex<Settings>>],
    ) -> Result<Arc<Self>, CUerror> {
        Self::load_with(driver, context, image, Some(settings))
    }

    fn load_with(
        driver: &DriverState,
        context: &Arc<Context>,
        image: &Image,
        settings: Option<&[Arc<Mutex<Settings>>]>,
    ) -> Result<Arc<Self>, CUerror> {
        let variables = alloc_variables(driver, context, image)?;
        let addresses: Vec<_> = variables.iter().map(|variable| variable.address).collect();
        let (program, contents) = image.relocate(&addresses);
        for (variable, content) in variables.iter().zip(&contents) {
            // What the text does not say is zero.
            let mem = MemRef::device(&context.device.memory.arena, variable.address);
            mem.fill(0, &[0], variable.bytes)?;
            mem.write(0, content)?;
        }
        let (_, module) = driver.modules.insert_with(|handle| {
            Arc::new(Self {
                handle: CUmodule(handle),
                context: Arc::downgrade(context),
                is_from_library: settings.is_some(),
                variables,
                functions: OnceLock::new(),
            })
        });
        let constants = image.variables().iter().filter(|variable| variable.constant);
        let constant_bytes = constants.map(|variable| variable.bytes).sum();
        let functions = program.kernels().iter().enumerate().map(|(index, kernel)| {
            let settings = match settings {
                Some(settings) => Arc::clone(&settings[index]),
                None => Arc::new(Mutex::new(Settings::of(kernel))),
            };
            let (_, function) = driver.functions.insert_with(|handle| {
                Arc::new(Function {
                    handle: CUfunction(handle),
                    module: Arc::downgrade(&module),
                    context: Arc::downgrade(context),
                    program: Arc::clone(&program),
                    index,
                    name: c_name(kernel),
                    constant_bytes,
                    settings,
                })
            });
            function
        });
        module.functions.set(functions.collect()).expect("a module is given its functions once");
        Ok(module)
    }

    pub(crate) fn belongs_to(&self, context: &Context) -> bool {
        std::ptr::eq(self.context.as_ptr(), context)
    }

    /// Its context, if that is alive.
    pub(crate) fn context(&self) -> Result<Arc<Context>, CUerror> {
        let context = self.context.upgrade().ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
        context.check_alive()?;
        Ok(context)
    }

    pub(crate) fn functions(&self) -> &[Arc<Function>] {
        self.functions.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions().iter().find(|function| function.name.to_str() == Ok(name))
    }

    /// The variable with a name, whether the text makes it visible or not.
    pub(crate) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// Ends the module: its handle and those of its functions at once, its variables when the work of its context is
    /// done.
    ///
    /// # Errors
    /// Somebody else has ended it.
    pub(crate) fn unload(&self, driver: &DriverState) -> Result<(), CUerror> {
        driver.modules.remove(self.handle.0).ok_or(CUerror::INVALID_HANDLE)?;
        for function in self.functions() {
            driver.functions.remove(function.handle.0);
        }
        if let Some(context) = self.context.upgrade() {
            context.synchronize(&driver.engine);
            context.flush_printf();
        }
        self.variables.iter().for_each(|variable| driver.space.free(variable.address));
        Ok(())
    }
}

pub(crate) fn c_name(kernel: &Kernel) -> CString {
    CString::new(kernel.name.as_str()).expect("a name in a text holds no NUL")
}

/// Memory for the variables of an image, or none at all.
fn alloc_variables(driver: &DriverState, context: &Arc<Context>, image: &Image) -> Result<Vec<Variable>, CUerror> {
    let mut variables: Vec<Variable> = Vec::new();
    for variable in image.variables() {
        let kind = SpanKind::Variable { constant: variable.constant };
        match driver.space.alloc(context, variable.bytes.max(1), kind) {
            Ok(address) => variables.push(Variable { name: variable.name.clone(), address, bytes: variable.bytes }),
            Err(code) => {
                variables.iter().for_each(|variable| driver.space.free(variable.address));
                return Err(code);
            }
        }
    }
    Ok(variables)
}
