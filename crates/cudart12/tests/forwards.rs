//! The library loaded with `dlopen`, beside the one that it forwards to. The test is linked with neither: both define the same
//! names.

#![cfg(target_arch = "x86_64")]

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::{env, fs};

use libloading::os::unix::{Library, Symbol};

/// Returns the library, in a folder with the names that programs look for.
fn library(test: &str) -> Library {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("the folder is new");
    let program = env::current_exe().expect("cannot find the test's executable");
    let deps = program.parent().expect("a file is in a folder");
    for (name, file) in [("libcudart.so.12", "libfreehold_cudart12.so"), ("libcudart.so.13", "libfreehold_runtime.so")]
    {
        std::os::unix::fs::symlink(deps.join(file), folder.join(name)).expect("the folder is ours");
    }
    open(&folder.join("libcudart.so.12"))
}

fn open(path: &Path) -> Library {
    // SAFETY: the libraries have no initializers but those of Rust's standard library.
    unsafe { Library::new(path) }.expect("cargo built both libraries beside the test")
}

fn symbol<T>(library: &Library, name: &str) -> Symbol<T> {
    // SAFETY: each caller names the type of the function that it asks for.
    unsafe { library.get(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_function_of_both_versions_is_that_of_cuda_13() {
    let library = library("same");
    let name = symbol::<unsafe extern "C" fn(c_int) -> *const c_char>(&library, "cudaGetErrorName");
    // SAFETY: the function takes any number.
    let name = unsafe { name(2) };
    // SAFETY: it returned a constant, which ends with a NUL.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(name, c"cudaErrorMemoryAllocation");
}

#[test]
fn the_version_is_that_of_cuda_12() {
    let library = library("version");
    let version = symbol::<unsafe extern "C" fn(*mut c_int) -> c_int>(&library, "cudaRuntimeGetVersion");
    let mut number = 0;
    // SAFETY: `number` is a valid place for the answer.
    assert_eq!(unsafe { version(&raw mut number) }, 0);
    assert_eq!(number, 12090);
}

#[test]
fn a_function_that_nothing_implements_is_not_supported() {
    let library = library("missing");
    let missing = symbol::<unsafe extern "C" fn() -> c_int>(&library, "cudaSetDoubleForDevice");
    // SAFETY: the function ignores its arguments.
    assert_eq!(unsafe { missing() }, 801);
}
