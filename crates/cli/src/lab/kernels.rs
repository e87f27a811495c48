//! Kernels for experiments: their texts loaded, launches of them, and one that runs for as long as a latch is closed.

use std::ffi::{CStr, c_void};

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUfunction, CUmodule, CUstream, CallError, context, fill, function, launch, memory, module,
};

use super::fixture::Fixture;
use super::latch::Latch;

/// A text of a folder beside the experiments, with the NUL that a driver looks for.
macro_rules! text {
    ($name:literal) => {
        match CStr::from_bytes_with_nul(concat!(include_str!(concat!("experiment/", $name)), "\0").as_bytes()) {
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

/// Loads a text into the current context.
pub(crate) fn load(b: &Fixture, text: &CStr) -> Result<CUmodule, CallError> {
    // SAFETY: the text ends in a NUL.
    unsafe { module::load(b, text.as_ptr().cast()) }
}

/// A kernel of a text, all of which is loaded when this returns.
pub(crate) fn kernel(b: &Fixture, text: &CStr, name: &CStr) -> Result<CUfunction, CallError> {
    function(b, load(b, text)?, name)
}

/// A kernel of a module, which is loaded when this returns: a driver that does so at the first launch may wait for
/// others that run.
pub(crate) fn function(b: &Fixture, of: CUmodule, name: &CStr) -> Result<CUfunction, CallError> {
    let kernel = module::function(b, of, name)?;
    function::load(b, kernel)?;
    Ok(kernel)
}

/// Launches a kernel of the texts above, all of whose parameters are of eight bytes at the most.
pub(crate) fn launch(
    b: &Fixture,
    kernel: CUfunction,
    shape: LaunchConfig,
    stream: CUstream,
    arguments: &[u64],
) -> Result<(), CallError> {
    let mut pointers: Vec<*mut c_void> = arguments.iter().map(|a| std::ptr::from_ref(a).cast_mut().cast()).collect();
    // SAFETY: there is an argument for each parameter, and eight bytes of it, which are no fewer than the parameter
    // has and start with it; memory of the host that the kernel reaches is a `Host`.
    unsafe { launch::kernel(b, kernel, shape, stream, &mut pointers) }
}

/// The word at an address of the device, once all work of the current context is done.
pub(crate) fn word_at(b: &Fixture, at: CUdeviceptr) -> Result<u32, CallError> {
    let bytes = b.bytes_at(at, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// A block of the device whose words are zero.
pub(crate) fn zeros(b: &Fixture) -> Result<CUdeviceptr, CallError> {
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
    pub(crate) fn new(b: &Fixture) -> Result<Self, CallError> {
        let kernel = kernel(b, KERNELS, c"spin")?;
        Self::of(b, kernel)
    }

    /// The kernel `spin` of a module or library that is loaded already.
    pub(crate) fn of(b: &Fixture, kernel: CUfunction) -> Result<Self, CallError> {
        let latch = Latch::new(b)?;
        let open = zeros(b)?;
        fill::d32(b, open, 1, 1)?;
        launch(b, kernel, ONE, DEFAULT, &[open.0, open.0 + 8, open.0 + 16, 1])?;
        context::synchronize(b)?;
        memory::free(b, open)?;
        Ok(Self { latch, kernel })
    }

    /// Adds a kernel to `stream` that runs until the latch opens and then stores `value` to `to`, nowhere if that is
    /// null.
    pub(crate) fn hold(&self, b: &Fixture, stream: CUstream, to: CUdeviceptr, value: u32) -> Result<(), CallError> {
        let words = [self.latch.address().0, self.latch.started_address().0, to.0, value.into()];
        launch(b, self.kernel, ONE, stream, &words)
    }

    /// [`hold`](Self::hold) in a stream with nothing else to do, and waits until the kernel runs.
    pub(crate) fn run(&self, b: &Fixture, stream: CUstream, to: CUdeviceptr, value: u32) -> Result<(), CallError> {
        self.hold(b, stream, to, value)?;
        self.latch.wait_for_kernel(b, stream)
    }
}
