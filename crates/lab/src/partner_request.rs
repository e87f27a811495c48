//! The requests to the partner process of an experiment, and its replies.

use std::os::fd::{AsFd, OwnedFd};

use freehold_driver::cuda::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemGenericAllocationHandle, CUmemoryPool,
    CUpointer_attribute, CUstream, allocation, context, event, fill, ipc, mapping, memory, pointer, pool, stream,
    stream_flags, wait_value_flags,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::failure::Failure;
use super::fixture::Fixture;
use super::kernels::{DEFAULT, KERNELS, ONE, Spin, kernel, launch};
use super::mapped::{self, exportable_pool, shareable_prop};
use super::shared_host::{self, SHARED};

/// Addresses and handles are those of the partner process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PartnerRequest {
    /// Retains the primary context and makes it current.
    Begin,
    FreeBytes,
    Alloc(usize),
    Free(#[serde(with = "addresses")] CUdeviceptr),
    FreeAsync(#[serde(with = "addresses")] CUdeviceptr),
    Fill {
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        value: u8,
        bytes: usize,
    },
    /// At most 4096 bytes.
    Read {
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        bytes: usize,
    },
    /// Launches a kernel that stores a word, and waits for it.
    Store {
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        value: u32,
    },
    Attribute {
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        which: u32,
    },
    /// Replies with 64 bytes.
    MemoryHandle(#[serde(with = "addresses")] CUdeviceptr),
    OpenMemory {
        handle: Vec<u8>,
        flags: u32,
    },
    CloseMemory(#[serde(with = "addresses")] CUdeviceptr),
    CreateEvent(u32),
    /// Replies with 64 bytes.
    EventHandle(u64),
    OpenEvent(Vec<u8>),
    Record {
        event: u64,
        stream: u64,
    },
    QueryEvent(u64),
    SynchronizeEvent(u64),
    DestroyEvent(u64),
    /// Creates a non-blocking stream.
    CreateStream,
    QueryStream(u64),
    SynchronizeStream(u64),
    WaitValue {
        stream: u64,
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        value: u64,
    },
    WriteValue {
        stream: u64,
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        value: u64,
    },
    /// Launches a kernel that stores a word when the process's latch opens. It runs when the reply is sent.
    Spin {
        stream: u64,
        #[serde(with = "addresses")]
        to: CUdeviceptr,
        value: u32,
    },
    OpenGate,
    /// Registers the shared memory of the descriptor, and replies with its device address.
    Register,
    /// Creates physical memory that can be exported.
    Create(usize),
    /// Maps a handle to new addresses, for reading and writing.
    Map {
        allocation: u64,
        bytes: usize,
    },
    /// The same, for reading only.
    MapReadOnly {
        allocation: u64,
        bytes: usize,
    },
    Unmap {
        #[serde(with = "addresses")]
        at: CUdeviceptr,
        bytes: usize,
    },
    Release(u64),
    Export(u64),
    Import,
    /// Creates a pool that can be exported.
    CreatePool,
    ExportPool(u64),
    DestroyPool(u64),
    /// Allocates a block of a pool; it is allocated when the reply is sent.
    AllocOf {
        pool: u64,
        bytes: usize,
    },
    /// Replies with 64 bytes.
    ExportBlock(#[serde(with = "addresses")] CUdeviceptr),
    /// Keeps the descriptor.
    Keep,
    /// Sends it back.
    GiveBack,
    End,
}

/// The result of a request. A descriptor is sent along with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PartnerReply {
    Number(u64),
    Bytes(Vec<u8>),
    /// The name of the failed call, and its code.
    Refused(String, u32),
}

impl From<()> for PartnerReply {
    fn from((): ()) -> Self {
        Self::Number(0)
    }
}

/// The state of a partner process between requests.
pub(crate) struct RequestHandler<'a> {
    b: &'a Fixture,
    spin: Option<Spin>,
    kept: Option<OwnedFd>,
}

impl<'a> RequestHandler<'a> {
    pub(crate) fn new(b: &'a Fixture) -> Self {
        Self { b, spin: None, kept: None }
    }

    /// Handles a request, with the descriptor that came with it.
    pub(crate) fn handle(
        &mut self,
        ask: PartnerRequest,
        given: Option<OwnedFd>,
    ) -> Result<(PartnerReply, Option<OwnedFd>), Failure> {
        let told = match (ask, given) {
            (PartnerRequest::Keep, Some(descriptor)) => {
                self.kept = Some(descriptor);
                PartnerReply::Number(0)
            }
            (PartnerRequest::GiveBack, _) => return Ok((PartnerReply::Number(0), self.kept.take())),
            (PartnerRequest::Export(allocation), _) => {
                let descriptor = allocation::export(self.b, CUmemGenericAllocationHandle(allocation))?;
                return Ok((PartnerReply::Number(0), Some(descriptor)));
            }
            (PartnerRequest::ExportPool(pool), _) => {
                return Ok((PartnerReply::Number(0), Some(pool::export(self.b, CUmemoryPool(pool as usize))?)));
            }
            (PartnerRequest::Import, Some(descriptor)) => {
                PartnerReply::Number(allocation::import(self.b, descriptor.as_fd())?.0)
            }
            (PartnerRequest::Register, Some(descriptor)) => {
                let host = shared_host::map(&descriptor.into())?;
                self.b.register(host.address(), host.bytes(), SHARED)?;
                PartnerReply::Number(self.b.device_address(host.address(), 0)?.0)
            }
            (ask, _) => self.handle_memory(ask)?,
        };
        Ok((told, None))
    }

    fn handle_memory(&mut self, ask: PartnerRequest) -> Result<PartnerReply, Failure> {
        let b = self.b;
        Ok(match ask {
            PartnerRequest::Begin => b.init_context().map(drop)?.into(),
            PartnerRequest::FreeBytes => PartnerReply::Number(memory::info(b)?.free_bytes as u64),
            PartnerRequest::Alloc(bytes) => PartnerReply::Number(memory::alloc(b, bytes)?.0),
            PartnerRequest::Free(at) => memory::free(b, at)?.into(),
            PartnerRequest::FreeAsync(at) => memory::free_async(b, at, DEFAULT)?.into(),
            PartnerRequest::Fill { at, value, bytes } => {
                fill::d8(b, at, value, bytes)?;
                context::synchronize(b)?.into()
            }
            PartnerRequest::Read { at, bytes } => PartnerReply::Bytes(b.bytes_at(at, bytes)?),
            PartnerRequest::Store { at, value } => {
                let store = kernel(b, KERNELS, c"store")?;
                launch(b, store, ONE, DEFAULT, &[at.0, value.into()])?;
                context::synchronize(b)?.into()
            }
            PartnerRequest::Attribute { at, which } => {
                PartnerReply::Number(pointer::attribute(b, at, CUpointer_attribute(which))?)
            }
            PartnerRequest::MemoryHandle(at) => PartnerReply::Bytes(ipc::memory_handle(b, at)?.bytes.to_vec()),
            PartnerRequest::OpenMemory { handle, flags } => {
                PartnerReply::Number(ipc::open_memory(b, CUipcMemHandle { bytes: token(&handle)? }, flags)?.0)
            }
            PartnerRequest::CloseMemory(at) => ipc::close_memory(b, at)?.into(),
            PartnerRequest::Create(bytes) => PartnerReply::Number(allocation::create(b, bytes, &shareable_prop(b))?.0),
            PartnerRequest::Map { allocation, bytes } => {
                let at = mapped::map_existing(b, CUmemGenericAllocationHandle(allocation), bytes)?;
                mapping::set_access(b, at, bytes, &[mapped::read_write_access(b)])?;
                PartnerReply::Number(at.0)
            }
            PartnerRequest::MapReadOnly { allocation, bytes } => {
                let at = mapped::map_existing(b, CUmemGenericAllocationHandle(allocation), bytes)?;
                mapping::set_access(b, at, bytes, &[mapped::read_access(b)])?;
                PartnerReply::Number(at.0)
            }
            PartnerRequest::Unmap { at, bytes } => mapping::unmap(b, at, bytes)?.into(),
            PartnerRequest::Release(allocation) => {
                allocation::release(b, CUmemGenericAllocationHandle(allocation))?.into()
            }
            PartnerRequest::CreatePool => PartnerReply::Number(exportable_pool(b)?.0 as u64),
            PartnerRequest::DestroyPool(pool) => pool::destroy(b, CUmemoryPool(pool as usize))?.into(),
            PartnerRequest::AllocOf { pool, bytes } => {
                let at = memory::alloc_from_pool_async(b, bytes, CUmemoryPool(pool as usize), DEFAULT)?;
                context::synchronize(b)?;
                PartnerReply::Number(at.0)
            }
            PartnerRequest::ExportBlock(at) => PartnerReply::Bytes(pool::export_block(b, at)?.bytes.to_vec()),
            ask => self.handle_streams(ask)?,
        })
    }

    fn handle_streams(&mut self, ask: PartnerRequest) -> Result<PartnerReply, Failure> {
        let b = self.b;
        Ok(match ask {
            PartnerRequest::CreateEvent(flags) => PartnerReply::Number(event::create(b, flags)?.0 as u64),
            PartnerRequest::EventHandle(event) => {
                PartnerReply::Bytes(ipc::event_handle(b, CUevent(event as usize))?.bytes.to_vec())
            }
            PartnerRequest::OpenEvent(handle) => {
                PartnerReply::Number(ipc::open_event(b, CUipcEventHandle { bytes: token(&handle)? })?.0 as u64)
            }
            PartnerRequest::Record { event, stream } => {
                event::record(b, CUevent(event as usize), CUstream(stream as usize))?.into()
            }
            PartnerRequest::QueryEvent(event) => PartnerReply::Number(event::query(b, CUevent(event as usize))?.into()),
            PartnerRequest::SynchronizeEvent(event) => event::synchronize(b, CUevent(event as usize))?.into(),
            PartnerRequest::DestroyEvent(event) => event::destroy(b, CUevent(event as usize))?.into(),
            PartnerRequest::CreateStream => {
                PartnerReply::Number(stream::create(b, stream_flags::NON_BLOCKING)?.0 as u64)
            }
            PartnerRequest::QueryStream(stream) => {
                PartnerReply::Number(stream::query(b, CUstream(stream as usize))?.into())
            }
            PartnerRequest::SynchronizeStream(stream) => stream::synchronize(b, CUstream(stream as usize))?.into(),
            PartnerRequest::WaitValue { stream, at, value } => {
                stream::wait_value_64(b, CUstream(stream as usize), at, value, wait_value_flags::GEQ)?.into()
            }
            PartnerRequest::WriteValue { stream, at, value } => {
                stream::write_value_64(b, CUstream(stream as usize), at, value, 0)?.into()
            }
            PartnerRequest::Spin { stream, to, value } => {
                let spin = Spin::new(b)?;
                spin.run(b, CUstream(stream as usize), to, value)?;
                self.spin = Some(spin);
                PartnerReply::Number(0)
            }
            PartnerRequest::OpenGate => {
                self.spin = None;
                PartnerReply::Number(0)
            }
            // The request needs a descriptor, and none came.
            _ => return Err(Failure::Partner),
        })
    }
}

/// Returns the 64 bytes of a handle.
pub(crate) fn token(bytes: &[u8]) -> Result<[u8; 64], Failure> {
    bytes.try_into().map_err(|_| Failure::Partner)
}

mod addresses {
    use super::*;

    pub(super) fn serialize<S: Serializer>(at: &CUdeviceptr, to: S) -> Result<S::Ok, S::Error> {
        at.0.serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<CUdeviceptr, D::Error> {
        u64::deserialize(from).map(CUdeviceptr)
    }
}
