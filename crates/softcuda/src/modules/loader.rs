//! Loads images: as modules into contexts, and as libraries, which become a module in each context on first use.

use std::ffi::CString;
use std::sync::{Arc, Mutex, Weak};

use freehold_driver::cuda::{CUerror, CUfunction, CUkernel, CUlibrary, CUmodule, CUresult};
use freehold_ptx::Image;

use super::function::{Function, Settings};
use super::library::{Kernel, Library};
use super::module::{Module, Variable};
use crate::base::handle_table::{HandleKind, HandleRange, HandleReuse, HandleTable};
use crate::engine::Engine;
use crate::memory::mem_ref::MemRef;
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

    /// Loads an image into a context. The kernels of a library have their own settings.
    pub(crate) fn load_module(
        &self,
        space: &AddressSpace,
        context: &Arc<Context>,
        image: &Image,
        settings: Option<&[Arc<Mutex<Settings>>]>,
    ) -> Result<Arc<Module>, CUerror> {
        let variables = alloc_variables(space, context, image)?;
        let addresses: Vec<_> = variables.iter().map(|variable| variable.address).collect();
        let (program, contents) = image.relocate(&addresses);
        for (variable, content) in variables.iter().zip(&contents) {
            // Bytes without an initializer are zero.
            let mem = MemRef::device(&context.device.memory.arena, variable.address);
            mem.fill(0, &[0], variable.bytes)?;
            mem.write(0, content)?;
        }
        let (_, module) = self
            .modules
            .insert_with(|handle| Arc::new(Module::new(CUmodule(handle), context, settings.is_some(), variables)));
        let constants = image.variables().iter().filter(|variable| variable.constant);
        let constant_bytes = constants.map(|variable| variable.bytes).sum();
        let functions = program.kernels().iter().enumerate().map(|(index, kernel)| {
            let settings = match settings {
                Some(settings) => Arc::clone(&settings[index]),
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
        }
        if let Some(context) = module.context.upgrade() {
            context.synchronize(engine);
            context.flush_printf();
        }
        module.variables.iter().for_each(|variable| space.free(variable.address));
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
        let kernels = library.all_kernels().iter();
        let settings: Vec<_> = kernels.map(|kernel| Arc::clone(kernel.settings(context.device.ordinal))).collect();
        let module = self.load_module(space, context, library.image()?, Some(&settings))?;
        modules.insert(context.id, Arc::clone(&module));
        Ok(module)
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

/// Allocates memory for all variables of an image. On failure it allocates nothing.
fn alloc_variables(space: &AddressSpace, context: &Arc<Context>, image: &Image) -> Result<Vec<Variable>, CUerror> {
    let mut variables: Vec<Variable> = Vec::new();
    for variable in image.variables() {
        let kind = SpanKind::Variable { constant: variable.constant };
        match space.alloc(context, variable.bytes.max(1), kind) {
            Ok(address) => variables.push(Variable { name: variable.name.clone(), address, bytes: variable.bytes }),
            Err(code) => {
                variables.iter().for_each(|variable| space.free(variable.address));
                return Err(code);
            }
        }
    }
    Ok(variables)
}
