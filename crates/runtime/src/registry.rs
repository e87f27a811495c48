//! Fat binaries, and the kernels and variables in them, which compiler-generated code registers before `main`.
//!
//! Registering stores pointers. A fat binary is loaded when the first of its kernels or variables is used, as a library of
//! the driver, which belongs to no context: a kernel handle is valid in every context.

use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use freehold_driver::cuda::{Api, CUdeviceptr, CUerror, CUfunction, CUkernel, CUlibrary};

use crate::calls;
use crate::code::CudaError;
use crate::process::{self, Process, none};

/// The struct that the compiler's host code passes to `__cudaRegisterFatBinary`.
#[repr(C)]
pub(crate) struct FatBinaryWrapper {
    magic: u32,
    version: u32,
    /// A container of images: machine code and PTX.
    data: *const c_void,
    file_or_fat_binaries: *mut c_void,
}

const WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// A registered fat binary. Its address is the handle that host code passes to the other functions.
pub(crate) struct FatBinary {
    /// The container of images, in the program's data.
    image: *const c_void,
    library: OnceLock<Result<CUlibrary, CudaError>>,
    /// Managed variables: where the program keeps the address, and the name.
    managed: Mutex<Vec<(*mut *mut c_void, *const c_char)>>,
}

// SAFETY: the pointers are not `Send` or `Sync`: they point to data of the program that is not written after its
// registration, and `managed` is behind a mutex.
unsafe impl Send for FatBinary {}
// SAFETY: as above.
unsafe impl Sync for FatBinary {}

/// A kernel, by the address of its host stub.
struct Kernel {
    binary: &'static FatBinary,
    name: *const c_char,
    handle: OnceLock<Result<CUkernel, CudaError>>,
}

// SAFETY: `name` is a NUL-terminated constant of the program.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

/// A variable, by the address of its host shadow.
#[derive(Clone, Copy)]
struct Variable {
    binary: &'static FatBinary,
    name: *const c_char,
    bytes: usize,
    is_managed: bool,
}

// SAFETY: `name` is a NUL-terminated constant of the program.
unsafe impl Send for Variable {}
// SAFETY: as above.
unsafe impl Sync for Variable {}

/// Memory of a variable on the device of the current context.
#[derive(Clone, Copy)]
pub(crate) struct Symbol {
    pub(crate) start: CUdeviceptr,
    pub(crate) bytes: usize,
}

#[derive(Default)]
struct Registry {
    kernels: HashMap<usize, &'static Kernel>,
    variables: HashMap<usize, Variable>,
    /// The kernels of libraries that the program loaded itself, with their libraries.
    handles: HashMap<usize, CUlibrary>,
}

static REGISTRY: OnceLock<RwLock<Registry>> = OnceLock::new();

/// Whether [`kernel_or_stub`] has returned a stub.
static HAS_UNLOADABLE: AtomicBool = AtomicBool::new(false);

fn registry() -> &'static RwLock<Registry> {
    REGISTRY.get_or_init(RwLock::default)
}

fn look<R>(at: impl FnOnce(&Registry) -> R) -> R {
    at(&registry().read().unwrap_or_else(PoisonError::into_inner))
}

fn change<R>(change: impl FnOnce(&mut Registry) -> R) -> R {
    change(&mut registry().write().unwrap_or_else(PoisonError::into_inner))
}

/// Registers a fat binary, and returns its handle.
///
/// # Safety
/// `wrapper` must point to a wrapper that lives until [`unregister`] is called with the handle.
pub(crate) unsafe fn register(wrapper: *const FatBinaryWrapper) -> *mut FatBinary {
    // SAFETY: the caller guarantees that the wrapper is valid.
    let wrapper = unsafe { &*wrapper };
    let image = if wrapper.magic == WRAPPER_MAGIC { wrapper.data } else { ptr::null() };
    Box::into_raw(Box::new(FatBinary { image, library: OnceLock::new(), managed: Mutex::default() }))
}

/// Forgets a fat binary with its kernels and variables, and unloads it.
///
/// # Safety
/// The handle must come from [`register`], and must not be used again.
pub(crate) unsafe fn unregister(handle: *mut FatBinary) {
    change(|registry| {
        registry.kernels.retain(|_, kernel| !ptr::eq(kernel.binary, handle));
        registry.variables.retain(|_, variable| !ptr::eq(variable.binary, handle));
    });
    // The memory of the handle is kept: another thread may be about to use a kernel that it looked up before.
    // SAFETY: the caller guarantees that the handle is valid, and a fat binary is never deallocated.
    let binary = unsafe { &*handle };
    if let (Some(Ok(library)), Ok(process)) = (binary.library.get(), process::get()) {
        // A driver that is shutting down has unloaded it.
        // SAFETY: the library was loaded by this driver, and nothing finds it any more.
        let _unloaded = unsafe { calls::unload_object(&process.api, *library) };
    }
}

/// Registers a kernel under the address of its host stub.
///
/// # Safety
/// The handle must come from [`register`]; `name` must be a NUL-terminated string that lives as long as the handle.
pub(crate) unsafe fn register_kernel(handle: *mut FatBinary, stub: *const c_void, name: *const c_char) {
    // SAFETY: the caller guarantees that the handle is valid, and a fat binary is never deallocated.
    let binary = unsafe { &*handle };
    let kernel = Box::leak(Box::new(Kernel { binary, name, handle: OnceLock::new() }));
    change(|registry| registry.kernels.insert(stub.addr(), kernel));
}

/// Registers a variable under the address of its host shadow.
///
/// # Safety
/// As for [`register_kernel`].
pub(crate) unsafe fn register_variable(
    handle: *mut FatBinary,
    shadow: *const c_void,
    name: *const c_char,
    bytes: usize,
) {
    // SAFETY: the caller guarantees that the handle is valid, and a fat binary is never deallocated.
    let binary = unsafe { &*handle };
    change(|registry| registry.variables.insert(shadow.addr(), Variable { binary, name, bytes, is_managed: false }));
}

/// Registers a managed variable, whose address the program keeps at `place`.
///
/// # Safety
/// As for [`register_kernel`]; `place` must be valid for writes for as long as the handle.
pub(crate) unsafe fn register_managed(
    handle: *mut FatBinary,
    place: *mut *mut c_void,
    name: *const c_char,
    bytes: usize,
) {
    // SAFETY: the caller guarantees that the handle is valid, and a fat binary is never deallocated.
    let binary = unsafe { &*handle };
    binary.managed.lock().unwrap_or_else(PoisonError::into_inner).push((place, name));
    change(|registry| registry.variables.insert(place.addr(), Variable { binary, name, bytes, is_managed: true }));
}

/// Allocates the managed variables of a fat binary, and tells the program their addresses.
///
/// # Safety
/// The handle must come from [`register`].
pub(crate) unsafe fn init_managed(handle: *mut FatBinary) -> Result<(), CudaError> {
    // SAFETY: the caller guarantees that the handle is valid, and a fat binary is never deallocated.
    let binary = unsafe { &*handle };
    let mut managed = binary.managed.lock().unwrap_or_else(PoisonError::into_inner);
    if managed.is_empty() {
        return Ok(());
    }
    let process = process::with_context()?;
    let library = binary.library(process)?;
    let find = |&(_, name): &(*mut *mut c_void, *const c_char)| managed_variable(&process.api, library, name);
    let found = managed.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    for ((place, name), Symbol { start, bytes }) in managed.drain(..).zip(found) {
        // Host code names the variable by the address of its memory.
        let variable = Variable { binary, name, bytes, is_managed: true };
        change(|registry| registry.variables.insert(start.0 as usize, variable));
        // SAFETY: the caller of `register_managed` guarantees that the output pointer is valid.
        unsafe { place.write(start.0 as *mut c_void) };
    }
    Ok(())
}

impl FatBinary {
    /// Returns the library, which the first call loads.
    fn library(&self, process: &Process) -> Result<CUlibrary, CudaError> {
        *self.library.get_or_init(|| {
            if self.image.is_null() {
                return Err(CudaError::INVALID_KERNEL_IMAGE);
            }
            let mut library = CUlibrary::NULL;
            // SAFETY: the image is a container of a registered fat binary, and no options are passed.
            let loaded = unsafe {
                (process.api.cuLibraryLoadData)(&raw mut library, self.image, none(), none(), 0, none(), none(), 0)
            };
            loaded.map(|()| library).map_err(CudaError::from)
        })
    }
}

/// Returns the kernel of a host stub, as a function of the driver.
///
/// # Errors
/// `cudaErrorInvalidResourceHandle` if the function is not the stub of a kernel, `cudaErrorInvalidDeviceFunction` if the image
/// lacks the kernel, and the errors of loading its image.
pub(crate) fn function(process: &Process, stub: *const c_void) -> Result<CUfunction, CudaError> {
    // The driver takes a kernel wherever it takes a function.
    match kernel(process, stub) {
        // A handle from the driver, or from another runtime. The driver refuses others, or crashes, as under NVIDIA's runtime.
        Err(CudaError::INVALID_RESOURCE_HANDLE) if !is_in_object(stub) => Ok(CUfunction(stub.addr())),
        found => found.map(|kernel| CUfunction(kernel.0)),
    }
}

/// Returns the kernel of a host stub, or the kernel itself if it is one: the runtime accepts both.
pub(crate) fn kernel(process: &Process, stub: *const c_void) -> Result<CUkernel, CudaError> {
    let (kernel, is_handle) =
        look(|registry| (registry.kernels.get(&stub.addr()).copied(), registry.handles.contains_key(&stub.addr())));
    if is_handle && kernel.is_none() {
        return Ok(CUkernel(stub.addr()));
    }
    let unknown = if stub.is_null() { CudaError::INVALID_DEVICE_FUNCTION } else { CudaError::INVALID_RESOURCE_HANDLE };
    let kernel = kernel.ok_or(unknown)?;
    *kernel.handle.get_or_init(|| {
        let library = kernel.binary.library(process)?;
        let mut handle = CUkernel::NULL;
        // SAFETY: the library is loaded, and the name is a NUL-terminated constant of the program.
        match unsafe { (process.api.cuLibraryGetKernel)(&raw mut handle, library, kernel.name) } {
            Ok(()) => Ok(handle),
            Err(CUerror::NOT_FOUND) => Err(CudaError::INVALID_DEVICE_FUNCTION),
            Err(error) => Err(error.into()),
        }
    })
}

/// Returns whether an address lies in an object of the program, as host functions do and handles of the driver do not.
fn is_in_object(address: *const c_void) -> bool {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked about, and `found` is a place for the answer.
    unsafe { libc::dladdr(address, found.as_mut_ptr()) != 0 }
}

/// Returns the kernel of a host stub or, if that cannot be loaded, the stub itself: host code asks once, whatever the answer,
/// and the error is that of each launch, as [`check_loaded`] returns it.
pub(crate) fn kernel_or_stub(process: &Process, stub: *const c_void) -> Result<CUkernel, CudaError> {
    match kernel(process, stub) {
        Err(_) if look(|registry| registry.kernels.contains_key(&stub.addr())) => {
            HAS_UNLOADABLE.store(true, Ordering::Release);
            Ok(CUkernel(stub.addr()))
        }
        found => found,
    }
}

/// Returns the error of a kernel that could not be loaded, by what [`kernel_or_stub`] returned for it.
pub(crate) fn check_loaded(kernel: CUkernel) -> Result<(), CudaError> {
    if !HAS_UNLOADABLE.load(Ordering::Acquire) {
        return Ok(());
    }
    match look(|registry| registry.kernels.get(&kernel.0).and_then(|kernel| kernel.handle.get().copied())) {
        Some(Err(error)) => Err(error),
        _ => Ok(()),
    }
}

/// Returns the host stub of a kernel that was used.
pub(crate) fn stub(kernel: CUkernel) -> Option<*mut c_void> {
    let is_kernel = |found: &&Kernel| found.handle.get() == Some(&Ok(kernel));
    look(|registry| registry.kernels.iter().find(|(_, found)| is_kernel(found)).map(|(&stub, _)| stub as *mut c_void))
}

/// Returns the registered kernels that were used.
pub(crate) fn loaded_kernels() -> Vec<CUkernel> {
    let handle = |kernel: &&Kernel| kernel.handle.get().copied().and_then(Result::ok);
    look(|registry| registry.kernels.values().filter_map(handle).collect())
}

/// Remembers kernels that the program got from a library: it may pass them wherever it may pass a host stub.
pub(crate) fn remember_kernels(library: CUlibrary, kernels: &[CUkernel]) {
    change(|registry| registry.handles.extend(kernels.iter().map(|kernel| (kernel.0, library))));
}

/// Forgets the kernels of a library that was unloaded.
pub(crate) fn forget_library(library: CUlibrary) {
    change(|registry| registry.handles.retain(|_, of| *of != library));
}

/// Returns the memory of a variable on the device of the current context.
///
/// # Errors
/// `cudaErrorInvalidSymbol` if no variable has this shadow, and what loading its image returns.
pub(crate) fn symbol(process: &Process, shadow: *const c_void) -> Result<Symbol, CudaError> {
    let variable = look(|registry| registry.variables.get(&shadow.addr()).copied());
    let variable = variable.ok_or(CudaError::INVALID_SYMBOL)?;
    let library = variable.binary.library(process)?;
    let mut found = if variable.is_managed {
        managed_variable(&process.api, library, variable.name)?
    } else {
        global_variable(&process.api, library, variable.name)?
    };
    if variable.bytes > 0 {
        found.bytes = variable.bytes;
    }
    Ok(found)
}

fn global_variable(api: &Api, library: CUlibrary, name: *const c_char) -> Result<Symbol, CudaError> {
    let mut found = Symbol { start: CUdeviceptr::NULL, bytes: 0 };
    // SAFETY: the library is loaded, and the name is a NUL-terminated constant of the program.
    match unsafe { (api.cuLibraryGetGlobal)(&raw mut found.start, &raw mut found.bytes, library, name) } {
        Ok(()) => Ok(found),
        Err(CUerror::NOT_FOUND) => Err(CudaError::INVALID_SYMBOL),
        Err(error) => Err(error.into()),
    }
}

fn managed_variable(api: &Api, library: CUlibrary, name: *const c_char) -> Result<Symbol, CudaError> {
    let mut found = Symbol { start: CUdeviceptr::NULL, bytes: 0 };
    // SAFETY: the library is loaded, and the name is a NUL-terminated constant of the program.
    match unsafe { (api.cuLibraryGetManaged)(&raw mut found.start, &raw mut found.bytes, library, name) } {
        Ok(()) => Ok(found),
        Err(CUerror::NOT_FOUND) => Err(CudaError::INVALID_SYMBOL),
        Err(error) => Err(error.into()),
    }
}
