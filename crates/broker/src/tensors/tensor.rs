//! One tensor of a list.

use super::dtype::Dtype;
use super::error::ManifestError;

/// One tensor of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name, unique in the set.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// The length of each dimension.
    pub shape: Vec<u64>,
    /// The distance of neighbours in each dimension, in elements.
    pub strides: Vec<u64>,
    /// Where its first element is, in bytes from the first tensor. See [`Manifest::data_start`](super::Manifest::data_start).
    pub offset: u64,
    /// From the first byte of the first element to the last byte of the last one.
    pub bytes: u64,
    /// BLAKE3 of these bytes, if its publisher had them on the host.
    pub hash: Option<[u8; 32]>,
}

impl Tensor {
    /// Returns a tensor without gaps between its elements, the last dimension densest.
    ///
    /// # Errors
    /// [`ManifestError::Overflow`].
    pub fn dense(name: &str, dtype: Dtype, shape: &[u64], offset: u64) -> Result<Self, ManifestError> {
        let overflow = || ManifestError::Overflow { name: name.to_owned() };
        let mut strides = vec![1; shape.len()];
        for at in (1..shape.len()).rev() {
            let stride: u64 = strides[at];
            strides[at - 1] = stride.checked_mul(shape[at].max(1)).ok_or_else(overflow)?;
        }
        Self::strided(name, dtype, shape, &strides, offset)
    }

    /// Returns a tensor with these distances of neighbours, in elements.
    ///
    /// # Errors
    /// [`ManifestError::Overflow`]; [`ManifestError::Strides`] if there is not one for each dimension.
    pub fn strided(
        name: &str,
        dtype: Dtype,
        shape: &[u64],
        strides: &[u64],
        offset: u64,
    ) -> Result<Self, ManifestError> {
        let owned = || name.to_owned();
        if strides.len() != shape.len() {
            return Err(ManifestError::Strides { name: owned(), rank: shape.len(), strides: strides.len() });
        }
        let bytes = span_bytes(dtype, shape, strides).ok_or_else(|| ManifestError::Overflow { name: owned() })?;
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        Ok(Self { name: owned(), dtype, shape, strides, offset, bytes, hash: None })
    }
}

/// Returns the bytes from the first byte of the first element to the last byte of the last one, unless they are too many
/// for a device: the elements are counted too, because strides may be 0.
pub(super) fn span_bytes(dtype: Dtype, shape: &[u64], strides: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let elements = shape.iter().try_fold(1_u64, |product, &length| product.checked_mul(length))?;
    elements.checked_mul(dtype.bytes())?;
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(0_u64, |last, (&length, &stride)| last.checked_add((length - 1).checked_mul(stride)?))?;
    let bytes = last.checked_add(1)?.checked_mul(dtype.bytes())?;
    (bytes <= i64::MAX as u64).then_some(bytes)
}
