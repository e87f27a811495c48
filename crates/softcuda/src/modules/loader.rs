//! Loads images: as modules into contexts, and as libraries, which become a module in each context on first use.

use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use freehold_driver::cuda::{CUerror, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};
use freehold_ptx::{GlobalVariable, Image};

use super::function::{Function, Settings};
use super::library::{Kernel, Library};
use super::module::{Module, Variable, VariableOwner};
use crate::base::check;
use crate::base::handle_table::{HandleKind, HandleRange, HandleReuse, HandleTable};
use crate::engine::Engine;
use crate::objects::context::Context;
use crate::space::address_space::AddressSpace;
use crate::space::span::SpanKind;

/// All loaded modules and libraries, by handle.
#[derive(Debug)]
pub(crate) struct ModuleTables {
    pub(crate) modules: HandleTable<Module>,
    pub(crate) functions: HandleTable<Function>,
    pub(crate) libraries: HandleTable<Library>,
    pub(crate) kernels: HandleTable<Kernel>,
}

impl ModuleTables {
    pub(crate) fn new(range: &HandleRange) -> Self {
        Self {
            modules: HandleTable::new(range.space(HandleKind::Module), HandleReuse::Never),
            functions: HandleTable::new(range.space(HandleKind::Function), HandleReuse::Never),
            libraries: HandleTable::new(range.space(HandleKind::Library), HandleReuse::Never),
            kernels: HandleTable::new(range.space(HandleKind::Kernel), HandleReuse::Never),
        }
    }

    /// Loads an image into a context. A library has the settings of its kernels, and its managed variables.
    pub(crate) fn load_module(
        &self,
        space: &AddressSpace,
        context: &Arc<Context>,
        image: &Image,
        library: Option<&Library>,
    ) -> Result<Arc<Module>, CUerror> {
        let variables = alloc_variables(space, context, image, library)?;
        let addresses: Vec<_> = variables.iter().map(|variable| variable.address).collect();
        let (program, contents) = image.relocate(&addresses);
        initialize(space, &variables, &contents, library)?;
        let (_, module) = self
            .modules
            .insert_with(|handle| Arc::new(Module::new(CUmodule(handle), context, library.is_some(), variables)));
        let constants = image.variables().iter().filter(|variable| variable.constant);
        let constant_bytes = constants.map(|variable| variable.bytes).sum();
        let functions = program.kernels().iter().enumerate().map(|(index, kernel)| {
            let settings = match library {
                Some(library) => Arc::clone(library.all_kernels()[index].settings(context.device.ordinal)),
                None => Arc::new(Mutex::new(Settings::of(kernel))),
            };
            let (_, function) = self.functions.insert_with(|handle| {
                Arc::new(Function {
                    handle: CUfunction(handle),
                    module: module.handle,
                    context: Arc::downgrade(context),
                    program: Arc::clone(&program),
                    index,
                    name: c_name(kernel),
                    constant_bytes,
                    settings,
                    checked: OnceLock::new(),
                })
            });
            function
        });
        module.set_functions(functions.collect());
        Ok(module)
    }

    /// Unloads a module: removes its handle and those of its functions at once, and frees its variables when the work
    /// of its context is done.
    ///
    /// # Errors
    /// Another call has unloaded it.
    pub(crate) fn unload_module(&self, space: &AddressSpace, engine: &Engine, module: &Module) -> CUresult {
        self.modules.remove(module.handle.0).ok_or(CUerror::INVALID_HANDLE)?;
        for function in module.functions() {
            self.functions.remove(function.handle.0);
            check::unload_module(Arc::as_ptr(&function.program) as usize);
        }
        if let Some(context) = module.context.upgrade() {
            context.synchronize(engine);
            context.flush_printf();
        }
        free_own(space, &module.variables);
        Ok(())
    }

    /// Loads a library, into no context yet.
    pub(crate) fn load_library(&self, device_count: usize, image: Result<Image, CUerror>) -> Arc<Library> {
        let image = image.map(Arc::new);
        let (_, library) = self.libraries.insert_with(|handle| {
            Arc::new_cyclic(|library: &Weak<Library>| {
                let info = image.iter().flat_map(|image| image.kernels().iter().map(move |info| (image, info)));
                let kernels = info.enumerate().map(|(index, (image, info))| {
                    let settings = (0..device_count).map(|_| Arc::new(Mutex::new(Settings::of(info))));
                    let (_, kernel) = self.kernels.insert_with(|handle| {
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
                let kernels = kernels.collect();
                Library::new(CUlibrary(handle), image.clone(), kernels)
            })
        });
        library
    }

    /// Unloads a library in every context, each when its work is done.
    ///
    /// # Errors
    /// Another call has unloaded it.
    pub(crate) fn unload_library(&self, space: &AddressSpace, engine: &Engine, library: &Library) -> CUresult {
        self.libraries.remove(library.handle.0).ok_or(CUerror::INVALID_HANDLE)?;
        for kernel in library.all_kernels() {
            self.kernels.remove(kernel.handle.0);
        }
        let modules = std::mem::take(&mut *library.modules());
        for module in modules.into_values() {
            // The destruction of its context may have unloaded it already.
            let _ended = self.unload_module(space, engine, &module);
        }
        let managed = std::mem::take(&mut *library.managed());
        managed.addresses.into_values().for_each(|address| space.free(address));
        Ok(())
    }

    /// Returns the module of a library in a context, and loads it on first use.
    pub(crate) fn module_in(
        &self,
        space: &AddressSpace,
        library: &Library,
        context: &Arc<Context>,
    ) -> Result<Arc<Module>, CUerror> {
        let mut modules = library.modules();
        if let Some(module) = modules.get(&context.id) {
            return Ok(Arc::clone(module));
        }
        modules.retain(|_, module| module.context().is_ok());
        let module = self.load_module(space, context, library.image()?, Some(library))?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
    }

    /// Returns whether a handle names a kernel of a library that is not loaded in a context.
    pub(crate) fn is_not_loaded(&self, handle: CUfunction, context: &Context) -> bool {
        let kernel = if self.functions.find(handle.0).is_none() { self.kernels.find(handle.0) } else { None };
        let library = kernel.and_then(|kernel| kernel.library.upgrade());
        library.is_some_and(|library| !library.modules().contains_key(&context.id))
    }

    /// Returns the function of a library kernel in a context.
    pub(crate) fn function_in(
        &self,
        space: &AddressSpace,
        kernel: &Kernel,
        context: &Arc<Context>,
    ) -> Result<Arc<Function>, CUerror> {
        let library = kernel.library.upgrade().ok_or(CUerror::INVALID_HANDLE)?;
        let module = self.module_in(space, &library, context)?;
        module.functions().get(kernel.index).cloned().ok_or(CUerror::INVALID_HANDLE)
    }

    /// Returns the function with a handle, or the library kernel's function in a context.
    pub(crate) fn find_function(
        &self,
        space: &AddressSpace,
        handle: CUfunction,
        context: impl FnOnce() -> Result<Arc<Context>, CUerror>,
    ) -> Result<Arc<Function>, CUerror> {
        if let Some(function) = self.functions.find(handle.0) {
            return Ok(function);
        }
        let kernel = self.kernels.get(handle.0)?;
        self.function_in(space, &kernel, &context()?)
    }

    /// Returns the context of a function of a module.
    pub(crate) fn context_of(&self, handle: CUfunction) -> Option<Arc<Context>> {
        self.functions.find(handle.0)?.context.upgrade()
    }

    /// Returns whether a handle that launches accept names a kernel of a library, not a function of a module.
    pub(crate) fn is_library_kernel(&self, handle: CUfunction) -> bool {
        self.functions.find(handle.0).is_none()
    }

    /// Removes the handles of the modules of a context that is being destroyed, and of their functions.
    pub(crate) fn remove_context(&self, context: &Context) {
        self.functions.remove_all(|function| context.is(&function.context));
        self.modules.remove_all(|module| context.is(&module.context));
    }
}

fn c_name(kernel: &freehold_ptx::Kernel) -> CString {
    CString::new(kernel.name.as_str()).expect("a name in PTX contains no NUL")
}

/// Allocates memory for all variables of an image. On failure it allocates nothing, except for variables of the library,
/// which keep their memory for the next attempt.
fn alloc_variables(
    space: &AddressSpace,
    context: &Arc<Context>,
    image: &Image,
    library: Option<&Library>,
) -> Result<Vec<Variable>, CUerror> {
    let mut variables: Vec<Variable> = Vec::new();
    for (index, variable) in image.variables().iter().enumerate() {
        let (name, bytes) = (variable.name.clone(), variable.bytes);
        let owner = if variable.managed && library.is_some() { VariableOwner::Library } else { VariableOwner::Module };
        match alloc_variable(space, context, index, variable, library) {
            Ok(address) => variables.push(Variable { name, address, bytes, owner }),
            Err(code) => {
                free_own(space, &variables);
                return Err(code);
            }
        }
    }
    Ok(variables)
}

fn alloc_variable(
    space: &AddressSpace,
    context: &Arc<Context>,
    index: usize,
    variable: &GlobalVariable,
    library: Option<&Library>,
) -> Result<u64, CUerror> {
    let (bytes, device) = (variable.bytes.max(1), context.device.ordinal);
    match library {
        _ if !variable.managed => space.alloc(context, bytes, SpanKind::Variable { constant: variable.constant }),
        None => space.alloc_managed(Some(Arc::clone(context)), device, bytes, true),
        Some(library) => {
            let mut managed = library.managed();
            if let Some(&address) = managed.addresses.get(&index) {
                return Ok(address);
            }
            let address = space.alloc_managed(None, device, bytes, true)?;
            managed.addresses.insert(index, address);
            Ok(address)
        }
    }
}

/// Writes the initial contents of variables. Those of a library have them already if it is loaded in another context.
fn initialize(
    space: &AddressSpace,
    variables: &[Variable],
    contents: &[Vec<u8>],
    library: Option<&Library>,
) -> CUresult {
    let has_content = library.is_some_and(|library| library.managed().is_initialized);
    for (variable, content) in variables.iter().zip(contents) {
        if has_content && variable.owner == VariableOwner::Library {
            continue;
        }
        let span = space.find_span(variable.address).ok_or(CUerror::CONTEXT_IS_DESTROYED)?;
        let mem = space.mem_ref(&span, variable.address);
        // Bytes without an initializer are zero.
        mem.fill(0, &[0], variable.bytes)?;
        mem.write(0, content)?;
    }
    if let Some(library) = library {
        library.managed().is_initialized = true;
    }
    Ok(())
}

/// Frees the variables that do not belong to a library.
fn free_own(space: &AddressSpace, variables: &[Variable]) {
    let own = variables.iter().filter(|variable| variable.owner == VariableOwner::Module);
    own.for_each(|variable| space.free(variable.address));
}
