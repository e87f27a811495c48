//! The C functions. A handle is a number that is looked up, and never followed.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, ptr, slice};

use crate::code::Code;
use crate::link::Link;
use crate::options::Options;
use crate::vendor::{Vendor, vendor};

/// The versions that are stated if the program has no other library.
const VERSION_13: (u32, u32) = (13, 0);
const VERSION_12: (u32, u32) = (12, 9);

type Handle = usize;
type Outcome = Result<(), Code>;

#[derive(Default)]
struct Links {
    last: Handle,
    live: HashMap<Handle, Link>,
}

static LINKS: Mutex<Option<Links>> = Mutex::new(None);

fn links() -> MutexGuard<'static, Option<Links>> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a function, which must not unwind into C.
fn run(function: impl FnOnce() -> Outcome) -> Code {
    match catch_unwind(AssertUnwindSafe(function)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::INTERNAL,
    }
}

fn with_link<R>(handle: Handle, part: impl FnOnce(&mut Link) -> Result<R, Code>) -> Result<R, Code> {
    let mut links = links();
    part(links.get_or_insert_default().live.get_mut(&handle).ok_or(Code::INVALID_INPUT)?)
}

/// # Safety
/// `handle` must be null or valid for a write, and `options` null or an array of `count` C strings.
unsafe fn create(handle: *mut Handle, count: u32, options: *const *const c_char) -> Outcome {
    if handle.is_null() || options.is_null() || count == 0 {
        return Err(Code::NULL_INPUT);
    }
    // SAFETY: the caller guarantees that the array is valid.
    let words = unsafe { slice::from_raw_parts(options, count as usize) };
    let words = words.iter().map(|&word| {
        // SAFETY: the caller guarantees that each string is valid.
        unsafe { text(word) }.map(|word| word.to_string_lossy().into_owned()).ok_or(Code::NULL_INPUT)
    });
    let link = Link::new(Options::parse(words.collect::<Result<_, _>>()?)?);
    let mut links = links();
    let links = links.get_or_insert_default();
    links.last += 1;
    links.live.insert(links.last, link);
    // SAFETY: the caller guarantees that the output pointer is valid.
    unsafe { handle.write(links.last) };
    Ok(())
}

/// # Safety
/// `handle` must be null or valid for reads and writes.
unsafe fn destroy(handle: *mut Handle) -> Outcome {
    if handle.is_null() {
        return Err(Code::INVALID_INPUT);
    }
    // SAFETY: the caller guarantees that the output pointer is valid.
    let link = unsafe { handle.read() };
    links().get_or_insert_default().live.remove(&link).ok_or(Code::INVALID_INPUT)?;
    // SAFETY: as above.
    unsafe { handle.write(0) };
    Ok(())
}

/// # Safety
/// `data` must be null or valid for `bytes`, and `name` null or a C string.
unsafe fn add_data(handle: Handle, kind: i32, data: *const c_void, bytes: usize, name: *const c_char) -> Outcome {
    if data.is_null() || bytes == 0 {
        return Err(Code::INVALID_INPUT);
    }
    // SAFETY: the caller guarantees that the data is valid.
    let data = unsafe { slice::from_raw_parts(data.cast::<u8>(), bytes) };
    // SAFETY: the caller guarantees that the name is valid.
    let name = unsafe { text(name) }.map_or_else(CString::default, CStr::to_owned);
    with_link(handle, |link| link.add(kind, data, name))
}

/// # Safety
/// `path` must be null or a C string.
unsafe fn add_file(handle: Handle, kind: i32, path: *const c_char) -> Outcome {
    // SAFETY: the caller guarantees that the string is valid.
    let path = unsafe { text(path) }.ok_or(Code::INVALID_INPUT)?;
    with_link(handle, |link| match fs::read(OsStr::from_bytes(path.to_bytes())) {
        Ok(data) => link.add(kind, &data, path.to_owned()),
        Err(error) => {
            link.error_log += &format!("failed to read {}: {error}\n", path.to_string_lossy());
            Err(Code::INVALID_INPUT)
        }
    })
}

fn complete(handle: Handle) -> Outcome {
    with_link(handle, Link::complete)
}

/// The outputs of a link: their sizes and their bytes.
#[derive(Clone, Copy)]
enum Part {
    Image,
    Ptx,
    LtoIr,
    ErrorLog,
    InfoLog,
}

impl Part {
    fn of(self, link: &Link) -> Result<Vec<u8>, Code> {
        // An empty log has no NUL.
        let log = |log: &str| if log.is_empty() { Vec::new() } else { [log.as_bytes(), &[0]].concat() };
        match self {
            Self::Image => link.image().map(<[u8]>::to_vec),
            Self::Ptx => link.ptx().map(<[u8]>::to_vec),
            Self::LtoIr => Err(link.lto_ir_error()),
            Self::ErrorLog => Ok(log(&link.error_log)),
            Self::InfoLog => Ok(Vec::new()),
        }
    }
}

/// # Safety
/// `size` must be null or valid for a write.
unsafe fn part_size(handle: Handle, part: Part, size: *mut usize) -> Outcome {
    if size.is_null() {
        return Err(Code::NULL_INPUT);
    }
    let bytes = with_link(handle, |link| part.of(link))?.len();
    // SAFETY: the caller guarantees that the output pointer is valid.
    unsafe { size.write(bytes) };
    Ok(())
}

/// # Safety
/// `to` must be null or valid for as many bytes as [`part_size`] tells.
unsafe fn part_bytes(handle: Handle, part: Part, to: *mut u8) -> Outcome {
    if to.is_null() {
        return Err(Code::NULL_INPUT);
    }
    let bytes = with_link(handle, |link| part.of(link))?;
    // SAFETY: the caller guarantees that the memory, which is not ours, is valid.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}

/// # Safety
/// `major` and `minor` must be null or valid for writes.
unsafe fn version(own: (u32, u32), major: *mut u32, minor: *mut u32) -> Outcome {
    if major.is_null() || minor.is_null() {
        return Err(Code::INVALID_INPUT);
    }
    // A program may have both versions of the other library, of which one is asked.
    let version = vendor().and_then(Vendor::version).filter(|version| version.0 == own.0).unwrap_or(own);
    // SAFETY: the caller guarantees that the output pointer is valid.
    unsafe { major.write(version.0) };
    // SAFETY: as above.
    unsafe { minor.write(version.1) };
    Ok(())
}

/// # Safety
/// `text` must be null or a C string that lives as long as the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees that the string is valid.
    Some(unsafe { CStr::from_ptr(text) })
}

/// Exports each function under its plain name and under that of each minor version.
macro_rules! exports {
    ($($name:literal ($($argument:ident: $type:ty),*) $body:expr;)*) => {
        $(exports! { @versions $name ($($argument: $type),*) $body;
            "_13_0" "_13_1" "_13_2" "_13_3" "_13_4" "_13_5" "_13_6" "_13_7" "_13_8" "_13_9" })*
    };
    (@versions $name:literal $arguments:tt $body:expr; $($version:literal)*) => {
        exports! { @one ($name) $arguments $body }
        $(exports! { @one (concat!("__", $name, $version)) $arguments $body })*
    };
    (@one ($name:expr) ($($argument:ident: $type:ty),*) $body:expr) => {
        const _: () = {
            #[unsafe(export_name = $name)]
            unsafe extern "C" fn function($($argument: $type),*) -> Code {
                run(|| $body)
            }
        };
    };
}

// SAFETY (all): the C interface has these conditions, and so the caller of an exported function guarantees them.
exports! {
    "nvJitLinkCreate" (handle: *mut Handle, count: u32, options: *const *const c_char)
        // SAFETY: see above.
        unsafe { create(handle, count, options) };
    "nvJitLinkDestroy" (handle: *mut Handle)
        // SAFETY: see above.
        unsafe { destroy(handle) };
    "nvJitLinkAddData" (handle: Handle, kind: i32, data: *const c_void, bytes: usize, name: *const c_char)
        // SAFETY: see above.
        unsafe { add_data(handle, kind, data, bytes, name) };
    "nvJitLinkAddFile" (handle: Handle, kind: i32, path: *const c_char)
        // SAFETY: see above.
        unsafe { add_file(handle, kind, path) };
    "nvJitLinkComplete" (handle: Handle) complete(handle);
    "nvJitLinkGetLinkedCubinSize" (handle: Handle, size: *mut usize)
        // SAFETY: see above.
        unsafe { part_size(handle, Part::Image, size) };
    "nvJitLinkGetLinkedCubin" (handle: Handle, to: *mut u8)
        // SAFETY: see above.
        unsafe { part_bytes(handle, Part::Image, to) };
    "nvJitLinkGetLinkedPtxSize" (handle: Handle, size: *mut usize)
        // SAFETY: see above.
        unsafe { part_size(handle, Part::Ptx, size) };
    "nvJitLinkGetLinkedPtx" (handle: Handle, to: *mut u8)
        // SAFETY: see above.
        unsafe { part_bytes(handle, Part::Ptx, to) };
    "nvJitLinkGetLinkedLTOIRSize" (handle: Handle, size: *mut usize)
        // SAFETY: see above.
        unsafe { part_size(handle, Part::LtoIr, size) };
    "nvJitLinkGetLinkedLTOIR" (handle: Handle, to: *mut u8)
        // SAFETY: see above.
        unsafe { part_bytes(handle, Part::LtoIr, to) };
    "nvJitLinkGetErrorLogSize" (handle: Handle, size: *mut usize)
        // SAFETY: see above.
        unsafe { part_size(handle, Part::ErrorLog, size) };
    "nvJitLinkGetErrorLog" (handle: Handle, to: *mut u8)
        // SAFETY: see above.
        unsafe { part_bytes(handle, Part::ErrorLog, to) };
    "nvJitLinkGetInfoLogSize" (handle: Handle, size: *mut usize)
        // SAFETY: see above.
        unsafe { part_size(handle, Part::InfoLog, size) };
    "nvJitLinkGetInfoLog" (handle: Handle, to: *mut u8)
        // SAFETY: see above.
        unsafe { part_bytes(handle, Part::InfoLog, to) };
    "nvJitLinkVersion" (major: *mut u32, minor: *mut u32)
        // SAFETY: see above.
        unsafe { version(VERSION_13, major, minor) };
}

/// The version that `libnvJitLink.so.12` states.
///
/// # Safety
/// `major` and `minor` must be null or valid for writes.
#[unsafe(no_mangle)]
unsafe extern "C" fn freehold_v12_nvJitLinkVersion(major: *mut u32, minor: *mut u32) -> Code {
    // SAFETY: the caller guarantees that the places are valid.
    run(|| unsafe { version(VERSION_12, major, minor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_numbers_that_end_when_destroyed() {
        let options = [c"-arch=sm_90".as_ptr()];
        let mut handle = 0;
        // SAFETY: the place and the strings are valid.
        assert_eq!(unsafe { create(&raw mut handle, 1, options.as_ptr()) }, Ok(()));
        let (first, mut size) = (handle, 7);
        // SAFETY: the place is valid.
        assert_eq!(unsafe { part_size(first, Part::ErrorLog, &raw mut size) }, Ok(()));
        assert_eq!((size, complete(first)), (0, Ok(())));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { part_size(first, Part::ErrorLog, ptr::null_mut()) }, Err(Code::NULL_INPUT));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { part_bytes(first, Part::Image, ptr::null_mut()) }, Err(Code::NULL_INPUT));
        // SAFETY: the place is valid.
        assert_eq!(unsafe { destroy(&raw mut handle) }, Ok(()));
        assert_eq!((handle, complete(first)), (0, Err(Code::INVALID_INPUT)));
        // SAFETY: the place is valid.
        assert_eq!(unsafe { destroy(&raw mut handle) }, Err(Code::INVALID_INPUT));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { create(&raw mut handle, 0, ptr::null()) }, Err(Code::NULL_INPUT));
    }

    #[test]
    fn a_log_ends_with_a_nul_unless_it_is_empty() {
        let options = [c"-arch=sm_90".as_ptr()];
        let mut handle = 0;
        // SAFETY: the place and the strings are valid.
        assert_eq!(unsafe { create(&raw mut handle, 1, options.as_ptr()) }, Ok(()));
        // SAFETY: the data and the name are valid.
        let added = unsafe { add_data(handle, 2, b"hello".as_ptr().cast(), 5, c"a".as_ptr()) };
        assert_eq!(added, Err(Code::INCORRECT_INPUT_TYPE));
        let log = with_link(handle, |link| Part::ErrorLog.of(link));
        assert_eq!(log, Ok(b"wrong type of input: \"a\"\n\0".to_vec()));
    }
}
