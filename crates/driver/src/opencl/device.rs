//! Devices and their properties.

use opencl3::device::{
    CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_IL_VERSION, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MEM_BASE_ADDR_ALIGN, CL_DEVICE_NAME, CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER,
    CL_DEVICE_SVM_FINE_GRAIN_BUFFER, CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU, CL_DEVICE_UUID_KHR, CL_DEVICE_VERSION,
    CL_DRIVER_VERSION, cl_device_info, get_device_data,
};

use super::call::check;
use super::handle::DeviceId;
use crate::error::CallError;

/// The properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The driver's name of it.
    pub name: String,
    /// `OpenCL 3.0 CUDA`.
    pub version: String,
    /// The vendor's driver version: `580.159.04`.
    pub driver: String,
    /// Whether it is a GPU.
    pub is_gpu: bool,
    /// Its memory.
    pub memory_bytes: u64,
    /// The maximum size of an allocation.
    pub block_bytes_max: u64,
    /// The alignment of a sub-buffer.
    pub align_bytes: u64,
    /// The most work-items of a work-group.
    pub group_items_max: u64,
    /// The shared virtual memory that it has.
    pub svm: Svm,
    /// Whether it loads SPIR-V.
    pub supports_spirv: bool,
}

/// The kind of shared virtual memory that a device supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Svm {
    /// No shared virtual memory.
    None,
    /// The host may access it while it is mapped.
    Coarse,
    /// The host and kernels may access it at the same time.
    Fine,
}

/// Queries all properties of a device.
pub fn info(device: DeviceId) -> Result<DeviceInfo, CallError> {
    let kind = number(device, CL_DEVICE_TYPE)?;
    Ok(DeviceInfo {
        name: text(&data(device, CL_DEVICE_NAME)?),
        version: text(&data(device, CL_DEVICE_VERSION)?),
        driver: text(&data(device, CL_DRIVER_VERSION)?),
        is_gpu: kind & CL_DEVICE_TYPE_GPU != 0,
        memory_bytes: number(device, CL_DEVICE_GLOBAL_MEM_SIZE)?,
        block_bytes_max: number(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        // OpenCL reports it in bits.
        align_bytes: (number(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN)? / 8).max(1),
        group_items_max: number(device, CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
        // Devices before OpenCL 2.0 and 2.1 do not have these queries.
        svm: number(device, CL_DEVICE_SVM_CAPABILITIES).map_or(Svm::None, svm),
        supports_spirv: data(device, CL_DEVICE_IL_VERSION).is_ok_and(|bytes| text(&bytes).contains("SPIR-V")),
    })
}

/// Returns an id that no other device has, if the driver reports one.
pub fn uuid(device: DeviceId) -> Option<[u8; 16]> {
    data(device, CL_DEVICE_UUID_KHR).ok()?.try_into().ok()
}

fn svm(bits: u64) -> Svm {
    if bits & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0 {
        Svm::Fine
    } else if bits & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0 {
        Svm::Coarse
    } else {
        Svm::None
    }
}

fn data(device: DeviceId, what: cl_device_info) -> Result<Vec<u8>, CallError> {
    check("clGetDeviceInfo", get_device_data(device.raw(), what))
}

fn number(device: DeviceId, what: cl_device_info) -> Result<u64, CallError> {
    data(device, what).map(|bytes| self::from_bytes(&bytes))
}

/// Reads an unsigned number of up to eight bytes, in native byte order.
pub(crate) fn from_bytes(bytes: &[u8]) -> u64 {
    let mut whole = [0; 8];
    let length = bytes.len().min(8);
    whole[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(whole)
}

/// Reads a string of OpenCL, which ends in a NUL.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_its_zero() {
        assert_eq!(text(b"OpenCL 3.0 \0\xff"), "OpenCL 3.0");
        assert_eq!(text(b""), "");
    }

    #[test]
    fn a_number_has_as_many_bytes_as_were_given() {
        assert_eq!(from_bytes(&[0, 4, 0, 0]), 1024);
        assert_eq!(from_bytes(&[1, 0, 0, 0, 1, 0, 0, 0]), 0x1_0000_0001);
    }

    #[test]
    fn memory_that_both_touch_at_once_is_the_stronger_kind() {
        assert_eq!(svm(0), Svm::None);
        assert_eq!(svm(0b0001), Svm::Coarse);
        assert_eq!(svm(0b1011), Svm::Fine);
    }
}
