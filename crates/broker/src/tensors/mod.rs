//! Sets of tensors under one name of the broker: a model, or one layer of it.
//!
//! The memory of a set begins with the eight bytes `FHARRAYS`, the length of a JSON text as a little-endian word, and the
//! text: the [`Manifest`], which lists name, type, shape, strides, offset and content hash of every tensor. The tensors
//! follow at the next multiple of 256 bytes. The Python package reads and writes the same format.
//!
//! - `limits`. `dtype`: element types. `tensor`: one tensor, and its length.
//! - `error`: what can be wrong with a list of tensors.
//! - `manifest`: the list, and its bytes.
//! - `check`: the rules of a list.
//! - `safetensors`: the header of a safetensors file as a manifest.
//! - `set`: sets at a broker ([`TensorSet`], [`TensorWriter`]). `fill`: from a file. `verify`: compares hashes.
//!
//! What is read from memory or from a file is checked before anything of it is used.

mod check;
mod dtype;
mod error;
mod fill;
mod limits;
mod manifest;
mod safetensors;
mod set;
mod tensor;
mod verify;

pub use dtype::Dtype;
pub use error::{ManifestError, SafetensorsError};
pub use limits::HEADER_BYTES_MAX;
pub use manifest::{Manifest, NO_HASH, PREFIX_BYTES, TensorHasher};
pub use safetensors::SafetensorsFile;
pub use set::{TensorError, TensorRef, TensorSet, TensorWriter};
pub use tensor::Tensor;

/// How many random lists and files a test reads. The seed is that of all random tests.
#[cfg(test)]
fn cases() -> proptest::test_runner::Config {
    use freehold_testing::{at_effort, seed};
    use proptest::test_runner::{Config, RngSeed};

    let cases = at_effort(500, 5000, 100_000);
    Config { cases, rng_seed: RngSeed::Fixed(seed()), failure_persistence: None, ..Config::default() }
}
