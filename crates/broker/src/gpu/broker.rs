//! The broker on this machine as a [`GpuBackend`]: memory is leased, kernels run in a worker, and this process copies.
//! The stream of the copies and the worker's stream wait for each other on the device.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{Grid, Stream};

use super::backend::{GpuBackend, GpuKernel, GpuResult};
use crate::client::{Broker, Call, Caller, Launch, Lease, Module};
use crate::protocol::call_codec::{Argument, Content};
use crate::protocol::module_text::digest;
use crate::protocol::types::Id;
use freehold::signature::Signature;

/// At this many calls, completed ones are forgotten.
const CALLS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct BrokerBackend {
    // Dropped before the caller, because leases are returned after the calls.
    state: Mutex<BrokerBackendState>,
    stream: Stream,
    caller: Caller,
    broker: Broker,
}

#[derive(Debug, Default)]
struct BrokerBackendState {
    leases: BTreeMap<Id, Lease<u8>>,
    modules: BTreeMap<Id, Module>,
    /// Calls whose outcome was not reported.
    calls: Vec<Call>,
    /// Whether the stream has work that no call waits for yet.
    is_ahead: bool,
}

impl BrokerBackend {
    pub(super) fn new(broker: Broker) -> GpuResult<Self> {
        let (stream, caller) = (broker.device().new_stream()?, Caller::from_broker(&broker)?);
        Ok(Self { state: Mutex::default(), stream, caller, broker })
    }

    fn state(&self) -> MutexGuard<'_, BrokerBackendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the stream wait for the last call.
    fn wait_last_call(&self, state: &BrokerBackendState) -> GpuResult<()> {
        if let Some(last) = state.calls.last() {
            self.broker.wait_fence(&self.stream, last.fence())?;
        }
        Ok(())
    }
}

impl BrokerBackendState {
    fn lease(&mut self, memory: Id) -> &mut Lease<u8> {
        self.leases.get_mut(&memory).expect("a buffer has its memory")
    }

    /// Waits for all calls. Returns the first error.
    fn wait_calls(&mut self) -> GpuResult<()> {
        let mut outcome = Ok(());
        for call in std::mem::take(&mut self.calls) {
            outcome = outcome.and(call.wait());
        }
        Ok(outcome?)
    }
}

impl GpuBackend for BrokerBackend {
    fn alloc(&self, bytes: u64) -> GpuResult<Id> {
        let lease = self.broker.reserve::<u8>(&self.stream, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let memory = lease.id();
        self.state().leases.insert(memory, lease);
        Ok(memory)
    }

    fn free(&self, memory: Id) {
        let gone = self.state().leases.remove(&memory);
        drop(gone);
    }

    fn upload(&self, to: Id, from: &[u8]) -> GpuResult<()> {
        let mut state = self.state();
        self.wait_last_call(&state)?;
        self.stream.write(state.lease(to), from)?;
        state.is_ahead = true;
        Ok(())
    }

    fn download(&self, from: Id, to: &mut [u8]) -> GpuResult<()> {
        let mut state = self.state();
        // Errors of earlier work are reported before its results are read.
        state.wait_calls()?;
        Ok(self.stream.read(&*state.lease(from), to)?)
    }

    fn module(&self, text: &str) -> GpuResult<(Id, Vec<Signature>)> {
        let module = self.caller.put_module(&format!("gpu/{}", digest(text)), text)?;
        let (id, kernels) = (module.id(), module.kernels().to_vec());
        self.state().modules.insert(id, module);
        Ok((id, kernels))
    }

    fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()> {
        let mut state = self.state();
        if state.calls.len() >= CALLS_MAX {
            // The last one stays, so that copies know what to wait for.
            let last = state.calls.pop();
            let earlier = state.wait_calls();
            state.calls.extend(last);
            earlier?;
        }
        let found = state.modules.get(&kernel.module()).expect("the module of a kernel is loaded");
        // SAFETY: the caller of `Gpu::kernel` guaranteed what the kernel does.
        let found = unsafe { found.kernel(&kernel.signature().name) }?;
        let after = if state.is_ahead { vec![self.broker.fence(&self.stream)?] } else { Vec::new() };
        // The memory ids of this backend are leases of the caller's tenant.
        let leased = |argument: &Argument<'_>| match argument.content() {
            Content::Number { parameter, bits } => Argument::number(parameter, bits),
            Content::Bytes(bytes) => Argument::bytes(bytes),
            // SAFETY: the caller of `Gpu::kernel` guaranteed that buffers may be written; the stream and the calls wait
            // for each other.
            Content::Memory { memory, offset_bytes } => unsafe { self.caller.argument(memory, offset_bytes) },
        };
        let arguments: Vec<_> = arguments.iter().map(leased).collect();
        let call = self.caller.call(&Launch { after: &after, ..Launch::new(&found, grid, &arguments) })?;
        state.calls.push(call);
        state.is_ahead = false;
        Ok(())
    }

    fn wait(&self) -> GpuResult<()> {
        self.state().wait_calls()?;
        Ok(self.stream.synchronize()?)
    }
}
