//! The list of a set's tensors, and its bytes in front of them.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::check::check;
use super::dtype::Dtype;
use super::error::ManifestError;
use super::limits::HEADER_BYTES_MAX;
use super::tensor::{Tensor, span_bytes};
use crate::protocol::types::Policy;

/// What precedes the JSON text: eight letters and its length.
pub const PREFIX_BYTES: u64 = 16;

const MAGIC: &[u8; 8] = b"FHARRAYS";

/// The version that is written. Version 1, without lengths and hashes, is read too.
const VERSION: u64 = 2;

/// Stands where a hash has room and is not set.
pub const NO_HASH: [u8; 32] = [0; 32];

/// As allocations of CUDA are.
const ALIGNMENT: u64 = 256;

/// The list of the tensors of a set. It has been checked: tensors lie inside the memory, are aligned, and overlap only if
/// they are the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    policy: Policy,
    tensors: Vec<Tensor>,
    index: HashMap<String, usize>,
    /// Of the JSON text.
    text_bytes: u64,
}

impl Manifest {
    /// Makes a list of tensors whose offsets are set.
    ///
    /// # Errors
    /// [`ManifestError`] says which rule a tensor breaks.
    pub fn new(policy: Policy, tensors: Vec<Tensor>) -> Result<Self, ManifestError> {
        check(&tensors, u64::MAX - (HEADER_BYTES_MAX + PREFIX_BYTES + ALIGNMENT))?;
        let index = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name.clone(), at)).collect();
        let mut manifest = Self { policy, tensors, index, text_bytes: 0 };
        manifest.measure()?;
        Ok(manifest)
    }

    /// Makes a list of dense tensors, one after the other at multiples of 256 bytes.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn packed<'a>(
        policy: Policy,
        tensors: impl IntoIterator<Item = (&'a str, Dtype, &'a [u64])>,
    ) -> Result<Self, ManifestError> {
        let mut listed: Vec<Tensor> = Vec::new();
        let mut offset = 0_u64;
        for (name, dtype, shape) in tensors {
            let tensor = Tensor::dense(name, dtype, shape, offset)?;
            let end = offset.checked_add(tensor.bytes).and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
            offset = end.ok_or_else(|| ManifestError::Overflow { name: name.to_owned() })?;
            listed.push(tensor);
        }
        Self::new(policy, listed)
    }

    /// Returns how many bytes [`parse`](Self::parse) needs, from the first [`PREFIX_BYTES`] of the memory, which may be
    /// shorter.
    ///
    /// # Errors
    /// [`ManifestError::NotASet`], [`ManifestError::TooLong`], [`ManifestError::TooShort`].
    pub fn header_bytes(prefix: &[u8], memory_bytes: u64) -> Result<u64, ManifestError> {
        let Some((magic, rest)) = prefix.split_first_chunk::<8>() else { return Err(ManifestError::NotASet) };
        let Some((length, _)) = rest.split_first_chunk::<8>() else { return Err(ManifestError::NotASet) };
        if magic != MAGIC {
            return Err(ManifestError::NotASet);
        }
        let bytes = u64::from_le_bytes(*length);
        if bytes > HEADER_BYTES_MAX {
            return Err(ManifestError::TooLong { bytes });
        }
        let end = PREFIX_BYTES + bytes;
        if end > memory_bytes {
            return Err(ManifestError::TooShort { end, memory_bytes });
        }
        Ok(end)
    }

    /// Reads a manifest from the first bytes of the memory of a set, at least [`header_bytes`](Self::header_bytes).
    ///
    /// # Errors
    /// [`ManifestError`]: nothing is accepted that could lead outside of `memory_bytes`.
    pub fn parse(header: &[u8], memory_bytes: u64) -> Result<Self, ManifestError> {
        let end = Self::header_bytes(header, memory_bytes)?;
        let text = header.get(PREFIX_BYTES as usize..end as usize);
        let text = text.ok_or(ManifestError::TooShort { end, memory_bytes: header.len() as u64 })?;
        let damaged = |error: serde_json::Error| ManifestError::Json { reason: error.to_string() };
        let VersionText { version } = serde_json::from_slice(text).map_err(damaged)?;
        if !(1..=VERSION).contains(&version) {
            return Err(ManifestError::Version { version });
        }
        let listed: ManifestText = serde_json::from_slice(text).map_err(damaged)?;
        let policy = Policy::named(&listed.policy).ok_or(ManifestError::Policy { policy: listed.policy })?;
        let tensors = listed.arrays.0.into_iter().map(|(name, entry)| entry.into_tensor(name, version));
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let start = end.next_multiple_of(ALIGNMENT);
        let data_bytes = memory_bytes.checked_sub(start).ok_or(ManifestError::TooShort { end: start, memory_bytes })?;
        check(&tensors, data_bytes)?;
        let index = tensors.iter().enumerate().map(|(at, tensor)| (tensor.name.clone(), at)).collect();
        Ok(Self { policy, tensors, index, text_bytes: end - PREFIX_BYTES })
    }

    /// Returns the bytes that precede the tensors, up to [`data_start`](Self::data_start).
    pub fn header(&self) -> Vec<u8> {
        let text = self.text();
        let mut bytes = Vec::with_capacity(self.data_start() as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&text);
        bytes.resize((PREFIX_BYTES + text.len() as u64).next_multiple_of(ALIGNMENT) as usize, 0);
        bytes
    }

    fn text(&self) -> Vec<u8> {
        let arrays = Entries(self.tensors.iter().map(|tensor| (tensor.name.clone(), Entry::from(tensor))).collect());
        let text = ManifestText { version: VERSION, policy: self.policy.name().to_owned(), arrays };
        serde_json::to_vec(&text).expect("strings and numbers are valid JSON")
    }

    /// Returns what happens to a writer's lease of the set.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns the tensors, in the order of the list.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Returns the tensor with a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.index.get(name).map(|&at| &self.tensors[at])
    }

    /// Returns where the first tensor begins, in bytes from the start of the memory.
    pub fn data_start(&self) -> u64 {
        (PREFIX_BYTES + self.text_bytes).next_multiple_of(ALIGNMENT)
    }

    /// Returns how many bytes list and tensors need.
    pub fn memory_bytes(&self) -> u64 {
        let ends = self.tensors.iter().map(|tensor| tensor.offset + tensor.bytes);
        self.data_start() + ends.max().unwrap_or(0)
    }

    /// Reserves room for a hash of every tensor: until it is set, it is [`NO_HASH`], which readers take for none.
    ///
    /// # Errors
    /// [`ManifestError::TooLong`].
    pub fn with_room_for_hashes(mut self) -> Result<Self, ManifestError> {
        self.tensors.iter_mut().for_each(|tensor| tensor.hash = tensor.hash.or(Some(NO_HASH)));
        self.measure()?;
        Ok(self)
    }

    /// Notes the length of the text.
    fn measure(&mut self) -> Result<(), ManifestError> {
        self.text_bytes = self.text().len() as u64;
        match self.text_bytes <= HEADER_BYTES_MAX {
            true => Ok(()),
            false => Err(ManifestError::TooLong { bytes: self.text_bytes }),
        }
    }

    /// Sets the hash of a tensor for which there is [room](Self::with_room_for_hashes), by its place in the list.
    ///
    /// # Panics
    /// If the list has no such tensor, or no room for its hash.
    pub fn set_hash(&mut self, at: usize, hash: [u8; 32]) {
        let tensor = &mut self.tensors[at];
        assert!(tensor.hash.is_some(), "a hash without room would move the tensors");
        tensor.hash = Some(hash);
    }
}

/// Computes the content hash of a tensor from its bytes, piece by piece.
#[derive(Debug, Default)]
pub struct TensorHasher(blake3::Hasher);

impl TensorHasher {
    /// Begins with no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

/// Returns the content hash of bytes.
pub(super) fn hash(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

/// Read first: a later version may have other fields.
#[derive(Deserialize)]
struct VersionText {
    version: u64,
}

/// The JSON text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestText {
    version: u64,
    policy: String,
    arrays: Entries,
}

/// One tensor, under its name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    strides: Vec<u64>,
    offset: u64,
    /// Not in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
}

impl From<&Tensor> for Entry {
    fn from(tensor: &Tensor) -> Self {
        let Tensor { dtype, shape, strides, offset, bytes, hash, .. } = tensor;
        let blake3 = hash.map(|hash| blake3::Hash::from_bytes(hash).to_hex().to_string());
        let (shape, strides) = (shape.clone(), strides.clone());
        Self { dtype: dtype.name().to_owned(), shape, strides, offset: *offset, bytes: Some(*bytes), blake3 }
    }
}

impl Entry {
    fn into_tensor(self, name: String, version: u64) -> Result<Tensor, ManifestError> {
        let Self { dtype, shape, strides, offset, bytes, blake3 } = self;
        let Some(dtype) = Dtype::named(&dtype) else { return Err(ManifestError::Dtype { name, dtype }) };
        let hash = match blake3.map(blake3::Hash::from_hex).transpose() {
            Ok(hash) => hash.map(|hash| *hash.as_bytes()).filter(|hash| *hash != NO_HASH),
            Err(_) => return Err(ManifestError::Hash { name }),
        };
        let bytes = match bytes {
            Some(bytes) => bytes,
            None if version == 1 => match span_bytes(dtype, &shape, &strides) {
                Some(bytes) => bytes,
                None => return Err(ManifestError::Overflow { name }),
            },
            None => return Err(ManifestError::Json { reason: format!("tensor {name:?} has no length") }),
        };
        Ok(Tensor { name, dtype, shape, strides, offset, bytes, hash })
    }
}

/// The tensors in the order of the text. A name that comes twice is an error, and not, as in a map, the last of them.
struct Entries(Vec<(String, Entry)>);

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, entry) in &self.0 {
            map.serialize_entry(name, entry)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensors by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        while let Some((name, entry)) = map.next_entry::<String, Entry>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("two tensors have the name {name:?}")));
            }
            entries.push((name, entry));
        }
        Ok(Entries(entries))
    }
}

#[cfg(test)]
mod tests;
