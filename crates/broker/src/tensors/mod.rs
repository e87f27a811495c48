//! Sets of tensors under one name of the broker: a model, or one layer of it.
//!
//! The memory of a set begins with the eight bytes `FHARRAYS`, the length of a JSON text as a little-endian word, and the
//! text: the [`Manifest`], which lists name, type, shape, strides, offset and content hash of every tensor. The tensors
//! follow at the next multiple of 256 bytes. The Python package reads and writes the same format.
//!
//! - `dtype`: element types.
//! - `error`: what can be wrong with a list of tensors.
//! - `manifest`: the list, and its bytes.
//! - `check`: the rules of a list.
//! - `safetensors`: the header of a safetensors file as a manifest.
//! - `set`: sets at a broker ([`TensorSet`], [`TensorWriter`]). `fill`: from a file.
//!
//! What is read from memory or from a file is checked before anything of it is used.

mod check;
mod dtype;
mod error;
mod fill;
mod manifest;
mod safetensors;
mod set;

pub use dtype::Dtype;
pub use error::{ManifestError, SafetensorsError};
pub use manifest::{HEADER_BYTES_MAX, Manifest, PREFIX_BYTES, Tensor, TensorHasher};
pub use safetensors::SafetensorsFile;
pub use set::{TensorError, TensorRef, TensorSet, TensorWriter};
