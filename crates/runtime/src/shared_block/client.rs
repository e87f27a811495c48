//! Maps blocks of other processes.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freehold_driver::cuda::{
    Api, CUdeviceptr, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUresult, ipc_flags,
};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::handle::BlockHandle;
use super::socket::{REPLY_BYTES, socket_address};
use crate::code::{CudaError, cudaError_t};
use crate::log;
use crate::process::Process;

/// How long the other process may take. Its thread answers at once.
const SERVER_SECONDS: u64 = 30;

/// A block that is mapped here.
struct OpenedBlock {
    handle: BlockHandle,
    address: u64,
    chunks: MappedChunks,
    open_count: usize,
}

/// Chunks that are mapped side by side.
struct MappedChunks {
    base: CUdeviceptr,
    sizes: Vec<usize>,
}

/// A chunk of another process.
struct ReceivedChunk {
    descriptor: OwnedFd,
    address: u64,
    bytes: u64,
}

static OPENED: Mutex<Vec<OpenedBlock>> = Mutex::new(Vec::new());

fn opened() -> MutexGuard<'static, Vec<OpenedBlock>> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maps the block of a handle. Returns `None` for a handle of the driver. A block that is open is opened again at the same
/// address.
pub(crate) fn open(process: &Process, handle: &CUipcMemHandle, flags: u32) -> Option<Result<u64, CudaError>> {
    let handle = BlockHandle::from_bytes(handle)?;
    if flags & ipc_flags::LAZY_ENABLE_PEER_ACCESS == 0 {
        return Some(Err(CudaError::INVALID_VALUE));
    }
    if handle.process == process::id() {
        return Some(Err(CudaError::DEVICE_UNINITIALIZED));
    }
    // Held to the end, so that a block is mapped once when several threads open it.
    let mut opened = opened();
    if let Some(block) = opened.iter_mut().find(|block| block.handle == handle) {
        block.open_count += 1;
        return Some(Ok(block.address));
    }
    Some(map_block(process, handle).map(|(address, chunks)| {
        opened.push(OpenedBlock { handle, address, chunks, open_count: 1 });
        address
    }))
}

/// Unmaps the block at an address when it was closed as often as opened. Returns `None` if there is none.
pub(crate) fn close(process: &Process, address: u64) -> Option<cudaError_t> {
    let mut opened = opened();
    let index = opened.iter().position(|block| block.address == address)?;
    opened[index].open_count -= 1;
    if opened[index].open_count > 0 {
        return Some(Ok(()));
    }
    let block = opened.swap_remove(index);
    drop(opened);
    // Work that uses the memory would fault.
    // SAFETY: the call takes no pointer.
    let waited = unsafe { (process.api.cuCtxSynchronize)() };
    Some(waited.and(block.chunks.unmap(&process.api)).map_err(Into::into))
}

fn map_block(process: &Process, handle: BlockHandle) -> Result<(u64, MappedChunks), CudaError> {
    let chunks = request(handle).map_err(|error| {
        log::say(&format!("cudaIpcOpenMemHandle fails: process {} gives no block: {error}", handle.process));
        CudaError::INVALID_VALUE
    })?;
    let offset = handle.address - chunks[0].address;
    let mapped = MappedChunks::map(process, &chunks)?;
    Ok((mapped.base.0 + offset, mapped))
}

/// Asks the process of a block for the chunks that it lies in.
fn request(handle: BlockHandle) -> io::Result<Vec<ReceivedChunk>> {
    let mut server = UnixStream::connect_addr(&socket_address(handle.process, handle.secret)?)?;
    let limit = Some(Duration::from_secs(SERVER_SECONDS));
    server.set_read_timeout(limit)?;
    server.set_write_timeout(limit)?;
    server.write_all(&handle.address.to_le_bytes())?;
    let mut chunks = Vec::new();
    loop {
        let (count, chunk) = receive(&server)?;
        chunks.push(chunk);
        if chunks.len() as u64 >= count {
            break;
        }
    }
    let are_adjacent =
        chunks.windows(2).all(|pair| pair[0].address.checked_add(pair[0].bytes) == Some(pair[1].address));
    let last = &chunks[chunks.len() - 1];
    let contain_block = chunks[0].address <= handle.address
        && last.address.checked_add(last.bytes).is_some_and(|end| handle.address + handle.bytes <= end);
    if are_adjacent && contain_block { Ok(chunks) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Receives a chunk, and how many there are.
fn receive(server: &UnixStream) -> io::Result<(u64, ReceivedChunk)> {
    let mut reply = [0; REPLY_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut reply)];
    let received = recvmsg(server, &mut parts, &mut beside, RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptor = descriptors.flatten().last();
    let mut words = reply.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("it has 8 bytes")));
    let mut word = || words.next().expect("there are three");
    let (count, address, bytes) = (word(), word(), word());
    match descriptor {
        Some(descriptor) if received.bytes == REPLY_BYTES => Ok((count, ReceivedChunk { descriptor, address, bytes })),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

impl MappedChunks {
    /// Maps chunks side by side, for the device of the current context.
    fn map(process: &Process, chunks: &[ReceivedChunk]) -> Result<Self, CudaError> {
        let api = &process.api;
        let sizes: Vec<_> = chunks.iter().map(|chunk| chunk.bytes as usize).collect();
        let mut base = CUdeviceptr::NULL;
        // SAFETY: `base` is a valid place for the answer.
        unsafe { (api.cuMemAddressReserve)(&raw mut base, sizes.iter().sum(), 0, CUdeviceptr::NULL, 0) }?;
        let mut mapped = Self { base, sizes: Vec::new() };
        let outcome = mapped.map_all(api, chunks).and_then(|()| mapped.permit(process));
        if let Err(error) = outcome {
            let rest = sizes[mapped.sizes.len()..].iter().sum::<usize>();
            mapped.unmap_and_free(api, rest)?;
            return Err(error);
        }
        Ok(mapped)
    }

    fn bytes(&self) -> usize {
        self.sizes.iter().sum()
    }

    fn map_all(&mut self, api: &Api, chunks: &[ReceivedChunk]) -> Result<(), CudaError> {
        for chunk in chunks {
            let mut memory = CUmemGenericAllocationHandle(0);
            let descriptor = ptr::without_provenance_mut(chunk.descriptor.as_raw_fd() as usize);
            let kind = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
            // SAFETY: `memory` is a valid place for the answer, and the descriptor is open.
            unsafe { (api.cuMemImportFromShareableHandle)(&raw mut memory, descriptor, kind) }?;
            let start = CUdeviceptr(self.base.0 + self.bytes() as u64);
            // SAFETY: the addresses are reserved, and nothing is mapped there.
            let result = unsafe { (api.cuMemMap)(start, chunk.bytes as usize, 0, memory, 0) };
            // SAFETY: the handle is this function's, and the mapping keeps the memory.
            let released = unsafe { (api.cuMemRelease)(memory) };
            result?;
            self.sizes.push(chunk.bytes as usize);
            released?;
        }
        Ok(())
    }

    fn permit(&self, process: &Process) -> Result<(), CudaError> {
        let mut device = freehold_driver::cuda::CUdevice(0);
        // SAFETY: `device` is a valid place for the answer.
        unsafe { (process.api.cuCtxGetDevice)(&raw mut device) }?;
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: device.0 };
        let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE };
        // SAFETY: all of it is mapped.
        Ok(unsafe { (process.api.cuMemSetAccess)(self.base, self.bytes(), &raw const access, 1) }?)
    }

    fn unmap(self, api: &Api) -> CUresult {
        self.unmap_and_free(api, 0)
    }

    /// Unmaps the chunks, and frees their addresses and as many after them as nothing was mapped to.
    fn unmap_and_free(&self, api: &Api, rest: usize) -> CUresult {
        let mut start = self.base.0;
        for &bytes in &self.sizes {
            // SAFETY: this is one mapping, and the C caller's work with it is complete.
            unsafe { (api.cuMemUnmap)(CUdeviceptr(start), bytes) }?;
            start += bytes as u64;
        }
        // SAFETY: the addresses were reserved as a whole, and nothing is mapped there.
        unsafe { (api.cuMemAddressFree)(self.base, self.bytes() + rest) }
    }
}
