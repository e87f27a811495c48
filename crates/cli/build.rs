//! Has the linker put the software driver's library into the program, so that `freehold run` needs no file beside it.
//!
//! The library is there when the program is linked, for it is a dependency; it is not when this runs, or when the
//! program is only checked. So it is named to the linker, and not read.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    // `deps` lies beside `build/PACKAGE/out`.
    let deps = out.ancestors().nth(3).expect("cargo's folder lies in others").join("deps");
    let library = deps.join("libfreehold_libcuda.so");
    let library = library.to_str().expect("a path that has bytes which are no text cannot be told to cargo");
    for word in ["--format=binary", library, "--format=default"] {
        println!("cargo::rustc-link-arg-bins=-Xlinker");
        println!("cargo::rustc-link-arg-bins={word}");
    }
    // A linker names what it is given so after its path.
    let name: String = library.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let text = format!(
        "unsafe extern \"C\" {{\n    \
         /// The first byte of the library.\n    \
         #[link_name = \"_binary_{name}_start\"]\n    static START: u8;\n    \
         /// The byte behind its last.\n    \
         #[link_name = \"_binary_{name}_end\"]\n    static END: u8;\n}}\n"
    );
    fs::write(out.join("library.rs"), text).expect("cargo's folder can be written to");
}
