//! The driver as a whole: initialization, its version, the names of its codes, the addresses of its functions.

use std::ffi::{CStr, c_char, c_void};

use super::api::Api;
use super::call::{DriverError, call};
use super::types::CUdriverProcAddressQueryResult;

/// Initializes the driver. Every other call except [`version`] and the names of codes requires it.
pub fn init(api: &Api, flags: u32) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer.
    unsafe { call!(api.cuInit(flags)) }
}

/// Returns the CUDA version that the driver supports: 13000 is 13.0.
pub fn version(api: &Api) -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: `version` outlives the call, which writes one `i32` to it.
    unsafe { call!(api.cuDriverGetVersion(&mut version)) }?;
    Ok(version)
}

/// Formats the number of a CUDA version: 13000 is 13.0.
pub fn version_text(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Returns the driver's name for the code `number`; zero has a name too.
pub fn error_name(api: &Api, number: u32) -> Result<String, DriverError> {
    let mut text = c"".as_ptr();
    // SAFETY: `text` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuGetErrorName(number, &mut text)) }?;
    // SAFETY: `text` is the empty string above or, since the call succeeded, a string of the driver.
    Ok(unsafe { string_from_c(text) })
}

/// Returns the driver's description of the code `number`.
pub fn error_string(api: &Api, number: u32) -> Result<String, DriverError> {
    let mut text = c"".as_ptr();
    // SAFETY: `text` outlives the call, which writes one pointer to it.
    unsafe { call!(api.cuGetErrorString(number, &mut text)) }?;
    // SAFETY: `text` is the empty string above or, since the call succeeded, a string of the driver.
    Ok(unsafe { string_from_c(text) })
}

/// The driver's answer for a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcAddress {
    /// Null if the driver lacks the function.
    pub function: *mut c_void,
    /// Whether there is one, and if not, why.
    pub status: CUdriverProcAddressQueryResult,
}

/// Returns the function that `name`, spelled without a version, meant in the CUDA version `version` (12000 is 12.0).
pub fn proc_address(api: &Api, name: &CStr, version: i32, flags: u64) -> Result<ProcAddress, DriverError> {
    let mut function = std::ptr::null_mut();
    let mut status = CUdriverProcAddressQueryResult::default();
    // SAFETY: `name` ends in a NUL; `function` and `status` outlive the call, which writes one value to each.
    unsafe { call!(api.cuGetProcAddress_v2(name.as_ptr(), &mut function, version, flags, &mut status)) }?;
    Ok(ProcAddress { function, status })
}

/// Copies a C string.
///
/// # Safety
/// `text` ends in a NUL and does not change during the call. Most strings of a driver are constants.
pub(super) unsafe fn string_from_c(text: *const c_char) -> String {
    // SAFETY: the caller guarantees a valid string that ends in a NUL; the borrow ends in this function.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_two_numbers() {
        assert_eq!([12080, 13000].map(version_text), ["12.8", "13.0"]);
    }
}
