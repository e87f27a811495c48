//! The tenant's side of the module registry: putting, finding and listing modules, and the signatures of their kernels.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use freehold::Grid;
use sha2::{Digest, Sha256};

use super::{CallError, Caller};
use crate::client::link::LinkError;
use crate::protocol::call_codec::{CallHeader, CallKind};
use crate::protocol::message::{Reply, Request};
use crate::protocol::module_text::{MODULE_BYTES_MAX, hash_bytes, hash_words, read_text, sealed_memfd};
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::Id;
use freehold::signature::{Parameter, Signature, device_bytes, kernels};

/// How often a put is repeated while other processes put and drop the same text.
const PUT_ATTEMPTS_MAX: u32 = 8;

/// A module of the registry, and the signatures of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    id: Id,
    name: Arc<str>,
    hash: [u8; 32],
    bytes: u64,
    kernels: Arc<[Signature]>,
}

/// A kernel of a module of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    module_id: Id,
    module: Arc<str>,
    index: u32,
    signature: Signature,
}

impl Module {
    /// The broker's number of it.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The name that it was put under.
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

    /// Its kernels, and what they take.
    pub fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    /// Returns the kernel with this name, for calls.
    ///
    /// # Safety
    /// A worker runs it, and the worker reaches whatever the processes that it serves have leased. In every call that
    /// is made with the handle, whatever the grid, the numbers and the contents of memory, the kernel
    /// - reads only memory of its arguments, each from where it begins to the end of its lease, and variables of its
    ///   module;
    /// - writes only those variables, and memory that it is given by
    ///   [`Lease::argument_mut`](crate::Lease::argument_mut), by [`NamedLease::argument`](super::NamedLease::argument)
    ///   of a lease for writing, or by [`Caller::argument`];
    /// - does so even if others write the same memory meanwhile: an argument is borrowed until the call is submitted,
    ///   and not until it is complete. Calls that use one lease are executed one after the other; streams of this
    ///   process wait for a call only by [`Broker::wait_fence`](crate::Broker::wait_fence) or
    ///   [`Call::wait`](super::Call::wait), and read incomplete data otherwise.
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

    /// What it takes.
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
    /// The user that put it there.
    pub user: u32,
    /// SHA-256 of the text, in hexadecimal.
    pub hash: String,
    /// How long ago, in seconds.
    pub age_s: u64,
}

impl Caller {
    /// Stores a PTX text under a name, after the worker's driver has compiled it. The same text under the same name
    /// again is not an error.
    ///
    /// # Errors
    /// [`CallError::CompileFailed`] with the compiler's log; [`RequestError::ModuleTaken`] if another text has the
    /// name.
    pub fn put_module(&self, name: &str, text: &str) -> Result<Module, CallError> {
        let name = Name::parse(name)?;
        if text.is_empty() || text.len() > MODULE_BYTES_MAX {
            return Err(CallError::ModuleTooLong { bytes: text.len(), most: MODULE_BYTES_MAX });
        }
        let hash: [u8; 32] = Sha256::digest(text).into();
        let file = sealed_memfd(text).map_err(LinkError::from_system)?;
        // A text that does not parse is left to the driver to refuse.
        let (bytes, device_bytes) = (text.len() as u64, device_bytes(text).unwrap_or(0));
        let request = Request::PutModule { bytes, device_bytes, hash: hash_words(&hash), name };
        let mut module = self.try_put(&request, &file, hash);
        for _ in 1..PUT_ATTEMPTS_MAX {
            // Another process put it too, and ended before it was compiled.
            if matches!(module, Err(CallError::NoModule { .. })) {
                module = self.try_put(&request, &file, hash);
            }
        }
        // The driver's error takes precedence over that of the parser.
        let module = module?;
        let kernels = kernels(text).map_err(CallError::NotPtx)?;
        Ok(Module { kernels: kernels.into(), ..module })
    }

    fn try_put(&self, request: &Request, file: &OwnedFd, hash: [u8; 32]) -> Result<Module, CallError> {
        let Request::PutModule { bytes, name, .. } = request else { unreachable!("the request is PutModule") };
        let reply = self.connection()?.call_with(request.clone(), &[file.as_fd()])?.reply;
        let Reply::Number { id, .. } = reply else { return Err(LinkError::Malformed.into()) };
        let module = Module { id, name: name.as_str().into(), hash, bytes: *bytes, kernels: [].into() };
        self.compile(&module)?;
        Ok(module)
    }

    /// Makes the worker load a module.
    fn compile(&self, module: &Module) -> Result<(), CallError> {
        let (task, Grid { blocks, threads, shared_bytes }) = (CallKind::Load, Grid::line(1, 1));
        let (stream, number, kernel) = (0, 0, 0);
        let head = CallHeader { kind: task, stream, number, module: module.id, kernel, blocks, threads, shared_bytes };
        let signature = Signature { name: "the module".into(), parameters: [].into() };
        let of = Kernel { module_id: module.id, module: module.name.clone(), index: 0, signature };
        self.push(head, &[], &[], &of)?.wait()
    }

    /// Returns the module of a name, with the signatures of its kernels.
    ///
    /// # Errors
    /// [`CallError::NoModule`], with similar names.
    pub fn module(&self, name: &str) -> Result<Module, CallError> {
        let name = Name::parse(name)?;
        let request = Request::Module { id: Id(0), name: Some(name.clone()) };
        let mut answer = self.connection()?.call(request).map_err(|error| no_module(error, &name))?;
        let (Reply::Module { id, bytes, hash, .. }, Some(text)) = (answer.reply, answer.descriptors.pop()) else {
            return Err(LinkError::Malformed.into());
        };
        let module: Arc<str> = name.as_str().into();
        let text = read_text(text, bytes, &hash).ok_or_else(|| CallError::HashMismatch { module: module.clone() })?;
        let kernels = kernels(&text).map_err(CallError::NotPtx)?;
        Ok(Module { id, name: module, hash: hash_bytes(&hash), bytes, kernels: kernels.into() })
    }

    /// Lists all modules.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn modules(&self) -> Result<Vec<ListedModule>, CallError> {
        let mut listed: Vec<ListedModule> = Vec::new();
        loop {
            let after = listed.last().and_then(|last| Name::parse(&last.name).ok());
            let text = self.connection()?.call(Request::Modules { after })?.text;
            let before = listed.len();
            for line in text.lines() {
                listed.push(ListedModule::parse(line).ok_or(LinkError::Malformed)?);
            }
            if listed.len() == before {
                return Ok(listed);
            }
        }
    }

    /// Drops a module. Calls that were made before are executed; then the workers of its user unload it, and further
    /// calls are refused.
    ///
    /// # Errors
    /// [`CallError::NoModule`], with similar names.
    pub fn drop_module(&self, name: &str) -> Result<(), CallError> {
        let name = Name::parse(name)?;
        let request = Request::DropModule { name: name.clone() };
        self.connection()?.call(request).map_err(|error| no_module(error, &name))?;
        Ok(())
    }
}

impl ListedModule {
    fn parse(line: &str) -> Option<Self> {
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

fn no_module(error: LinkError, name: &Name) -> CallError {
    match error {
        LinkError::Request { error: RequestError::NoModule, detail } => {
            CallError::NoModule { name: name.as_str().into(), near: detail }
        }
        error => error.into(),
    }
}
