//! NVIDIA's library, loaded at run time: nothing here needs it to build.

use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Only what is loaded already: glibc's and musl's number on Linux.
const RTLD_NOLOAD: i32 = 4;

use super::api::{Api, Function};

/// Where the system's loader finds NVIDIA's driver.
pub const LIBRARY: &str = "libcuda.so.1";

/// Why a driver library could not be used.
#[derive(thiserror::Error)]
pub enum LoadError {
    #[error("{} cannot be loaded: {source}", .path.display())]
    Library { path: PathBuf, source: libloading::Error },
    #[error("{} is not a CUDA driver: it has no cuInit", .0.display())]
    NotADriver(PathBuf),
}

/// The sentence: what `main` prints that returns it, and `unwrap`.
impl fmt::Debug for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether the process has a driver's library already, which other code of it uses.
pub fn is_loaded() -> bool {
    // SAFETY: nothing is loaded that is not there, and so no initialiser runs.
    unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_NOLOAD) }.is_ok()
}

/// The table of the library at `path`. A function that it lacks answers `NOT_SUPPORTED`.
///
/// The library stays loaded for the rest of the process, because the table is a value that may be copied anywhere,
/// and because NVIDIA's library does not survive being unloaded.
///
/// # Safety
/// The library is a CUDA driver, whose initialisers may run. Whoever has the table or a copy of it vouches for what is called
/// of it: handles are of this driver, and not destroyed; addresses are memory that the call may use so, in order with all else
/// that uses it; and memory of the host that a device writes is not referred to meanwhile.
pub unsafe fn load(path: &Path) -> Result<Api, LoadError> {
    // SAFETY: the caller vouches for the library.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|source| LoadError::Library { path: path.to_owned(), source })?;
    let find = |name: &CStr| {
        // SAFETY: the symbol is taken as a function, which all symbols of these names are, and not called here.
        let symbol = unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
        symbol.ok().map(|symbol| *symbol)
    };
    // SAFETY: the list in `api` states the C signature of each symbol it names, and the library is never unloaded
    // where the table leaves this function.
    let (api, missing) = unsafe { Api::from_symbols(find) };
    if missing.contains(&Function::cuInit) {
        return Err(LoadError::NotADriver(path.to_owned()));
    }
    std::mem::forget(library);
    Ok(api)
}
