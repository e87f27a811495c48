//! Selectors, which name a device: `soft`, `soft:1`, `cuda:0`, `opencl`; from the caller, or from the environment.

use crate::error::open_error::OpenError;

/// The environment variable that names a device if the caller names none.
pub const VARIABLE: &str = "FREEHOLD_DEVICE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selector {
    /// The first device if there is no ordinal.
    Soft { ordinal: Option<i32> },
    /// The first device if there is no ordinal.
    Cuda { ordinal: Option<i32> },
    /// The first device if there is no ordinal.
    OpenCl { ordinal: Option<usize> },
}

impl Selector {
    pub(super) fn ordinal(self) -> Option<i32> {
        match self {
            Self::OpenCl { .. } => None,
            Self::Soft { ordinal } | Self::Cuda { ordinal } => ordinal,
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, OpenError> {
        let unknown = || OpenError::UnknownDevice(text.to_owned());
        match text {
            "soft" => Ok(Self::Soft { ordinal: None }),
            "cuda" => Ok(Self::Cuda { ordinal: None }),
            "opencl" => Ok(Self::OpenCl { ordinal: None }),
            _ => {
                let (driver, digits) = text.split_once(':').ok_or_else(unknown)?;
                if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(unknown());
                }
                match driver {
                    "soft" => Ok(Self::Soft { ordinal: Some(digits.parse().map_err(|_| unknown())?) }),
                    "cuda" => Ok(Self::Cuda { ordinal: Some(digits.parse().map_err(|_| unknown())?) }),
                    "opencl" => Ok(Self::OpenCl { ordinal: Some(digits.parse().map_err(|_| unknown())?) }),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Caller,
    Variable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceRequest {
    pub(super) selector: Selector,
    pub(super) from: Source,
}

/// Returns the caller's selector, or else the environment's.
pub(super) fn with_variable(selector: Option<&str>) -> Result<Option<DeviceRequest>, OpenError> {
    let variable = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let variable = variable.map(|text| text.to_string_lossy().into_owned());
    match (selector, &variable) {
        (Some(text), _) => Ok(Some(DeviceRequest { selector: Selector::parse(text)?, from: Source::Caller })),
        (None, Some(text)) => Ok(Some(DeviceRequest { selector: Selector::parse(text)?, from: Source::Variable })),
        (None, None) => Ok(None),
    }
}

/// Formats a selector of the software device. The first one needs no number.
pub(super) fn soft_selector(ordinal: i32) -> String {
    if ordinal == 0 { "soft".to_owned() } else { format!("soft:{ordinal}") }
}

/// Formats a selector for OpenCL.
pub(super) fn named(ordinal: Option<usize>) -> String {
    ordinal.map_or_else(|| "opencl".to_owned(), |ordinal| format!("opencl:{ordinal}"))
}
