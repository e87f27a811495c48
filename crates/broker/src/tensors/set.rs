//! Sets of tensors at a broker. A generation of a set is a version of its name: complete when it appears, and unchanged as
//! long as a reader has it.

use std::ops::Range;

use freehold::{Pod, Stream, View, ViewMut};

use super::error::ManifestError;
use super::manifest::{Manifest, hash};
use super::tensor::Tensor;
use super::verify::{first_damaged, range_of};
use crate::client::{Broker, Error, Lease, LinkError};
use crate::protocol::name::Name;
use crate::protocol::types::{Access, Policy};

/// The list is read in one piece if it is not longer.
const HEAD_BYTES: u64 = 1 << 14;

/// Why an operation with a set of tensors failed.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Debug, thiserror::Error)]
pub enum TensorError {
    #[error(transparent)]
    Broker(#[from] Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{name}: {error}")]
    Manifest { name: String, error: ManifestError },
    #[error("{text:?} is not a generation: expected a number from 1, as in model@8")]
    InvalidGeneration { text: String },
    #[error("{name}@{wanted} is not the current generation: the broker has {name}@{current}")]
    OtherGeneration { name: String, wanted: u64, current: u64 },
    #[error("{name} is written in place and has no generations: publish it with the policy restore")]
    InPlace { name: String },
    #[error("tensor {tensor:?} of {name} does not have the content that its publisher listed: publish the set again")]
    Damaged { name: String, tensor: String },
}

impl From<freehold::Error> for TensorError {
    fn from(error: freehold::Error) -> Self {
        Self::Broker(error.into())
    }
}

type Result<T> = std::result::Result<T, TensorError>;

/// Splits `model@8` into name and generation. A name has no `@`.
fn parse(text: &str) -> Result<(&str, Option<u64>)> {
    let Some((name, digits)) = text.split_once('@') else { return Ok((text, None)) };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let generation = digits.parse().ok().filter(|&generation| is_number && generation > 0);
    let invalid = || TensorError::InvalidGeneration { text: digits.to_owned() };
    Ok((name, Some(generation.ok_or_else(invalid)?)))
}

impl Broker {
    /// Leases a name like [`lease`](Self::lease), or a given version of it: `model@8`. The lease of a reader has a
    /// [version](Lease::version).
    ///
    /// # Errors
    /// [`TensorError::OtherGeneration`] says which version is current.
    pub fn lease_generation<T: Pod>(&self, stream: &Stream, name: &str, access: Access) -> Result<Lease<T>> {
        let (name, wanted) = parse(name)?;
        // The broker may not know the version if it took over during the request and the name was published twice since.
        for _ in 0..8 {
            let lease = self.lease(stream, name, access)?;
            match (lease.version(), wanted) {
                (0, _) if access == Access::Read => {}
                (current, Some(wanted)) if wanted != current => {
                    return Err(TensorError::OtherGeneration { name: name.to_owned(), wanted, current });
                }
                _ => return Ok(lease),
            }
        }
        Err(Error::from(LinkError::Malformed).into())
    }

    /// Leases a set of tensors for reading: its current generation, which `model@8` requires to be 8. The generation
    /// stays as it is until the lease ends, whatever is published in the meantime.
    ///
    /// # Errors
    /// [`TensorError::OtherGeneration`] says which one is current; [`TensorError::Manifest`] if what has the name is not a
    /// set.
    pub fn lease_tensors(&self, stream: &Stream, name: &str) -> Result<TensorSet> {
        let lease = self.lease_generation(stream, name, Access::Read)?;
        let (name, _) = parse(name)?;
        let manifest = read_manifest(stream, &lease, name)?;
        Ok(TensorSet { broker: self.clone(), name: name.to_owned(), manifest, lease })
    }

    /// Leases memory for a new set of tensors, to be filled and [published](TensorWriter::publish) under a name.
    ///
    /// # Errors
    /// If the name is invalid, or the broker has no room. That the name is taken is found when the set is published.
    pub fn create_tensors(&self, stream: &Stream, name: &str, manifest: Manifest) -> Result<TensorWriter> {
        Name::parse(name).map_err(Error::from)?;
        let lease = self.reserve(stream, manifest.memory_bytes() as usize)?;
        Ok(TensorWriter { broker: self.clone(), name: name.to_owned(), manifest, lease })
    }

    /// Leases memory for the next generation of a set, which may have other tensors. Readers keep the current one, and
    /// get the current one until the next is [published](TensorWriter::publish).
    ///
    /// # Errors
    /// If the broker has no such name, or another process is writing its next generation; [`TensorError::InPlace`];
    /// [`TensorError::Manifest`] if the name belongs to something other than a set.
    pub fn update_tensors(&self, stream: &Stream, name: &str, manifest: Manifest) -> Result<TensorWriter> {
        let in_place = || TensorError::InPlace { name: name.to_owned() };
        if manifest.policy() != Policy::Restore {
            return Err(in_place());
        }
        // Asked before a writer begins: under another policy that would already count as a version, or drop the name if
        // this process died.
        let current = self.lease_tensors(stream, name)?;
        if current.manifest.policy() != Policy::Restore {
            return Err(in_place());
        }
        current.close()?;
        let lease: Lease<u8> = self.lease_next(stream, name, manifest.memory_bytes() as usize)?;
        // New memory has no version yet.
        if lease.version() != 0 {
            return Err(in_place());
        }
        Ok(TensorWriter { broker: self.clone(), name: name.to_owned(), manifest, lease })
    }
}

fn read_manifest(stream: &Stream, lease: &Lease<u8>, name: &str) -> Result<Manifest> {
    let failed = |error| TensorError::Manifest { name: name.to_owned(), error };
    let memory_bytes = lease.len() as u64;
    let mut head = stream.download(&lease.view(..memory_bytes.min(HEAD_BYTES) as usize)?)?;
    let needed = Manifest::header_bytes(&head, memory_bytes).map_err(failed)?;
    if needed > head.len() as u64 {
        head = stream.download(&lease.view(..needed as usize)?)?;
    }
    Manifest::parse(&head, memory_bytes).map_err(failed)
}

/// A generation of a set of tensors, leased for reading. The memory stays until it is dropped.
#[derive(Debug)]
pub struct TensorSet {
    broker: Broker,
    name: String,
    manifest: Manifest,
    lease: Lease<u8>,
}

impl TensorSet {
    /// Returns the list of the tensors.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns which generation it is, from 1. A set that was dropped and published again starts over.
    pub fn generation(&self) -> u64 {
        self.lease.version()
    }

    /// Returns the lease of the memory.
    pub fn lease(&self) -> &Lease<u8> {
        &self.lease
    }

    /// Returns a tensor by its name.
    pub fn get(&self, tensor: &str) -> Option<TensorRef<'_>> {
        self.manifest.get(tensor).map(|tensor| TensorRef { set: self, tensor })
    }

    /// Reads all tensors back, and compares them with their hashes. Those without a hash are not read. Waits for the work in
    /// `stream`, and starts threads.
    ///
    /// # Errors
    /// [`TensorError::Damaged`] names the first that differs.
    pub fn verify(&self, stream: &Stream) -> Result<()> {
        verify(&self.broker, stream, &self.lease, &self.manifest, &self.name)
    }

    /// Ends the lease, after the work with it so far. Does not wait.
    ///
    /// # Errors
    /// Those of the device and of the broker.
    pub fn close(self) -> Result<()> {
        Ok(self.lease.close().map_err(Error::from)?)
    }
}

fn verify(broker: &Broker, stream: &Stream, lease: &Lease<u8>, manifest: &Manifest, name: &str) -> Result<()> {
    match first_damaged(broker, stream, lease, manifest)? {
        None => Ok(()),
        Some(Tensor { name: tensor, .. }) => {
            Err(TensorError::Damaged { name: name.to_owned(), tensor: tensor.clone() })
        }
    }
}

/// A tensor of a leased set.
#[derive(Clone, Copy, Debug)]
pub struct TensorRef<'a> {
    set: &'a TensorSet,
    tensor: &'a Tensor,
}

impl<'a> TensorRef<'a> {
    /// Returns its description.
    pub fn tensor(self) -> &'a Tensor {
        self.tensor
    }

    /// Returns the address of its first element on the device.
    pub fn address(self) -> u64 {
        self.set.lease.address() + self.set.manifest.data_start() + self.tensor.offset
    }

    /// Returns its bytes, as an argument of kernels and copies.
    ///
    /// # Errors
    /// Those of a view.
    pub fn view(self) -> freehold::Result<View<'a, u8>> {
        self.set.lease.view(range_of(&self.set.manifest, self.tensor))
    }
}

/// A set of tensors that is being written. Nothing of it is visible to others before it is published; if it is dropped
/// instead, or its process dies, its memory is free again.
#[derive(Debug)]
pub struct TensorWriter {
    broker: Broker,
    name: String,
    manifest: Manifest,
    lease: Lease<u8>,
}

impl TensorWriter {
    /// Returns the list of the tensors.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns writable bytes of the tensor at this place in the list.
    ///
    /// # Errors
    /// If the tensor has fewer bytes.
    ///
    /// # Panics
    /// If the list has fewer tensors.
    pub fn view_mut(&mut self, at: usize, range: Range<usize>) -> freehold::Result<ViewMut<'_, u8>> {
        let all = range_of(&self.manifest, &self.manifest.tensors()[at]);
        // Beyond the tensor is beyond the memory, too, as far as the caller knows.
        let end = if range.end <= all.len() { all.start + range.end } else { usize::MAX };
        self.lease.view_mut(all.start.saturating_add(range.start)..end)
    }

    /// Writes a tensor, and lists its hash if the list has [room](Manifest::with_room_for_hashes) for it.
    ///
    /// # Errors
    /// If the tensor has another length.
    ///
    /// # Panics
    /// If the list has fewer tensors.
    pub fn write(&mut self, stream: &Stream, at: usize, bytes: &[u8]) -> Result<()> {
        let length = self.manifest.tensors()[at].bytes as usize;
        stream.write(&mut self.view_mut(at, 0..length)?, bytes)?;
        self.list_hash(at, hash(bytes));
        Ok(())
    }

    /// Lists the hash of a tensor, if the list has room for it.
    pub(super) fn list_hash(&mut self, at: usize, hash: [u8; 32]) {
        if self.manifest.tensors()[at].hash.is_some() {
            self.manifest.set_hash(at, hash);
        }
    }

    /// Lists the hash of a tensor, as [`Manifest::set_hash`] does.
    ///
    /// # Panics
    /// Like [`Manifest::set_hash`].
    pub fn set_hash(&mut self, at: usize, hash: [u8; 32]) {
        self.manifest.set_hash(at, hash);
    }

    /// Like [`TensorSet::verify`], before anything is published.
    ///
    /// # Errors
    /// [`TensorError::Damaged`] names the first that differs.
    pub fn verify(&self, stream: &Stream) -> Result<()> {
        verify(&self.broker, stream, &self.lease, &self.manifest, &self.name)
    }

    /// Publishes the set: all of it appears at once, or nothing. Waits for the work with its memory, so that no reader
    /// gets a generation whose writer dies before that is complete. Returns the generation.
    ///
    /// # Errors
    /// If the name was taken or dropped in the meantime: then nothing is published.
    pub fn publish(mut self, stream: &Stream) -> Result<u64> {
        let header = self.manifest.header();
        stream.write(&mut self.lease.view_mut(..header.len())?, &header)?;
        self.lease.gather(stream)?;
        stream.synchronize()?;
        Ok(self.broker.publish_version(&self.name, &mut self.lease, self.manifest.policy())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_follows_the_name() {
        assert_eq!(parse("model/weights").unwrap(), ("model/weights", None));
        assert_eq!(parse("model@8").unwrap(), ("model", Some(8)));
        for text in ["model@", "model@0", "model@-1", "model@+1", "model@8@9", "model@99999999999999999999"] {
            let refused = parse(text).unwrap_err().to_string();
            let digits = text.split_once('@').unwrap().1;
            assert_eq!(refused, format!("{digits:?} is not a generation: expected a number from 1, as in model@8"));
        }
    }
}
