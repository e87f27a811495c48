//! The rules of a list of tensors.

use std::collections::HashSet;

use super::error::ManifestError;
use super::limits::{NAME_BYTES_MAX, RANK_MAX};
use super::tensor::{Tensor, span_bytes};

/// Checks tensors that lie in this many bytes.
pub(super) fn check(tensors: &[Tensor], memory_bytes: u64) -> Result<(), ManifestError> {
    if tensors.is_empty() {
        return Err(ManifestError::Empty);
    }
    let mut names = HashSet::with_capacity(tensors.len());
    for tensor in tensors {
        check_one(tensor, memory_bytes)?;
        if !names.insert(tensor.name.as_str()) {
            return Err(ManifestError::Duplicate { name: tensor.name.clone() });
        }
    }
    check_overlaps(tensors)
}

fn check_one(tensor: &Tensor, memory_bytes: u64) -> Result<(), ManifestError> {
    let Tensor { name, dtype, shape, strides, offset, bytes, .. } = tensor;
    if name.len() > NAME_BYTES_MAX {
        return Err(ManifestError::NameLength { bytes: name.len() });
    }
    let (rank, name) = (shape.len(), || name.clone());
    if rank > RANK_MAX {
        return Err(ManifestError::Rank { name: name(), rank });
    }
    if strides.len() != rank {
        return Err(ManifestError::Strides { name: name(), rank, strides: strides.len() });
    }
    // Also where only one element is, or none.
    let is_small = shape.iter().chain(strides).all(|&number| i64::try_from(number).is_ok());
    let Some(needed) = span_bytes(*dtype, shape, strides).filter(|_| is_small) else {
        return Err(ManifestError::Overflow { name: name() });
    };
    if needed != *bytes {
        return Err(ManifestError::Length { name: name(), listed_bytes: *bytes, bytes: needed });
    }
    let alignment = dtype.bytes();
    if !offset.is_multiple_of(alignment) {
        return Err(ManifestError::Misaligned { name: name(), offset: *offset, alignment });
    }
    let Some(end) = offset.checked_add(needed) else { return Err(ManifestError::Overflow { name: name() }) };
    if end > memory_bytes {
        return Err(ManifestError::Overrun { name: name(), end, memory_bytes });
    }
    Ok(())
}

/// If neighbours in the order of their bytes are the same or apart, then all are.
fn check_overlaps(tensors: &[Tensor]) -> Result<(), ManifestError> {
    let mut sorted: Vec<&Tensor> = tensors.iter().filter(|tensor| tensor.bytes > 0).collect();
    sorted.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
    for (first, second) in sorted.iter().zip(sorted.iter().skip(1)) {
        let is_same = (first.offset, first.bytes) == (second.offset, second.bytes);
        if !is_same && second.offset < first.offset + first.bytes {
            let (first, second) = (first.name.clone(), second.name.clone());
            return Err(ManifestError::Overlap { first, second });
        }
    }
    Ok(())
}
