//! NVIDIA's library, if the program has it: it turns LTO-IR into PTX, for which it needs neither a driver nor a GPU.
//!
//! The audit library answers a request for [`NAME`] with the library that the program had asked for.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::code::Code;

/// The name under which the audit library gives out NVIDIA's library.
const NAME: &str = "freehold-original:libnvJitLink";

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> Code;
type OfHandle = unsafe extern "C" fn(*mut Handle) -> Code;
type AddData = unsafe extern "C" fn(Handle, i32, *const c_void, usize, *const c_char) -> Code;
type Complete = unsafe extern "C" fn(Handle) -> Code;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> Code;
type Text = unsafe extern "C" fn(Handle, *mut c_char) -> Code;
type Version = unsafe extern "C" fn(*mut u32, *mut u32) -> Code;

const LTO_IR: i32 = 3;

/// The functions of the library that are used.
#[derive(Debug)]
pub(crate) struct Vendor {
    create: Create,
    destroy: OfHandle,
    add_data: AddData,
    complete: Complete,
    ptx_size: Size,
    ptx: Text,
    error_log_size: Size,
    error_log: Text,
    version: Version,
}

/// Why NVIDIA's library refused LTO-IR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VendorError {
    pub(crate) code: Code,
    pub(crate) log: String,
}

/// Returns the library, or `None` if the program has none.
pub(crate) fn vendor() -> Option<&'static Vendor> {
    static VENDOR: OnceLock<Option<Vendor>> = OnceLock::new();
    VENDOR.get_or_init(Vendor::open).as_ref()
}

impl Vendor {
    fn open() -> Option<Self> {
        // SAFETY: the library's constructors need nothing of the program.
        let library = unsafe { Library::new(NAME) }.ok()?;
        // It stays loaded, as its functions are used until the process ends.
        let library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: `nvJitLink.h` declares the function with this type.
                *unsafe { library.get($name) }.ok()?
            };
        }
        Some(Self {
            create: function!(b"nvJitLinkCreate\0"),
            destroy: function!(b"nvJitLinkDestroy\0"),
            add_data: function!(b"nvJitLinkAddData\0"),
            complete: function!(b"nvJitLinkComplete\0"),
            ptx_size: function!(b"nvJitLinkGetLinkedPtxSize\0"),
            ptx: function!(b"nvJitLinkGetLinkedPtx\0"),
            error_log_size: function!(b"nvJitLinkGetErrorLogSize\0"),
            error_log: function!(b"nvJitLinkGetErrorLog\0"),
            version: function!(b"nvJitLinkVersion\0"),
        })
    }

    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both places are valid for writes.
        let code = unsafe { (self.version)(&raw mut major, &raw mut minor) };
        (code == Code::SUCCESS).then_some((major, minor))
    }

    /// Links LTO-IR into a PTX text.
    pub(crate) fn to_ptx<'a>(
        &self,
        options: &[CString],
        inputs: impl Iterator<Item = (&'a [u8], &'a CStr)>,
    ) -> Result<Vec<u8>, VendorError> {
        let link = VendorLink::new(self, options)?;
        for (data, name) in inputs {
            // SAFETY: the handle is live, and the data and the name are valid during the call.
            let code = unsafe { (self.add_data)(link.handle, LTO_IR, data.as_ptr().cast(), data.len(), name.as_ptr()) };
            link.check(code)?;
        }
        // SAFETY: the handle is live.
        link.check(unsafe { (self.complete)(link.handle) })?;
        link.text(self.ptx_size, self.ptx)
    }
}

/// A link of NVIDIA's library.
struct VendorLink<'a> {
    vendor: &'a Vendor,
    handle: Handle,
}

impl<'a> VendorLink<'a> {
    fn new(vendor: &'a Vendor, options: &[CString]) -> Result<Self, VendorError> {
        let words: Vec<_> = options.iter().map(|word| word.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: the place and the strings are valid during the call, and as many as it is told.
        let code = unsafe { (vendor.create)(&raw mut handle, words.len() as u32, words.as_ptr()) };
        if code == Code::SUCCESS { Ok(Self { vendor, handle }) } else { Err(VendorError { code, log: String::new() }) }
    }

    fn check(&self, code: Code) -> Result<(), VendorError> {
        if code == Code::SUCCESS {
            return Ok(());
        }
        let log = self.text(self.vendor.error_log_size, self.vendor.error_log);
        let log = log.map(|bytes| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned());
        Err(VendorError { code, log: log.unwrap_or_default() })
    }

    /// Returns a text of the link, with its NUL if it has one.
    fn text(&self, size: Size, text: Text) -> Result<Vec<u8>, VendorError> {
        let refused = |code| VendorError { code, log: String::new() };
        let mut bytes = 0;
        // SAFETY: the handle is live, and the place is valid for a write.
        let code = unsafe { size(self.handle, &raw mut bytes) };
        if code != Code::SUCCESS {
            return Err(refused(code));
        }
        // One byte more, for a library that does not count the NUL.
        let mut buffer = vec![0_u8; bytes + 1];
        // SAFETY: the handle is live, and the buffer has the size that the library stated.
        let code = unsafe { text(self.handle, buffer.as_mut_ptr().cast()) };
        buffer.truncate(bytes);
        if code == Code::SUCCESS { Ok(buffer) } else { Err(refused(code)) }
    }
}

impl Drop for VendorLink<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing uses it any more.
        let code = unsafe { (self.vendor.destroy)(&raw mut self.handle) };
        debug_assert_eq!(code, Code::SUCCESS, "a live link can be destroyed");
    }
}
