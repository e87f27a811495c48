//! The step of `cargo xtask test` that runs a PyCUDA program on the software driver. PyPI has PyCUDA only as source: it
//! is built once, against NVIDIA's headers, which pip installs, and the software driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::apt;
use crate::command::{Failure, command, run_quiet, target};
use crate::headers::HEADERS_12;
use crate::pip::install;
use crate::programs::freehold;
use crate::runner::Case;

const VERSION: &str = "2026.1";

/// The other modules that the program imports, and their dependencies.
const OTHERS: &[&str] = &[
    "numpy==2.3.5",
    "pytools==2026.1.1",
    "platformdirs==4.14.5",
    "mako==1.4.3",
    "MarkupSafe==3.0.4",
    "siphash24==1.9",
    "typing_extensions==4.16.0",
];

/// Builds PyCUDA, and runs the program.
pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    apt::packages()?;
    let modules = modules()?;
    let mut program = command(freehold(), &["run", "--device", "soft", "--", "python3"]);
    program.arg("examples/python/pycuda_saxpy.py").env("PYTHONPATH", modules);
    Ok(vec![Case::command("PyCUDA", "cargo xtask test --only PyCUDA", program)])
}

/// Returns the folder that PyCUDA is imported from.
fn modules() -> Result<PathBuf, Failure> {
    let work = target().join("pycuda");
    let modules = work.join("modules");
    let mark = modules.join("complete");
    let wanted = format!("{VERSION}\n{}", OTHERS.join("\n"));
    if fs::read_to_string(&mark).is_ok_and(|have| have == wanted) {
        return Ok(modules);
    }
    let headers = install(&HEADERS_12)?;
    let source = source(&work)?;
    write(&source.join("siteconf.py"), &configuration(&headers, &stub(&work)?))?;
    println!("building PyCUDA, once; this takes some minutes");
    let mut pip = pip(&["install", "--no-deps", "--no-compile", "--upgrade", "--target"]);
    run_quiet(pip.arg(&modules).arg(&source).args(OTHERS))?;
    write(&mark, &wanted)?;
    Ok(modules)
}

fn source(work: &Path) -> Result<PathBuf, Failure> {
    let name = format!("pycuda-{VERSION}");
    fs::create_dir_all(work).map_err(|error| format!("cannot create {}: {error}", work.display()))?;
    let mut download = pip(&["download", "--no-deps", "--no-binary", "pycuda", "--dest"]);
    run_quiet(download.arg(work).arg(format!("pycuda=={VERSION}")))?;
    run_quiet(Command::new("tar").arg("-xzf").arg(work.join(format!("{name}.tar.gz"))).current_dir(work))?;
    Ok(work.join(name))
}

/// Returns the settings of PyCUDA's build: only the driver library, no optimization, and no debug information.
fn configuration(headers: &Path, library: &Path) -> String {
    let runtime = headers.join("nvidia/cuda_runtime/include");
    let profiler = headers.join("nvidia/cuda_profiler_api/include");
    format!(
        "CUDA_ENABLE_CURAND = False\nCUDA_INC_DIR = [{runtime:?}, {profiler:?}]\nCUDADRV_LIB_DIR = [{library:?}]\n\
         CXXFLAGS = [\"-O0\", \"-g0\", \"-w\"]\nLDFLAGS = []\n"
    )
}

/// Creates a folder with a library to link against. Shared objects may be linked with unresolved symbols; one resolved
/// symbol makes the linker record that the library is needed.
fn stub(work: &Path) -> Result<PathBuf, Failure> {
    let folder = work.join("stub");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let source = folder.join("stub.c");
    write(&source, "int cuInit(unsigned flags) { return flags; }\n")?;
    let mut compiler = command("cc", &["-shared", "-Wl,-soname,libcuda.so.1", "-o"]);
    run_quiet(compiler.arg(folder.join("libcuda.so")).arg(source))?;
    Ok(folder)
}

fn pip(arguments: &[&str]) -> Command {
    let mut pip = command("python3", &["-m", "pip", "--quiet"]);
    pip.args(arguments).stdin(Stdio::null());
    pip
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
