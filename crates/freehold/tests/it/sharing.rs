//! Shareable blocks: an export contains the block and nothing private, and both kinds of blocks share one budget.
//!
//! `FREEHOLD_SEED` names the only seed to run of the random operations.

use crate::children::alone;
use crate::own;

use std::env;
use std::fs::File;
use std::io::stdin;
use std::os::fd::AsFd;
use std::process::{self, Stdio};
use std::sync::OnceLock;

use freehold::{Block, CloseError, Device, DeviceVec, Error, Permission, PoolStats, Stream};
use freehold_driver::cuda::{
    Api, CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUresult, address, allocation, context, copy, mapping, primary,
};
use freehold_testing::{Random, command_for_test, print_seed, report_covered, seeds};
use own::{Own, opened};

const MIB: usize = 1 << 20;
const PAGE_BYTES: u64 = 2 << 20;

/// Is set in the process that imports a block: the chunk's bytes, the block's offset and its bytes.
const IMPORTER: &str = "FREEHOLD_SHARING_IMPORTER";

const STEPS: u64 = 300;

/// Adds one to each byte of a block of another process, whose descriptor is the standard input, and says the first byte.
fn import(chunk_bytes: u64, offset_bytes: u64, bytes: u64) {
    let opened = opened();
    let api = &opened.api;
    context::push_current(api, primary::retain(api, opened.device).unwrap()).unwrap();
    let handle = allocation::import(api, stdin().as_fd()).unwrap();
    let base = address::reserve(api, chunk_bytes as usize, PAGE_BYTES as usize, CUdeviceptr::NULL).unwrap();
    mapping::map(api, base, chunk_bytes as usize, 0, handle).unwrap();
    let location = CUmemAllocationProp::on_device(opened.device, CUmemAllocationHandleType::NONE).location;
    let access = [CUmemAccessDesc { location, flags: CUmemAccess_flags::PROT_READWRITE }];
    mapping::set_access(api, base, chunk_bytes as usize, &access).unwrap();
    let mut values = vec![0_u8; bytes as usize];
    let at = CUdeviceptr(base.0 + offset_bytes);
    copy::device_to_host(api, &mut values, at).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "all bytes are those of the block");
    println!("\n|{}", values[0]);
    values.iter_mut().for_each(|value| *value += 1);
    copy::host_to_device(api, at, &values).unwrap();
    // A short copy may be on its way when the call returns, and goes with the process.
    context::synchronize(api).unwrap();
}

/// What another process finds in a block, to whose bytes it adds one.
fn found_by_importer(name: &str, block: &Block<u8>) -> u8 {
    let exported = block.export().unwrap();
    let mut command = command_for_test(name);
    let numbers = format!("{} {} {}", exported.chunk_bytes, exported.offset_bytes, exported.bytes);
    let output = command.env(IMPORTER, numbers).stdin(Stdio::from(exported.descriptor)).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = printed.lines().find_map(|line| line.strip_prefix('|'));
    let is_done = output.status.success();
    assert!(is_done, "{}\n{printed}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said.expect("the importer says what it found").parse().unwrap()
}

#[test]
fn another_process_sees_the_bytes_of_a_block_that_is_exported_and_writes_them() {
    alone("another_process_sees_the_bytes_of_a_block_that_is_exported_and_writes_them", || {
        if let Ok(numbers) = env::var(IMPORTER) {
            let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
            return import(numbers[0], numbers[1], numbers[2]);
        }
        let own = Own::new();
        let [stream] = own.streams();
        // Two in slabs of one chunk, one of several pages that is not whole, and one in the rest of it.
        let lengths = [1000, 3000, 5 * MIB, 300_000];
        let mut blocks: Vec<_> = lengths.map(|bytes| stream.alloc_shareable::<u8>(bytes).unwrap()).into();
        for (block, value) in blocks.iter_mut().zip(10..) {
            stream.fill_bytes(block, value).unwrap();
        }
        stream.synchronize().unwrap();
        let name = "another_process_sees_the_bytes_of_a_block_that_is_exported_and_writes_them";
        assert_eq!(found_by_importer(name, &blocks[1]), 11);
        assert_eq!(found_by_importer(name, &blocks[2]), 12);
        for (block, value) in blocks.iter().zip([10, 12, 13, 13]) {
            assert!(stream.download(block).unwrap().iter().all(|found| *found == value));
        }
    });
}

#[test]
fn a_block_that_is_exported_is_a_part_of_what_is_imported_at_its_offset() {
    own_machine();
    let own = Own::new();
    let [stream] = own.streams();
    // Two blocks of one slab, of which only the second begins where it is imported.
    let _first = stream.alloc_shareable::<u8>(1000).unwrap();
    let mut block = stream.alloc_shareable::<u8>(1000).unwrap();
    stream.fill_bytes(&mut block, 7).unwrap();
    stream.synchronize().unwrap();
    let exported = block.export().unwrap();
    let import = own.device.import(exported.descriptor.as_fd(), exported.chunk_bytes, Permission::ReadWrite).unwrap();
    let mut part = import.slice::<u8>(&stream, exported.offset_bytes, exported.bytes as usize).unwrap();
    assert_eq!(stream.download(&part).unwrap(), [7; 1000]);
    stream.fill_bytes(&mut part, 8).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(stream.download(&block).unwrap(), [8; 1000]);
}

/// Both processes of a test are on one machine, which is nobody else's.
fn own_machine() {
    static MOVED: OnceLock<()> = OnceLock::new();
    MOVED.get_or_init(|| {
        if env::var_os("FREEHOLD_SOFT_MACHINE").is_none() {
            // SAFETY: nothing in this process reads its environment but the standard library, which guards it by a lock.
            unsafe { env::set_var("FREEHOLD_SOFT_MACHINE", format!("sharing-{}", process::id())) };
        }
    });
}

#[test]
fn a_block_of_this_process_alone_is_not_exported_and_the_error_says_what_to_do() {
    own_machine();
    let own = Own::new();
    let [stream] = own.streams();
    let block = stream.alloc::<u8>(100).unwrap();
    let refused = block.export().unwrap_err();
    assert!(matches!(refused, Error::NotShareable { address } if address == block.address()));
    assert!(refused.to_string().contains("alloc_shareable"), "{refused}");
}

/// The driver's own answers, for the table below.
static PLAIN: OnceLock<Api> = OnceLock::new();

unsafe extern "C" fn shares_nothing(value: *mut i32, attribute: CUdevice_attribute, device: CUdevice) -> CUresult {
    if attribute == CUdevice_attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED {
        // SAFETY: the caller gives a pointer to one `i32`, which outlives the call.
        unsafe { value.write(0) };
        return Ok(());
    }
    // SAFETY: the arguments are handed on as they came.
    unsafe { (PLAIN.get().unwrap().cuDeviceGetAttribute)(value, attribute, device) }
}

#[test]
fn a_device_that_cannot_share_refuses_the_request_and_serves_others() {
    own_machine();
    let opened = opened();
    PLAIN.get_or_init(|| opened.api);
    let own = Own::over(Api { cuDeviceGetAttribute: shares_nothing, ..opened.api }, &opened);
    let [stream] = own.streams();
    assert!(matches!(stream.alloc_shareable::<u8>(100), Err(Error::CannotShare)));
    assert_eq!(stream.zeros::<u8>(100).unwrap().len(), 100);
}

#[test]
fn a_device_that_cannot_share_imports_nothing() {
    own_machine();
    let opened = opened();
    PLAIN.get_or_init(|| opened.api);
    let own = Own::over(Api { cuDeviceGetAttribute: shares_nothing, ..opened.api }, &opened);
    let descriptor = File::open("/dev/null").unwrap();
    let imported = own.device.import(descriptor.as_fd(), PAGE_BYTES, Permission::Read);
    assert!(matches!(imported, Err(Error::CannotShare)), "{imported:?}");
}

#[test]
fn a_shareable_block_that_moves_for_its_length_can_still_be_exported() {
    own_machine();
    let own = Own::new();
    let [stream] = own.streams();
    let mut block = stream.alloc_shareable::<u8>(MIB).unwrap();
    let _behind = stream.alloc_shareable::<u8>(MIB).unwrap();
    stream.fill_bytes(&mut block, 7).unwrap();
    assert!(!block.resize(&stream, 3 * MIB).unwrap());
    assert_eq!(block.export().unwrap().bytes, 3 * MIB as u64);
    assert_eq!(stream.download(&block.view(..MIB).unwrap()).unwrap(), vec![7; MIB]);
}

#[test]
fn each_kind_of_memory_makes_room_for_the_other_within_one_budget() {
    own_machine();
    let own = Own::new();
    let [stream] = own.streams();
    own.device.trim().unwrap();
    own.device.set_budget(own.device.stats().reserved_bytes + 8 * MIB as u64);
    let shareable = stream.alloc_shareable::<u8>(8 * MIB).unwrap();
    let refused = stream.alloc::<u8>(4 * MIB).unwrap_err();
    let Error::OutOfMemory(shortage) = refused else { panic!("{refused}") };
    assert!(shortage.stats.owned_bytes >= 8 * MIB as u64);
    assert!(matches!(stream.alloc_shareable::<u8>(100), Err(Error::OutOfMemory(_))));
    drop(shareable);
    let private = stream.alloc::<u8>(8 * MIB).unwrap();
    assert!(matches!(stream.alloc_shareable::<u8>(100), Err(Error::OutOfMemory(_))));
    drop(private);
    // A block that needs more than either of two chunks cannot use them: they are released to make space for a longer one.
    let halves = [4, 4].map(|pages| stream.alloc_shareable::<u8>(pages * MIB).unwrap());
    drop(halves);
    let whole = stream.alloc_shareable::<u8>(8 * MIB).unwrap();
    assert_eq!(whole.export().unwrap().chunk_bytes, 8 * MIB as u64);
    drop(whole);
    let mut vector = DeviceVec::<u8>::new(&stream).unwrap();
    vector.reserve(&stream, 8 * MIB).unwrap();
}

#[test]
fn a_context_takes_its_shareable_blocks_along_and_their_memory_comes_back() {
    own_machine();
    let own = Own::new();
    let context = own.device.new_context().unwrap();
    let stream = context.new_stream().unwrap();
    let before = own.device.stats().reserved_bytes;
    let block = stream.alloc_shareable::<u8>(3 * MIB).unwrap();
    let small = stream.alloc_shareable::<u8>(100).unwrap();
    let closed = context.close();
    let Err(CloseError { value: context, error: Error::ContextInUse { blocks, .. } }) = closed else {
        panic!("{closed:?}")
    };
    assert_eq!(blocks.len(), 2);
    context.close_with_blocks().unwrap();
    assert!(matches!(block.export(), Err(Error::ContextClosed { .. })));
    drop((block, small, stream));
    own.device.synchronize().unwrap();
    own.device.trim().unwrap();
    assert!(own.device.stats().reserved_bytes <= before);
}

/// Random operations, and what must hold after each.
struct Run<'a> {
    device: &'a Device,
    streams: [Stream; 3],
    private: Vec<Block<u8>>,
    shareable: Vec<Block<u8>>,
    vector: DeviceVec<u8>,
    random: Random,
}

impl Run<'_> {
    fn below(&mut self, end: u64) -> usize {
        self.random.below(end) as usize
    }

    fn bytes(&mut self) -> usize {
        match self.below(4) {
            0 | 1 => 1 + self.below(8 << 10),
            2 => 1 + self.below(MIB as u64),
            _ => 1 + self.below(5 * MIB as u64),
        }
    }

    fn step(&mut self) {
        let (choice, bytes, stream) = (self.below(100), self.bytes(), self.below(3));
        let stream = &self.streams[stream];
        let had = |outcome: Result<Block<u8>, Error>| match outcome {
            Ok(block) => Some(block),
            Err(Error::OutOfMemory(_)) => None,
            Err(error) => panic!("{error}"),
        };
        match choice {
            0..25 => self.private.extend(had(stream.alloc(bytes))),
            25..50 => self.shareable.extend(had(stream.alloc_shareable(bytes))),
            50..68 if !self.private.is_empty() => {
                let index = self.below(self.private.len() as u64);
                drop(self.private.swap_remove(index));
            }
            68..86 if !self.shareable.is_empty() => {
                let index = self.below(self.shareable.len() as u64);
                drop(self.shareable.swap_remove(index));
            }
            86..92 if !self.shareable.is_empty() => {
                let index = self.shareable.len() / 2;
                drop(self.shareable[index].resize(stream, bytes));
            }
            92..94 => drop(self.device.trim_to(bytes as u64).unwrap()),
            94..96 => self.device.synchronize().unwrap(),
            96..98 => drop(self.vector.reserve(stream, bytes)),
            98 => self.vector.shrink_to_fit().unwrap(),
            _ => {}
        }
    }

    fn check(&self) {
        // SAFETY: the driver is asked about addresses alone.
        let api = unsafe { self.device.api() }.unwrap();
        let live = |blocks: &[Block<u8>]| blocks.iter().map(|block| block.len() as u64).sum::<u64>();
        let vector_bytes = self.device.stats().owned_bytes - live(&self.private) - live(&self.shareable);
        assert!(vector_bytes.is_multiple_of(PAGE_BYTES), "{vector_bytes} bytes are live of nobody's");
        let mut chunks = Vec::new();
        for block in &self.shareable {
            let exported = block.export().unwrap();
            assert!(exported.offset_bytes + exported.bytes <= exported.chunk_bytes, "a block lies in one chunk");
            let base = block.address() - exported.offset_bytes;
            chunks.push(base..base + exported.chunk_bytes);
        }
        for block in &self.private {
            let (first, last) = (block.address(), block.address() + block.len() as u64 - 1);
            assert!(
                !chunks.iter().any(|chunk| chunk.start <= last && first < chunk.end),
                "a private block is exported"
            );
            for at in [first, last] {
                let handle = allocation::retain(api, CUdeviceptr(at)).unwrap();
                let kinds = allocation::properties(api, handle).unwrap().requestedHandleTypes;
                allocation::release(api, handle).unwrap();
                assert_eq!(kinds, CUmemAllocationHandleType::NONE);
            }
        }
    }
}

#[test]
fn no_chunk_that_is_exported_holds_a_private_block_whatever_comes_and_goes() {
    own_machine();
    let seeds = seeds(2, 20, 400);
    report_covered(seeds.clone().count() as u64, "seeds of shared memory");
    for seed in seeds {
        print_seed(seed);
        let own = Own::new();
        own.device.set_budget(40 * MIB as u64);
        let streams = own.streams();
        let vector = DeviceVec::new(&streams[0]).unwrap();
        let (private, shareable) = (Vec::new(), Vec::new());
        let mut run = Run { device: &own.device, streams, private, shareable, vector, random: Random::new(seed) };
        for _ in 0..STEPS {
            run.step();
            run.check();
        }
        drop(run);
        own.device.synchronize().unwrap();
        own.device.trim().unwrap();
        assert_eq!(own.device.stats(), PoolStats::default());
    }
}
