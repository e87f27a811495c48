//! Memory that tests map in chunks of one size.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use freehold_driver::cuda::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, DriverError, address, allocation, mapping,
};

use crate::common::{Context, at};

/// The granularity of the devices that these tests run on.
pub(crate) const CHUNK: usize = 2 << 20;

impl Context {
    /// The device as a memory location.
    pub(crate) fn place(&self) -> CUmemLocation {
        CUmemLocation { kind: CUmemLocationType::DEVICE, id: self.device.0 }
    }

    /// Memory that can be exported.
    pub(crate) fn prop(&self) -> CUmemAllocationProp {
        CUmemAllocationProp::on_device(self.device, CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR)
    }

    /// Memory of one chunk.
    pub(crate) fn chunk(&self) -> CUmemGenericAllocationHandle {
        allocation::create(&self.api, CHUNK, &self.prop()).expect("the device has memory")
    }

    /// Reserves addresses for `chunks` chunks.
    pub(crate) fn addresses(&self, chunks: usize) -> CUdeviceptr {
        address::reserve(&self.api, chunks * CHUNK, 0, CUdeviceptr::NULL).expect("there are addresses")
    }

    /// Sets the device's access to `chunks` chunks.
    pub(crate) fn allow(&self, start: CUdeviceptr, chunks: usize, flags: CUmemAccess_flags) -> Result<(), DriverError> {
        mapping::set_access(&self.api, start, chunks * CHUNK, &[CUmemAccessDesc { location: self.place(), flags }])
    }

    /// Maps a chunk with read and write access.
    #[track_caller]
    pub(crate) fn map(&self, start: CUdeviceptr, chunk: CUmemGenericAllocationHandle) {
        mapping::map(&self.api, start, CHUNK, 0, chunk).expect("a chunk is mapped");
        self.allow(start, 1, CUmemAccess_flags::PROT_READWRITE).expect("the device has access");
    }

    #[track_caller]
    pub(crate) fn unmap(&self, start: CUdeviceptr, chunks: usize) {
        mapping::unmap(&self.api, start, chunks * CHUNK).expect("chunks are unmapped");
    }

    #[track_caller]
    pub(crate) fn release(&self, chunk: CUmemGenericAllocationHandle) {
        allocation::release(&self.api, chunk).expect("a handle is released");
    }

    /// Maps new adjacent chunks, each with its own handle, which is already released.
    #[track_caller]
    pub(crate) fn mapped(&self, chunks: usize) -> CUdeviceptr {
        let start = self.addresses(chunks);
        for index in 0..chunks {
            let chunk = self.chunk();
            self.map(at(start, (index * CHUNK) as u64), chunk);
            self.release(chunk);
        }
        start
    }

    /// Unmaps and frees what [`mapped`](Self::mapped) made.
    #[track_caller]
    pub(crate) fn give_back(&self, start: CUdeviceptr, chunks: usize) {
        self.unmap(start, chunks);
        address::free(&self.api, start, chunks * CHUNK).expect("addresses are freed");
    }
}
