//! Why there is no device to open, and the variables that such an error names.

use std::fmt;

use freehold_driver::cuda::CallError;
#[cfg(feature = "opencl")]
use freehold_driver::opencl::discovery;
#[cfg(feature = "soft")]
use freehold_softcuda::config::ConfigError;

/// The variable that says how a foreign pool's streams are known: `checked` asks the driver for the id of each, each time; `trusted`, as if
/// it is not set, does not.
pub const STREAMS_VARIABLE: &str = "FREEHOLD_STREAMS";

/// The variable that says how memory is had: `svm` for shared virtual memory, `buffers` for buffers. Without it a device that
/// has shared virtual memory gives that.
#[cfg(feature = "opencl")]
pub const MEMORY_VARIABLE: &str = "FREEHOLD_OPENCL_MEMORY";

/// What an error adds about the software device.
const SOFT_HINT: &str = if cfg!(feature = "soft") { "; the software device, soft, needs no GPU" } else { "" };

/// Why there is no driver: a mistake in the selector, or a lack of this machine.
///
/// ```
/// use freehold::open::{self, OpenError};
///
/// let Err(freehold::Error::Open(error)) = open::device(Some("gpu")) else { panic!("there is no such kind") };
/// assert_eq!(error, OpenError::UnknownDevice("gpu".to_owned()));
/// assert_eq!(error.to_string(), r#""gpu" is no device: say soft, cuda, cuda:N, opencl or opencl:N"#);
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The selector names no kind of device.
    #[error("{0:?} is no device: say soft, cuda, cuda:N, opencl or opencl:N")]
    UnknownDevice(String),
    /// There is no such driver here.
    #[error("{selector} was asked for, but {absence}{SOFT_HINT}")]
    Absent {
        /// What was asked for.
        selector: String,
        /// Why there is none.
        absence: Absence,
    },
    /// A kind of device that is a feature of this crate, which was left out.
    #[error("{selector} was asked for, but freehold was built without its feature `{feature}`")]
    NotBuilt {
        /// What was asked for.
        selector: String,
        /// The feature that the crate is to be built with.
        feature: &'static str,
    },
    /// There is no GPU, and no software device to take its place.
    #[error("{absence}, and freehold was built without its feature `soft`, the software device")]
    NoDevice {
        /// Why there is no GPU.
        absence: Absence,
    },
    /// There are fewer NVIDIA devices.
    #[error("cuda:{ordinal} was asked for, but this machine has {count} NVIDIA {}", if *.count == 1 { "device" } else { "devices" })]
    OutOfRange {
        /// The number that was asked for.
        ordinal: i32,
        /// How many there are.
        count: usize,
    },
    /// There is no OpenCL here.
    #[cfg(feature = "opencl")]
    #[error("{selector} was asked for, but {absence}{SOFT_HINT}")]
    NoOpenCl {
        /// What was asked for.
        selector: String,
        /// Why there is none.
        absence: discovery::DiscoveryError,
    },
    /// There are fewer OpenCL devices.
    #[cfg(feature = "opencl")]
    #[error("opencl:{ordinal} was asked for, but this machine has {count} OpenCL {}", if *.count == 1 { "device" } else { "devices" })]
    BeyondOpenCl {
        /// The number that was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The variable that says how OpenCL's memory is had is wrong.
    #[cfg(feature = "opencl")]
    #[error("{} is {said:?}, but should be svm or buffers", MEMORY_VARIABLE)]
    OpenClMemory {
        /// What it says.
        said: String,
    },
    /// The variable that says how streams of others are known is wrong.
    #[error("unknown {STREAMS_VARIABLE} {said:?}: expected trusted or checked")]
    UnknownStreams {
        /// What it says.
        said: String,
    },
    /// An OpenCL device, for what needs a CUDA driver.
    #[error("{selector} was asked for, but this works with CUDA drivers alone: say soft, cuda or cuda:N")]
    NotCuda {
        /// What was asked for.
        selector: String,
    },
    /// A number below 0.
    #[error("{ordinal} is no number of a device: they begin with 0")]
    NoSuchNumber {
        /// The number that was asked for.
        ordinal: i32,
    },
    /// The driver has fewer devices.
    #[error("device {ordinal} was asked for, but the driver has {count}, and their numbers begin with 0")]
    BeyondDevices {
        /// The number that was asked for.
        ordinal: i32,
        /// How many there are.
        count: i32,
    },
    /// A variable of the software device is wrong.
    #[cfg(feature = "soft")]
    #[error(transparent)]
    SoftMisconfigured(#[from] ConfigError),
    /// The software driver does not start.
    #[cfg(feature = "soft")]
    #[error("the software driver does not start: {0}; with CUDA_LOG_FILE=stderr it says why")]
    SoftRefused(CallError),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a driver cannot be used here.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// There is no library.
    #[error("libcuda.so.1 is not on this machine")]
    NoLibrary,
    /// The library lacks what every driver has.
    #[error("libcuda.so.1 is not a CUDA driver")]
    NotADriver,
    /// The driver is there and does not start.
    #[error("NVIDIA's driver does not start: {0}")]
    Refused(CallError),
    /// The driver has no device.
    #[error("NVIDIA's driver has no device")]
    NoDevice,
    /// The driver is the software one, which was left out.
    #[error("freehold was built without its feature `soft`")]
    NotBuilt,
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
