//! A foreign stream identified by its id.

use freehold_driver::cuda::CUstream;

use crate::ordering::capture_gate::CaptureGate;

/// A stream, as foreign code names it in one call.
#[derive(Clone, Copy, Debug)]
pub struct StreamById {
    /// Never used for another stream of the device.
    pub id: u64,
    /// Valid during the call.
    pub handle: CUstream,
    /// Prevents events after all work of a context from being recorded during captures.
    pub gate: &'static CaptureGate,
}
