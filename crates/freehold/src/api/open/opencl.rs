//! The choice of an OpenCL device.

use std::sync::{Mutex, PoisonError};

use freehold_driver::opencl::device::Svm;
use freehold_driver::opencl::discovery::{self, InstalledDevice};
use freehold_driver::opencl::{Context, MemoryModel};

use super::selector::{Asked, named, with_variable};
use crate::error::Result as DeviceResult;
use crate::error::open_error::OpenError;

pub use crate::error::open_error::MEMORY_VARIABLE;

/// Held while drivers are asked what they have, which one thread does at a time.
static ASKING: Mutex<()> = Mutex::new(());

/// Every device that OpenCL has here, in the order of their numbers.
pub fn devices() -> Result<Vec<InstalledDevice>, discovery::DiscoveryError> {
    let _alone = ASKING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock keeps other threads out.
    unsafe { discovery::devices() }
}

/// An OpenCL device and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What OpenCL says of it.
    pub found: InstalledDevice,
    /// Its number, with GPUs first.
    pub ordinal: usize,
}

impl Opened {
    /// The selector that names exactly this device.
    pub fn selector(&self) -> String {
        format!("opencl:{}", self.ordinal)
    }

    /// A context of its own on the device.
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

    /// One sentence: which device, and whose driver.
    pub fn why(&self) -> String {
        let InstalledDevice { platform_name, info: facts, .. } = &self.found;
        format!("{}: {}, {platform_name}, driver {}", self.selector(), facts.name, facts.driver)
    }
}

/// The OpenCL device that `selector` names (`opencl`, `opencl:N`), or else `FREEHOLD_DEVICE`. Nothing where they name another
/// kind of device, or none: OpenCL is used by who asks for it.
pub fn open(selector: Option<&str>) -> Result<Option<Opened>, OpenError> {
    match with_variable(selector)?.map(|selector| selector.asked) {
        Some(Asked::OpenCl { ordinal }) => chosen(ordinal).map(Some),
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
