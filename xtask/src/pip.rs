//! Packages installed by pip: pinned versions, each group in a folder of its own, installed once.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use crate::command::{Failure, command, run, target};

/// Packages that belong together.
pub(crate) struct Packages {
    pub(crate) folder: &'static str,
    pub(crate) names: &'static [&'static str],
}

/// Returns the folder for packages.
pub(crate) fn tools() -> PathBuf {
    target().join("kernels")
}

/// Installs packages into a folder of their own, once.
pub(crate) fn install(packages: &Packages) -> Result<PathBuf, Failure> {
    let folder = tools().join(packages.folder);
    let mark = folder.join("complete");
    let wanted = packages.names.join("\n");
    if fs::read_to_string(&mark).is_ok_and(|have| have == wanted) {
        return Ok(folder);
    }
    let mut pip =
        command("python3", &["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--upgrade", "--target"]);
    run(pip.arg(&folder).args(packages.names).stderr(Stdio::null()))?;
    fs::write(&mark, wanted).map_err(|error| format!("{} cannot be written: {error}", mark.display()))?;
    Ok(folder)
}
