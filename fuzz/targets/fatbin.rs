//! Finds the PTX in an arbitrary image, or rejects it. A text is not longer than the image can make it.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Decompression yields at most this many bytes for each byte of the image.
const RATIO_MAX: usize = 4096;

fuzz_target!(|image: &[u8]| {
    for text in freehold_softcuda::ptx_in(image).unwrap_or_default() {
        // A byte that is not UTF-8 becomes three.
        assert!(text.len() <= 3 * RATIO_MAX * image.len(), "{} bytes from {}", text.len(), image.len());
    }
});
