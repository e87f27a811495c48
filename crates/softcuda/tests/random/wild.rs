//! Random arguments: valid, dead, of another process, or arbitrary.

use std::ffi::{c_char, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use freehold_driver::cuda::{
    Api, CUarray, CUcontext, CUdevice, CUdeviceptr, CUerror, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUkernel, CUlibrary, CUlinkState, CUlogsCallbackHandle, CUmemGenericAllocationHandle, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUstream, CUsurfObject, CUtexObject, CUuserObject, Function, context, pointer,
};

use super::known::{Known, Made, Range, Shared};
use super::lists::{EXPORTS, IMAGES, IMPORTS, LISTS, LOOKS, MANAGED, OPTIONS, PAGED, TEXT, WAITS, made_by};
use super::partner::Partner;
use crate::common::api_calls::{Handle, Pointee, Scratch, Source};
use freehold_testing::Random;

/// Offsets of lists of pointers and of texts in the scratch memory.
pub(crate) const LIST: usize = 32 << 10;

/// The granularity of virtual memory.
const PAGE: u64 = 2 << 20;

/// The argument source of one thread.
#[derive(Debug)]
pub(crate) struct Wild<'k> {
    pub(crate) random: Random,
    pub(crate) api: Api,
    function: Function,
    pub(crate) known: &'k Mutex<Known>,
    pub(crate) partner: &'k Partner,
    /// The memory that typed pointers point to. Only calls write it.
    pub(crate) scratch: Scratch,
    /// The memory that pointers to bytes point to. It may be registered, and then streams write it at any time.
    pub(crate) board: Scratch,
    makes: Option<Made>,
    /// The addresses of the current call.
    range: Range,
    /// A word that is always zero, which streams may wait for.
    pub(crate) zero: CUdeviceptr,
    /// A context that is not destroyed.
    keep: CUcontext,
}

impl<'k> Wild<'k> {
    pub(crate) fn new(
        random: Random,
        api: Api,
        (zero, keep): (CUdeviceptr, CUcontext),
        known: &'k Mutex<Known>,
        partner: &'k Partner,
    ) -> Self {
        let (scratch, board) = (Scratch::new(), Scratch::new());
        let range = Range { start: CUdeviceptr::NULL, bytes: 0 };
        Self { random, api, function: Function::cuInit, known, partner, scratch, board, makes: None, range, zero, keep }
    }

    /// Makes some context current where the last one was popped or destroyed.
    pub(crate) fn enter(&mut self, device: CUdevice) {
        if self.random.below(4) > 0 && context::set_current(&self.api, self.keep).is_ok() {
            return;
        }
        let made = match context::create(&self.api, device, 0) {
            Err(error) if error.code == CUerror::ILLEGAL_ADDRESS => return,
            made => made.expect("a device has room for a context"),
        };
        self.known().note_handle(&self.api, Handle::Context, made.0, &mut self.random);
    }

    /// Chooses the next function.
    pub(crate) fn choose(&mut self) -> Function {
        self.function = self.random.pick(Function::ALL);
        self.makes = made_by(self.function);
        self.range = Range { start: CUdeviceptr::NULL, bytes: 0 };
        self.function
    }

    pub(crate) fn is_one_of(&self, functions: &[Function]) -> bool {
        functions.contains(&self.function)
    }

    /// Returns whether the function takes or returns lists of nodes.
    pub(crate) fn is_of_graphs(&self) -> bool {
        let name = self.function.name();
        name.starts_with("cuGraph") || name.starts_with("cuStreamBeginCaptureToGraph") || name.contains("Dependencies")
    }

    fn is_wait(&self) -> bool {
        self.is_one_of(&WAITS)
    }

    fn known(&self) -> MutexGuard<'k, Known> {
        self.known.lock().expect("no holder panics")
    }

    /// Returns one of these words, or now and then a random one.
    pub(crate) fn mostly(&mut self, words: &[u64]) -> u64 {
        if self.random.below(40) == 0 { self.word() } else { self.random.pick(words) }
    }

    /// Returns a random word. Sizes are small or huge, so that no host row lies near anything but the board.
    pub(crate) fn word(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.block(),
            1 => self.board.at(0) as u64,
            2 => u64::MAX,
            3 => 0,
            _ => self.random.pick(&[1, 2, 3, 4, 8, 16, 64, 100]),
        }
    }

    /// Returns a random element of a list, or `None` if it is empty.
    fn one_of<T: Copy>(&mut self, list: impl Fn(&Known) -> &[T]) -> Option<T> {
        let known = self.known();
        let list = list(&known);
        (!list.is_empty()).then(|| self.random.pick(list))
    }

    pub(crate) fn block(&mut self) -> u64 {
        self.one_of(|known| &known.blocks).map_or(0, |block| block.0)
    }

    fn pages(&mut self) -> u64 {
        self.one_of(|known| &known.pages).map_or(0, |pages| pages.0)
    }

    fn opened(&mut self) -> u64 {
        self.one_of(|known| &known.opened).map_or(0, |opened| opened.0)
    }

    fn mapped(&mut self) -> Range {
        self.one_of(|known| &known.mapped).unwrap_or(self.range)
    }

    /// Addresses for a call of virtual memory.
    fn paged_range(&mut self) -> Range {
        let reserved = self.one_of(|known| &known.reserved).unwrap_or(self.range);
        let page = self.random.below(4) * PAGE;
        let part = Range { start: CUdeviceptr(reserved.start.0.wrapping_add(page)), bytes: PAGE };
        match (self.function, self.random.below(8)) {
            (_, 0) => Range { start: CUdeviceptr(self.block()), bytes: PAGE },
            (Function::cuMemAddressReserve, 1..4) => part,
            (Function::cuMemAddressReserve, _) => Range { start: CUdeviceptr::NULL, bytes: PAGE },
            (Function::cuMemAddressFree, _) => reserved,
            (Function::cuMemMap, _) => part,
            (_, 1) => reserved,
            _ => self.mapped(),
        }
    }

    fn paged_bytes(&mut self) -> u64 {
        let makes = self.is_one_of(&[Function::cuMemAddressReserve, Function::cuMemCreate]);
        let bytes = match self.random.below(16) {
            0 => self.random.pick(&[0, 1, PAGE + 1, 1 << 50, u64::MAX, 0_u64.wrapping_sub(PAGE)]),
            1..4 => self.random.pick(&[PAGE, 2 * PAGE, 4 * PAGE]),
            _ if makes => PAGE,
            _ => self.range.bytes,
        };
        self.range.bytes = bytes;
        bytes
    }

    /// Returns a descriptor of shared memory, mostly of the right kind; or another one, or a closed one.
    fn descriptor(&mut self) -> i32 {
        let pool = self.function == Function::cuMemPoolImportFromShareableHandle;
        let right = self.random.below(6) > 0;
        let kind = if pool == right { Shared::Pool } else { Shared::Allocation };
        let known = self.known();
        let own = known.descriptors(kind).iter().map(AsRawFd::as_raw_fd);
        let all: Vec<i32> = own.chain(self.partner.descriptors(kind)).collect();
        match self.random.below(12) {
            0 => self.random.pick(&[0, 1, 2, -1, i32::MAX, 511]),
            1 => self.random.below(64) as i32,
            2 => self.partner.descriptors(kind).next().unwrap_or(-1),
            _ => self.random.pick(&all),
        }
    }

    /// Returns a token of this kind, of this process or of the partner, intact or not; or random bytes.
    pub(crate) fn token_of(&mut self, kind: Shared) -> [u8; 64] {
        let own = if self.random.below(3) == 0 { self.one_of(|known| known.tokens(kind)) } else { None };
        let mut token = own.unwrap_or_else(|| self.random.pick(self.partner.tokens(kind)));
        match self.random.below(8) {
            0 => token.fill_with(|| self.random.next() as u8),
            1 | 2 => {
                // Changes one word only, so that the others stay valid.
                let word = 8 * self.random.below(8);
                for _ in 0..=self.random.below(3) {
                    token[(word + self.random.below(8)) as usize] ^= 1 << self.random.below(8);
                }
            }
            _ => {}
        }
        token
    }

    /// Records what the last call created, and releases what it replaces.
    pub(crate) fn note(&mut self) {
        let made = self.scratch.read(0);
        let mut known = self.known();
        known.useful.insert(self.function);
        let (api, random) = (&self.api, &mut self.random);
        if self.function == Function::cuGraphAddMemAllocNode {
            // The parameters lie where the node's handle was.
            return known.note_graph_block(CUdeviceptr(self.scratch.read(14 * 8)), random);
        }
        match self.makes {
            Some(Made::Handle(Handle::Context)) if made as usize == self.keep.0 => {}
            Some(Made::Handle(kind)) => known.note_handle(api, kind, made as usize, random),
            Some(Made::Pages) => {
                let start = if self.function == Function::cuMemAllocManaged { made } else { self.scratch.read(LIST) };
                known.note_pages(api, CUdeviceptr(start), random);
            }
            Some(Made::Block) if is_of_pool(api, self.function, CUdeviceptr(made)) => {
                known.note_block(api, CUdeviceptr(made), random);
            }
            Some(Made::Block) => known.note_graph_block(CUdeviceptr(made), random),
            Some(Made::Opened) => known.note_opened(api, CUdeviceptr(made), random),
            Some(Made::Reserved) => {
                known.note_reserved(api, Range { start: CUdeviceptr(made), ..self.range }, random);
            }
            Some(Made::Mapped) => known.note_mapped(api, self.range, random),
            Some(Made::Descriptor(kind)) => {
                let number = made as u32 as i32;
                assert!(number > 2, "a descriptor is new: {number}");
                // SAFETY: the call has just opened it for this process, and nobody else knows of it.
                known.note_descriptor(kind, unsafe { OwnedFd::from_raw_fd(number) }, random);
            }
            Some(Made::Token(kind)) => {
                let mut token = [0; 64];
                for (index, word) in token.chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&self.scratch.read(index * 8).to_le_bytes());
                }
                known.note_token(kind, token, random);
            }
            None => {}
        }
    }

    /// Returns the kind of handle that a pointer of this type receives.
    fn handle_at(to: Pointee) -> Option<Handle> {
        Some(match () {
            () if to.is::<CUcontext>() => Handle::Context,
            () if to.is::<CUstream>() => Handle::Stream,
            () if to.is::<CUevent>() => Handle::Event,
            () if to.is::<CUmemoryPool>() => Handle::Pool,
            () if to.is::<CUmodule>() => Handle::Module,
            () if to.is::<CUfunction>() => Handle::Function,
            () if to.is::<CUlibrary>() => Handle::Library,
            () if to.is::<CUkernel>() => Handle::Kernel,
            () if to.is::<CUlinkState>() => Handle::Link,
            () if to.is::<CUgraph>() => Handle::Graph,
            () if to.is::<CUgraphExec>() => Handle::Exec,
            () if to.is::<CUgraphNode>() => Handle::Node,
            () if to.is::<CUuserObject>() => Handle::UserObject,
            () if to.is::<CUarray>() => Handle::Array,
            () if to.is::<CUmipmappedArray>() => Handle::Mipmap,
            () if to.is::<CUtexObject>() => Handle::Texture,
            () if to.is::<CUsurfObject>() => Handle::Surface,
            () if to.is::<CUlogsCallbackHandle>() => Handle::LogsCallback,
            () if to.is::<CUmemGenericAllocationHandle>() => Handle::Allocation,
            () => return None,
        })
    }

    /// Returns a pointer to bytes, whose meaning depends on the function.
    fn bytes(&mut self) -> *mut c_void {
        if self.function == Function::cuMemFreeHost {
            return self.pages() as *mut c_void;
        }
        if self.function == Function::cuMemRetainAllocationHandle {
            return self.mapped().start.0 as *mut c_void;
        }
        if self.is_one_of(&IMPORTS) {
            return self.descriptor() as usize as *mut c_void;
        }
        if self.is_one_of(&EXPORTS) {
            return self.scratch.at(if self.random.below(16) == 0 { 1 } else { 0 });
        }
        if self.is_one_of(&IMAGES) && self.random.below(4) > 0 {
            return TEXT.as_ptr().cast_mut().cast();
        }
        self.board.at(self.random.pick(&[0, 0, 1, 64, 4096]))
    }

    fn text(&mut self) -> *mut c_void {
        let mut texts = vec![*b"cuInit\0\0\0\0\0\0\0\0\0\0", *b"0000:01:00.0\0\0\0\0"];
        match self.function {
            Function::cuLogsDumpToFile | Function::cuGraphDebugDotPrint => texts = vec![*b"/dev/null\0\0\0\0\0\0\0"],
            _ => texts.extend([
                *b"nothing\0\0\0\0\0\0\0\0\0",
                *b"variable\0\0\0\0\0\0\0\0",
                *b"one\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ]),
        }
        let [low, high] = zerocopy::transmute!(self.random.pick(&texts));
        self.scratch.write(LIST, low);
        self.scratch.write(LIST + 8, high);
        self.scratch.at(LIST)
    }
}

/// Returns whether a new block is not of an allocation node: an allocation in a captured stream becomes one.
fn is_of_pool(api: &Api, function: Function, block: CUdeviceptr) -> bool {
    let can_be_captured = [Function::cuMemAllocAsync, Function::cuMemAllocFromPoolAsync].contains(&function);
    !can_be_captured || pointer::pool(api, block).is_ok_and(|pool| pool != CUmemoryPool::NULL)
}

impl Source for Wild<'_> {
    fn number(&mut self, name: &'static str) -> u64 {
        let makes_event = self.function == Function::cuEventCreate;
        match name {
            // The lists have the length that is passed.
            "count" if self.is_one_of(&LISTS) => self.random.below(16),
            "count" if self.function == Function::cuStreamBatchMemOp_v2 => self.random.pick(&[0, 1, 2, 4, 256, 257]),
            "count" if self.is_one_of(&OPTIONS) => self.random.pick(&[0, 0, 0, 1, 4, 65]),
            "count" if self.is_of_graphs() => self.random.pick(&[0, 0, 0, 0, 1, 1, 2, u64::MAX]),
            "references" => self.random.pick(&[1, 1, 1, 2, 0, u64::MAX]),
            "flags" if self.function == Function::cuUserObjectCreate => self.random.pick(&[1, 1, 1, 0]),
            "grid_x" | "grid_y" | "grid_z" => self.random.pick(&[1, 1, 1, 1, 2, 5, 0, u64::MAX]),
            "block_x" | "block_y" | "block_z" => self.random.pick(&[1, 1, 1, 1, 2, 32, 0, 1025]),
            "library_count" => self.random.pick(&[0, 0, 0, 1, 3]),
            // Most captures allow the calls of other threads, which can end them.
            "mode" => self.random.pick(&[2, 2, 2, 2, 2, 0, 1, 3]),
            "bytes" if self.is_one_of(&PAGED) => self.paged_bytes(),
            "bytes" if self.is_one_of(&MANAGED) => self.random.pick(&[0, 1, 4, 4096, u64::MAX]),
            "alignment" => self.random.pick(&[0, 0, 0, PAGE, 1 << 30, 3, 1 << 63, u64::MAX]),
            "offset" => self.random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, PAGE, u64::MAX]),
            "data_bytes" => self.random.pick(&[4, 4, 4, 8, 0, 5, u64::MAX - 3]),
            "kind" if self.is_one_of(&EXPORTS) || self.is_one_of(&IMPORTS) => {
                self.random.pick(&[1, 1, 1, 1, 1, 1, 0, 2, 8, u64::MAX])
            }
            "kind" => self.random.below(8),
            "value" if self.is_wait() => 0,
            "flags" if self.is_wait() => self.random.pick(&[0, 0, 1, 7, 1 << 30, u64::MAX]),
            "height" => self.random.pick(&[0, 1, 2, 5, 64, u64::MAX]),
            "flags" if self.function == Function::cuMemAllocManaged => self.random.pick(&[1, 1, 1, 2, 0, u64::MAX]),
            "flags" if self.function == Function::cuIpcOpenMemHandle_v2 => self.random.pick(&[1, 1, 1, 1, 0, u64::MAX]),
            "flags" if self.is_one_of(&PAGED) => self.random.pick(&[0, 0, 0, 0, 0, 0, 0, 1]),
            // Events for other processes, and others.
            "flags" if makes_event => self.random.pick(&[6, 6, 7, 2, 0, 0, 0, 0, 0, 1, u64::MAX]),
            "flags" => self.random.pick(&[0, 0, 0, 1, 2, 3, 4, 8, 0x10, u64::MAX]),
            "attribute" => self.random.below(24),
            _ => self.random.pick(&[0, 1, 4, 16, 100, 512, 513, 4096, 65_536, 1 << 50, u64::MAX - 3, u64::MAX]),
        }
    }

    fn handle(&mut self, kind: Handle) -> usize {
        let kind = if self.random.below(20) == 0 { self.random.pick(&Handle::ALL) } else { kind };
        // A library kernel is accepted as a function.
        let is_kernel = kind == Handle::Function && self.random.below(4) == 0;
        let kind = if is_kernel { Handle::Kernel } else { kind };
        match self.random.below(16) {
            0 => self.random.pick(&[3, 0xdead_beef, usize::MAX]),
            1 => self.random.pick(&[0, 1, 2]),
            _ => self.one_of(|known| known.handles(kind)).unwrap_or(0),
        }
    }

    fn address(&mut self) -> u64 {
        if self.is_wait() {
            return self.random.pick(&[self.zero.0, self.zero.0, self.zero.0 + 1, 0, u64::MAX, u64::MAX - 7]);
        }
        if self.is_one_of(&MANAGED) && self.random.below(4) > 0 {
            return self.pages();
        }
        if self.is_one_of(&PAGED) && self.random.below(16) > 0 {
            self.range = self.paged_range();
            return self.range.start.0;
        }
        if self.function == Function::cuMemGetAccess && self.random.below(4) > 0 {
            return self.mapped().start.0;
        }
        if self.function == Function::cuIpcCloseMemHandle && self.random.below(4) > 0 {
            return self.opened();
        }
        let is_free = self.is_one_of(&[Function::cuMemFree_v2, Function::cuMemFreeAsync]);
        if self.function == Function::cuGraphAddMemFreeNode || is_free && self.random.below(4) == 0 {
            return self.one_of(|known| &known.graph_blocks).map_or(0, |block| block.0);
        }
        let block = self.block();
        let is_copy = self.function.name().starts_with("cuMemcpy");
        match self.random.below(16) {
            3..6 if !is_copy => self.pages(),
            6 if self.is_one_of(&LOOKS) => self.mapped().start.0.wrapping_add(self.random.pick(&[0, 0, 1, PAGE])),
            7 | 8 => self.opened().wrapping_add(self.random.pick(&[0, 0, 1, 4096])),
            0 => self.random.pick(&[0, 1, 4096, u64::MAX, u64::MAX - 4095, self.partner.address]),
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
        if to.is::<c_void>() {
            return self.bytes();
        }
        if to.is::<*mut c_void>() && self.function.name().starts_with("cuLaunch") && self.random.below(2) == 0 {
            return std::ptr::null_mut();
        }
        if to.is::<*mut c_void>() {
            (0..16).for_each(|index| self.scratch.write(LIST + index * 8, self.board.at(64) as u64));
            return self.scratch.at(LIST);
        }
        if to.is::<c_char>() {
            return self.text();
        }
        if to.align > 1 && self.random.below(16) == 0 {
            return self.scratch.at(1);
        }
        if let Some(kind) = Self::handle_at(to) {
            self.makes = Some(Made::Handle(kind));
        }
        self.fill_scratch(to);
        self.scratch.at(0)
    }

    fn function(&mut self) -> bool {
        self.random.below(4) > 0
    }

    fn token(&mut self) -> [u8; 64] {
        let right = if self.function == Function::cuIpcOpenEventHandle { Shared::Event } else { Shared::Memory };
        let kind = if self.random.below(16) == 0 { self.random.pick(&Shared::TOKENS) } else { right };
        self.token_of(kind)
    }
}
