//! The cost of mapping memory and of sharing it with another process.
//!
//! The binary starts itself again as an exporting process, which sends a descriptor of memory without an address and
//! the IPC handle of a block. The two processes use their own machine name.

mod bench;

use std::env;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, Stdio};
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use freehold_driver::cuda::{
    Api, CUdevice, CUdeviceptr, CUipcMemHandle, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, address, allocation, ipc,
    ipc_flags, mapping, memory,
};

use bench::Bench;

// SAFETY: the benchmark names streams, memory and handles that it made.
const API: Api = unsafe { freehold_softcuda::api() };

#[path = "../tests/peer/socket.rs"]
mod socket;

/// Names the machine of both processes.
const MACHINE: &str = "FREEHOLD_SOFT_MACHINE";

/// Set in the exporting process.
const EXPORTER: &str = "FREEHOLD_BENCH_EXPORTER";

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

fn main() {
    if env::var_os(EXPORTER).is_some() {
        return export_all();
    }
    let own = format!("bench-{}", process::id());
    if env::var(MACHINE).is_ok_and(|machine| machine == own) {
        divan::main();
        return remove(&own);
    }
    let binary = env::current_exe().expect("a benchmark knows its path");
    let error = Command::new(binary).args(env::args_os().skip(1)).env(MACHINE, own).exec();
    panic!("the benchmark starts again on a machine of its own: {error}");
}

/// Removes the driver's files of a machine.
fn remove(machine: &str) {
    let folder = format!("/dev/shm/freehold-{}", rustix::process::geteuid().as_raw());
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.to_string_lossy().contains(machine) {
            // A process that has just started may have removed it before.
            let removed = fs::remove_file(&path);
            assert!(removed.is_ok() || !path.exists(), "{}: {removed:?}", path.display());
        }
    }
}

fn create(bytes: usize) -> CUmemGenericAllocationHandle {
    let prop = CUmemAllocationProp::on_device(CUdevice(0), CUmemAllocationHandleType::POSIX_FILE_DESCRIPTOR);
    allocation::create(&API, bytes, &prop).expect("the device has memory")
}

fn reserve(bytes: usize) -> CUdeviceptr {
    address::reserve(&API, bytes, 0, CUdeviceptr::NULL).expect("there are addresses")
}

fn map(start: CUdeviceptr, bytes: usize, handle: CUmemGenericAllocationHandle) {
    mapping::map(&API, start, bytes, 0, handle).expect("the addresses are free");
    let location = CUmemLocation { kind: CUmemLocationType::DEVICE, id: 0 };
    let access = CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE };
    mapping::set_access(&API, start, bytes, &[access]).expect("the memory is mapped");
}

fn unmap(start: CUdeviceptr, bytes: usize) {
    mapping::unmap(&API, start, bytes).expect("the memory is mapped");
}

fn release(handle: CUmemGenericAllocationHandle) {
    allocation::release(&API, handle).expect("the handle is alive");
}

fn import(descriptor: &OwnedFd) -> CUmemGenericAllocationHandle {
    allocation::import(&API, descriptor.as_fd()).expect("the descriptor is of memory")
}

/// Runs the exporting process: sends its memory, and exits when its socket is closed.
fn export_all() {
    let _bench = Bench::new();
    let socket = std::io::stdin();
    let request = socket::receive(socket.as_fd()).expect("the socket works").expect("the socket asks for a size");
    let bytes = request.text.parse().expect("a size is a number");
    let descriptor = allocation::export(&API, create(bytes)).expect("the memory can be exported");
    let block = memory::alloc(&API, bytes).expect("the device has memory");
    let token = ipc::memory_handle(&API, block).expect("a block has a handle");
    let token: String = token.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    socket::send(socket.as_fd(), &token, &[descriptor.as_fd()]).expect("the socket works");
    drop(descriptor);
    while socket::receive(socket.as_fd()).is_ok_and(|message| message.is_some()) {}
}

/// The exporting process, which exits when this is dropped.
struct Exporter {
    socket: Option<OwnedFd>,
    process: Child,
    descriptor: OwnedFd,
    handle: CUipcMemHandle,
}

impl Exporter {
    fn start(bytes: usize) -> Self {
        let (socket, theirs) = socket::pair();
        socket::limit(&socket, Duration::from_secs(60));
        let binary = env::current_exe().expect("a benchmark knows its path");
        let process = Command::new(binary).env(EXPORTER, "1").stdin(Stdio::from(theirs)).spawn();
        let process = process.expect("the benchmark starts again");
        socket::send(&socket, &bytes.to_string(), &[]).expect("the socket works");
        let mut message = socket::receive(&socket).expect("the socket works").expect("the exporter answers");
        let mut handle = CUipcMemHandle::default();
        for (index, byte) in handle.bytes.iter_mut().enumerate() {
            let text = &message.text[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(text, 16).expect("the exporter sends bytes");
        }
        let descriptor = message.descriptors.pop().expect("the exporter sends a descriptor");
        Self { socket: Some(socket), process, descriptor, handle }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.socket = None;
        self.process.wait().expect("the exporter ends with its socket");
    }
}

/// The steps by which shared memory enters and leaves a process.
#[divan::bench(args = [2 * MIB, GIB])]
fn import_map_access_unmap_release(bencher: Bencher, bytes: usize) {
    let exporter = Exporter::start(bytes);
    let _bench = Bench::new();
    let start = reserve(bytes);
    bencher.bench_local(|| {
        let handle = import(&exporter.descriptor);
        map(start, bytes, handle);
        unmap(start, bytes);
        release(handle);
    });
}

#[divan::bench(args = [2 * MIB, GIB])]
fn import_release(bencher: Bencher, bytes: usize) {
    let exporter = Exporter::start(bytes);
    let _bench = Bench::new();
    bencher.bench_local(|| release(import(&exporter.descriptor)));
}

/// Ten thousand imports in one process, all alive and mapped at once. An item is one import.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn live_imports(bencher: Bencher) {
    const COUNT: usize = 10_000;
    const BYTES: usize = 2 * MIB;
    let exporter = Exporter::start(BYTES);
    let _bench = Bench::new();
    let start = reserve(COUNT * BYTES);
    let at = |index: usize| CUdeviceptr(start.0 + (index * BYTES) as u64);
    bencher.counter(ItemsCount::new(COUNT)).bench_local(|| {
        for index in 0..COUNT {
            let handle = allocation::import(&API, exporter.descriptor.as_fd())
                .unwrap_or_else(|error| panic!("{index} imports live: {error}"));
            map(at(index), BYTES, handle);
            release(handle);
        }
        unmap(start, COUNT * BYTES);
    });
}

#[divan::bench(args = [2 * MIB, GIB])]
fn export_and_close(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    let handle = create(bytes);
    bencher.bench_local(|| drop(allocation::export(&API, handle).expect("the memory can be exported")));
    release(handle);
}

#[divan::bench]
fn ipc_handle(bencher: Bencher) {
    let _bench = Bench::new();
    let block = memory::alloc(&API, GIB).expect("the device has memory");
    bencher.bench_local(|| ipc::memory_handle(&API, block));
}

#[divan::bench(args = [2 * MIB, GIB])]
fn ipc_open_close(bencher: Bencher, bytes: usize) {
    let exporter = Exporter::start(bytes);
    let _bench = Bench::new();
    bencher.bench_local(|| {
        let start = ipc::open_memory(&API, exporter.handle, ipc_flags::LAZY_ENABLE_PEER_ACCESS);
        ipc::close_memory(&API, start.expect("the exporter is alive"))
    });
}

#[divan::bench(args = [2 * MIB, 32 * MIB, GIB])]
fn create_release(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    bencher.bench_local(|| release(create(bytes)));
}

#[divan::bench(args = [2 * MIB, 32 * MIB, GIB])]
fn map_access_unmap(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    let (handle, start) = (create(bytes), reserve(bytes));
    bencher.bench_local(|| {
        map(start, bytes, handle);
        unmap(start, bytes);
    });
    release(handle);
}

/// A range that grows to 1 GiB by preallocated chunks. An item is one chunk.
#[divan::bench(args = [2 * MIB, 32 * MIB], sample_size = 1)]
fn growth(bencher: Bencher, bytes: usize) {
    let _bench = Bench::new();
    let start = reserve(GIB);
    let chunks: Vec<_> = (0..GIB / bytes).map(|_| create(bytes)).collect();
    let at = |index: usize| CUdeviceptr(start.0 + (index * bytes) as u64);
    let grow = || chunks.iter().enumerate().for_each(|(index, chunk)| map(at(index), bytes, *chunk));
    grow();
    bencher.counter(ItemsCount::new(chunks.len())).with_inputs(|| unmap(start, GIB)).bench_local_values(|()| grow());
    unmap(start, GIB);
    chunks.iter().for_each(|chunk| release(*chunk));
}
