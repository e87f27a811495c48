//! Links `libnvJitLink.so.13`, and sets the library's soname and the version of its symbols, which is the soname: programs ask
//! for both.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // `deps` is beside `build/PACKAGE/out`. The file is there when this library is linked.
    let deps = out.ancestors().nth(3).expect("OUT_DIR has parent folders").join("deps");
    let linker = deps.join("libfreehold_nvjitlink.so");
    // Only GNU's linker derives symbol versions from the soname; the last -fuse-ld counts.
    for word in ["-fuse-ld=bfd", "-Wl,-soname,libnvJitLink.so.12", "-Wl,--default-symver", "-Wl,--strip-debug"] {
        println!("cargo::rustc-cdylib-link-arg={word}");
    }
    println!("cargo::rustc-cdylib-link-arg={}", linker.display());
}
