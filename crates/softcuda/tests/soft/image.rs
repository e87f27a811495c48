//! Fat binaries: compressed PTX, and the error code and log message for one without PTX.

use crate::common;

use std::ffi::CStr;

use common::{Context, Refused};
use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUerror, CUjit_option, logs, module};

const PLAIN: &[u8] = include_bytes!("../../../../fuzz/seeds/plain.fatbin");
const LZ4: &[u8] = include_bytes!("../../../../fuzz/seeds/lz4.fatbin");
const ZSTD: &[u8] = include_bytes!("../../../../fuzz/seeds/zstd.fatbin");
const SEVERAL: &[u8] = include_bytes!("../../../../fuzz/seeds/several.fatbin");

#[test]
fn fat_binaries_with_plain_and_with_compressed_ptx_are_loaded() {
    let own = Context::create();
    for (name, image) in [("plain", PLAIN), ("LZ4", LZ4), ("zstd", ZSTD), ("several", SEVERAL)] {
        // SAFETY: the image is as long as its header says.
        let loaded = unsafe { module::load_fat(&own.api, image.as_ptr().cast()) };
        let loaded = loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
        module::function(&own.api, loaded, c"reduce").unwrap();
    }
}

/// A text that is mostly zeros, compressed by a factor of 15,000: nvcc makes such of a great initializer.
const ZEROS: &[u8] = include_bytes!("../../../../fuzz/seeds/zeros.fatbin");

#[test]
fn ptx_that_is_mostly_zeros_is_loaded() {
    let own = Context::create();
    // SAFETY: the image is as long as its header says.
    unsafe { module::load_fat(&own.api, ZEROS.as_ptr().cast()) }.unwrap();
}

#[test]
fn logs_say_which_option_makes_a_fat_binary_with_ptx() {
    let own = Context::create();
    let mut image = PLAIN.to_vec();
    // The kind of the first entry: machine code.
    image[16] = 2;
    let mut log = [0u8; 512];
    let mut options = Options::new()
        .with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize)
        .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, log.len());
    // SAFETY: the image is as long as its header says, and the log has as many bytes as the options say.
    let refused = unsafe { module::load_with(&own.api, image.as_ptr().cast(), &mut options) };
    assert_eq!(refused.code(), CUerror::NO_BINARY_FOR_GPU);
    let log = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(log.contains("machine code only, for sm_80") && log.contains("-arch=compute_75"), "{log}");
    let all = logs::dump(&own.api, None, 25_600, 0).unwrap();
    assert!(all.contains(log.trim_end()), "{all}");
}
