//! Modules and launches on a server, and the server as a [`GpuBackend`]: the same handle as for a device of this
//! process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use freehold::Grid;
use freehold_broker::wire::Id;
use freehold_broker::{
    Access, Argument, CallError, Content, Gpu, GpuBackend, GpuError, GpuKernel, GpuResult, Parameter, Signature,
};
use sha2::{Digest, Sha256};
use tonic::Code;

use super::remote::{Remote, RemoteBlock};
use crate::convert::{access_to_proto, kind_from_proto, kind_to_proto};
use crate::error::{ErrorOrigin, RemoteError};
use crate::proto::{self, argument::Value};
use crate::sync::lock;

/// One call waits at most this long for a launch, then another follows.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A module at the broker, for launches of this session.
#[derive(Clone, Debug)]
pub struct RemoteModule {
    info: proto::Module,
    kernels: Vec<Signature>,
}

impl RemoteModule {
    /// Its name at the broker.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The length of its text.
    pub fn bytes(&self) -> u64 {
        self.info.bytes
    }

    /// SHA-256 of its text.
    pub fn hash(&self) -> &[u8] {
        &self.info.sha256
    }

    /// The signatures of its kernels.
    pub fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    /// Checks that it has a kernel, without a call to the server.
    ///
    /// # Errors
    /// [`CallError::NoKernel`], with the names of those that exist.
    pub fn expect_kernel(&self, kernel: &str) -> Result<(), CallError> {
        if self.kernels.iter().any(|known| &*known.name == kernel) {
            return Ok(());
        }
        let known = self.kernels.iter().map(|known| known.name.clone()).collect();
        Err(CallError::NoKernel { module: self.info.name.as_str().into(), kernel: kernel.to_owned(), known })
    }
}

impl From<proto::Module> for RemoteModule {
    fn from(told: proto::Module) -> Self {
        let parameter = |told: &proto::Parameter| Parameter { kind: kind_from_proto(told.kind()), bytes: told.bytes };
        let signature = |kernel: &proto::Kernel| Signature {
            name: kernel.name.as_str().into(),
            parameters: kernel.parameters.iter().map(parameter).collect(),
        };
        let kernels = told.kernels.iter().map(signature).collect();
        Self { info: told, kernels }
    }
}

/// An argument of a kernel at a server.
#[derive(Clone, Copy, Debug)]
pub enum RemoteArgument<'a> {
    /// A number or a structure.
    Value(&'a Argument<'a>),
    /// A block of the session, from a byte offset on.
    Block(&'a RemoteBlock, u64),
    /// Named memory, from a byte offset on. Data that the launch writes is published under the name once the launch has
    /// been waited for.
    Named(&'a str, Access, u64),
}

/// A submitted launch. Dropping it does not cancel it.
#[must_use = "a launch that is dropped goes on, but its errors are lost"]
#[derive(Debug)]
pub struct RemoteCall {
    remote: Remote,
    launch: u64,
}

impl RemoteCall {
    /// Waits until the launch is complete.
    ///
    /// # Errors
    /// If the launch failed. The error says why, whose fault it was, and whether the kernel has run.
    pub fn wait(&self) -> Result<(), RemoteError> {
        let (session, launch) = (self.remote.session()?.key.clone(), self.launch);
        let request = proto::WaitRequest { session, launch, timeout_ms: WAIT_MAX.as_millis() as u64 };
        loop {
            match self.remote.call(&request) {
                Ok(proto::Done {}) => return Ok(()),
                Err(failure) if (failure.origin, failure.code) == (ErrorOrigin::Connection, Code::DeadlineExceeded) => {
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}

impl Remote {
    /// Stores a PTX text at the broker under a name, after its driver has compiled it.
    pub fn put_module(&self, name: &str, text: &str) -> Result<RemoteModule, RemoteError> {
        let request = |call| proto::PutModuleRequest { call: Some(call), name: name.to_owned(), text: text.to_owned() };
        let module = self.call_once(request)?;
        Ok(module.into())
    }

    /// Returns the module with this name.
    pub fn module(&self, name: &str) -> Result<RemoteModule, RemoteError> {
        let session = self.session()?.key.clone();
        let request = proto::FindModuleRequest { session, name: name.to_owned() };
        let module = self.call(&request)?;
        Ok(module.into())
    }

    /// Lists all modules.
    pub fn modules(&self) -> Result<Vec<proto::ListedModule>, RemoteError> {
        let request = proto::ListModulesRequest { session: self.session()?.key.clone() };
        let listed = self.call(&request)?;
        Ok(listed.modules)
    }

    /// Drops a module.
    pub fn drop_module(&self, name: &str) -> Result<(), RemoteError> {
        let request = |call| proto::DropModuleRequest { call: Some(call), name: name.to_owned() };
        let dropped = self.call_once(request);
        dropped.map(|proto::Done {}| ())
    }

    /// Launches a kernel after the earlier launches.
    ///
    /// # Errors
    /// Those of the server, and a [`RemoteArgument::Value`] that is memory, because its id belongs to another GPU.
    pub fn launch(
        &self,
        module: &RemoteModule,
        kernel: &str,
        grid: Grid,
        arguments: &[RemoteArgument<'_>],
    ) -> Result<RemoteCall, RemoteError> {
        let arguments = arguments.iter().map(|given| match given {
            RemoteArgument::Value(value) if matches!(value.content(), Content::Memory { .. }) => {
                Err(RemoteError::invalid_argument(
                    "an argument is memory of another GPU: pass a block or a name of this session",
                ))
            }
            RemoteArgument::Value(value) => Ok(proto_argument(value)),
            RemoteArgument::Block(block, offset) => Ok(proto_block_argument(block.number, *offset)),
            RemoteArgument::Named(name, access, offset) => {
                let access = access_to_proto(*access).into();
                let name = proto::NameArgument { name: (*name).to_owned(), access, offset: *offset };
                Ok(proto::Argument { value: Some(Value::Name(name)) })
            }
        });
        self.launch_proto(module.info.module, kernel, grid, arguments.collect::<Result<_, RemoteError>>()?)
    }

    fn launch_proto(
        &self,
        module: u64,
        kernel: &str,
        grid: Grid,
        arguments: Vec<proto::Argument>,
    ) -> Result<RemoteCall, RemoteError> {
        let dimensions = |[x, y, z]: [u32; 3]| Some(proto::Dimensions { x, y, z });
        let request = |call| proto::LaunchRequest {
            call: Some(call),
            module,
            kernel: kernel.to_owned(),
            blocks: dimensions(grid.blocks),
            threads: dimensions(grid.threads),
            shared_bytes: grid.shared_bytes,
            arguments,
            stream: 0,
        };
        let launched = self.call_once(request)?;
        Ok(RemoteCall { remote: self.clone(), launch: launched.launch })
    }

    /// Returns the server as a [`Gpu`].
    pub fn gpu(self) -> Gpu {
        Gpu::with_backend(RemoteBackend { remote: self, state: Mutex::default() })
    }
}

fn proto_block_argument(block: u64, offset: u64) -> proto::Argument {
    proto::Argument { value: Some(Value::Block(proto::BlockArgument { block, offset })) }
}

fn proto_argument(given: &Argument<'_>) -> proto::Argument {
    let value = match given.content() {
        Content::Number { parameter: Parameter { kind, bytes }, bits } => {
            Value::Number(proto::NumberArgument { kind: kind_to_proto(kind).into(), bytes, bits })
        }
        Content::Bytes(bytes) => Value::Structure(bytes.to_vec()),
        Content::Memory { memory, offset_bytes } => return proto_block_argument(memory.0, offset_bytes),
    };
    proto::Argument { value: Some(value) }
}

/// The server as a [`GpuBackend`].
#[derive(Debug)]
struct RemoteBackend {
    remote: Remote,
    state: Mutex<RemoteBackendState>,
}

#[derive(Debug, Default)]
struct RemoteBackendState {
    blocks: HashMap<u64, Arc<RemoteBlock>>,
    /// Launches whose outcome was not reported.
    calls: Vec<RemoteCall>,
}

impl RemoteBackend {
    fn state(&self) -> MutexGuard<'_, RemoteBackendState> {
        lock(&self.state)
    }

    fn block(&self, memory: Id) -> Arc<RemoteBlock> {
        self.state().blocks.get(&memory.0).expect("a buffer has its memory").clone()
    }

    /// Waits for all launches. Returns the first error.
    fn wait_calls(&self) -> GpuResult<()> {
        let calls = std::mem::take(&mut self.state().calls);
        let mut outcome = Ok(());
        for call in calls {
            outcome = outcome.and(call.wait());
        }
        outcome.map_err(gpu_error)
    }
}

fn gpu_error(failure: RemoteError) -> GpuError {
    GpuError::Remote(Box::new(failure))
}

impl GpuBackend for RemoteBackend {
    fn alloc(&self, bytes: u64) -> GpuResult<Id> {
        let block = self.remote.alloc(bytes).map_err(gpu_error)?;
        let number = block.number;
        self.state().blocks.insert(number, Arc::new(block));
        Ok(Id(number))
    }

    fn free(&self, memory: Id) {
        let gone = self.state().blocks.remove(&memory.0);
        drop(gone);
    }

    fn upload(&self, to: Id, from: &[u8]) -> GpuResult<()> {
        self.remote.upload(&self.block(to), 0, from).map_err(gpu_error)
    }

    fn download(&self, from: Id, to: &mut [u8]) -> GpuResult<()> {
        // Errors of earlier work are reported before its results are read.
        self.wait_calls()?;
        self.remote.download(&self.block(from), 0, to).map_err(gpu_error)
    }

    fn module(&self, text: &str) -> GpuResult<(Id, Vec<Signature>)> {
        let hash: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        let module = self.remote.put_module(&format!("gpu/{}", &hash[..32]), text).map_err(gpu_error)?;
        Ok((Id(module.info.module), module.kernels))
    }

    fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()> {
        let arguments = arguments.iter().map(proto_argument).collect();
        let call = self.remote.launch_proto(kernel.module().0, &kernel.signature().name, grid, arguments);
        self.state().calls.push(call.map_err(gpu_error)?);
        Ok(())
    }

    fn wait(&self) -> GpuResult<()> {
        self.wait_calls()
    }
}
