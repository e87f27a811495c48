//! The devices, as the CUDA driver of the process knows them.

use std::path::Path;
use std::sync::OnceLock;

use freehold_driver::cuda::{self, Api, CUdevice, CallError, context, device, driver, memory, primary};

use crate::code::Code;

static DRIVER: OnceLock<Option<Api>> = OnceLock::new();

/// Returns the driver, which the first call loads and initializes.
pub(crate) fn driver() -> Result<&'static Api, Code> {
    let load = || {
        // SAFETY: the library of this name is a CUDA driver. Only functions without handles of the caller are called.
        let api = unsafe { cuda::load::load(Path::new(cuda::load::LIBRARY)) }.ok()?;
        driver::init(&api, 0).ok()?;
        Some(api)
    };
    DRIVER.get_or_init(load).as_ref().ok_or(Code::DRIVER_NOT_LOADED)
}

/// Memory of a device in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

/// Returns the memory of a device. The driver tells it to a context, so the primary one is current meanwhile.
pub(crate) fn memory(api: &Api, device: CUdevice) -> Result<Memory, CallError> {
    let context = primary::retain(api, device)?;
    let info = context::push_current(api, context).and_then(|()| {
        let info = memory::info(api);
        context::pop_current(api)?;
        info
    });
    primary::release(api, device)?;
    let info = info?;
    Ok(Memory { total_bytes: info.total_bytes as u64, free_bytes: info.free_bytes as u64 })
}

/// Returns the UUID in NVML's form.
pub(crate) fn uuid(api: &Api, device: CUdevice) -> Result<String, CallError> {
    let bytes = device::uuid(api, device)?.bytes;
    Ok(uuid_text(&bytes))
}

fn uuid_text(bytes: &[u8; 16]) -> String {
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
