//! The linker: combines several images into one.

use std::ffi::{CStr, c_void};

use super::api::Api;
use super::call::{DriverError, call};
use super::kernel_types::{CUjitInputType, CUlinkState};
use super::module::Options;

/// The image that a link produced. It lives as long as the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// Its first byte, in host memory.
    pub start: *mut c_void,
    /// Length in bytes.
    pub bytes: usize,
}

/// Begins a link.
///
/// # Safety
/// An option whose value is an address is valid for what the driver reads or writes there until [`destroy`].
pub unsafe fn create(api: &Api, options: &mut Options) -> Result<CUlinkState, DriverError> {
    let mut link = CUlinkState::NULL;
    let (count, names, values) = options.parts();
    // SAFETY: `names` and `values` hold `count` elements each; `link` outlives the call, which writes one handle to it;
    // the caller guarantees that what the values point to is valid.
    unsafe { call!(api.cuLinkCreate_v2(count, names, values, &mut link)) }?;
    Ok(link)
}

/// Adds an image; `name` appears in messages.
///
/// # Safety
/// `options` outlive the link, and an option whose value is an address is valid for what the driver reads or writes
/// there until [`destroy`].
pub unsafe fn add(
    api: &Api,
    link: CUlinkState,
    kind: CUjitInputType,
    image: &[u8],
    name: &CStr,
    options: &mut Options,
) -> Result<(), DriverError> {
    let (count, names, values) = options.parts();
    let (start, name) = (image.as_ptr().cast_mut().cast(), name.as_ptr());
    // SAFETY: `image` is read only, and no further than its length; `name` ends in a NUL; `names` and `values` hold
    // `count` elements each; the caller guarantees that what the values point to is valid.
    unsafe { call!(api.cuLinkAddData_v2(link, kind, start, image.len(), name, count, names, values)) }
}

/// Adds the image in a file.
///
/// # Safety
/// As for [`add`].
pub unsafe fn add_file(
    api: &Api,
    link: CUlinkState,
    kind: CUjitInputType,
    path: &CStr,
    options: &mut Options,
) -> Result<(), DriverError> {
    let (count, names, values) = options.parts();
    // SAFETY: `path` ends in a NUL; `names` and `values` hold `count` elements each; the caller guarantees that what
    // the values point to is valid.
    unsafe { call!(api.cuLinkAddFile_v2(link, kind, path.as_ptr(), count, names, values)) }
}

/// Completes the link and returns the image.
pub fn complete(api: &Api, link: CUlinkState) -> Result<Linked, DriverError> {
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: `start` and `bytes` outlive the call, which writes one value to each.
    unsafe { call!(api.cuLinkComplete(link, &mut start, &mut bytes)) }?;
    Ok(Linked { start, bytes })
}

/// Destroys the link and its image.
pub fn destroy(api: &Api, link: CUlinkState) -> Result<(), DriverError> {
    // SAFETY: the call takes no pointer; the image is reached through a raw pointer alone, whose user guarantees that
    // it is valid.
    unsafe { call!(api.cuLinkDestroy(link)) }
}
