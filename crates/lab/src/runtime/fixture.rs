//! The fixture of runtime experiments: a runtime, the driver under it, and short forms of the calls that most need.

use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::path::Path;
use std::thread;

use freehold_driver::cuda::load::{self, LIBRARY};
use freehold_driver::cuda::{Api, CUcontext, CUdevice, CUdeviceptr, context, driver};

use super::functions::{Dim3, Functions, LoadError, RuntimeError};
use crate::failure::Failure;
use crate::host_buffer::HostBuffer;
use crate::kernels;

/// Flags and handles of `driver_types.h`.
pub(super) const LEGACY: u64 = 1;
pub(super) const PER_THREAD: u64 = 2;
pub(super) const NON_BLOCKING: u32 = 1;
pub(super) const HOST_TO_HOST: i32 = 0;
pub(super) const TO_DEVICE: i32 = 1;
pub(super) const TO_HOST: i32 = 2;
pub(super) const ON_DEVICE: i32 = 3;
pub(super) const DEFAULT: i32 = 4;
pub(super) const DISABLE_TIMING: u32 = 2;
pub(super) const INTERPROCESS: u32 = 4;
pub(super) const MAPPED: u32 = 2;
pub(super) const ATTACH_GLOBAL: u32 = 1;

/// The size of most blocks.
pub(super) const BYTES: usize = 4096;
pub(super) const MIB: usize = 1 << 20;

/// One block, and one thread.
pub(super) const ONE: Dim3 = Dim3(1, 1, 1);

/// A runtime on which nothing was called yet.
#[derive(Debug)]
pub(crate) struct Fixture {
    functions: Functions,
    /// The driver that the runtime uses.
    pub(super) driver: Api,
}

impl Deref for Fixture {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Fixture {
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let functions = Functions::load(path)?;
        // SAFETY: the library of this name is a CUDA driver. An experiment has its own process, and uses only what it
        // has created.
        let driver = unsafe { load::load(Path::new(LIBRARY)) }.map_err(LoadError::Driver)?;
        Ok(Self { functions, driver })
    }

    /// Creates the primary context, and makes it current.
    pub(super) fn init(&self) -> Result<(), RuntimeError> {
        self.cudaFree(0)
    }

    pub(super) fn device_count(&self) -> Result<i32, RuntimeError> {
        let mut count = 0;
        self.cudaGetDeviceCount(Some(&mut count)).map(|()| count)
    }

    pub(super) fn malloc(&self, bytes: usize) -> Result<u64, RuntimeError> {
        let mut start = 0;
        self.cudaMalloc(Some(&mut start), bytes).map(|()| start)
    }

    /// Allocates a block of zeros.
    pub(super) fn zeros(&self, bytes: usize) -> Result<u64, RuntimeError> {
        let start = self.malloc(bytes)?;
        self.cudaMemset(start, 0, bytes)?;
        self.cudaDeviceSynchronize()?;
        Ok(start)
    }

    pub(super) fn malloc_async(&self, bytes: usize, stream: u64) -> Result<u64, RuntimeError> {
        let mut start = 0;
        self.cudaMallocAsync(Some(&mut start), bytes, stream).map(|()| start)
    }

    pub(super) fn managed(&self, bytes: usize) -> Result<u64, RuntimeError> {
        let mut start = 0;
        self.cudaMallocManaged(Some(&mut start), bytes, ATTACH_GLOBAL).map(|()| start)
    }

    pub(super) fn pinned(&self, bytes: usize) -> Result<u64, RuntimeError> {
        let mut start = 0;
        self.cudaMallocHost(Some(&mut start), bytes).map(|()| start)
    }

    /// Allocates host memory that the runtime does not know.
    pub(super) fn pageable(&self, bytes: usize) -> u64 {
        HostBuffer::pageable(bytes).address().0
    }

    /// Creates a stream that the legacy default stream waits for.
    pub(super) fn stream(&self) -> Result<u64, RuntimeError> {
        let mut stream = 0;
        self.cudaStreamCreate(Some(&mut stream)).map(|()| stream)
    }

    pub(super) fn non_blocking(&self) -> Result<u64, RuntimeError> {
        let mut stream = 0;
        self.cudaStreamCreateWithFlags(Some(&mut stream), NON_BLOCKING).map(|()| stream)
    }

    pub(super) fn event(&self, flags: u32) -> Result<u64, RuntimeError> {
        let mut event = 0;
        self.cudaEventCreateWithFlags(Some(&mut event), flags).map(|()| event)
    }

    pub(super) fn free_bytes(&self) -> Result<usize, RuntimeError> {
        let (mut free, mut total) = (0, 0);
        self.cudaMemGetInfo(Some(&mut free), Some(&mut total)).map(|()| free)
    }

    /// Loads PTX of the lab.
    pub(super) fn library(&self, text: &CStr) -> Result<u64, RuntimeError> {
        let mut library = 0;
        self.cudaLibraryLoadData(Some(&mut library), text.as_ptr() as u64, 0, 0, 0, 0, 0, 0).map(|()| library)
    }

    pub(super) fn kernel_of(&self, library: u64, name: &CStr) -> Result<u64, RuntimeError> {
        let mut kernel = 0;
        self.cudaLibraryGetKernel(Some(&mut kernel), library, name.as_ptr()).map(|()| kernel)
    }

    /// Returns a kernel of `kernels.ptx`.
    pub(super) fn kernel(&self, name: &CStr) -> Result<u64, RuntimeError> {
        self.kernel_of(self.library(kernels::KERNELS)?, name)
    }

    /// Returns a kernel of `faults.ptx`.
    pub(super) fn faulty_kernel(&self, name: &CStr) -> Result<u64, RuntimeError> {
        self.kernel_of(self.library(kernels::FAULTS)?, name)
    }

    /// Launches one thread of a kernel, whose parameters have at most eight bytes each.
    pub(super) fn launch(&self, kernel: u64, stream: u64, arguments: &[u64]) -> Result<(), RuntimeError> {
        self.launch_shaped(kernel, (ONE, ONE, 0), stream, arguments)
    }

    /// Launches with a grid, a block and bytes of dynamic shared memory.
    pub(super) fn launch_shaped(
        &self,
        kernel: u64,
        (grid, block, shared_bytes): (Dim3, Dim3, usize),
        stream: u64,
        arguments: &[u64],
    ) -> Result<(), RuntimeError> {
        let places: Vec<*const c_void> = arguments.iter().map(|value| std::ptr::from_ref(value).cast()).collect();
        self.cudaLaunchKernel(kernel, grid, block, places.as_ptr() as u64, shared_bytes, stream)
    }

    /// Returns the bytes of memory that the runtime can read.
    pub(super) fn bytes_at(&self, from: u64, bytes: usize) -> Result<Vec<u8>, RuntimeError> {
        let host = HostBuffer::pageable(bytes);
        self.cudaMemcpy(host.address().0, from, bytes, DEFAULT)?;
        Ok(host.to_vec())
    }

    pub(super) fn word_at(&self, from: u64) -> Result<u32, RuntimeError> {
        let bytes = self.bytes_at(from, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Runs a kernel that writes to an address that does not exist, until its fault is known.
    pub(super) fn fault(&self) -> Result<RuntimeError, Failure> {
        let store = self.faulty_kernel(c"store")?;
        self.launch(store, 0, &[0x10, 1])?;
        match self.cudaDeviceSynchronize() {
            Ok(()) => Err(Failure::NoFault),
            Err(fault) => {
                // So that only the experiment's own calls set the last error.
                self.forget_error();
                Ok(fault)
            }
        }
    }

    /// Makes the runtime forget the last error, and returns it.
    pub(super) fn forget_error(&self) -> Option<RuntimeError> {
        self.cudaGetLastError().err()
    }

    /// Returns the device of the runtime's threads, after the driver's start.
    pub(super) fn driver_device(&self) -> Result<CUdevice, Failure> {
        driver::init(&self.driver, 0)?;
        Ok(CUdevice(0))
    }

    /// Returns the context that is current for the driver.
    pub(super) fn current(&self) -> Result<CUcontext, Failure> {
        driver::init(&self.driver, 0)?;
        Ok(context::current(&self.driver)?)
    }

    /// Returns what another thread says.
    pub(super) fn in_thread<T: Send>(&self, ask: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(ask).join().expect("the thread does not panic"))
    }
}

/// Formats a call's code.
pub(super) fn code<T>(outcome: Result<T, RuntimeError>) -> String {
    match outcome {
        Ok(_) => "cudaSuccess".to_owned(),
        Err(error) => error.name,
    }
}

/// Formats a call's result with `say`, or its code if it failed.
pub(super) fn or_code<T>(outcome: Result<T, RuntimeError>, say: impl FnOnce(T) -> String) -> String {
    match outcome {
        Ok(value) => say(value),
        Err(error) => error.name,
    }
}

/// The driver's form of an address.
pub(super) fn device_address(start: u64) -> CUdeviceptr {
    CUdeviceptr(start)
}
