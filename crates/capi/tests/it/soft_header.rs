//! The header and the library as C programs use them: the header matches the functions, C and C++ compilers accept it,
//! and the library links without a driver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEADER: &str = include_str!("../../include/freehold.h");

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compiles a source in a language standard with the machine's compiler.
fn compiles(name: &str, flags: &[&str], text: &str) -> Output {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(flags).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"]);
    compiler.arg(folder().join("include")).arg("-I").arg(folder().join("../libcuda/include"));
    compiler.arg(&source).output().expect("cannot start the C compiler")
}

fn assert_compiles(name: &str, flags: &[&str], text: &str) {
    let output = compiles(name, flags, text);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
    assert!(output.status.success(), "{name}");
}

#[test]
fn the_header_is_that_of_the_functions() {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap();
    let made = cbindgen::Builder::new().with_crate(folder()).with_config(config).generate().unwrap();
    let mut text = Vec::new();
    made.write(&mut text);
    let text = String::from_utf8(text).unwrap();
    if std::env::var_os("FREEHOLD_WRITE_HEADER").is_some() {
        fs::write(folder().join("include/freehold.h"), &text).unwrap();
        return;
    }
    assert_eq!(text, HEADER, "run this test with FREEHOLD_WRITE_HEADER=1 to rewrite the header");
}

#[test]
fn the_header_has_every_exported_function() {
    let sources = [
        include_str!("../../src/lib.rs"),
        include_str!("../../src/memory.rs"),
        include_str!("../../src/sleep.rs"),
        include_str!("../../src/vector.rs"),
    ];
    let sources = sources.concat();
    let exported: Vec<&str> = sources
        .split("#[unsafe(no_mangle)]")
        .skip(1)
        .map(|rest| rest.split("extern \"C\" fn ").nth(1).unwrap().split('(').next().unwrap())
        .collect();
    assert_eq!(exported.len(), 45);
    for name in exported {
        assert!(HEADER.contains(&format!("{name}(")), "{name}");
    }
}

#[test]
fn the_header_is_c_and_cpp() {
    let text = "#include \"freehold.h\"\nint main(void) { return freehold_last_error_code(); }\n";
    assert_compiles("plain99.c", &["-x", "c", "-std=c99"], text);
    assert_compiles("plain11.c", &["-x", "c", "-std=c11"], text);
    assert_compiles(
        "plain.cc",
        &["-x", "c++", "-std=c++17"],
        "#include \"freehold.h\"\nint main() { return freehold_last_error_code(); }\n",
    );
}

#[test]
fn the_owner_is_a_structure_in_c_and_in_cpp() {
    let text = "#include \"freehold.h\"\nint main(void) { struct freehold_owner owner; return CALL(0, &owner); }\n";
    assert_compiles("owner.c", &["-x", "c", "-std=c99"], &text.replace("CALL", "freehold_owner_of"));
    assert_compiles("former.c", &["-x", "c", "-std=c99"], &text.replace("CALL", "freehold_owner"));
    let text =
        "#include \"freehold.h\"\nint main() { freehold_owner owner; return freehold_owner_of(nullptr, &owner); }\n";
    assert_compiles("owner.cc", &["-x", "c++", "-std=c++17"], text);
}

#[test]
fn the_header_goes_together_with_the_drivers() {
    let text = "#include <freehold_cuda.h>\n#include <freehold.h>\n\
        int main(void) { CUstream stream = 0; return freehold_alloc(1, 0, stream) == 0; }\n";
    assert_compiles("before.c", &["-x", "c", "-std=c99"], text);
    let text = text.replace(
        "#include <freehold_cuda.h>\n#include <freehold.h>",
        "#include <freehold.h>\n#include <freehold_cuda.h>",
    );
    assert_compiles("behind.c", &["-x", "c", "-std=c11"], &text);
}

#[test]
fn a_call_with_missing_arguments_does_not_compile() {
    let text = "#include \"freehold.h\"\nint main(void) { return freehold_alloc(1, 0); }\n";
    assert!(!compiles("wrong.c", &["-x", "c", "-std=c11"], text).status.success());
}
