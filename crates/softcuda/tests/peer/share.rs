//! The ways in which peers share memory and events, and how they check the content: by copies and by kernels.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUdeviceptr, CUevent, CUfunction, CUipcEventHandle, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
    CUmemPoolProps, CUmemPoolPtrExportData, CUmemoryPool, CUstream, address, allocation, context, copy, event,
    event_flags, fill, host, host_register_flags, ipc, ipc_flags, mapping, memory, pool, stream, wait_value_flags,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::is_soft;
use super::serve::{Answer, Failure, done};
use crate::common::kernels::Argument;
use crate::common::{Context, at};

/// Size of a share of device memory: on hardware much more than the driver's own overhead.
pub(crate) fn block_bytes() -> usize {
    if is_soft() { 4 << 20 } else { 64 << 20 }
}

/// Size of a shared event's host memory: a page of words, and content.
pub(crate) const WORDS_BYTES: usize = 64 << 10;

/// Offset of the content.
const CONTENT: usize = 4096;

/// Words of the first page: what the recording stream waits for, what the following stream writes, and a word that
/// streams of both sides use directly.
const GATE: usize = 0;
const FOLLOWED: usize = 8;
const SHARED: usize = 16;

/// Number of words, spread over a share, that kernels check.
const SAMPLES: u32 = 1024;

const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64

// Adds one to *odd for each sample that is not `value`: word i * stride, for the i-th thread.
.visible .entry compare(.param .u64 from, .param .u32 stride, .param .u32 value, .param .u64 odd)
{
    .reg .b64 %at<5>;
    .reg .b32 %r<10>;
    .reg .pred %p;
    ld.param.u64 %at1, [from];
    ld.param.u32 %r1, [stride];
    ld.param.u32 %r2, [value];
    ld.param.u64 %at2, [odd];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mul.lo.u32 %r7, %r6, %r1;
    mul.wide.u32 %at3, %r7, 4;
    add.u64 %at4, %at1, %at3;
    ld.volatile.global.u32 %r8, [%at4];
    setp.eq.u32 %p, %r8, %r2;
    @%p ret;
    atom.global.add.u32 %r9, [%at2], 1;
    ret;
}

// Sets each sample to `value`.
.visible .entry stamp(.param .u64 to, .param .u32 stride, .param .u32 value)
{
    .reg .b64 %at<4>;
    .reg .b32 %r<8>;
    ld.param.u64 %at1, [to];
    ld.param.u32 %r1, [stride];
    ld.param.u32 %r2, [value];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.u32 %r6, %r3, %r4, %r5;
    mul.lo.u32 %r7, %r6, %r1;
    mul.wide.u32 %at2, %r7, 4;
    add.u64 %at3, %at1, %at2;
    st.global.u32 [%at3], %r2;
    ret;
}
";

/// The way in which something is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Memory of `cuMemCreate` as a POSIX descriptor.
    Descriptor,
    /// Memory of `cuMemAlloc` as an IPC handle.
    Legacy,
    /// An exportable pool, and a block of it.
    Pool,
    /// An event, and host memory that both sides have registered.
    Event,
}

impl Kind {
    pub(crate) fn of(name: &str) -> Result<Self, String> {
        let all = [Self::Descriptor, Self::Legacy, Self::Pool, Self::Event];
        all.into_iter()
            .find(|kind| format!("{kind:?}") == name)
            .ok_or_else(|| format!("'{name}' is not a kind of share"))
    }

    /// Returns the device memory of a share of this kind.
    pub(crate) fn device_bytes(self) -> usize {
        if self == Self::Event { 0 } else { block_bytes() }
    }
}

/// A context, and everything needed to check shares, allocated before free memory is measured.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) own: Context,
    compare: CUfunction,
    stamp: CUfunction,
    /// Counts wrong samples.
    odd: CUdeviceptr,
    stream: CUstream,
}

impl Driver {
    pub(super) fn start() -> Self {
        let own = Context::create();
        let module = own.load(TEXT).expect("the text is loaded");
        let (compare, stamp) = (own.function(module, c"compare"), own.function(module, c"stamp"));
        let bytes = 8 * SAMPLES as usize;
        let (scratch, stream) = (own.block(bytes + 512), own.stream());
        let driver = Self { own, compare, stamp, odd: at(scratch, bytes as u64), stream };
        driver.write(scratch, bytes, 1).expect("a block is written");
        driver.check(scratch, bytes, 1).expect("what was written is there");
        driver.check(scratch, bytes, 2).expect_err("nothing else is there");
        driver
    }

    /// Writes `value` to all words, and its complement to the samples.
    fn write(&self, to: CUdeviceptr, bytes: usize, value: u32) -> Result<(), Failure> {
        fill::d32(&self.own.api, to, value, bytes / 4)?;
        let stride = (bytes / 4) as u32 / SAMPLES;
        let arguments = [to.0.into(), stride.into(), (!value).into()];
        self.run(self.stamp, &arguments)
    }

    /// Checks what [`write`](Self::write) wrote, by a kernel and by a copy.
    fn check(&self, from: CUdeviceptr, bytes: usize, value: u32) -> Result<(), Failure> {
        let api = &self.own.api;
        let stride = bytes / 4 / SAMPLES as usize;
        fill::d32(api, self.odd, 0, 1)?;
        self.run(self.compare, &[from.0.into(), (stride as u32).into(), (!value).into(), self.odd.0.into()])?;
        let mut count = [0; 4];
        copy::device_to_host(api, &mut count, self.odd)?;
        let count = u32::from_ne_bytes(count);
        let mut content = vec![0; bytes];
        copy::device_to_host(api, &mut content, from)?;
        let mut row = value.to_ne_bytes().repeat(stride);
        row[..4].copy_from_slice(&(!value).to_ne_bytes());
        let odd = content.chunks_exact(row.len()).position(|found| found != row);
        match (count, odd) {
            (0, None) => Ok(()),
            (0, Some(odd)) => Err(format!("row {odd} of {SAMPLES} is not of {value:#x} by a copy").into()),
            (count, _) => Err(format!("{count} samples are not {value:#x} by a kernel").into()),
        }
    }

    fn run(&self, kernel: CUfunction, arguments: &[Argument]) -> Result<(), Failure> {
        self.own.run(kernel, LaunchConfig::linear(SAMPLES / 128, 128), CUstream::LEGACY, arguments)?;
        Ok(context::synchronize(&self.own.api)?)
    }

    /// Runs a kernel that accesses unmapped memory.
    pub(super) fn touch_nothing(&self) -> Answer {
        self.run(self.stamp, &[0x10_0000_u64.into(), 1_u32.into(), 1_u32.into()])?;
        done()
    }

    fn read_and_write(&self) -> CUmemAccessDesc {
        let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: self.own.device.0 };
        CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE }
    }

    /// Maps memory at an address that the driver chooses, with read and write access.
    fn map(&self, allocation: CUmemGenericAllocationHandle) -> Result<CUdeviceptr, Failure> {
        let api = &self.own.api;
        let start = address::reserve(api, block_bytes(), 0, CUdeviceptr::NULL)?;
        mapping::map(api, start, block_bytes(), 0, allocation)?;
        mapping::set_access(api, start, block_bytes(), &[self.read_and_write()])?;
        Ok(start)
    }

    fn unmap(&self, start: CUdeviceptr) -> Result<(), Failure> {
        mapping::unmap(&self.own.api, start, block_bytes())?;
        Ok(address::free(&self.own.api, start, block_bytes())?)
    }
}

/// The peer's objects of a share.
#[derive(Clone, Copy, Debug)]
enum Thing {
    Allocation(CUmemGenericAllocationHandle),
    /// A block of this process.
    Block,
    /// A block of another process.
    Opened,
    /// A block of a pool of this process or of another: both are freed alike.
    Pooled(CUmemoryPool),
    Event(CUevent),
}

/// Something shared, on one side.
#[derive(Debug)]
pub(super) struct Share {
    thing: Thing,
    /// Of the block, or of the words.
    start: CUdeviceptr,
    token: [u8; 64],
    descriptors: Vec<OwnedFd>,
}

impl Share {
    /// Makes something to be shared, with content.
    pub(super) fn make(driver: &Driver, kind: Kind, value: u32) -> Result<Self, Failure> {
        let (own, api) = (&driver.own, &driver.own.api);
        let posix = CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR;
        let mut share = Self { thing: Thing::Block, start: CUdeviceptr::NULL, token: [0; 64], descriptors: Vec::new() };
        match kind {
            Kind::Descriptor => {
                let prop = CUmemAllocationProp::on_device(own.device, posix);
                let made = allocation::create(api, block_bytes(), &prop)?;
                share.thing = Thing::Allocation(made);
                share.start = driver.map(made)?;
                share.descriptors.push(allocation::export(api, made)?);
            }
            Kind::Legacy => {
                share.start = memory::alloc(api, block_bytes())?;
                share.token = ipc::memory_handle(api, share.start)?.bytes;
            }
            Kind::Pool => {
                let made =
                    pool::create(api, &CUmemPoolProps { handleTypes: posix, ..CUmemPoolProps::on_device(own.device) })?;
                share.thing = Thing::Pooled(made);
                share.start = memory::alloc_from_pool_async(api, block_bytes(), made, driver.stream)?;
                stream::synchronize(api, driver.stream)?;
                share.descriptors.push(pool::export(api, made)?);
                share.token = pool::export_block(api, share.start)?.bytes;
            }
            Kind::Event => {
                let made = event::create(api, event_flags::DISABLE_TIMING | event_flags::INTERPROCESS)?;
                share.thing = Thing::Event(made);
                share.token = ipc::event_handle(api, made)?.bytes;
                let words = shared_words().map_err(|error| error.to_string())?;
                share.start = register(driver, &words)?;
                share.descriptors.push(words);
            }
        }
        share.write(driver, value)?;
        Ok(share)
    }

    /// Takes what another process has made.
    pub(super) fn take(driver: &Driver, kind: Kind, token: &str, descriptors: Vec<OwnedFd>) -> Result<Self, Failure> {
        let api = &driver.own.api;
        let bytes = parse(token)?;
        let descriptor = || descriptors.first().ok_or_else(|| "expected a descriptor".to_owned());
        let (thing, start) = match kind {
            Kind::Descriptor => {
                let taken = allocation::import(api, descriptor()?.as_fd())?;
                (Thing::Allocation(taken), driver.map(taken)?)
            }
            Kind::Legacy => {
                let flags = ipc_flags::LAZY_ENABLE_PEER_ACCESS;
                (Thing::Opened, ipc::open_memory(api, CUipcMemHandle { bytes }, flags)?)
            }
            Kind::Pool => {
                let taken = pool::import(api, descriptor()?.as_fd())?;
                let access = driver.read_and_write();
                if pool::access(api, taken, access.location)? != access.flags {
                    pool::set_access(api, taken, &[access])?;
                }
                (Thing::Pooled(taken), pool::import_block(api, taken, CUmemPoolPtrExportData { bytes })?)
            }
            Kind::Event => {
                let taken = ipc::open_event(api, CUipcEventHandle { bytes })?;
                (Thing::Event(taken), register(driver, descriptor()?)?)
            }
        };
        Ok(Self { thing, start, token: bytes, descriptors })
    }

    /// What names the share in another process, besides the descriptors.
    pub(super) fn token(&self) -> String {
        spell(&self.token)
    }

    pub(super) fn copies(&self) -> Result<Vec<OwnedFd>, String> {
        let copies: io::Result<_> = self.descriptors.iter().map(OwnedFd::try_clone).collect();
        copies.map_err(|error| error.to_string())
    }

    /// Where the content is.
    pub(super) fn span(&self) -> (CUdeviceptr, usize) {
        match self.thing {
            Thing::Event(_) => (CUdeviceptr(self.start.0 + CONTENT as u64), WORDS_BYTES - CONTENT),
            _ => (self.start, block_bytes()),
        }
    }

    pub(super) fn write(&self, driver: &Driver, value: u32) -> Result<(), Failure> {
        let (start, bytes) = self.span();
        driver.write(start, bytes, value)
    }

    pub(super) fn check(&self, driver: &Driver, value: u32) -> Result<(), Failure> {
        let (start, bytes) = self.span();
        driver.check(start, bytes, value)
    }

    /// Maps the same memory once more, finds the content there, and ends that mapping.
    pub(super) fn again(&self, driver: &Driver, value: u32) -> Result<(), Failure> {
        let api = &driver.own.api;
        match self.thing {
            Thing::Allocation(_) => {
                let descriptor = self.descriptors.first().ok_or_else(|| "the descriptor is there".to_owned())?;
                let taken = allocation::import(api, descriptor.as_fd())?;
                let start = driver.map(taken)?;
                allocation::release(api, taken)?;
                driver.check(start, block_bytes(), value)?;
                driver.unmap(start)
            }
            Thing::Opened => {
                let handle = CUipcMemHandle { bytes: self.token };
                let start = ipc::open_memory(api, handle, ipc_flags::LAZY_ENABLE_PEER_ACCESS)?;
                if start != self.start {
                    return Err(format!("the block is at {start:?} and at {:?}", self.start).into());
                }
                Ok(ipc::close_memory(api, start)?)
            }
            Thing::Block | Thing::Pooled(_) | Thing::Event(_) => Ok(()),
        }?;
        self.check(driver, value)
    }

    /// Closes this side of the share.
    pub(super) fn close(&mut self, driver: &Driver) -> Result<(), Failure> {
        let api = &driver.own.api;
        match self.thing {
            Thing::Allocation(_) => {
                self.unmap(driver)?;
                self.release(driver)?;
            }
            Thing::Block => memory::free(api, self.start)?,
            Thing::Opened => ipc::close_memory(api, self.start)?,
            Thing::Pooled(pool) => {
                memory::free_async(api, self.start, driver.stream)?;
                stream::synchronize(api, driver.stream)?;
                pool::destroy(api, pool)?;
            }
            Thing::Event(shared) => {
                event::destroy(api, shared)?;
                // SAFETY: the streams of this process are done with the words, and they stay mapped.
                unsafe { host::unregister(api, self.words()) }?;
            }
        }
        self.drop_descriptors();
        Ok(())
    }

    pub(super) fn drop_descriptors(&mut self) {
        self.descriptors.clear();
    }

    pub(super) fn unmap(&self, driver: &Driver) -> Result<(), Failure> {
        driver.unmap(self.start)
    }

    pub(super) fn release(&self, driver: &Driver) -> Result<(), Failure> {
        let Thing::Allocation(allocation) = self.thing else {
            return Err("this is not an allocation".to_owned().into());
        };
        Ok(allocation::release(&driver.own.api, allocation)?)
    }

    fn event(&self) -> Result<CUevent, Failure> {
        let Thing::Event(event) = self.thing else { return Err("this is not an event".to_owned().into()) };
        Ok(event)
    }

    fn words(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.start.0 as usize)
    }

    fn word(&self, offset: usize) -> CUdeviceptr {
        CUdeviceptr(self.start.0 + offset as u64)
    }

    /// Records the event in a stream that waits until the gate's word is one.
    pub(super) fn record_behind_gate(&self, driver: &Driver) -> Result<(), Failure> {
        let flags = wait_value_flags::GEQ;
        stream::wait_value_64(&driver.own.api, driver.stream, self.word(GATE), 1, flags)?;
        Ok(event::record(&driver.own.api, self.event()?, driver.stream)?)
    }

    pub(super) fn record(&self, driver: &Driver) -> Result<(), Failure> {
        event::record(&driver.own.api, self.event()?, driver.stream)?;
        self.finish(driver)
    }

    /// Makes a stream wait for the event and then write a word.
    pub(super) fn follow(&self, driver: &Driver, value: u64) -> Result<(), Failure> {
        stream::wait_event(&driver.own.api, driver.stream, self.event()?, 0)?;
        Ok(stream::write_value_64(&driver.own.api, driver.stream, self.word(FOLLOWED), value, 0)?)
    }

    /// Makes a stream wait for the shared word.
    pub(super) fn wait_value(&self, driver: &Driver, value: u64) -> Result<(), Failure> {
        let flags = wait_value_flags::GEQ;
        Ok(stream::wait_value_64(&driver.own.api, driver.stream, self.word(SHARED), value, flags)?)
    }

    /// Makes a stream write the shared word.
    pub(super) fn write_value(&self, driver: &Driver, value: u64) -> Result<(), Failure> {
        Ok(stream::write_value_64(&driver.own.api, driver.stream, self.word(SHARED), value, 0)?)
    }

    pub(super) fn finish(&self, driver: &Driver) -> Result<(), Failure> {
        Ok(stream::synchronize(&driver.own.api, driver.stream)?)
    }
}

/// Memory of the host, zeroed, that processes can share.
pub(crate) fn shared_words() -> io::Result<OwnedFd> {
    let words = memfd_create("words", MemfdFlags::CLOEXEC)?;
    ftruncate(&words, WORDS_BYTES as u64)?;
    Ok(words)
}

/// A token as text.
pub(super) fn spell(token: &[u8; 64]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that a token spells.
pub(crate) fn parse(token: &str) -> Result<[u8; 64], String> {
    let byte = |at: usize| token.get(2 * at..2 * at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..64).map(byte).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| format!("'{token}' is not a token"))
}

/// Maps and registers words of host memory that processes share. They stay mapped.
fn register(driver: &Driver, words: &OwnedFd) -> Result<CUdeviceptr, Failure> {
    let start = super::map_words(words);
    // SAFETY: the pages are never unmapped, and nothing refers to them in this process but the device's work.
    unsafe { host::register(&driver.own.api, start, WORDS_BYTES, host_register_flags::PORTABLE) }?;
    Ok(CUdeviceptr(start.expose_provenance() as u64))
}
