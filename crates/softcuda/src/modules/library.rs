//! Libraries: images of no context, and their kernels. A library is loaded into each context where it is first needed.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use freehold_driver::cuda::{CUerror, CUkernel, CUlibrary};
use freehold_ptx::Image;

use super::function::Settings;
use super::module::Module;
use crate::base::sync::lock;

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
    pub(crate) index: usize,
    /// Handed out to the program, for as long as the kernel lives.
    pub(crate) name: CString,
    pub(crate) image: Arc<Image>,
    /// For each device.
    pub(crate) settings: Vec<Arc<Mutex<Settings>>>,
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
}

impl Library {
    pub(crate) fn new(handle: CUlibrary, image: Result<Arc<Image>, CUerror>, kernels: Vec<Arc<Kernel>>) -> Self {
        Self { handle, image, kernels, modules: Mutex::default() }
    }

    /// # Errors
    /// Its image cannot be used.
    pub(crate) fn kernels(&self) -> Result<&[Arc<Kernel>], CUerror> {
        self.image()?;
        Ok(&self.kernels)
    }

    /// Its kernels, which are none where its image cannot be used.
    pub(crate) fn all_kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// # Errors
    /// It cannot be used.
    pub(crate) fn image(&self) -> Result<&Image, CUerror> {
        self.image.as_deref().map_err(|&code| code)
    }

    /// What it was loaded as, by the number of the context.
    pub(crate) fn modules(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Module>>> {
        lock(&self.modules)
    }
}
