//! Modules of the registry and their kernels, as a tenant sees them.

use std::sync::Arc;

use freehold::signature::{Parameter, Signature};

use super::call_error::CallError;
use crate::protocol::types::Id;

/// A module of the registry, and the signatures of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub(super) id: Id,
    pub(super) name: Arc<str>,
    pub(super) hash: [u8; 32],
    pub(super) bytes: u64,
    pub(super) kernels: Arc<[Signature]>,
}

/// A kernel of a module of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub(super) module_id: Id,
    pub(super) module: Arc<str>,
    pub(super) index: u32,
    pub(super) signature: Signature,
}

impl Module {
    /// Returns its id at the broker.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The name under which it was published.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// SHA-256 of the text.
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The length of its text.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The signatures of its kernels.
    pub fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    /// Returns the kernel with this name, for calls.
    ///
    /// # Safety
    /// A worker runs the kernel, and the worker can access everything that the processes it serves have leased. In
    /// every call that is made with the handle, whatever the grid, the numbers and the contents of memory, the kernel
    /// - reads only memory of its arguments, each from where it begins to the end of its lease, and variables of its
    ///   module;
    /// - writes only those variables, and memory that it is given by
    ///   [`Lease::argument_mut`](crate::Lease::argument_mut), by [`NamedLease::argument`](crate::NamedLease::argument)
    ///   of a lease for writing, or by [`Caller::argument`](crate::Caller::argument);
    /// - does so even if other work writes the same memory at that time: an argument is borrowed until the call is
    ///   submitted, and not until it is complete. Calls that use one lease are executed one after the other; streams of
    ///   this process wait for a call only by [`Broker::wait_fence`](crate::Broker::wait_fence) or
    ///   [`Call::wait`](crate::Call::wait), and read incomplete data otherwise.
    ///
    /// A kernel that faults or does not end breaks no promise: its worker ends.
    ///
    /// # Errors
    /// [`CallError::NoKernel`], with the names of those that exist.
    pub unsafe fn kernel(&self, name: &str) -> Result<Kernel, CallError> {
        let found = self.kernels.iter().position(|kernel| &*kernel.name == name);
        let index = found.ok_or_else(|| CallError::NoKernel {
            module: self.name.clone(),
            kernel: name.to_owned(),
            known: self.kernels.iter().map(|kernel| kernel.name.clone()).collect(),
        })?;
        let signature = self.kernels[index].clone();
        Ok(Kernel { module_id: self.id, module: self.name.clone(), index: index as u32, signature })
    }
}

impl Kernel {
    /// A kernel without parameters, of any module.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str, module: &str) -> Self {
        let signature = Signature { name: name.into(), parameters: [].into() };
        Self { module_id: Id(1), module: module.into(), index: 0, signature }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.signature.name
    }

    /// The name of its module.
    pub fn module(&self) -> &Arc<str> {
        &self.module
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.signature.parameters
    }

    pub(super) fn module_id(&self) -> Id {
        self.module_id
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }
}

/// A module as the broker lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModule {
    /// Its name.
    pub name: String,
    /// The length of its text.
    pub bytes: u64,
    /// The user that stored it.
    pub user: u32,
    /// SHA-256 of the text, in hexadecimal.
    pub hash: String,
    /// How long ago it was stored, in seconds.
    pub age_s: u64,
}

impl ListedModule {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, bytes, user, hash, age_s] = fields[..] else { return None };
        Some(Self {
            name: name.to_owned(),
            bytes: bytes.parse().ok()?,
            user: user.parse().ok()?,
            hash: hash.to_owned(),
            age_s: age_s.parse().ok()?,
        })
    }
}
