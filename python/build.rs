//! Links the module with the libfreehold.so that lies beside it in the package.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FREEHOLD_LIBRARY_DIR");
    if let Ok(folder) = env::var("FREEHOLD_LIBRARY_DIR") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    println!("cargo::rustc-link-lib=dylib=freehold");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN/lib");
}
