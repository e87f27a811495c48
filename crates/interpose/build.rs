//! Links `libcudart.so.13`, which lies beside this library.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // `deps` is beside `build/PACKAGE/out`. The file is there when this library is linked.
    let deps = out.ancestors().nth(3).expect("OUT_DIR has parent folders").join("deps");
    let runtime = deps.join("libfreehold_runtime.so").display().to_string();
    for word in ["-Wl,-soname,libfreehold_limit.so", "-Wl,--strip-debug", "-Wl,-rpath,$ORIGIN", &runtime] {
        println!("cargo::rustc-cdylib-link-arg={word}");
    }
}
