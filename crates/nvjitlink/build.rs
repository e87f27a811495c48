//! Sets the library's soname, and the version of its symbols, which is the soname: programs ask for both. Strips debug lines:
//! another program embeds the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Only GNU's linker derives symbol versions from the soname; the last -fuse-ld counts. Cargo would pass arguments that
    // are for a cdylib alone to the cdylibs of dependents too.
    for word in ["-fuse-ld=bfd", "-Wl,-soname,libnvJitLink.so.13", "-Wl,--default-symver", "-Wl,--strip-debug"] {
        println!("cargo::rustc-link-arg={word}");
    }
}
