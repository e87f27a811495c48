//! Makes Rust of the files in `proto/`, and the descriptors that the reflection service answers with. Needs no `protoc`.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::Compiler::new(["proto"])?
        .include_source_info(true)
        .open_file("freehold.proto")?
        .encode_file_descriptor_set();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo says where")?);
    std::fs::write(out.join("freehold.bin"), &files)?;
    let files = protox::compile(["freehold.proto", "plain.proto"], ["proto"])?;
    // Chunks are handed on without a copy of their own.
    let chunks = tonic_prost_build::configure().bytes(".freehold.v1.Chunk.data").bytes(".freehold.plain.Piece.data");
    chunks.compile_fds(files)?;
    Ok(())
}
