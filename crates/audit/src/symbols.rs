//! Binds the program's calls of the CUDA driver to functions of `libcudart.so` that tell a checker, or count memory if there is a
//! limit.
//!
//! An object says with its cookie what it is to this library. The dynamic linker tells of each binding of a function of the driver,
//! for a call or by `dlsym`; the exports of the runtime say which functions have a counterpart.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::file::{self, Mapped};
use crate::objects::{Audited, RUNTIME_13, is_driver};

/// The variables that the runtime reads, and what the names of its functions for calls of the driver begin with. Those that tell a
/// checker count too, if there is a limit.
const VARIABLES: [(&str, &[u8]); 2] =
    [("FREEHOLD_CHECK_CALLS", b"freehold_calls_"), ("FREEHOLD_LIMIT", b"freehold_limit_")];

/// What an object is: the values of its cookie.
mod kind {
    /// Its calls of the driver are redirected.
    pub(super) const OTHER: usize = 1;
    pub(super) const DRIVER: usize = 2;
    /// Our runtime, which calls the driver itself.
    pub(super) const RUNTIME: usize = 3;
}

/// The prefix of the functions that are used, if any are.
static PREFIX: LazyLock<Option<&[u8]>> = LazyLock::new(|| {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    VARIABLES.iter().find(|(name, _)| is_set(name)).map(|(_, prefix)| *prefix)
});

/// The addresses of the counterparts, by the names of the driver's functions. `None` until the runtime is loaded.
static COUNTERPARTS: Mutex<Option<HashMap<Vec<u8>, usize>>> = Mutex::new(None);

/// Notes an object. Returns the cookie for it and which bindings are told, if calls are redirected.
pub(crate) fn opened(base: usize, name: &[u8], folder: Option<&Path>) -> Option<(usize, Audited)> {
    let prefix = (*PREFIX)?;
    if is_driver(name) {
        return Some((kind::DRIVER, Audited::Definitions));
    }
    let path = Path::new(OsStr::from_bytes(name));
    let is_ours = folder.is_some() && path.parent() == folder;
    if is_ours && path.ends_with(RUNTIME_13) {
        let exports = Mapped::open(path).map(|file| file::counterparts(file.bytes(), prefix)).unwrap_or_default();
        let found = exports.into_iter().map(|(name, address)| (name, base + address as usize)).collect();
        *COUNTERPARTS.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
    let kind = if is_ours { kind::RUNTIME } else { kind::OTHER };
    Some((kind, Audited::Uses))
}

/// Returns the function that is called for a function of the driver, if an object with the cookie `user` binds it in one with the
/// cookie `definer`.
pub(crate) fn counterpart(user: usize, definer: usize, name: &[u8]) -> Option<usize> {
    if PREFIX.is_none() || definer != kind::DRIVER || user == kind::RUNTIME {
        return None;
    }
    let counterparts = COUNTERPARTS.lock().unwrap_or_else(PoisonError::into_inner);
    counterparts.as_ref()?.get(name).copied()
}
