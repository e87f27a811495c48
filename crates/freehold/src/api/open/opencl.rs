//! The choice of an OpenCL device.

use std::sync::{Mutex, PoisonError};

use freehold_driver::opencl::device::Svm;
use freehold_driver::opencl::discovery::{self, InstalledDevice};
use freehold_driver::opencl::{Context, MemoryModel};

use super::selector::{Selector, named, with_variable};
use crate::error::Result as DeviceResult;
use crate::error::open_error::OpenError;

pub use crate::error::open_error::MEMORY_VARIABLE;

/// Held while drivers are queried, which one thread does at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// Lists the OpenCL devices of this machine, in the order of their numbers.
pub fn devices() -> Result<Vec<InstalledDevice>, discovery::DiscoveryError> {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock keeps other threads out.
    unsafe { discovery::devices() }
}

/// An OpenCL device and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What OpenCL reports about it.
    pub found: InstalledDevice,
    /// Its number; GPUs come first.
    pub ordinal: usize,
}

impl Opened {
    /// Returns the selector that names exactly this device.
    pub fn selector(&self) -> String {
        format!("opencl:{}", self.ordinal)
    }

    /// Creates a context on the device.
    pub fn context(&self) -> DeviceResult<Context> {
        let said = std::env::var_os(MEMORY_VARIABLE).filter(|text| !text.is_empty());
        let manner = match said.as_deref().map(|text| text.to_string_lossy()).as_deref() {
            None if self.found.info.svm == Svm::None => MemoryModel::Buffers,
            None | Some("svm") => MemoryModel::Svm,
            Some("buffers") => MemoryModel::Buffers,
            Some(other) => return Err(OpenError::OpenClMemory { said: other.to_owned() }.into()),
        };
        Ok(Context::new(self.found.clone(), manner)?)
    }

    /// Returns one sentence: which device, and which driver.
    pub fn why(&self) -> String {
        let InstalledDevice { platform_name, info: facts, .. } = &self.found;
        format!("{}: {}, {platform_name}, driver {}", self.selector(), facts.name, facts.driver)
    }
}

/// Opens the OpenCL device that `selector` names (`opencl`, `opencl:N`), or else `FREEHOLD_DEVICE`. Returns `None` if
/// they name another kind of device, or nothing: OpenCL is used only on request.
pub fn open(selector: Option<&str>) -> Result<Option<Opened>, OpenError> {
    match with_variable(selector)?.map(|request| request.selector) {
        Some(Selector::OpenCl { ordinal }) => chosen(ordinal).map(Some),
        _ => Ok(None),
    }
}

fn chosen(ordinal: Option<usize>) -> Result<Opened, OpenError> {
    let mut all = devices().map_err(|absence| OpenError::NoOpenCl { selector: named(ordinal), absence })?;
    let (ordinal, count) = (ordinal.unwrap_or(0), all.len());
    if ordinal >= count {
        return Err(OpenError::BeyondOpenCl { ordinal, count });
    }
    Ok(Opened { found: all.swap_remove(ordinal), ordinal })
}
