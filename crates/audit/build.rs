//! Leaves debug lines out of the library: another program embeds it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--strip-debug");
}
