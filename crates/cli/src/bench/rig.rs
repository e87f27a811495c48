//! What all measurements share: a device with its streams and kernels, through the library and through the driver's
//! table.

use std::ffi::c_void;

use freehold::open::{self, Opened};
use freehold::{Device, Grid, Image, Kernel, Stream};
use freehold_driver::cuda::launch::{self, LaunchConfig};
use freehold_driver::cuda::{
    CUcontext, CUdeviceptr, CUfunction, CUmodule, CUstream, DriverError, context, module, primary,
};

use super::error::{BenchError, Result};

const KERNELS: &str = concat!(include_str!("../../../freehold/examples/kernels.ptx"), "\0");

/// How long the kernel runs next to which a release is measured.
const BUSY_MS: u64 = 200;

/// The number of values in a block for kernel `scale`, one per thread of one block.
pub(super) const VALUES: u32 = 32;

pub(super) struct Rig {
    pub(super) opened: Opened,
    pub(super) device: Device,
    /// Current in this thread.
    pub(super) context: CUcontext,
    pub(super) stream: Stream,
    pub(super) other: Stream,
    pub(super) image: Image,
    pub(super) scale: Kernel,
    /// The same kernel, for direct launches.
    pub(super) raw_scale: CUfunction,
    spend: Kernel,
}

impl Rig {
    pub(super) fn new(selector: Option<&str>) -> Result<Self> {
        // SAFETY: direct driver calls use only streams, modules and memory that this rig creates.
        let opened = unsafe { open::open(selector) }?;
        // SAFETY: the table belongs to the opened driver, and the device stays open.
        let device = unsafe { Device::new(opened.api, opened.device) }?;
        let context = primary::retain(&opened.api, opened.device)?;
        context::set_current(&opened.api, context)?;
        let image = Image::new(KERNELS.as_bytes())?;
        let kernels = device.module(&image)?;
        let raw_scale = module::function(&opened.api, raw_module(&opened)?, c"scale")?;
        Ok(Self {
            context,
            stream: device.new_stream()?,
            other: device.new_stream()?,
            image,
            // SAFETY: `scale` writes the first `n` elements of its block, which has as many in every launch.
            scale: unsafe { kernels.kernel("scale") }?,
            raw_scale,
            // SAFETY: `spend` touches no memory.
            spend: unsafe { kernels.kernel("spend") }?,
            device,
            opened,
        })
    }

    /// Keeps a stream busy for [`BUSY_MS`].
    pub(super) fn busy(&self, stream: &Stream) -> Result<()> {
        Ok(stream.launch(&self.spend, Grid::line(1, 1), (BUSY_MS * 1_000_000,))?)
    }

    /// Fails if the kernel has ended: the measurements were then not taken next to it.
    pub(super) fn expect_busy(&self, stream: &Stream) -> Result<()> {
        if stream.is_idle()? { Err(BenchError::KernelEnded { kernel_ms: BUSY_MS }) } else { Ok(()) }
    }

    /// Loads a module that the library does not know.
    pub(super) fn raw_module(&self) -> Result<CUmodule> {
        Ok(raw_module(&self.opened)?)
    }

    /// Launches `scale` directly through the driver.
    #[inline]
    pub(super) fn raw_scale(&self, x: CUdeviceptr, stream: CUstream) -> std::result::Result<(), DriverError> {
        let (by, n) = (1.0_f32, VALUES);
        let mut arguments = [pointer(&x), pointer(&by), pointer(&n)];
        // SAFETY: kernel `scale` takes an address, an `f32` and a `u32`, which outlive the call; it writes `VALUES`
        // values of device memory at `x`.
        unsafe {
            launch::kernel(&self.opened.api, self.raw_scale, LaunchConfig::linear(1, VALUES), stream, &mut arguments)
        }
    }

    /// Launches a kernel without arguments directly through the driver.
    pub(super) fn raw_launch(&self, function: CUfunction, stream: CUstream) -> Result<()> {
        // SAFETY: the kernels launched this way take no arguments and touch no memory.
        unsafe { launch::kernel(&self.opened.api, function, LaunchConfig::linear(1, 1), stream, &mut []) }?;
        Ok(())
    }
}

fn raw_module(opened: &Opened) -> std::result::Result<CUmodule, DriverError> {
    // SAFETY: the image is a NUL-terminated string.
    unsafe { module::load(&opened.api, KERNELS.as_ptr().cast()) }
}

fn pointer<T>(argument: &T) -> *mut c_void {
    std::ptr::from_ref(argument).cast_mut().cast()
}
