//! The programs of a context as modules, with the kernels that were looked up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::super::{call, handle, kernel, program};
use super::lock::{Result, locked};
use crate::handle::{Kernel, Module};

/// The loaded modules.
#[derive(Debug, Default)]
pub(super) struct ModuleTable {
    pub(super) last_id: AtomicU64,
    pub(super) modules: Mutex<HashMap<u64, LoadedProgram>>,
    pub(super) kernels: RwLock<HashMap<u64, Arc<KernelEntry>>>,
}

/// A module.
#[derive(Debug)]
pub(super) struct LoadedProgram {
    pub(super) program: handle::Program,
    /// The program that describes kernels of the same names, if `program` itself does not.
    pub(super) arg_info_program: Option<handle::Program>,
    /// The kernels that were looked up.
    pub(super) kernels: Vec<Kernel>,
}

/// A kernel.
#[derive(Debug)]
pub(super) struct KernelEntry {
    /// Locked while arguments are set and the launch is enqueued: there is one set of arguments.
    pub(super) raw: Mutex<handle::Kernel>,
    pub(super) parameters: Vec<ParameterKind>,
}

/// The kind of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterKind {
    /// An address of memory.
    Address,
    /// Local memory, which is not an argument of a launch: its configuration states the size.
    Local,
    /// A value, and its size if known.
    Value(Option<usize>),
    /// The driver does not report it.
    Unknown,
}

impl ModuleTable {
    pub(super) fn close(&self) -> Result<()> {
        let modules: Vec<_> = locked(&self.modules).drain().collect();
        modules.into_iter().try_for_each(|(_, unit)| self.unload(unit))
    }

    pub(super) fn unload(&self, unit: LoadedProgram) -> Result<()> {
        let gone: Vec<_> = {
            let mut kernels = self.kernels.write().unwrap_or_else(PoisonError::into_inner);
            unit.kernels.iter().filter_map(|kernel| kernels.remove(&kernel.0)).collect()
        };
        // OpenCL keeps what is pending: launches of these kernels still run.
        gone.iter().try_for_each(|entry| kernel::release(*locked(&entry.raw)))?;
        unit.arg_info_program.map_or(Ok(()), program::release)?;
        program::release(unit.program)
    }

    pub(super) fn entry(&self, kernel: Kernel) -> Result<Arc<KernelEntry>> {
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        kernels.get(&kernel.0).cloned().ok_or_else(|| call::invalid_kernel("clEnqueueNDRangeKernel"))
    }

    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn program(&self, module: Module) -> Result<handle::Program> {
        self.programs(module).map(|(program, _)| program)
    }

    /// Returns the program of a module, and the one that describes its kernels.
    pub(super) fn programs(&self, module: Module) -> Result<(handle::Program, Option<handle::Program>)> {
        let modules = locked(&self.modules);
        let unit = modules.get(&module.0).ok_or_else(|| call::invalid_program("clGetProgramInfo"))?;
        Ok((unit.program, unit.arg_info_program))
    }
}
