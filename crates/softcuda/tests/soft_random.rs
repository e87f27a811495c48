//! Random calls of the software driver with good, dead, foreign and wild arguments: never a crash, never a hang, and
//! never a failure of the driver's own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use common::random::{Random, seed};
use common::sweep::{self, Handle, Pointee, Scratch, Source};
use common::{Context, child};
use freehold_driver::cuda::{
    Api, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUerror, CUevent, CUfunction,
    CUgraph, CUgraphExec, CUkernel, CUlaunchConfig, CUlibrary, CUlinkState, CUlogsCallbackHandle,
    CUmem_range_attribute, CUmemGenericAllocationHandle, CUmemPoolProps, CUmemoryPool, CUmodule, CUstream,
    CUstreamBatchMemOpParams, CUstreamCaptureMode, Function, allocation, capture, context, event, fill, graph, library,
    link, logs, memory, module, pool, stream,
};

/// How many of each kind are remembered; of contexts, and of events and what images hold, fewer, so that two things
/// often belong together.
const KNOWN_MAX: usize = 12;
const CONTEXTS_MAX: usize = 3;
const FEW_MAX: usize = 4;

/// Where in the scratch lists of pointers, and texts, lie.
const LIST: usize = 32 << 10;

/// The functions that make blocks of device memory.
const BLOCKS: [Function; 4] = [
    Function::cuMemAlloc_v2,
    Function::cuMemAllocPitch_v2,
    Function::cuMemAllocAsync,
    Function::cuMemAllocFromPoolAsync,
];

/// The functions that can make a stream wait for a word.
const WAITS: [Function; 3] =
    [Function::cuStreamWaitValue32_v2, Function::cuStreamWaitValue64_v2, Function::cuStreamBatchMemOp_v2];

/// The functions that take lists of a length that they are told.
const LISTS: [Function; 2] = [Function::cuPointerGetAttributes, Function::cuMemPoolSetAccess];

/// The functions of managed memory.
const MANAGED: [Function; 7] = [
    Function::cuStreamAttachMemAsync,
    Function::cuMemPrefetchAsync,
    Function::cuMemPrefetchAsync_v2,
    Function::cuMemAdvise,
    Function::cuMemAdvise_v2,
    Function::cuMemRangeGetAttribute,
    Function::cuMemRangeGetAttributes,
];

/// The functions that take an image.
const IMAGES: [Function; 5] = [
    Function::cuModuleLoadData,
    Function::cuModuleLoadDataEx,
    Function::cuModuleLoadFatBinary,
    Function::cuLibraryLoadData,
    Function::cuLinkAddData_v2,
];

/// The functions that take options of a load.
const OPTIONS: [Function; 5] = [
    Function::cuModuleLoadDataEx,
    Function::cuLibraryLoadData,
    Function::cuLinkCreate_v2,
    Function::cuLinkAddData_v2,
    Function::cuLinkAddFile_v2,
];

/// An image with a kernel that may be launched however it likes.
const TEXT: &CStr = c"
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 variable;
.visible .entry nothing() { ret; }
.visible .entry one(.param .u32 value) { ret; }
";

/// The functions that would need a file with an image in it, or what no image here has.
const FUTILE: [Function; 29] = [
    Function::cuOccupancyMaxPotentialClusterSize,
    Function::cuOccupancyMaxActiveClusters,
    Function::cuModuleLoad,
    Function::cuLibraryLoadFromFile,
    Function::cuLibraryGetManaged,
    Function::cuLibraryGetUnifiedFunction,
    Function::cuLinkAddFile_v2,
    Function::cuMemPoolExportToShareableHandle,
    Function::cuMemPoolImportFromShareableHandle,
    Function::cuMemPoolExportPointer,
    Function::cuMemPoolImportPointer,
    Function::cuMemAddressReserve,
    Function::cuMemAddressFree,
    Function::cuMemCreate,
    Function::cuMemRelease,
    Function::cuMemMap,
    Function::cuMemUnmap,
    Function::cuMemSetAccess,
    Function::cuMemGetAccess,
    Function::cuMemGetAllocationGranularity,
    Function::cuMemGetAllocationPropertiesFromHandle,
    Function::cuMemRetainAllocationHandle,
    Function::cuMemExportToShareableHandle,
    Function::cuMemImportFromShareableHandle,
    Function::cuIpcGetMemHandle,
    Function::cuIpcOpenMemHandle_v2,
    Function::cuIpcCloseMemHandle,
    Function::cuIpcGetEventHandle,
    Function::cuIpcOpenEventHandle,
];

/// What a run has made so far, for all its threads: alive, or dead by now.
#[derive(Default)]
struct Known {
    contexts: Vec<CUcontext>,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    pools: Vec<CUmemoryPool>,
    modules: Vec<CUmodule>,
    functions: Vec<CUfunction>,
    libraries: Vec<CUlibrary>,
    kernels: Vec<CUkernel>,
    links: Vec<CUlinkState>,
    listeners: Vec<CUlogsCallbackHandle>,
    allocations: Vec<CUmemGenericAllocationHandle>,
    graphs: Vec<CUgraph>,
    execs: Vec<CUgraphExec>,
    blocks: Vec<CUdeviceptr>,
    /// Pinned and managed memory. No copy is asked for there: where such memory is gone, the program may have something
    /// else at its address, and a copy to that is what the driver is asked for.
    pages: Vec<CUdeviceptr>,
    /// Functions that succeeded.
    useful: BTreeSet<Function>,
}

/// What the last call was to make.
#[derive(Clone, Copy, Debug)]
enum Made {
    Handle(Handle),
    Block,
    Pages,
}

/// Random arguments.
struct Wild<'k> {
    random: Random,
    api: Api,
    function: Function,
    known: &'k Mutex<Known>,
    /// What typed pointers point to. Only calls write it.
    scratch: Scratch,
    /// What pointers to bytes point to. It may be registered, and then streams write it at any time.
    board: Scratch,
    makes: Option<Made>,
    /// A word that is always zero, which streams may wait for.
    zero: CUdeviceptr,
    /// A context that is not destroyed.
    keep: CUcontext,
}

/// Notes one more, and gives back the one that is forgotten for it.
fn note<T: Copy + PartialEq>(list: &mut Vec<T>, one: T, most: usize, random: &mut Random) -> Option<T> {
    if list.contains(&one) {
        return None;
    }
    let forgotten = (list.len() == most).then(|| list.swap_remove(random.below(most as u64) as usize));
    list.push(one);
    forgotten
}

impl Wild<'_> {
    fn is_one_of(&self, functions: &[Function]) -> bool {
        functions.contains(&self.function)
    }

    fn is_wait(&self) -> bool {
        self.is_one_of(&WAITS)
    }

    /// Any word. Sizes are small or huge, so that no row of the host's lies near anything but the board.
    fn word(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.block(),
            1 => self.board.at(0) as u64,
            2 => u64::MAX,
            3 => 0,
            _ => self.random.pick(&[1, 2, 3, 4, 8, 16, 64, 100]),
        }
    }

    /// One of these words, or now and then any.
    fn mostly(&mut self, words: &[u64]) -> u64 {
        if self.random.below(40) == 0 { self.word() } else { self.random.pick(words) }
    }

    /// One end of a copy of a box from `first` on: x, y, in three dimensions z and level, type, host, device, array, in
    /// three dimensions a context, pitch, in three dimensions height.
    fn write_side(&mut self, first: usize, dimensions: usize) {
        let (block, board) = (self.block(), self.board.at(0) as u64);
        let context = self.handle(Handle::Context) as u64;
        let flat = [&[0, 0, 1][..], &[0, 1], &[1, 2, 2, 4], &[board], &[block, board], &[0], &[0, 100, 64]];
        let deep = [
            &[0, 0, 1][..],
            &[0, 1],
            &[0, 1],
            &[0],
            &[1, 2, 2, 4],
            &[board],
            &[block, board],
            &[0],
            &[context],
            &[0, 100],
            &[0, 4],
        ];
        let fields = if dimensions == 2 { &flat[..] } else { &deep[..] };
        for (index, choices) in fields.iter().enumerate() {
            let word = self.mostly(choices);
            self.scratch.write((first + index) * 8, word);
        }
    }

    fn write_copy(&mut self, dimensions: usize) {
        let fields = if dimensions == 2 { 7 } else { 11 };
        self.write_side(0, dimensions);
        self.write_side(fields, dimensions);
        for index in 0..dimensions {
            let word = self.mostly(&[1, 2, 3]);
            self.scratch.write((2 * fields + index) * 8, word);
        }
    }

    fn block(&mut self) -> u64 {
        let known = self.known.lock().unwrap();
        if known.blocks.is_empty() { 0 } else { self.random.pick(&known.blocks).0 }
    }

    fn pages(&mut self) -> u64 {
        let known = self.known.lock().unwrap();
        if known.pages.is_empty() { 0 } else { self.random.pick(&known.pages).0 }
    }

    fn fill_scratch(&mut self, to: Pointee) {
        if to.is::<CUDA_MEMCPY2D>() {
            return self.write_copy(2);
        }
        if to.is::<CUDA_MEMCPY3D>() || to.is::<CUDA_MEMCPY3D_PEER>() {
            return self.write_copy(3);
        }
        if to.is::<CUmemPoolProps>() {
            // A pinned allocation without a handle, on a device, of no size in particular.
            let words = [1, self.mostly(&[1, 1 | 1 << 32]), 0, self.mostly(&[0]), 0, 0, 0, 0, 0, 0, 0];
            return words.iter().enumerate().for_each(|(index, word)| self.scratch.write(index * 8, *word));
        }
        if to.is::<CUlaunchConfig>() {
            // A small grid in a stream, without attributes or with a list of them anywhere.
            let pair = 1 | 1 << 32;
            let stream = self.handle(Handle::Stream) as u64;
            let words =
                [pair, pair, self.random.pick(&[pair, 0]), 0, stream, self.word(), self.random.pick(&[0, 0, 1])];
            return words.iter().enumerate().for_each(|(index, word)| self.scratch.write(index * 8, *word));
        }
        if to.is::<CUmem_range_attribute>() {
            // Where a range was prefetched to, and the four bytes of the answer, which are read at the same place.
            return (0..32).for_each(|index| self.scratch.write(index * 8, 4));
        }
        if !to.is::<CUstreamBatchMemOpParams>() {
            for index in 0..32 {
                let word = self.word();
                self.scratch.write(index * 8, word);
            }
            return;
        }
        // Operations on a word that is always zero: the waits among them pass.
        for index in 0..256 {
            let wrong = self.random.below(40) == 0;
            let address = if wrong { self.random.pick(&[0, u64::MAX, self.zero.0 + 1]) } else { self.zero.0 };
            let operation = self.mostly(&[1, 2, 4, 5, 6]);
            let words = [operation, address, 0, 0, 0, 0];
            words.iter().enumerate().for_each(|(at, word)| self.scratch.write(index * 48 + at * 8, *word));
        }
    }

    /// Takes note of what the last call made, and releases what is forgotten for it.
    fn note(&mut self) {
        let made = self.scratch.read(0);
        let mut guard = self.known.lock().unwrap();
        let known = &mut *guard;
        known.useful.insert(self.function);
        let (random, most) = (&mut self.random, KNOWN_MAX);
        let (handle, keep) = (made as usize, self.keep);
        let api = &self.api;
        // What is forgotten may be dead by now: whether the driver takes it back does not matter here.
        let released = match self.makes {
            Some(Made::Handle(Handle::Context)) if handle == keep.0 => None,
            Some(Made::Handle(Handle::Context)) => note(&mut known.contexts, CUcontext(handle), CONTEXTS_MAX, random)
                .map(|context| context::destroy(api, context)),
            Some(Made::Handle(Handle::Stream)) => {
                note(&mut known.streams, CUstream(handle), most, random).map(|stream| stream::destroy(api, stream))
            }
            Some(Made::Handle(Handle::Event)) => {
                note(&mut known.events, CUevent(handle), FEW_MAX, random).map(|event| event::destroy(api, event))
            }
            Some(Made::Handle(Handle::Pool)) => {
                note(&mut known.pools, CUmemoryPool(handle), most, random).map(|pool| pool::destroy(api, pool))
            }
            Some(Made::Handle(Handle::Module)) => {
                note(&mut known.modules, CUmodule(handle), FEW_MAX, random).map(|module| module::unload(api, module))
            }
            Some(Made::Handle(Handle::Library)) => note(&mut known.libraries, CUlibrary(handle), FEW_MAX, random)
                .map(|library| library::unload(api, library)),
            Some(Made::Handle(Handle::Link)) => {
                note(&mut known.links, CUlinkState(handle), most, random).map(|link| link::destroy(api, link))
            }
            Some(Made::Handle(Handle::LogsCallback)) => {
                note(&mut known.listeners, CUlogsCallbackHandle(handle), most, random)
                    .map(|listener| logs::unregister(api, listener))
            }
            Some(Made::Handle(Handle::Allocation)) => {
                note(&mut known.allocations, CUmemGenericAllocationHandle(made), most, random)
                    .map(|one| allocation::release(api, one))
            }
            Some(Made::Handle(Handle::Graph)) => {
                note(&mut known.graphs, CUgraph(handle), FEW_MAX, random).map(|one| graph::destroy(api, one))
            }
            Some(Made::Handle(Handle::Exec)) => {
                note(&mut known.execs, CUgraphExec(handle), FEW_MAX, random).map(|one| graph::destroy_exec(api, one))
            }
            Some(Made::Handle(Handle::Function)) => {
                note(&mut known.functions, CUfunction(handle), FEW_MAX, random);
                None
            }
            Some(Made::Handle(Handle::Kernel)) => {
                note(&mut known.kernels, CUkernel(handle), FEW_MAX, random);
                None
            }
            Some(Made::Pages) => {
                let start = if self.function == Function::cuMemAllocManaged { made } else { self.scratch.read(LIST) };
                note(&mut known.pages, CUdeviceptr(start), most, random);
                None
            }
            Some(Made::Block) => {
                note(&mut known.blocks, CUdeviceptr(made), most, random).map(|block| memory::free(api, block))
            }
            None => None,
        };
        if let Some(Err(error)) = released {
            assert_ne!(error.code, CUerror::UNKNOWN, "{error}");
        }
    }
}

impl Source for Wild<'_> {
    fn number(&mut self, name: &'static str) -> u64 {
        match name {
            // The lists are as long as they are said to be.
            "count" if self.is_one_of(&LISTS) => self.random.below(16),
            "count" if self.function == Function::cuStreamBatchMemOp_v2 => self.random.pick(&[0, 1, 2, 4, 256, 257]),
            "count" if self.is_one_of(&OPTIONS) => self.random.pick(&[0, 0, 0, 1, 4, 65]),
            "grid_x" | "grid_y" | "grid_z" => self.random.pick(&[1, 1, 1, 1, 2, 5, 0, u64::MAX]),
            "block_x" | "block_y" | "block_z" => self.random.pick(&[1, 1, 1, 1, 2, 32, 0, 1025]),
            "library_count" => self.random.pick(&[0, 0, 0, 1, 3]),
            // Most captures bear the calls of other threads and can be ended there.
            "mode" => self.random.pick(&[2, 2, 2, 2, 2, 0, 1, 3]),
            "bytes" if self.is_one_of(&MANAGED) => self.random.pick(&[0, 1, 4, 4096, u64::MAX]),
            "data_bytes" => self.random.pick(&[4, 4, 4, 8, 0, 5, u64::MAX - 3]),
            "kind" => self.random.below(8),
            "value" if self.is_wait() => 0,
            "flags" if self.is_wait() => self.random.pick(&[0, 0, 1, 7, 1 << 30, u64::MAX]),
            "height" => self.random.pick(&[0, 1, 2, 5, 64, u64::MAX]),
            "flags" if self.function == Function::cuMemAllocManaged => self.random.pick(&[1, 1, 1, 2, 0, u64::MAX]),
            "flags" => self.random.pick(&[0, 0, 0, 1, 2, 3, 4, 8, 0x10, u64::MAX]),
            "attribute" => self.random.below(24),
            _ => self.random.pick(&[0, 1, 4, 16, 100, 512, 513, 4096, 65_536, 1 << 50, u64::MAX - 3, u64::MAX]),
        }
    }

    fn handle(&mut self, kind: Handle) -> usize {
        let known = self.known.lock().unwrap();
        let kinds = [
            Handle::Context,
            Handle::Stream,
            Handle::Event,
            Handle::Pool,
            Handle::Module,
            Handle::Function,
            Handle::Library,
            Handle::Kernel,
            Handle::Link,
            Handle::LogsCallback,
            Handle::Allocation,
            Handle::Graph,
            Handle::Exec,
        ];
        let kind = if self.random.below(20) == 0 { self.random.pick(&kinds) } else { kind };
        let list: Vec<usize> = match kind {
            Handle::Context => known.contexts.iter().map(|context| context.0).collect(),
            Handle::Stream => known.streams.iter().map(|stream| stream.0).collect(),
            Handle::Event => known.events.iter().map(|event| event.0).collect(),
            Handle::Pool => known.pools.iter().map(|pool| pool.0).collect(),
            Handle::Module => known.modules.iter().map(|module| module.0).collect(),
            // A kernel is as good as a function.
            Handle::Function if self.random.below(4) == 0 => known.kernels.iter().map(|kernel| kernel.0).collect(),
            Handle::Function => known.functions.iter().map(|function| function.0).collect(),
            Handle::Library => known.libraries.iter().map(|library| library.0).collect(),
            Handle::Kernel => known.kernels.iter().map(|kernel| kernel.0).collect(),
            Handle::Link => known.links.iter().map(|link| link.0).collect(),
            Handle::LogsCallback => known.listeners.iter().map(|listener| listener.0).collect(),
            Handle::Graph => known.graphs.iter().map(|graph| graph.0).collect(),
            Handle::Exec => known.execs.iter().map(|exec| exec.0).collect(),
            Handle::Allocation => known.allocations.iter().map(|allocation| allocation.0 as usize).collect(),
        };
        match self.random.below(16) {
            0 => self.random.pick(&[3, 0xdead_beef, usize::MAX]),
            1 => self.random.pick(&[0, 1, 2]),
            _ if list.is_empty() => 0,
            _ => self.random.pick(&list),
        }
    }

    fn address(&mut self) -> u64 {
        if self.is_wait() {
            return self.random.pick(&[self.zero.0, self.zero.0, self.zero.0 + 1, 0, u64::MAX, u64::MAX - 7]);
        }
        if self.is_one_of(&MANAGED) && self.random.below(4) > 0 {
            return self.pages();
        }
        let block = self.block();
        let is_copy = self.function.name().starts_with("cuMemcpy");
        match self.random.below(12) {
            3..6 if !is_copy => self.pages(),
            0 => self.random.pick(&[0, 1, 4096, u64::MAX, u64::MAX - 4095]),
            1 => block.wrapping_add(self.random.pick(&[1, 2, 4, 256, 512, 4096])),
            2 => self.board.at(0) as u64,
            _ => block,
        }
    }

    fn device(&mut self) -> i32 {
        self.random.pick(&[0, 0, 0, 0, 1, -1, i32::MAX])
    }

    fn pointer(&mut self, to: Pointee) -> *mut c_void {
        if self.random.below(16) == 0 {
            return std::ptr::null_mut();
        }
        if to.is::<c_void>() && self.function == Function::cuMemFreeHost {
            return self.pages() as *mut c_void;
        }
        if to.is::<c_void>() && self.is_one_of(&IMAGES) && self.random.below(4) > 0 {
            return TEXT.as_ptr().cast_mut().cast();
        }
        if to.is::<c_void>() {
            return self.board.at(self.random.pick(&[0, 0, 1, 64, 4096]));
        }
        if to.is::<*mut c_void>() && self.function.name().starts_with("cuLaunch") && self.random.below(2) == 0 {
            return std::ptr::null_mut();
        }
        if to.is::<*mut c_void>() {
            if self.is_one_of(&[Function::cuMemAllocHost_v2, Function::cuMemHostAlloc]) {
                self.makes = Some(Made::Pages);
            }
            (0..16).for_each(|index| self.scratch.write(LIST + index * 8, self.board.at(64) as u64));
            return self.scratch.at(LIST);
        }
        if to.is::<c_char>() {
            let mut texts = vec![*b"cuInit\0\0\0\0\0\0\0\0\0\0", *b"0000:01:00.0\0\0\0\0"];
            match self.function {
                Function::cuLogsDumpToFile => texts = vec![*b"/dev/null\0\0\0\0\0\0\0"],
                _ => texts.extend([
                    *b"nothing\0\0\0\0\0\0\0\0\0",
                    *b"variable\0\0\0\0\0\0\0\0",
                    *b"one\0\0\0\0\0\0\0\0\0\0\0\0\0",
                ]),
            }
            let text = self.random.pick(&texts);
            self.scratch.write(LIST, u64::from_le_bytes(text[..8].try_into().unwrap()));
            self.scratch.write(LIST + 8, u64::from_le_bytes(text[8..].try_into().unwrap()));
            return self.scratch.at(LIST);
        }
        if to.align > 1 && self.random.below(16) == 0 {
            return self.scratch.at(1);
        }
        self.makes = match () {
            () if to.is::<CUcontext>() => Some(Made::Handle(Handle::Context)),
            () if to.is::<CUstream>() => Some(Made::Handle(Handle::Stream)),
            () if to.is::<CUevent>() => Some(Made::Handle(Handle::Event)),
            () if to.is::<CUmemoryPool>() => Some(Made::Handle(Handle::Pool)),
            () if to.is::<CUmodule>() => Some(Made::Handle(Handle::Module)),
            () if to.is::<CUfunction>() => Some(Made::Handle(Handle::Function)),
            () if to.is::<CUlibrary>() => Some(Made::Handle(Handle::Library)),
            () if to.is::<CUkernel>() => Some(Made::Handle(Handle::Kernel)),
            () if to.is::<CUlinkState>() => Some(Made::Handle(Handle::Link)),
            () if to.is::<CUgraph>() => Some(Made::Handle(Handle::Graph)),
            () if to.is::<CUgraphExec>() => Some(Made::Handle(Handle::Exec)),
            () if to.is::<CUlogsCallbackHandle>() => Some(Made::Handle(Handle::LogsCallback)),
            () if self.function == Function::cuMemAllocManaged => Some(Made::Pages),
            () if to.is::<CUdeviceptr>() && self.is_one_of(&BLOCKS) => Some(Made::Block),
            () => self.makes,
        };
        self.fill_scratch(to);
        self.scratch.at(0)
    }

    fn function(&mut self) -> bool {
        self.random.below(4) > 0
    }
}

/// Whether some thread of this process has panicked.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// From now on panics are noted.
fn note_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        before(info);
    }));
}

/// Makes so many random calls. None may fail for a reason of the driver's own.
fn call_wildly(own: &Context, known: &Mutex<Known>, zero: CUdeviceptr, random: Random, calls: usize) {
    let (scratch, board) = (Scratch::new(), Scratch::new());
    let api = own.api;
    let mut wild =
        Wild { random, api, function: Function::cuInit, known, scratch, board, makes: None, zero, keep: own.handle };
    for number in 0..calls {
        if number % 16 == 0 && memory::info(&api).is_err() {
            // The current context was popped or destroyed.
            context::create(&api, own.device, 0).unwrap();
        }
        if number % 16 == 8 {
            // A stream takes little else while it is captured. Most are not: whether the driver ends it does not matter.
            let stream = CUstream(wild.handle(Handle::Stream));
            if let Err(error) = capture::end(&api, stream) {
                assert_ne!(error.code, CUerror::UNKNOWN, "{error}");
            }
        }
        wild.function = wild.random.pick(Function::ALL);
        wild.makes = None;
        let answer = sweep::call(&api, wild.function, &mut wild);
        // A panic of the driver's becomes a code, which some images have by right: the panic itself is looked for.
        assert!(!PANICKED.load(Ordering::SeqCst), "call {number}, of {}: {answer:?}", wild.function);
        if answer.is_ok() {
            wild.note();
        }
    }
}

/// Random calls of several threads, in a process of its own under a schedule.
fn run_wildly(name: &str, schedule: &str, threads: usize, calls: usize) {
    if !child::is_child(name) {
        let seed = seed().to_string();
        let outcome = child::start(
            name,
            &[("FREEHOLD_SOFT_SCHEDULE", schedule), ("FREEHOLD_SOFT_DEVICES", "2"), ("FREEHOLD_TEST_SEED", &seed)],
        );
        assert!(
            outcome.status.success(),
            "{:?} with seed {seed} under {schedule}:\n{}",
            outcome.status,
            outcome.output
        );
        return;
    }
    note_panics();
    let seed = seed();
    let own = Context::create();
    let zero = common::address(&own.words()[0]);
    let (known, all_here) = (Mutex::new(Known::default()), Barrier::new(threads));
    thread::scope(|scope| {
        for thread in 0..threads {
            let (own, known, all_here) = (&own, &known, &all_here);
            scope.spawn(move || {
                own.enter();
                all_here.wait();
                call_wildly(own, known, zero, Random(seed ^ thread as u64), calls);
            });
        }
    });
    let useful = known.into_inner().unwrap().useful;
    let never: Vec<_> = Function::ALL.iter().filter(|function| !useful.contains(function)).collect();
    let never: Vec<_> = never.into_iter().filter(|function| !FUTILE.contains(function)).collect();
    assert!(threads * calls < 500_000 || never.len() <= 2, "calls that never succeed prove little: {never:?}");
    // Whatever was done, a new context works, if it does not heed the captures that were not ended.
    capture::exchange_mode(&own.api, CUstreamCaptureMode::RELAXED).unwrap();
    let fresh = Context::create();
    let block = fresh.block(4096);
    fill::d8(&fresh.api, block, 5, 4096).unwrap();
    assert_eq!(fresh.byte(block, 4096), 5);
    // A call may have destroyed it.
    std::mem::forget(own);
}

#[test]
fn random_calls_of_one_thread_neither_crash_nor_hang() {
    run_wildly("random_calls_of_one_thread_neither_crash_nor_hang", "threads", 1, 800_000);
}

#[test]
fn random_calls_of_four_threads_neither_crash_nor_hang() {
    run_wildly("random_calls_of_four_threads_neither_crash_nor_hang", "threads", 4, 500_000);
}

#[test]
fn random_calls_under_a_seed_neither_crash_nor_hang() {
    run_wildly("random_calls_under_a_seed_neither_crash_nor_hang", "seed:11", 1, 50_000);
}

#[test]
fn random_calls_of_two_threads_run_eagerly_neither_crash_nor_hang() {
    run_wildly("random_calls_of_two_threads_run_eagerly_neither_crash_nor_hang", "eager", 2, 50_000);
}
