//! The tenant's side of the module registry: putting, finding and listing modules, and the signatures of their kernels.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use freehold::Grid;
use sha2::{Digest, Sha256};

use super::caller::Caller;
use crate::client::call_error::CallError;
use crate::client::kernel::{Kernel, ListedModule, Module};
use crate::client::link::LinkError;
use crate::protocol::call_codec::{CallHeader, CallKind};
use crate::protocol::message::{Reply, Request};
use crate::protocol::module_text::{MODULE_BYTES_MAX, hash_bytes, hash_words, read_text, sealed_memfd};
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;
use crate::protocol::types::Id;
use freehold::signature::{Signature, device_bytes, kernels};

/// How often a put is repeated while other processes put and drop the same text.
const PUT_ATTEMPTS_MAX: u32 = 8;

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

    /// Returns the module with this name, with the signatures of its kernels.
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

fn no_module(error: LinkError, name: &Name) -> CallError {
    match error {
        LinkError::Request { error: RequestError::NoModule, detail, .. } => {
            CallError::NoModule { name: name.as_str().into(), near: detail }
        }
        error => error.into(),
    }
}
