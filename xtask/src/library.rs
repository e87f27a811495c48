//! `cargo xtask library`: the C interface under the names that programs link to and include.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, root, run, target};

/// The library and its header.
pub(crate) struct Library {
    pub(crate) object: PathBuf,
    pub(crate) header: PathBuf,
}

/// Builds the library with these cargo settings, and copies it, with its header, into cargo's target folder.
pub(crate) fn make(settings: &[(&str, &str)]) -> Result<Library, Failure> {
    run(cargo(&["build", "--release", "--package", "freehold-capi"]).envs(settings.iter().copied()))?;
    let folder = target().join("release");
    let library = Library { object: folder.join("libfreehold.so"), header: folder.join("freehold.h") };
    replace(&folder.join("libfreehold_capi.so"), &library.object)?;
    replace(&root().join("crates/capi/include/freehold.h"), &library.header)?;
    Ok(library)
}

/// Replaces a file by a new one: a process that has the old one open keeps it.
fn replace(from: &Path, to: &Path) -> Result<(), Failure> {
    let new = to.with_extension("new");
    fs::copy(from, &new)
        .and_then(|_| fs::rename(&new, to))
        .map_err(|error| format!("{} cannot be copied to {}: {error}", from.display(), to.display()))
}
