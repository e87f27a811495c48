//! Makes the linker embed the libraries of the software device, so that `freehold run` needs no other file.
//!
//! The libraries are dependencies, so they exist when the program is linked, but not yet when this script runs, nor when the
//! program is only checked. So their paths are passed to the linker, and the files are not read here.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The names that programs look for, and the files that cargo builds.
const LIBRARIES: &[(&str, &str)] = &[
    ("libcuda.so.1", "libfreehold_libcuda.so"),
    ("libcudart.so.12", "libfreehold_cudart12.so"),
    ("libcudart.so.13", "libfreehold_runtime.so"),
    ("libfreehold_audit.so", "libfreehold_audit.so"),
    ("libfreehold_limit.so", "libfreehold_interpose.so"),
    // Not by the names that programs look for: the audit library alone gives them out, and a search for NVIDIA's must not find
    // ours.
    ("libfreehold_nvjitlink.so", "libfreehold_nvjitlink.so"),
    ("libfreehold_nvjitlink12.so", "libfreehold_nvjitlink12.so"),
    ("libnvidia-ml.so.1", "libfreehold_nvml.so"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // `deps` is beside `build/PACKAGE/out`.
    let deps = out.ancestors().nth(3).expect("OUT_DIR has parent folders").join("deps");
    let text = LIBRARIES.iter().map(|(name, file)| embed(name, &deps.join(file)));
    let text = format!("embedded! {{\n{}}}\n", text.collect::<String>());
    fs::write(out.join("libraries.rs"), text).expect("OUT_DIR is writable");
}

/// Passes a file to the linker, and returns its name with the symbols of its first byte and of the one after its last.
fn embed(name: &str, file: &Path) -> String {
    let file = file.to_str().expect("cargo needs a UTF-8 path");
    for word in ["--format=binary", file, "--format=default"] {
        println!("cargo::rustc-link-arg-bins=-Xlinker");
        println!("cargo::rustc-link-arg-bins={word}");
    }
    // The linker derives the symbols of a binary file from its path.
    let symbol: String = file.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("    {name:?}, \"_binary_{symbol}_start\", \"_binary_{symbol}_end\";\n")
}
