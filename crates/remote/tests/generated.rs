//! Checks that `src/generated` matches `proto/freehold.proto`. It is checked in, so that a build needs no protobuf
//! compiler.
//!
//! `FREEHOLD_WRITE_PROTO=1 cargo test -p freehold-remote --test generated` regenerates it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::{Path, PathBuf};

const FILES: [&str; 2] = ["freehold.bin", "freehold.v1.rs"];

/// Compiles `proto` into a folder: Rust code, and the descriptors for the reflection service.
fn generate(folder: &Path) {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut compiler = protox::Compiler::new([&proto]).unwrap();
    let descriptors =
        compiler.include_source_info(true).open_file("freehold.proto").unwrap().encode_file_descriptor_set();
    fs::write(folder.join("freehold.bin"), descriptors).unwrap();
    let files = protox::compile(["freehold.proto"], [&proto]).unwrap();
    // `Bytes` fields are passed on without a copy. `src/rpc` has the calls.
    let settings = tonic_prost_build::configure().build_client(false).build_server(false);
    settings.bytes(".freehold.v1.Chunk.data").out_dir(folder).compile_fds(files).unwrap();
}

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    if std::env::var_os("FREEHOLD_WRITE_PROTO").is_some() {
        return generate(&committed);
    }
    let fresh = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("generated");
    fs::create_dir_all(&fresh).unwrap();
    generate(&fresh);
    for file in FILES {
        let is_same = fs::read(committed.join(file)).unwrap() == fs::read(fresh.join(file)).unwrap();
        assert!(is_same, "src/generated/{file} is outdated: set FREEHOLD_WRITE_PROTO=1 and run this test again");
    }
}
