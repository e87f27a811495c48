//! What can be wrong with a list of tensors, and with a safetensors file.

use super::limits::{HEADER_BYTES_MAX, NAME_BYTES_MAX, RANK_MAX};

/// Why a list of tensors is refused.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the memory has no list of tensors: it was published as plain bytes")]
    NotASet,
    #[error("the list of tensors has {bytes} bytes: expected at most {HEADER_BYTES_MAX}")]
    TooLong { bytes: u64 },
    #[error("the list of tensors ends at byte {end} of {memory_bytes}: publish the set again")]
    TooShort { end: u64, memory_bytes: u64 },
    #[error("the list of tensors is damaged: {reason}")]
    Json { reason: String },
    #[error("the list of tensors has version {version}: update this program")]
    Version { version: u64 },
    #[error("unknown policy {policy:?}: expected restore, drop or open")]
    Policy { policy: String },
    #[error("the list has no tensors: expected at least one")]
    Empty,
    #[error("a tensor has a name of {bytes} bytes: expected at most {NAME_BYTES_MAX}")]
    NameLength { bytes: usize },
    #[error("two tensors have the name {name:?}")]
    Duplicate { name: String },
    #[error("tensor {name:?} has the unknown type {dtype:?}")]
    Dtype { name: String, dtype: String },
    #[error("tensor {name:?} has {rank} dimensions: expected at most {RANK_MAX}")]
    Rank { name: String, rank: usize },
    #[error("tensor {name:?} has {rank} dimensions and {strides} strides")]
    Strides { name: String, rank: usize, strides: usize },
    #[error("tensor {name:?} is larger than any memory")]
    Overflow { name: String },
    #[error("tensor {name:?} is listed with {listed_bytes} bytes: its type, shape and strides need {bytes}")]
    Length { name: String, listed_bytes: u64, bytes: u64 },
    #[error("tensor {name:?} begins at byte {offset}: expected a multiple of {alignment}")]
    Misaligned { name: String, offset: u64, alignment: u64 },
    #[error("tensor {name:?} ends at byte {end} of {memory_bytes}")]
    Overrun { name: String, end: u64, memory_bytes: u64 },
    #[error("tensors {first:?} and {second:?} overlap: only tensors of the same bytes may share them")]
    Overlap { first: String, second: String },
    #[error("the hash of tensor {name:?} is not 64 hexadecimal digits")]
    Hash { name: String },
}

/// Why a safetensors file is refused.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Debug, thiserror::Error)]
pub enum SafetensorsError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("not a safetensors file: it has {bytes} bytes")]
    TooShort { bytes: u64 },
    #[error("not a safetensors file: its header would have {bytes} bytes")]
    HeaderLength { bytes: u64 },
    #[error("the file is truncated: its header ends at byte {end} of {file_bytes}")]
    HeaderTruncated { end: u64, file_bytes: u64 },
    #[error("the header is damaged: {reason}")]
    Header { reason: String },
    #[error(
        "the header describes {listed_bytes} bytes of tensors, and the file has {file_bytes}: it is truncated or damaged"
    )]
    DataLength { listed_bytes: u64, file_bytes: u64 },
    #[error("tensor {name:?} has the type {dtype}, which has no whole bytes or no name here: convert it first")]
    Dtype { name: String, dtype: String },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}
