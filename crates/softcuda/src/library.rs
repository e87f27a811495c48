//! Libraries: images of no context, and their kernels. A library is loaded into each context where it is first needed.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::{CUerror, CUkernel, CUlibrary};
use freehold_ptx::Image;

use crate::context::Context;
use crate::driver_state::DriverState;
use crate::function::{Function, Settings};
use crate::module::{Module, c_name};
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) handle: CUlibrary,
    /// Or why there is none: that is said when it is first needed.
    image: Result<Arc<Image>, CUerror>,
    kernels: Vec<Arc<Kernel>>,
    /// By the number of the context.
    modules: Mutex<BTreeMap<u64, Arc<Module>>>,
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) handle: CUkernel,
    pub(crate) library: Weak<Library>,
    /// Which of the image's kernels it is.
    index: usize,
    /// Handed out to the program, for as long as the kernel lives.
    pub(crate) name: CString,
    image: Arc<Image>,
    /// For each device.
    settings: Vec<Arc<Mutex<Settings>>>,
}

impl Kernel {
    pub(crate) fn info(&self) -> &freehold_ptx::Kernel {
        &self.image.kernels()[self.index]
    }

    /// What is set of it on a device.
    pub(crate) fn settings(&self, device: usize) -> &Arc<Mutex<Settings>> {
        &self.settings[device]
    }

    /// Bytes of the constants of its library.
    pub(crate) fn constant_bytes(&self) -> u64 {
        self.image.variables().iter().filter(|variable| variable.constant).map(|variable| variable.bytes).sum()
    }

    /// The kernel as a function of a context.
    pub(crate) fn function(&self, driver: &DriverState, context: &Arc<Context>) -> Result<Arc<Function>, CUerror> {
        let library = self.library.upgrade().ok_or(CUerror::INVALID_HANDLE)?;
        let module = library.module(driver, context)?;
        module.functions().get(self.index).cloned().ok_or(CUerror::INVALID_HANDLE)
    }
}

impl Library {
    pub(crate) fn load(driver: &DriverState, image: Result<Image, CUerror>) -> Arc<Self> {
        let image = image.map(Arc::new);
        let (_, library) = driver.libraries.insert_with(|handle| {
            Arc::new_cyclic(|library: &Weak<Self>| {
                let info = image.iter().flat_map(|image| image.kernels().iter().map(move |info| (image, info)));
                let kernels = info.enumerate().map(|(index, (image, info))| {
                    let settings = driver.space.devices.iter().map(|_| Arc::new(Mutex::new(Settings::of(info))));
                    let (_, kernel) = driver.kernels.insert_with(|handle| {
                        Arc::new(Kernel {
                            handle: CUkernel(handle),
                            library: library.clone(),
                            index,
                            name: c_name(info),
                            image: Arc::clone(image),
                            settings: settings.collect(),
                        })
                    });
                    kernel
                });
                Self {
                    handle: CUlibrary(handle),
                    kernels: kernels.collect(),
                    image: image.clone(),
                    modules: Mutex::default(),
                }
            })
        });
        library
    }

    /// # Errors
    /// Its image cannot be used.
    pub(crate) fn kernels(&self) -> Result<&[Arc<Kernel>], CUerror> {
        self.image.as_ref().map_err(|&code| code)?;
        Ok(&self.kernels)
    }

    /// The library in a context, loaded there if it is not yet.
    pub(crate) fn module(&self, driver: &DriverState, context: &Arc<Context>) -> Result<Arc<Module>, CUerror> {
        let mut modules = lock(&self.modules);
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        modules.retain(|_, module| module.context().is_ok());
        let settings: Vec<_> =
            self.kernels.iter().map(|kernel| Arc::clone(kernel.settings(context.device.ordinal))).collect();
        let image = self.image.as_ref().map_err(|&code| code)?;
        let module = Module::load_from_library(driver, context, image, &settings)?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }

    /// Ends the library in every context, each when its work is done.
    ///
    /// # Errors
    /// Somebody else has ended it.
    pub(crate) fn unload(&self, driver: &DriverState) -> Result<(), CUerror> {
        driver.libraries.remove(self.handle.0).ok_or(CUerror::INVALID_HANDLE)?;
        for kernel in &self.kernels {
            driver.kernels.remove(kernel.handle.0);
        }
        let modules = std::mem::take(&mut *lock(&self.modules));
        for module in modules.into_values() {
            // The end of its context may have ended it already.
            let _ended = module.unload(driver);
        }
        Ok(())
    }
}
