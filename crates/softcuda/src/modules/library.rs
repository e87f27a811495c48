//! Libraries: images without a context, and their kernels. A library is loaded into each context on first use there.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use freehold_driver::cuda::{CUerror, CUkernel, CUlibrary};
use freehold_ptx::{GlobalVariable, Image};

use super::function::Settings;
use super::module::Module;
use crate::base::sync::lock;

#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) handle: CUlibrary,
    /// The image, or the error that is reported on first use.
    image: Result<Arc<Image>, CUerror>,
    kernels: Vec<Arc<Kernel>>,
    /// By the id of the context.
    modules: Mutex<BTreeMap<u64, Arc<Module>>>,
    managed: Mutex<ManagedVariables>,
}

/// The managed variables of a library, which exist once for all contexts. They are allocated when it is loaded into the first.
#[derive(Debug, Default)]
pub(crate) struct ManagedVariables {
    /// By the index in the image.
    pub(crate) addresses: BTreeMap<usize, u64>,
    /// Whether they have their initial values.
    pub(crate) is_initialized: bool,
}

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) handle: CUkernel,
    pub(crate) library: Weak<Library>,
    /// The index of the kernel in the image.
    pub(crate) index: usize,
    /// Exposed to the program while the kernel lives.
    pub(crate) name: CString,
    pub(crate) image: Arc<Image>,
    /// For each device.
    pub(crate) settings: Vec<Arc<Mutex<Settings>>>,
}

impl Kernel {
    pub(crate) fn info(&self) -> &freehold_ptx::Kernel {
        &self.image.kernels()[self.index]
    }

    /// Returns the kernel's settings on a device.
    pub(crate) fn settings(&self, device: usize) -> &Arc<Mutex<Settings>> {
        &self.settings[device]
    }

    /// Returns the size in bytes of the constants of its library.
    pub(crate) fn constant_bytes(&self) -> u64 {
        self.image.variables().iter().filter(|variable| variable.constant).map(|variable| variable.bytes).sum()
    }
}

impl Library {
    pub(crate) fn new(handle: CUlibrary, image: Result<Arc<Image>, CUerror>, kernels: Vec<Arc<Kernel>>) -> Self {
        Self { handle, image, kernels, modules: Mutex::default(), managed: Mutex::default() }
    }

    /// # Errors
    /// Its image cannot be used.
    pub(crate) fn kernels(&self) -> Result<&[Arc<Kernel>], CUerror> {
        self.image()?;
        Ok(&self.kernels)
    }

    /// Returns its kernels, or none if the image cannot be used.
    pub(crate) fn all_kernels(&self) -> &[Arc<Kernel>] {
        &self.kernels
    }

    /// # Errors
    /// It cannot be used.
    pub(crate) fn image(&self) -> Result<&Image, CUerror> {
        self.image.as_deref().map_err(|&code| code)
    }

    /// Returns its managed variables. Only the holder of [`modules`](Self::modules) changes them.
    pub(crate) fn managed(&self) -> MutexGuard<'_, ManagedVariables> {
        lock(&self.managed)
    }

    /// Returns the index and the declaration of a managed variable.
    pub(crate) fn find_managed(&self, name: &str) -> Result<(usize, &GlobalVariable), CUerror> {
        let variables = self.image()?.variables().iter().enumerate();
        let mut named = variables.filter(|(_, variable)| variable.managed && variable.name == name);
        named.next().ok_or(CUerror::NOT_FOUND)
    }

    /// Returns the modules that it was loaded as, by the id of the context.
    pub(crate) fn modules(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Module>>> {
        lock(&self.modules)
    }
}
