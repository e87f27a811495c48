//! Sets the library's soname.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Another program embeds the library: the names of its functions are kept; debug lines, which are most of it, are
    // not.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
}
