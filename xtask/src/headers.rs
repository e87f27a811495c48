//! The step of `cargo xtask test` that compares the software driver with NVIDIA's headers, installed by pip: whether
//! the library exports every symbol, and whether the C header agrees.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Failure, output, root, run_quiet, target};
use crate::pip::{Packages, install};
use crate::programs::freehold;
use crate::runner::Case;

pub(crate) const HEADERS_12: Packages = Packages {
    folder: "headers-12",
    names: &["nvidia-cuda-runtime-cu12==12.9.79", "nvidia-cuda-profiler-api-cu12==12.9.79"],
};
const HEADERS_13: Packages =
    Packages { folder: "headers-13", names: &["nvidia-cuda-runtime==13.0.88", "nvidia-cuda-profiler-api==13.0.85"] };

/// Headers that NVIDIA's include and pip does not install, with the declarations that are needed.
const OTHERS: &[(&str, &str)] = &[
    ("GL/gl.h", "typedef unsigned int GLuint; typedef unsigned int GLenum;"),
    (
        "EGL/egl.h",
        "typedef void *EGLStreamKHR; typedef void *EGLImageKHR; typedef void *EGLSyncKHR; typedef int EGLint;",
    ),
    ("EGL/eglext.h", ""),
    (
        "vdpau/vdpau.h",
        "typedef unsigned VdpDevice; typedef unsigned VdpVideoSurface; typedef unsigned VdpOutputSurface; \
         typedef int VdpGetProcAddress(void);",
    ),
];

/// Every version of every function: as programs see them, the older versions, and those with per-thread default
/// streams.
const VIEWS: &[&str] = &["-DPLAIN", "-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"];

pub(crate) fn cases() -> Result<Vec<Case>, Failure> {
    install(&HEADERS_12)?;
    install(&HEADERS_13)?;
    Ok(vec![Case::call("CUDA headers", "cargo xtask test --only headers", compare_symbols)])
}

/// Compares with the headers of both CUDA versions.
fn compare_symbols() -> Result<(), Failure> {
    let (old, new) = (install(&HEADERS_12)?, install(&HEADERS_13)?);
    let work = target().join("headers");
    for (name, text) in OTHERS {
        let path = work.join(name);
        fs::create_dir_all(path.parent().expect("a header is in a folder"))
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    let program = freehold();
    let exported = exported(&program.with_file_name("deps/libfreehold_libcuda.so"))?;
    let mut documented = BTreeSet::new();
    let old = [old.join("nvidia/cuda_runtime/include"), old.join("nvidia/cuda_profiler_api/include")];
    for folders in [&old[..], &[new.join("nvidia/cu13/include")]] {
        compare_declarations(&work, folders)?;
        for view in VIEWS {
            documented.extend(declared(&work, folders, view)?);
        }
    }
    println!("NVIDIA's headers have {} symbols, the library {}", documented.len(), exported.len());
    let missing: Vec<_> = documented.difference(&exported).cloned().collect();
    // What pools tell the checker is declared in our own header.
    let is_ours = |name: &String| name.starts_with("freehold_check_");
    let extra: Vec<_> = exported.difference(&documented).filter(|name| !is_ours(name)).cloned().collect();
    if missing.is_empty() && extra.is_empty() {
        return Ok(());
    }
    Err(format!("the library lacks {missing:?}, and has {extra:?} that the headers lack"))
}

/// Returns the symbols that a library exports, with their versions if they have any.
pub(crate) fn exported(library: &Path) -> Result<BTreeSet<String>, Failure> {
    let listed = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library))?;
    Ok(listed.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect())
}

/// Returns the functions that the headers declare in one view.
fn declared(work: &Path, folders: &[PathBuf], view: &str) -> Result<BTreeSet<String>, Failure> {
    let names = ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"];
    let source = source(work, &names)?;
    let text = output(compiler(work, folders).args(["-E", "-P", view]).arg(source))?;
    let mut words = text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
    let mut found = BTreeSet::new();
    while let Some(word) = words.next() {
        if word == "CUresult"
            && let Some(name) = words.next()
            && name.starts_with("cu")
        {
            found.insert(name.to_owned());
        }
    }
    Ok(found)
}

/// C allows a function to be declared twice only if both declarations agree.
fn compare_declarations(work: &Path, folders: &[PathBuf]) -> Result<(), Failure> {
    let source = source(work, &["cuda.h", "freehold_cuda.h"])?;
    let ours = root().join("crates/libcuda/include");
    run_quiet(compiler(work, folders).args(["-Wall", "-Werror", "-fsyntax-only", "-I"]).arg(ours).arg(source))
}

fn source(work: &Path, headers: &[&str]) -> Result<PathBuf, Failure> {
    let path = work.join("source.c");
    let text: String = headers.iter().map(|header| format!("#include <{header}>\n")).collect();
    fs::write(&path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    Ok(path)
}

fn compiler(work: &Path, folders: &[PathBuf]) -> Command {
    let mut compiler = Command::new("cc");
    for folder in folders {
        compiler.arg("-I").arg(folder);
    }
    compiler.arg("-I").arg(work);
    compiler
}
