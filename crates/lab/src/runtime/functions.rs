//! The table of the CUDA runtime's functions, loaded from a library of the documented C interface.
//!
//! Pointers and handles are numbers here, and a place for an answer is an optional reference, which has the layout of a
//! pointer that may be null. Only functions whose signature has been the same since CUDA 12.8 are listed.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// A place for an answer, or null.
type Out<'a, T> = Option<&'a mut T>;

/// The size of a grid or a block.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Dim3(pub(crate) u32, pub(crate) u32, pub(crate) u32);

/// `cudaPointerAttributes`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    pub(crate) kind: i32,
    pub(crate) device: i32,
    pub(crate) device_pointer: u64,
    pub(crate) host_pointer: u64,
    pub(crate) reserved: [i64; 8],
}

/// `cudaFuncAttributes`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct FuncAttributes {
    pub(crate) shared_bytes: usize,
    pub(crate) const_bytes: usize,
    pub(crate) local_bytes: usize,
    pub(crate) threads_max: i32,
    pub(crate) registers: i32,
    pub(crate) ptx_version: i32,
    pub(crate) binary_version: i32,
    pub(crate) cache_mode: i32,
    pub(crate) dynamic_shared_bytes_max: i32,
    pub(crate) shared_carveout: i32,
    pub(crate) cluster: [i32; 6],
    pub(crate) reserved: [i32; 16],
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `cudaMemPoolProps`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PoolProps {
    pub(crate) alloc_type: i32,
    pub(crate) handle_types: i32,
    pub(crate) location_type: i32,
    pub(crate) location_id: i32,
    pub(crate) security_attributes: u64,
    pub(crate) bytes_max: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u16; 27],
}

/// Why a library cannot be used as a CUDA runtime.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("failed to load the CUDA runtime {}: {source}", .path.display())]
    Library { path: PathBuf, source: libloading::Error },
    #[error("{} is not a CUDA runtime of version 12.8 or later: it has no {name}", .path.display())]
    Missing { path: PathBuf, name: &'static str },
    #[error(transparent)]
    Driver(#[from] freehold_driver::cuda::load::LibraryError),
}

/// A call that returned an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeError {
    pub(crate) call: &'static str,
    /// As `cudaGetErrorName` says.
    pub(crate) name: String,
}

macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
        /// The functions of one runtime. Experiments answer for their calls as for those of a driver's table: addresses
        /// are memory that the runtime has returned, or host memory that lives until the process ends; where an
        /// experiment passes another, the end of its process is the answer.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Functions {
            error_name: unsafe extern "C" fn(u32) -> *const c_char,
            $($name: unsafe extern "C" fn($($kind),*) -> u32,)*
        }

        impl Functions {
            /// Loads the library, which stays for the rest of the process.
            pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
                let library = open(path)?;
                let missing = |name| LoadError::Missing { path: path.to_owned(), name };
                let functions = Self {
                    // SAFETY: the documented function of this name has this signature.
                    error_name: *unsafe { library.get(b"cudaGetErrorName\0") }.map_err(|_| missing("cudaGetErrorName"))?,
                    // SAFETY: the documented functions of these names have these signatures.
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| missing(stringify!($name)))?,)*
                };
                std::mem::forget(library);
                Ok(functions)
            }

            $(#[allow(clippy::too_many_arguments, reason = "as in C")]
            pub(crate) fn $name(&self, $($argument: $kind),*) -> Result<(), RuntimeError> {
                // SAFETY: as the type says.
                let code = unsafe { (self.$name)($($argument),*) };
                self.check(stringify!($name), code)
            })*
        }
    };
}

functions! {
    fn cudaGetLastError();
    fn cudaPeekAtLastError();
    fn cudaRuntimeGetVersion(version: Out<'_, i32>);
    fn cudaDriverGetVersion(version: Out<'_, i32>);
    fn cudaGetDeviceCount(count: Out<'_, i32>);
    fn cudaGetDevice(device: Out<'_, i32>);
    fn cudaSetDevice(device: i32);
    fn cudaInitDevice(device: i32, device_flags: u32, flags: u32);
    fn cudaSetDeviceFlags(flags: u32);
    fn cudaGetDeviceFlags(flags: Out<'_, u32>);
    fn cudaDeviceGetAttribute(value: Out<'_, i32>, attribute: i32, device: i32);
    fn cudaDeviceSetLimit(limit: i32, value: usize);
    fn cudaDeviceGetStreamPriorityRange(least: Out<'_, i32>, greatest: Out<'_, i32>);
    fn cudaDeviceCanAccessPeer(can: Out<'_, i32>, device: i32, peer: i32);
    fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32);
    fn cudaDeviceDisablePeerAccess(peer: i32);
    fn cudaDeviceGetP2PAttribute(value: Out<'_, i32>, attribute: i32, from: i32, to: i32);
    fn cudaDeviceSynchronize();
    fn cudaDeviceReset();

    fn cudaMalloc(start: Out<'_, u64>, bytes: usize);
    fn cudaMallocPitch(start: Out<'_, u64>, pitch: Out<'_, usize>, width: usize, height: usize);
    fn cudaMallocManaged(start: Out<'_, u64>, bytes: usize, flags: u32);
    fn cudaFree(start: u64);
    fn cudaMallocHost(start: Out<'_, u64>, bytes: usize);
    fn cudaHostAlloc(start: Out<'_, u64>, bytes: usize, flags: u32);
    fn cudaFreeHost(start: u64);
    fn cudaHostRegister(start: u64, bytes: usize, flags: u32);
    fn cudaHostUnregister(start: u64);
    fn cudaHostGetDevicePointer(pointer: Out<'_, u64>, start: u64, flags: u32);
    fn cudaHostGetFlags(flags: Out<'_, u32>, start: u64);
    fn cudaMemGetInfo(free: Out<'_, usize>, total: Out<'_, usize>);
    fn cudaPointerGetAttributes(attributes: Out<'_, PointerAttributes>, address: u64);
    fn cudaMemcpy(to: u64, from: u64, bytes: usize, kind: i32);
    fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, kind: i32, stream: u64);
    fn cudaMemcpyPeer(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize);
    fn cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: i32);
    fn cudaMemset(start: u64, value: i32, bytes: usize);
    fn cudaMemsetAsync(start: u64, value: i32, bytes: usize, stream: u64);
    fn cudaMemset2D(start: u64, pitch: usize, value: i32, width: usize, height: usize);
    fn cudaIpcGetMemHandle(handle: Out<'_, IpcHandle>, start: u64);
    fn cudaIpcOpenMemHandle(start: Out<'_, u64>, handle: IpcHandle, flags: u32);
    fn cudaIpcCloseMemHandle(start: u64);
    fn cudaIpcGetEventHandle(handle: Out<'_, IpcHandle>, event: u64);

    fn cudaMallocAsync(start: Out<'_, u64>, bytes: usize, stream: u64);
    fn cudaMallocFromPoolAsync(start: Out<'_, u64>, bytes: usize, pool: u64, stream: u64);
    fn cudaFreeAsync(start: u64, stream: u64);
    fn cudaMemPoolCreate(pool: Out<'_, u64>, properties: Option<&PoolProps>);
    fn cudaMemPoolDestroy(pool: u64);
    fn cudaMemPoolTrimTo(pool: u64, keep_bytes: usize);
    fn cudaMemPoolGetAttribute(pool: u64, attribute: i32, value: Out<'_, u64>);
    fn cudaDeviceGetDefaultMemPool(pool: Out<'_, u64>, device: i32);
    fn cudaDeviceGetMemPool(pool: Out<'_, u64>, device: i32);
    fn cudaDeviceSetMemPool(device: i32, pool: u64);

    fn cudaStreamCreate(stream: Out<'_, u64>);
    fn cudaStreamCreateWithFlags(stream: Out<'_, u64>, flags: u32);
    fn cudaStreamCreateWithPriority(stream: Out<'_, u64>, flags: u32, priority: i32);
    fn cudaStreamDestroy(stream: u64);
    fn cudaStreamSynchronize(stream: u64);
    fn cudaStreamQuery(stream: u64);
    fn cudaStreamWaitEvent(stream: u64, event: u64, flags: u32);
    fn cudaStreamGetPriority(stream: u64, priority: Out<'_, i32>);
    fn cudaStreamGetFlags(stream: u64, flags: Out<'_, u32>);
    fn cudaStreamGetId(stream: u64, id: Out<'_, u64>);
    fn cudaStreamAddCallback(stream: u64, callback: Option<extern "C" fn(u64, u32, u64)>, data: u64, flags: u32);
    fn cudaLaunchHostFunc(stream: u64, work: Option<extern "C" fn(u64)>, data: u64);

    fn cudaEventCreate(event: Out<'_, u64>);
    fn cudaEventCreateWithFlags(event: Out<'_, u64>, flags: u32);
    fn cudaEventDestroy(event: u64);
    fn cudaEventRecord(event: u64, stream: u64);
    fn cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32);
    fn cudaEventQuery(event: u64);
    fn cudaEventSynchronize(event: u64);
    fn cudaEventElapsedTime(milliseconds: Out<'_, f32>, start: u64, end: u64);

    fn cudaLibraryLoadData(library: Out<'_, u64>, code: u64, options: u64, values: u64, count: u32, library_options: u64, library_values: u64, library_count: u32);
    fn cudaLibraryUnload(library: u64);
    fn cudaLibraryGetKernel(kernel: Out<'_, u64>, library: u64, name: *const c_char);
    fn cudaLibraryGetGlobal(start: Out<'_, u64>, bytes: Out<'_, usize>, library: u64, name: *const c_char);
    fn cudaLibraryGetKernelCount(count: Out<'_, u32>, library: u64);
    fn cudaLaunchKernel(function: u64, grid: Dim3, block: Dim3, arguments: u64, shared_bytes: usize, stream: u64);
    fn cudaLaunchCooperativeKernel(function: u64, grid: Dim3, block: Dim3, arguments: u64, shared_bytes: usize, stream: u64);
    fn cudaFuncGetAttributes(attributes: Out<'_, FuncAttributes>, function: u64);
    fn cudaFuncSetAttribute(function: u64, attribute: i32, value: i32);
    fn cudaFuncGetName(name: Out<'_, u64>, function: u64);
    fn cudaFuncGetParamInfo(function: u64, index: usize, offset: Out<'_, usize>, bytes: Out<'_, usize>);
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: Out<'_, i32>, function: u64, block_size: i32, shared_bytes: usize);
    fn cudaOccupancyAvailableDynamicSMemPerBlock(bytes: Out<'_, usize>, function: u64, blocks: i32, block_size: i32);
    fn cudaGetSymbolAddress(start: Out<'_, u64>, symbol: u64);
    fn cudaGetSymbolSize(bytes: Out<'_, usize>, symbol: u64);
    fn cudaMemcpyToSymbol(symbol: u64, from: u64, bytes: usize, offset: usize, kind: i32);
    fn cudaGetDriverEntryPointByVersion(name: *const c_char, function: Out<'_, u64>, version: u32, flags: u64, status: Out<'_, i32>);

    fn cudaStreamBeginCapture(stream: u64, mode: i32);
    fn cudaStreamEndCapture(stream: u64, graph: Out<'_, u64>);
    fn cudaStreamIsCapturing(stream: u64, status: Out<'_, i32>);
    fn cudaThreadExchangeStreamCaptureMode(mode: Out<'_, i32>);
    fn cudaGraphGetNodes(graph: u64, nodes: u64, count: Out<'_, usize>);
    fn cudaGraphInstantiate(exec: Out<'_, u64>, graph: u64, flags: u64);
    fn cudaGraphLaunch(exec: u64, stream: u64);
    fn cudaGraphExecDestroy(exec: u64);
    fn cudaGraphDestroy(graph: u64);
}

impl Functions {
    /// Turns a code into its name.
    fn check(&self, call: &'static str, code: u32) -> Result<(), RuntimeError> {
        if code == 0 { Ok(()) } else { Err(RuntimeError { call, name: self.error_name(code) }) }
    }

    /// Returns what `cudaGetErrorName` says.
    pub(crate) fn error_name(&self, code: u32) -> String {
        // SAFETY: the function takes any number.
        let name = unsafe { (self.error_name)(code) };
        // SAFETY: the function returns a constant that ends in a NUL.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Returns the file that the functions were loaded from.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        let function = self.error_name as *const () as *const c_void;
        // SAFETY: `found` has room for the answer, and any address may be asked about.
        if unsafe { libc::dladdr(function, found.as_mut_ptr()) } == 0 {
            return None;
        }
        // SAFETY: zeros are a valid value, and the call may have written another.
        let name = unsafe { found.assume_init() }.dli_fname;
        // SAFETY: the name is the dynamic linker's, which keeps it as long as the library is loaded.
        Some(OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()).into())
    }
}

/// Opens a library by its path, or by its name as the dynamic linker does.
pub fn open(path: &Path) -> Result<Library, LoadError> {
    // SAFETY: the library is a CUDA runtime, whose initializers touch no device.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    library.map_err(|source| LoadError::Library { path: path.to_owned(), source })
}
