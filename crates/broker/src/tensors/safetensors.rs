//! The header of a safetensors file: eight bytes of length, a JSON text, then the tensors without gaps.

use std::collections::HashSet;
use std::fmt;
use std::io::Read;

use ::safetensors::Dtype as FileDtype;
use ::safetensors::tensor::Metadata;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::dtype::Dtype;
use super::error::SafetensorsError;
use super::limits::HEADER_BYTES_MAX;
use super::manifest::Manifest;
use crate::protocol::types::Policy;

const LENGTH_BYTES: u64 = 8;

/// What a safetensors file contains, and where.
#[derive(Debug)]
pub struct SafetensorsFile {
    /// The same tensors in memory of the broker, in the order in which they are in the file, with room for hashes.
    pub manifest: Manifest,
    /// Where each of them begins in the file.
    pub starts: Vec<u64>,
}

impl SafetensorsFile {
    /// Reads the header from the beginning of a file with this length, and checks that the file is what it says.
    ///
    /// # Errors
    /// [`SafetensorsError`]: of a file that is truncated, whose tensors overlap or leave gaps, or whose header lies about
    /// shapes.
    pub fn read(mut file: impl Read, file_bytes: u64, policy: Policy) -> Result<Self, SafetensorsError> {
        if file_bytes < LENGTH_BYTES {
            return Err(SafetensorsError::TooShort { bytes: file_bytes });
        }
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length)?;
        let bytes = u64::from_le_bytes(length);
        // Another kind of file has any bytes there.
        if bytes > HEADER_BYTES_MAX {
            return Err(SafetensorsError::HeaderLength { bytes });
        }
        let data_start = LENGTH_BYTES + bytes;
        if data_start > file_bytes {
            return Err(SafetensorsError::HeaderTruncated { end: data_start, file_bytes });
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact(&mut text)?;
        let damaged = |error: serde_json::Error| SafetensorsError::Header { reason: error.to_string() };
        if text.first() != Some(&b'{') {
            return Err(SafetensorsError::Header { reason: "it does not begin with a brace".to_owned() });
        }
        // The next line keeps only the last of them.
        serde_json::from_slice::<UniqueNames>(&text).map_err(damaged)?;
        let metadata: Metadata = serde_json::from_slice(&text).map_err(damaged)?;
        let (listed_bytes, had_bytes) = (metadata.data_len() as u64, file_bytes - data_start);
        if listed_bytes != had_bytes {
            return Err(SafetensorsError::DataLength { listed_bytes, file_bytes: had_bytes });
        }
        Self::of(&metadata, data_start, policy)
    }

    fn of(metadata: &Metadata, data_start: u64, policy: Policy) -> Result<Self, SafetensorsError> {
        let (mut listed, mut starts) = (Vec::new(), Vec::new());
        for name in metadata.offset_keys() {
            let info = metadata.info(&name).expect("every listed tensor has a description");
            let Some(dtype) = dtype_of(info.dtype) else {
                return Err(SafetensorsError::Dtype { name, dtype: info.dtype.to_string() });
            };
            starts.push(data_start + info.data_offsets.0 as u64);
            listed.push((name, dtype, info.shape.iter().map(|&length| length as u64).collect::<Vec<_>>()));
        }
        let tensors = listed.iter().map(|(name, dtype, shape)| (name.as_str(), *dtype, shape.as_slice()));
        Ok(Self { manifest: Manifest::packed(policy, tensors)?.with_room_for_hashes()?, starts })
    }
}

/// A JSON object without two entries of one name.
struct UniqueNames;

impl<'de> Deserialize<'de> for UniqueNames {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for UniqueNames {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("two tensors have the name {name:?}")));
            }
        }
        Ok(self)
    }
}

/// The same type here, if there is one: types of less than a byte have none.
fn dtype_of(dtype: FileDtype) -> Option<Dtype> {
    Some(match dtype {
        FileDtype::BOOL => Dtype::Bool,
        FileDtype::U8 => Dtype::Uint8,
        FileDtype::I8 => Dtype::Int8,
        FileDtype::F8_E5M2 => Dtype::Float8E5m2,
        FileDtype::F8_E4M3 => Dtype::Float8E4m3fn,
        FileDtype::F8_E8M0 => Dtype::Float8E8m0fnu,
        FileDtype::F8_E4M3FNUZ => Dtype::Float8E4m3fnuz,
        FileDtype::F8_E5M2FNUZ => Dtype::Float8E5m2fnuz,
        FileDtype::I16 => Dtype::Int16,
        FileDtype::U16 => Dtype::Uint16,
        FileDtype::F16 => Dtype::Float16,
        FileDtype::BF16 => Dtype::Bfloat16,
        FileDtype::I32 => Dtype::Int32,
        FileDtype::U32 => Dtype::Uint32,
        FileDtype::F32 => Dtype::Float32,
        FileDtype::C64 => Dtype::Complex64,
        FileDtype::F64 => Dtype::Float64,
        FileDtype::I64 => Dtype::Int64,
        FileDtype::U64 => Dtype::Uint64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
