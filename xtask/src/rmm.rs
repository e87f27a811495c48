//! RMM, for the test of its adaptor: the program `rmm_pool.cu`, compiled against its headers and its library, which pip installs.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use crate::command::{Failure, root, run_quiet, target};
use crate::nvcc::{NVCC, Toolkit};
use crate::pip::{Packages, install};

/// Later versions contain a CUDA runtime without symbols, which cannot be replaced.
const RMM: Packages = Packages { folder: "rmm", names: &["librmm-cu13==25.12.0", "rapids-logger==0.2.3"] };

/// As RMM's own build has them.
const OPTIONS: &[&str] = &[
    "-arch=compute_75",
    "-std=c++17",
    "-lineinfo",
    "-cudart",
    "shared",
    "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
    "-DCCCL_DISABLE_PDL",
];

const HEADERS: &str = "crates/check/include";
const PROGRAM: &str = "crates/check/tests/pools/rmm_pool.cu";

/// Compiles the program with its error, and without. Returns the paths, and the folders of the libraries.
pub(crate) fn programs() -> Result<([PathBuf; 2], String), Failure> {
    let toolkit = Toolkit::install()?;
    let packages = install(&RMM)?;
    let libraries = [packages.join("librmm/lib64"), packages.join("rapids_logger/lib64")];
    let mut hasher = DefaultHasher::new();
    (NVCC.names, RMM.names, OPTIONS).hash(&mut hasher);
    for file in [PROGRAM, "crates/check/include/freehold/check.h", "crates/check/include/freehold/check_rmm.hpp"] {
        fs::read(root().join(file)).map_err(|error| format!("{file} cannot be read: {error}"))?.hash(&mut hasher);
    }
    let folder = target().join("checked");
    fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be created: {error}", folder.display()))?;
    let build = |version: &str| -> Result<PathBuf, Failure> {
        let path = folder.join(format!("rmm-{version}-{:016x}", hasher.finish()));
        if path.exists() {
            return Ok(path);
        }
        let unfinished = path.with_extension("unfinished");
        let mut nvcc = toolkit.nvcc(".");
        nvcc.args(OPTIONS).args((version == "fixed").then_some("-DFIXED")).arg("-I").arg(root().join(HEADERS));
        // The headers of CCCL that RMM was built with come first.
        for folder in ["librmm/include/rapids", "librmm/include", "rapids_logger/include"] {
            nvcc.arg("-I").arg(packages.join(folder));
        }
        nvcc.arg(root().join(PROGRAM)).arg("-o").arg(&unfinished);
        nvcc.arg(libraries[0].join("librmm.so")).arg(libraries[1].join("librapids_logger.so"));
        run_quiet(&mut nvcc)?;
        fs::rename(&unfinished, &path).map_err(|error| format!("{} cannot be moved: {error}", path.display()))?;
        Ok(path)
    };
    let path = libraries.each_ref().map(|folder| folder.display().to_string()).join(":");
    Ok(([build("broken")?, build("fixed")?], path))
}
