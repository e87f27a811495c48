//! Makes the linker embed the software driver's library, so that `freehold run` needs no other file.
//!
//! The library is a dependency, so it exists when the program is linked, but not yet when this script runs, nor when the
//! program is only checked. So its path is passed to the linker, and the file is not read here.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // `deps` is beside `build/PACKAGE/out`.
    let deps = out.ancestors().nth(3).expect("OUT_DIR has parent folders").join("deps");
    let library = deps.join("libfreehold_libcuda.so");
    let library = library.to_str().expect("cargo needs a UTF-8 path");
    for word in ["--format=binary", library, "--format=default"] {
        println!("cargo::rustc-link-arg-bins=-Xlinker");
        println!("cargo::rustc-link-arg-bins={word}");
    }
    // The linker derives the symbols of a binary file from its path.
    let name: String = library.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let text = format!(
        "unsafe extern \"C\" {{\n    \
         /// The first byte of the library.\n    \
         #[link_name = \"_binary_{name}_start\"]\n    static START: u8;\n    \
         /// The byte after its last.\n    \
         #[link_name = \"_binary_{name}_end\"]\n    static END: u8;\n}}\n"
    );
    fs::write(out.join("library.rs"), text).expect("OUT_DIR is writable");
}
