//! NVIDIA's library, loaded at run time: building does not need it.

use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Finds only libraries that are already loaded: the value of glibc and musl on Linux.
const RTLD_NOLOAD: i32 = 4;

use super::api::{Api, Function};
use super::symbols;

/// The name by which the system's loader finds NVIDIA's driver.
pub const LIBRARY: &str = "libcuda.so.1";

/// Why a driver library could not be used.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum LibraryError {
    /// The library is not there, or cannot be loaded.
    #[error("{} cannot be loaded: {source}", .path.display())]
    Library {
        /// The library.
        path: PathBuf,
        /// The dynamic linker's error.
        source: libloading::Error,
    },
    /// A library without `cuInit`.
    #[error("{} is not a CUDA driver: it has no cuInit", .0.display())]
    NotADriver(PathBuf),
}

/// Prints the same text as `Display`, for `unwrap` and for a `main` that returns the error.
impl fmt::Debug for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns whether a CUDA driver library is already loaded into the process, for other code.
pub fn is_loaded() -> bool {
    // SAFETY: nothing new is loaded, so no initializer runs.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_NOLOAD) }.is_ok()
}

/// Loads the library at `path` and returns its table. A function that it lacks returns `NOT_SUPPORTED`.
///
/// The library stays loaded for the rest of the process, because the table is a value that may be copied anywhere,
/// and because NVIDIA's library does not survive being unloaded.
///
/// # Safety
/// The library is a CUDA driver, whose initializers may run. Code that has the table or a copy of it is responsible for
/// every call through it: handles are of this driver, and not destroyed; addresses are memory that the call may use in
/// that way, ordered with everything else that uses it; and nothing refers to host memory while a device writes it.
pub unsafe fn load(path: &Path) -> Result<Api, LibraryError> {
    // SAFETY: as for `load`, which the caller guarantees.
    unsafe { load_with(path, |_| None) }
}

/// Loads the library at `path` and returns its table for programs with per-thread default streams: stream zero, and the
/// stream of a call that takes none, is the calling thread's own default stream.
///
/// # Safety
/// As for [`load`].
pub unsafe fn load_per_thread(path: &Path) -> Result<Api, LibraryError> {
    // SAFETY: as for `load`, which the caller guarantees.
    unsafe { load_with(path, symbols::per_thread) }
}

/// Loads a table. A symbol is replaced by its variant where the library has that.
///
/// # Safety
/// As for [`load`]; a variant has the signature of its symbol.
unsafe fn load_with(path: &Path, variant: impl Fn(&str) -> Option<&'static str>) -> Result<Api, LibraryError> {
    // SAFETY: the caller guarantees that the library is a driver.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|source| LibraryError::Library { path: path.to_owned(), source })?;
    let named = |name: &[u8]| {
        // SAFETY: the symbol is read as a function, which all symbols of these names are, and not called here.
        let symbol = unsafe { library.get::<unsafe extern "C" fn()>(name) };
        symbol.ok().map(|symbol| *symbol)
    };
    let find = |name: &CStr| {
        let other = name.to_str().ok().and_then(&variant);
        other.and_then(|other| named(other.as_bytes())).or_else(|| named(name.to_bytes_with_nul()))
    };
    // SAFETY: the list in `api` states the C signature of each symbol, and the library is never unloaded if the table
    // leaves this function.
    let (api, missing) = unsafe { Api::from_symbols(find) };
    if missing.contains(&Function::cuInit) {
        return Err(LibraryError::NotADriver(path.to_owned()));
    }
    std::mem::forget(library);
    Ok(api)
}
