//! Why a device could not be opened, and the environment variables that these errors name.

use std::fmt;

use freehold_driver::cuda::DriverError;
#[cfg(feature = "opencl")]
use freehold_driver::opencl::discovery;
#[cfg(feature = "soft")]
use freehold_softcuda::config::ConfigError;

/// The variable that selects how a foreign pool identifies streams: `checked` asks the driver for the id each time;
/// `trusted`, the default, does not.
pub const STREAMS_VARIABLE: &str = "FREEHOLD_STREAMS";

/// The variable that selects OpenCL's memory: `svm` for shared virtual memory, `buffers` for buffers. By default, a
/// device that has shared virtual memory uses it.
#[cfg(feature = "opencl")]
pub const MEMORY_VARIABLE: &str = "FREEHOLD_OPENCL_MEMORY";

/// What an error adds about the software device.
const SOFT_HINT: &str = if cfg!(feature = "soft") { "; the software device, soft, needs no GPU" } else { "" };

/// Why a device could not be opened: a mistake in the selector, or something that this machine lacks.
///
/// ```
/// use freehold::open::{self, OpenError};
///
/// let Err(freehold::Error::Open(error)) = open::device(Some("gpu")) else { panic!("an unknown kind was opened") };
/// assert_eq!(error, OpenError::UnknownDevice("gpu".to_owned()));
/// assert_eq!(error.to_string(), r#"unknown device "gpu": expected soft, soft:N, cuda, cuda:N, opencl or opencl:N"#);
/// ```
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The selector names no kind of device.
    #[error("unknown device {0:?}: expected soft, soft:N, cuda, cuda:N, opencl or opencl:N")]
    UnknownDevice(String),
    /// The driver is missing.
    #[error("{selector} was requested, but {absence}{SOFT_HINT}")]
    Absent {
        /// The selector.
        selector: String,
        /// Why it is missing.
        absence: Absence,
    },
    /// The kind of device is a Cargo feature of this crate that was not enabled.
    #[error("{selector} was requested, but freehold was built without its feature `{feature}`")]
    NotBuilt {
        /// The requested device.
        selector: String,
        /// The feature that is missing.
        feature: &'static str,
    },
    /// There is no GPU, and no software device to take its place.
    #[error("{absence}, and freehold was built without its feature `soft`, the software device")]
    NoDevice {
        /// Why there is no GPU.
        absence: Absence,
    },
    /// The CUDA driver, which may be the software one, has fewer devices.
    #[error("cuda:{ordinal} was requested, but the CUDA driver has {count} {}", if *.count == 1 { "device" } else { "devices" })]
    OutOfRange {
        /// The number requested.
        ordinal: i32,
        /// The number of devices.
        count: usize,
    },
    /// OpenCL is missing.
    #[cfg(feature = "opencl")]
    #[error("{selector} was requested, but {absence}{SOFT_HINT}")]
    NoOpenCl {
        /// The selector.
        selector: String,
        /// Why it is missing.
        absence: discovery::DiscoveryError,
    },
    /// There are fewer OpenCL devices.
    #[cfg(feature = "opencl")]
    #[error("opencl:{ordinal} was requested, but this machine has {count} OpenCL {}", if *.count == 1 { "device" } else { "devices" })]
    BeyondOpenCl {
        /// The number requested.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The variable for OpenCL's memory has an unknown value.
    #[cfg(feature = "opencl")]
    #[error("unknown {} {said:?}: expected svm or buffers", MEMORY_VARIABLE)]
    OpenClMemory {
        /// Its value.
        said: String,
    },
    /// The variable for the streams of foreign code has an unknown value.
    #[error("unknown {STREAMS_VARIABLE} {said:?}: expected trusted or checked")]
    UnknownStreams {
        /// Its value.
        said: String,
    },
    /// An OpenCL device was selected where a CUDA driver is needed.
    #[error("{selector} was requested, but this needs a CUDA driver: expected soft, cuda or cuda:N")]
    NotCuda {
        /// The selector.
        selector: String,
    },
    /// A negative device number.
    #[error("invalid device number {ordinal}: expected 0 or more")]
    NoSuchNumber {
        /// The number requested.
        ordinal: i32,
    },
    /// The driver has fewer devices.
    #[error("device {ordinal} was requested, but the driver has {count} {}, numbered from 0", if *.count == 1 { "device" } else { "devices" })]
    BeyondDevices {
        /// The number requested.
        ordinal: i32,
        /// The number of devices.
        count: i32,
    },
    /// There are fewer software devices.
    #[cfg(feature = "soft")]
    #[error("soft:{ordinal} was requested, but there {} software {}: set FREEHOLD_SOFT_DEVICES",
        if *.count == 1 { "is 1".to_owned() } else { format!("are {count}") },
        if *.count == 1 { "device" } else { "devices" })]
    BeyondSoft {
        /// The number requested.
        ordinal: i32,
        /// The number of devices.
        count: usize,
    },
    /// A variable of the software device has an invalid value.
    #[cfg(feature = "soft")]
    #[error(transparent)]
    SoftMisconfigured(#[from] ConfigError),
    /// The software driver does not start.
    #[cfg(feature = "soft")]
    #[error("the software driver does not start: {0}; set CUDA_LOG_FILE=stderr to see why")]
    SoftRefused(DriverError),
}

/// Prints the message, for a `main` that returns the error, and for `unwrap`.
impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why NVIDIA's driver cannot be used here.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// The library is missing.
    #[error("libcuda.so.1 is not on this machine")]
    NoLibrary,
    /// The library lacks functions that every driver has.
    #[error("libcuda.so.1 is not a CUDA driver")]
    NotADriver,
    /// The driver is installed but does not start.
    #[error("NVIDIA's driver does not start: {0}")]
    Refused(DriverError),
    /// The driver has no device.
    #[error("NVIDIA's driver has no device")]
    NoDevice,
    /// The driver is the software driver, which is not built in.
    #[error("freehold was built without its feature `soft`")]
    NotBuilt,
}

/// Prints the message, for a `main` that returns the error, and for `unwrap`.
impl fmt::Debug for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
