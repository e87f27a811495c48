//! The text of a module as tenant, broker and worker pass it on: a sealed memfd and its hash.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use sha2::{Digest, Sha256};

use crate::protocol::types::Hash;

/// The longest text of a module, in bytes.
pub const MODULE_BYTES_MAX: usize = 16 << 20;

/// Creates a sealed memfd with a text, which then cannot change.
pub(crate) fn sealed_memfd(text: &str) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create("freehold-module", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all_at(text.as_bytes(), 0)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

/// Reads the text of a module. `None` if it does not match its hash.
pub(crate) fn read_text(file: OwnedFd, bytes: u64, hash: &Hash) -> Option<String> {
    let mut text = vec![0; usize::try_from(bytes).ok().filter(|&bytes| bytes <= MODULE_BYTES_MAX)?];
    File::from(file).read_exact_at(&mut text, 0).ok()?;
    let is_same = Sha256::digest(&text)[..] == hash_bytes(hash);
    String::from_utf8(text).ok().filter(|_| is_same)
}

/// The first half of a text's SHA-256, in 32 hexadecimal digits.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn hash_words(hash: &[u8; 32]) -> Hash {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(hash.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

pub(crate) fn hash_bytes(hash: &Hash) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(hash) {
        *to = word.to_le_bytes();
    }
    bytes
}
