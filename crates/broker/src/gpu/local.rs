//! The device of this process as a [`GpuBackend`]: one stream, and blocks by id.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::{Block, Device, DynArg, Grid, Image, Stream};

use super::backend::{GpuBackend, GpuKernel, GpuResult};
use crate::client::CallError;
use crate::protocol::call_codec::{Argument, Content};
use crate::protocol::types::Id;
use freehold::signature::{Kind, Parameter, Signature, kernels};

#[derive(Debug)]
pub(super) struct LocalBackend {
    device: Device,
    stream: Stream,
    state: Mutex<LocalState>,
}

#[derive(Debug, Default)]
struct LocalState {
    last: u64,
    blocks: BTreeMap<Id, Block<u8>>,
    modules: Vec<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    text: String,
    signatures: Vec<Signature>,
    kernels: Vec<freehold::Kernel>,
}

impl LocalBackend {
    pub(super) fn new(device: &Device) -> GpuResult<Self> {
        Ok(Self { device: device.clone(), stream: device.new_stream()?, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalState {
    fn block(&mut self, memory: Id) -> &mut Block<u8> {
        self.blocks.get_mut(&memory).expect("a buffer has its memory")
    }
}

impl GpuBackend for LocalBackend {
    fn alloc(&self, bytes: u64) -> GpuResult<Id> {
        let block = self.stream.alloc::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut state = self.state();
        state.last += 1;
        let memory = Id(state.last);
        state.blocks.insert(memory, block);
        Ok(memory)
    }

    fn free(&self, memory: Id) {
        let gone = self.state().blocks.remove(&memory);
        drop(gone);
    }

    fn upload(&self, to: Id, from: &[u8]) -> GpuResult<()> {
        Ok(self.stream.write(self.state().block(to), from)?)
    }

    fn download(&self, from: Id, to: &mut [u8]) -> GpuResult<()> {
        Ok(self.stream.read(&*self.state().block(from), to)?)
    }

    fn module(&self, text: &str) -> GpuResult<(Id, Vec<Signature>)> {
        let mut state = self.state();
        if let Some(known) = state.modules.iter().position(|loaded| loaded.text == text) {
            return Ok((Id(known as u64), state.modules[known].signatures.clone()));
        }
        let module = self.device.module(&Image::ptx(text)?)?;
        let signatures = kernels(text).map_err(CallError::NotPtx)?;
        // SAFETY: they are only launched with handles of `Gpu::kernel`, whose callers guarantee what they do.
        let kernels = signatures.iter().map(|signature| unsafe { module.kernel(&signature.name) });
        let kernels = kernels.collect::<freehold::Result<Vec<_>>>()?;
        state.modules.push(Loaded { text: text.to_owned(), signatures: signatures.clone(), kernels });
        Ok((Id(state.modules.len() as u64 - 1), signatures))
    }

    fn launch(&self, kernel: &GpuKernel, grid: Grid, arguments: &[Argument<'_>]) -> GpuResult<()> {
        let state = self.state();
        let Signature { name, parameters } = kernel.signature();
        if parameters.len() != arguments.len() {
            let (kernel, wanted, given) = (name.clone(), parameters.len(), arguments.len());
            return Err(CallError::ArgumentCount { kernel, wanted, given }.into());
        }
        // Words instead of bytes, so that they are aligned like kernel parameters.
        let words: Vec<Vec<u64>> = arguments.iter().map(words).collect();
        let mut dyn_args = Vec::with_capacity(arguments.len());
        for (at, argument) in arguments.iter().enumerate() {
            let (wanted, number) = (parameters[at], at + 1);
            let (given, dyn_arg) = match argument.content() {
                Content::Number { parameter, .. } => (parameter, DynArg::bytes(&words[at], parameter.bytes as usize)),
                Content::Bytes(bytes) => {
                    let given = Parameter { kind: Kind::Bytes, bytes: bytes.len() as u32 };
                    (given, DynArg::bytes(&words[at], bytes.len()))
                }
                Content::Memory { memory, offset_bytes } => {
                    if !wanted.takes_address() {
                        let kernel = name.clone();
                        return Err(CallError::NotMemory { kernel, argument: number, wanted }.into());
                    }
                    let kernel = name.clone();
                    let Some(block) = state.blocks.get(&memory) else {
                        return Err(CallError::NoLease { kernel, argument: number }.into());
                    };
                    let bytes = block.len() as u64;
                    let outside = CallError::OutOfBounds { kernel, argument: number, offset_bytes, bytes };
                    // SAFETY: work with the block is only submitted here, while `state` is locked.
                    let dyn_arg = unsafe { DynArg::memory_shared(block, offset_bytes as usize) };
                    dyn_args.push(dyn_arg.ok_or(outside)?);
                    continue;
                }
            };
            if !wanted.takes(&given) {
                return Err(CallError::ArgumentKind { kernel: name.clone(), argument: number, wanted, given }.into());
            }
            dyn_args.push(dyn_arg.expect("the words hold all of its bytes"));
        }
        let loaded = &state.modules[kernel.module().0 as usize].kernels[kernel.index() as usize];
        Ok(self.stream.launch(loaded, grid, &mut dyn_args[..])?)
    }

    fn wait(&self) -> GpuResult<()> {
        Ok(self.stream.synchronize()?)
    }
}

fn words(argument: &Argument<'_>) -> Vec<u64> {
    match argument.content() {
        Content::Number { bits, .. } => vec![bits],
        Content::Bytes(bytes) => {
            let word = |part: &[u8]| {
                let mut whole = [0; 8];
                whole[..part.len()].copy_from_slice(part);
                u64::from_le_bytes(whole)
            };
            bytes.chunks(8).map(word).collect()
        }
        Content::Memory { .. } => Vec::new(),
    }
}
