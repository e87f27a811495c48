//! Kernels for experiments: loading their PTX, launching them, and one that runs while a latch is closed.

use std::ffi::{CStr, c_void};

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUfunction, CUmodule, CUstream, DriverError, context, fill, function, launch, memory, module,
};

use super::fixture::Fixture;
use super::latch::Latch;

/// Includes a PTX file with the NUL that a driver expects.
macro_rules! text {
    ($name:literal) => {
        match CStr::from_bytes_with_nul(concat!(include_str!(concat!("experiments/", $name)), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("the text holds a NUL"),
        }
    };
}

pub(crate) const KERNELS: &CStr = text!("kernels.ptx");
pub(crate) const FAULTS: &CStr = text!("faults.ptx");
pub(crate) const SPECIALS: &CStr = text!("specials.ptx");
pub(crate) const CALLER: &CStr = text!("caller.ptx");
pub(crate) const CALLEE: &CStr = text!("callee.ptx");

/// One thread.
pub(crate) const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// The default stream.
pub(crate) const DEFAULT: CUstream = CUstream::NULL;

/// Loads PTX into the current context.
pub(crate) fn load(b: &Fixture, text: &CStr) -> Result<CUmodule, DriverError> {
    // SAFETY: the text ends in a NUL.
    unsafe { module::load(b, text.as_ptr().cast()) }
}

/// Returns a kernel, which is loaded when this returns.
pub(crate) fn kernel(b: &Fixture, text: &CStr, name: &CStr) -> Result<CUfunction, DriverError> {
    function(b, load(b, text)?, name)
}

/// Returns a kernel of a module, which is loaded when this returns: a driver that loads at the first launch may wait
/// for running kernels.
pub(crate) fn function(b: &Fixture, of: CUmodule, name: &CStr) -> Result<CUfunction, DriverError> {
    let kernel = module::function(b, of, name)?;
    function::load(b, kernel)?;
    Ok(kernel)
}

/// Launches a kernel of the texts above, whose parameters have at most eight bytes each.
pub(crate) fn launch(
    b: &Fixture,
    kernel: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    arguments: &[u64],
) -> Result<(), DriverError> {
    let mut pointers: Vec<*mut c_void> = arguments.iter().map(|a| std::ptr::from_ref(a).cast_mut().cast()).collect();
    // SAFETY: there is one argument per parameter, of eight bytes, which are at least as many as the parameter has and
    // start with it; host memory that the kernel accesses is a `HostBuffer`.
    unsafe { launch::kernel(b, kernel, shape, stream, &mut pointers) }
}

/// Returns the word at a device address, once all work of the current context is complete.
pub(crate) fn word_at(b: &Fixture, at: CUdeviceptr) -> Result<u32, DriverError> {
    let bytes = b.bytes_at(at, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Returns a device block of zeros.
pub(crate) fn zeros(b: &Fixture) -> Result<CUdeviceptr, DriverError> {
    let block = memory::alloc(b, 4096)?;
    fill::d8(b, block, 0, 4096)?;
    context::synchronize(b)?;
    Ok(block)
}

/// A kernel of the current context that runs until a latch opens. It is warm: it has run once.
pub(crate) struct Spin {
    pub(crate) latch: Latch,
    pub(crate) kernel: CUfunction,
}

impl Spin {
    pub(crate) fn new(b: &Fixture) -> Result<Self, DriverError> {
        let kernel = kernel(b, KERNELS, c"spin")?;
        Self::of(b, kernel)
    }

    /// Uses the kernel `spin` of a loaded module or library.
    pub(crate) fn of(b: &Fixture, kernel: CUfunction) -> Result<Self, DriverError> {
        let latch = Latch::new(b)?;
        let open = zeros(b)?;
        fill::d32(b, open, 1, 1)?;
        launch(b, kernel, ONE, DEFAULT, &[open.0, open.0 + 8, open.0 + 16, 1])?;
        context::synchronize(b)?;
        memory::free(b, open)?;
        Ok(Self { latch, kernel })
    }

    /// Launches a kernel in `stream` that runs until the latch opens and then stores `value` to `to`, unless that is
    /// null.
    pub(crate) fn hold(&self, b: &Fixture, stream: CUstream, to: CUdeviceptr, value: u32) -> Result<(), DriverError> {
        let words = [self.latch.address().0, self.latch.started_address().0, to.0, value.into()];
        launch(b, self.kernel, ONE, stream, &words)
    }

    /// Calls [`hold`](Self::hold) in an otherwise idle stream, and waits until the kernel runs.
    pub(crate) fn run(&self, b: &Fixture, stream: CUstream, to: CUdeviceptr, value: u32) -> Result<(), DriverError> {
        self.hold(b, stream, to, value)?;
        self.latch.wait_for_kernel(b, stream)
    }
}
