//! What the other process of an experiment can be asked to do with its driver.

use std::os::fd::{AsFd, OwnedFd};

use freehold_driver::cuda::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemGenericAllocationHandle, CUmemoryPool,
    CUpointer_attribute, CUstream, allocation, context, event, fill, ipc, mapping, memory, pointer, pool, stream,
    stream_flags, wait_value_flags,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::bench::Bench;
use super::experiment::Failure;
use super::kernels::{DEFAULT, KERNELS, ONE, Spin, kernel, launch};
use super::mapped::{self, exportable_pool, shareable};
use super::partner::Told;
use super::shared::{self, SHARED};

/// Addresses and handles are numbers of the process that is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// The primary context, retained and current.
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
    /// A kernel stores a word, and is waited for.
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
    /// 64 bytes.
    MemoryHandle(#[serde(with = "addresses")] CUdeviceptr),
    OpenMemory {
        handle: Vec<u8>,
        flags: u32,
    },
    CloseMemory(#[serde(with = "addresses")] CUdeviceptr),
    CreateEvent(u32),
    /// 64 bytes.
    EventHandle(u64),
    OpenEvent(Vec<u8>),
    Record {
        event: u64,
        stream: u64,
    },
    QueryEvent(u64),
    SynchronizeEvent(u64),
    DestroyEvent(u64),
    /// A stream that does not block.
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
    /// A kernel that stores a word when the process's gate opens. It runs when this is answered.
    Spin {
        stream: u64,
        #[serde(with = "addresses")]
        to: CUdeviceptr,
        value: u32,
    },
    OpenGate,
    /// Registers the shared memory of the descriptor, and answers where the device sees it.
    Register,
    /// Memory without an address that can be exported.
    Create(usize),
    /// Maps a handle to addresses of its own, to be read and written.
    Map {
        allocation: u64,
        bytes: usize,
    },
    /// The same, to be read only.
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
    /// A pool that can be exported.
    CreatePool,
    ExportPool(u64),
    DestroyPool(u64),
    /// A block of a pool, allocated when this is answered.
    AllocOf {
        pool: u64,
        bytes: usize,
    },
    /// 64 bytes.
    ExportBlock(#[serde(with = "addresses")] CUdeviceptr),
    /// Keeps the descriptor, whatever it is.
    Keep,
    /// Gives it back.
    GiveBack,
    End,
}

/// A process that is asked, between two questions.
pub(crate) struct Hands<'a> {
    b: &'a Bench,
    spin: Option<Spin>,
    kept: Option<OwnedFd>,
}

impl<'a> Hands<'a> {
    pub(crate) fn new(b: &'a Bench) -> Self {
        Self { b, spin: None, kept: None }
    }

    /// Does what is asked, with the descriptor that came beside it.
    pub(crate) fn take(&mut self, ask: Ask, given: Option<OwnedFd>) -> Result<(Told, Option<OwnedFd>), Failure> {
        let told = match (ask, given) {
            (Ask::Keep, Some(descriptor)) => {
                self.kept = Some(descriptor);
                Told::Number(0)
            }
            (Ask::GiveBack, _) => return Ok((Told::Number(0), self.kept.take())),
            (Ask::Export(allocation), _) => {
                let descriptor = allocation::export(self.b, CUmemGenericAllocationHandle(allocation))?;
                return Ok((Told::Number(0), Some(descriptor)));
            }
            (Ask::ExportPool(pool), _) => {
                return Ok((Told::Number(0), Some(pool::export(self.b, CUmemoryPool(pool as usize))?)));
            }
            (Ask::Import, Some(descriptor)) => Told::Number(allocation::import(self.b, descriptor.as_fd())?.0),
            (Ask::Register, Some(descriptor)) => {
                let host = shared::map(&descriptor.into())?;
                self.b.register(host.address(), host.bytes(), SHARED)?;
                Told::Number(self.b.device_address(host.address(), 0)?.0)
            }
            (ask, _) => self.of_memory(ask)?,
        };
        Ok((told, None))
    }

    fn of_memory(&mut self, ask: Ask) -> Result<Told, Failure> {
        let b = self.b;
        Ok(match ask {
            Ask::Begin => b.begin().map(drop)?.into(),
            Ask::FreeBytes => Told::Number(memory::info(b)?.free_bytes as u64),
            Ask::Alloc(bytes) => Told::Number(memory::alloc(b, bytes)?.0),
            Ask::Free(at) => memory::free(b, at)?.into(),
            Ask::FreeAsync(at) => memory::free_async(b, at, DEFAULT)?.into(),
            Ask::Fill { at, value, bytes } => {
                fill::d8(b, at, value, bytes)?;
                context::synchronize(b)?.into()
            }
            Ask::Read { at, bytes } => Told::Bytes(b.bytes_at(at, bytes)?),
            Ask::Store { at, value } => {
                let store = kernel(b, KERNELS, c"store")?;
                launch(b, store, ONE, DEFAULT, &[at.0, value.into()])?;
                context::synchronize(b)?.into()
            }
            Ask::Attribute { at, which } => Told::Number(pointer::attribute(b, at, CUpointer_attribute(which))?),
            Ask::MemoryHandle(at) => Told::Bytes(ipc::memory_handle(b, at)?.bytes.to_vec()),
            Ask::OpenMemory { handle, flags } => {
                Told::Number(ipc::open_memory(b, CUipcMemHandle { bytes: token(&handle)? }, flags)?.0)
            }
            Ask::CloseMemory(at) => ipc::close_memory(b, at)?.into(),
            Ask::Create(bytes) => Told::Number(allocation::create(b, bytes, &shareable(b))?.0),
            Ask::Map { allocation, bytes } => {
                let at = mapped::at_new_addresses(b, CUmemGenericAllocationHandle(allocation), bytes)?;
                mapping::set_access(b, at, bytes, &[mapped::to_write(b)])?;
                Told::Number(at.0)
            }
            Ask::MapReadOnly { allocation, bytes } => {
                let at = mapped::at_new_addresses(b, CUmemGenericAllocationHandle(allocation), bytes)?;
                mapping::set_access(b, at, bytes, &[mapped::to_read(b)])?;
                Told::Number(at.0)
            }
            Ask::Unmap { at, bytes } => mapping::unmap(b, at, bytes)?.into(),
            Ask::Release(allocation) => allocation::release(b, CUmemGenericAllocationHandle(allocation))?.into(),
            Ask::CreatePool => Told::Number(exportable_pool(b)?.0 as u64),
            Ask::DestroyPool(pool) => pool::destroy(b, CUmemoryPool(pool as usize))?.into(),
            Ask::AllocOf { pool, bytes } => {
                let at = memory::alloc_from_pool_async(b, bytes, CUmemoryPool(pool as usize), DEFAULT)?;
                context::synchronize(b)?;
                Told::Number(at.0)
            }
            Ask::ExportBlock(at) => Told::Bytes(pool::export_block(b, at)?.bytes.to_vec()),
            ask => self.of_streams(ask)?,
        })
    }

    fn of_streams(&mut self, ask: Ask) -> Result<Told, Failure> {
        let b = self.b;
        Ok(match ask {
            Ask::CreateEvent(flags) => Told::Number(event::create(b, flags)?.0 as u64),
            Ask::EventHandle(event) => Told::Bytes(ipc::event_handle(b, CUevent(event as usize))?.bytes.to_vec()),
            Ask::OpenEvent(handle) => {
                Told::Number(ipc::open_event(b, CUipcEventHandle { bytes: token(&handle)? })?.0 as u64)
            }
            Ask::Record { event, stream } => {
                event::record(b, CUevent(event as usize), CUstream(stream as usize))?.into()
            }
            Ask::QueryEvent(event) => Told::Number(event::query(b, CUevent(event as usize))?.into()),
            Ask::SynchronizeEvent(event) => event::synchronize(b, CUevent(event as usize))?.into(),
            Ask::DestroyEvent(event) => event::destroy(b, CUevent(event as usize))?.into(),
            Ask::CreateStream => Told::Number(stream::create(b, stream_flags::NON_BLOCKING)?.0 as u64),
            Ask::QueryStream(stream) => Told::Number(stream::query(b, CUstream(stream as usize))?.into()),
            Ask::SynchronizeStream(stream) => stream::synchronize(b, CUstream(stream as usize))?.into(),
            Ask::WaitValue { stream, at, value } => {
                stream::wait_value_64(b, CUstream(stream as usize), at, value, wait_value_flags::GEQ)?.into()
            }
            Ask::WriteValue { stream, at, value } => {
                stream::write_value_64(b, CUstream(stream as usize), at, value, 0)?.into()
            }
            Ask::Spin { stream, to, value } => {
                let spin = Spin::new(b)?;
                spin.run(b, CUstream(stream as usize), to, value)?;
                self.spin = Some(spin);
                Told::Number(0)
            }
            Ask::OpenGate => {
                self.spin = None;
                Told::Number(0)
            }
            // A descriptor belongs to what is asked, and none came.
            _ => return Err(Failure::Partner),
        })
    }
}

/// The 64 bytes of a handle.
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
