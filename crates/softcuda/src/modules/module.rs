//! Modules: an image in a context, with its variables in device memory.

use std::sync::{Arc, OnceLock, Weak};

use freehold_driver::cuda::{CUerror, CUmodule};

use super::function::Function;
use crate::objects::context::Context;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) handle: CUmodule,
    pub(crate) context: Weak<Context>,
    /// Whether it belongs to a library and is unloaded only with it.
    pub(crate) is_from_library: bool,
    pub(crate) variables: Vec<Variable>,
    /// In the order of the image. Set once, when the module has a handle, which the functions refer to.
    functions: OnceLock<Vec<Arc<Function>>>,
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) owner: VariableOwner,
}

/// Who frees the memory of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableOwner {
    Module,
    /// Managed memory of a library, which its modules in all contexts share.
    Library,
}

impl Module {
    /// Creates a module without functions, which need its handle.
    pub(crate) fn new(
        handle: CUmodule,
        context: &Arc<Context>,
        is_from_library: bool,
        variables: Vec<Variable>,
    ) -> Self {
        Self { handle, context: Arc::downgrade(context), is_from_library, variables, functions: OnceLock::new() }
    }

    /// Sets the module's functions, once.
    pub(crate) fn set_functions(&self, functions: Vec<Arc<Function>>) {
        self.functions.set(functions).expect("the functions of a module are set once");
    }

    /// Returns its context, if that is alive.
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

    /// Returns the variable with a name, whether it is visible or not.
    pub(crate) fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}
