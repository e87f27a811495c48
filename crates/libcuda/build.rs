//! Gives the library its name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // It is carried within another program: the names of its functions are kept, their lines, which are most of it, are not.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
}
