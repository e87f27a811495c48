//! Reads lists of tensors, and headers of safetensors files, from arbitrary text. What is accepted lies inside of the memory, and of
//! the file.

#![no_main]

use freehold_broker::Policy;
use freehold_broker::tensors::{Manifest, SafetensorsFile};
use libfuzzer_sys::fuzz_target;

/// The bytes behind a list or a header.
const DATA_BYTES: u64 = 4096;

fuzz_target!(|text: &[u8]| {
    let length = (text.len() as u64).to_le_bytes();
    let memory = [b"FHARRAYS", &length[..], text].concat();
    let memory_bytes = memory.len() as u64 + DATA_BYTES;
    if let Ok(manifest) = Manifest::parse(&memory, memory_bytes) {
        assert!(manifest.memory_bytes() <= memory_bytes);
        let again = Manifest::new(manifest.policy(), manifest.tensors().to_vec()).expect("it was accepted before");
        assert_eq!(Manifest::parse(&again.header(), again.memory_bytes()), Ok(again));
    }
    let file = [&length[..], text].concat();
    let file_bytes = file.len() as u64 + DATA_BYTES;
    if let Ok(found) = SafetensorsFile::read(&file[..], file_bytes, Policy::Restore) {
        for (start, tensor) in found.starts.iter().zip(found.manifest.tensors()) {
            assert!(start + tensor.bytes <= file_bytes);
        }
    }
});
