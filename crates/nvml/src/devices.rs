//! The devices of the machine, as the software driver lists them: without initializing it, and regardless of
//! `CUDA_VISIBLE_DEVICES`.

use std::path::Path;
use std::sync::OnceLock;

use freehold_driver::cuda::extension::{self, DeviceReport, Extension};
use freehold_driver::cuda::{self, Api, CUerror};

use crate::code::Code;

/// The driver of the process.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) api: Api,
    extension: Extension,
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

/// Returns the driver, which the first call loads.
pub(crate) fn driver() -> Result<&'static Driver, Code> {
    let load = || {
        // SAFETY: the library of this name is a CUDA driver. Only functions without handles of the caller are called.
        let api = unsafe { cuda::load::load(Path::new(cuda::load::LIBRARY)) }.ok()?;
        let extension = extension::find(&api)?;
        Some(Driver { api, extension })
    };
    DRIVER.get_or_init(load).as_ref().ok_or(Code::DRIVER_NOT_LOADED)
}

impl Driver {
    /// Returns a device by its index.
    pub(crate) fn device(&self, index: u32) -> Result<DeviceReport, Code> {
        self.extension.device(index).map_err(|error| match error {
            CUerror::INVALID_DEVICE => Code::INVALID_ARGUMENT,
            _ => Code::UNKNOWN,
        })
    }

    /// Returns the number of devices.
    pub(crate) fn count(&self) -> Result<u32, Code> {
        let mut count = 0;
        loop {
            match self.extension.device(count) {
                Ok(_) => count += 1,
                Err(CUerror::INVALID_DEVICE) => return Ok(count),
                Err(_) => return Err(Code::UNKNOWN),
            }
        }
    }
}

/// Returns a UUID in NVML's form.
pub(crate) fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = "GPU".to_owned();
    for (index, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_five_groups_of_digits() {
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
