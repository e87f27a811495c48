//! Structures for typed pointers, most of them with valid values.

use std::ffi::c_void;

use freehold_driver::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS,
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D,
    CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS, CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC, CUgraphEdgeData, CUgraphNode,
    CUgraphNodeParams, CUlaunchAttributeValue, CUlaunchConfig, CUmem_range_attribute, CUmemAccessDesc,
    CUmemAllocationProp, CUmemLocation, CUmemPoolProps, CUmemPoolPtrExportData, CUstreamBatchMemOpParams,
};

use super::known::Shared;
use super::wild::{LIST, Wild};
use crate::common::api_calls::{Handle, Pointee, Source};

impl Wild<'_> {
    fn write_words(&self, words: &[u64]) {
        words.iter().enumerate().for_each(|(index, word)| self.scratch.write(index * 8, *word));
    }

    /// One end of a copy of a box from `first` on: x, y, in three dimensions z and level, type, host, device, array, in
    /// three dimensions a context, pitch, in three dimensions height.
    fn write_side(&mut self, first: usize, dimensions: usize) {
        let (block, board) = (self.block(), self.board.at(0) as u64);
        let (context, array) = (self.handle(Handle::Context) as u64, self.handle(Handle::Array) as u64);
        let flat = [&[0, 0, 1][..], &[0, 1], &[1, 2, 2, 3, 4], &[board], &[block, board], &[array], &[0, 100, 64]];
        let deep = [
            &[0, 0, 1][..],
            &[0, 1],
            &[0, 1],
            &[0],
            &[1, 2, 2, 3, 4],
            &[board],
            &[block, board],
            &[array],
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

    fn write_copy(&mut self, first: usize, dimensions: usize) {
        let fields = if dimensions == 2 { 7 } else { 11 };
        self.write_side(first, dimensions);
        self.write_side(first + fields, dimensions);
        for index in 0..dimensions {
            let word = self.mostly(&[1, 2, 3]);
            self.scratch.write((first + 2 * fields + index) * 8, word);
        }
    }

    /// A small grid in a stream, without attributes or with a list of them anywhere.
    fn write_launch(&mut self) {
        let pair = 1 | 1 << 32;
        let stream = self.handle(Handle::Stream) as u64;
        let words = [pair, pair, self.random.pick(&[pair, 0]), 0, stream, self.word(), self.random.pick(&[0, 0, 1])];
        self.write_words(&words);
    }

    /// Operations on a word that is always zero: the waits among them pass.
    fn write_operations(&mut self) {
        for index in 0..256 {
            let wrong = self.random.below(40) == 0;
            let address = if wrong { self.random.pick(&[0, u64::MAX, self.zero.0 + 1]) } else { self.zero.0 };
            let operation = self.mostly(&[1, 2, 4, 5, 6]);
            let words = [operation, address, 0, 0, 0, 0];
            words.iter().enumerate().for_each(|(at, word)| self.scratch.write(index * 48 + at * 8, *word));
        }
    }

    /// Rights of devices, three halves of a word each.
    fn write_access(&mut self) {
        let halves: Vec<u64> = (0..16)
            .flat_map(|_| [self.mostly(&[1]), self.mostly(&[0, 0, 0, 1]), self.mostly(&[3, 3, 3, 1, 0])])
            .map(|half| half & u64::from(u32::MAX))
            .collect();
        for (index, pair) in halves.chunks_exact(2).enumerate() {
            self.scratch.write(index * 8, pair[0] | pair[1] << 32);
        }
    }

    /// Operations of a node on the word that is always zero, in the scratch memory behind the parameters.
    fn mem_ops(&mut self) -> [u64; 4] {
        const OPERATIONS: usize = LIST + 4096;
        for (index, word) in [self.random.pick(&[1, 2, 4, 5, 6]), self.zero.0, 0, 0, 0, 0].into_iter().enumerate() {
            self.scratch.write(OPERATIONS + index * 8, word);
        }
        let list = self.scratch.at(OPERATIONS) as u64;
        [self.handle(Handle::Context) as u64, self.mostly(&[1]) & 0xffff_ffff, list, self.random.pick(&[0, 0, 0, 1])]
    }

    /// A launch of a node: of a small grid, with arguments.
    fn kernel(&mut self) -> [u64; 9] {
        let pair = 1 | 1 << 32;
        let function = self.handle(Handle::Function) as u64;
        (0..16).for_each(|index| self.scratch.write(LIST + index * 8, self.board.at(64) as u64));
        let arguments = self.scratch.at(LIST) as u64;
        [function, pair, pair, pair, 0, arguments, 0, 0, self.handle(Handle::Context) as u64]
    }

    fn host(&mut self) -> [u64; 2] {
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        [if self.random.below(8) == 0 { 0 } else { nothing as *const () as u64 }, self.word()]
    }

    fn memset(&mut self) -> [u64; 6] {
        let element = self.random.pick(&[1, 1, 2, 4, 4, 3]);
        let (width, height) = (self.mostly(&[1, 4]), self.mostly(&[1, 1, 2]));
        [self.block(), self.mostly(&[64]), element << 32, width, height, self.handle(Handle::Context) as u64]
    }

    /// A small allocation of a device.
    fn alloc(&mut self) -> [u64; 15] {
        let mut words = [0; 15];
        (words[0], words[1]) = (1, self.random.pick(&[1, 1, 1, 1 | 1 << 32, 2]));
        words[13] = self.random.pick(&[1, 4096, 1 << 20, 0, 1 << 50]);
        words
    }

    /// A copy on the device. A graph that copies from or to a wrong address of the host faults, which ends the run.
    fn write_node_copy(&mut self, first: usize) {
        self.write_copy(first, 3);
        for side in [first, first + 11] {
            let (kind, block) = (self.random.pick(&[2, 2, 2, 0, 3]), self.block());
            self.scratch.write((side + 4) * 8, kind);
            self.scratch.write((side + 6) * 8, block);
        }
    }

    /// Parameters of a node of a random kind.
    fn write_node(&mut self) {
        let (kernel, memset, host, mem_ops) = (self.kernel(), self.memset(), self.host(), self.mem_ops());
        let (graph, event) = (self.handle(Handle::Graph) as u64, self.handle(Handle::Event) as u64);
        let (alloc, block, kind) = (self.alloc(), self.block(), self.random.below(14));
        let value: &[u64] = match kind {
            0 => &kernel,
            2 => &memset,
            3 => &host,
            4 => &[graph, self.random.pick(&[0, 0, 1, 2])],
            6 | 7 => &[event],
            10 => &alloc,
            11 => &[block],
            12 => &mem_ops,
            _ => &[],
        };
        let mut words = [0; 32];
        words[0] = kind;
        words[2..2 + value.len()].copy_from_slice(value);
        self.write_words(&words);
        if kind == 1 {
            // Flags and a context come before the copy.
            self.write_node_copy(4);
        }
    }

    /// The size of a small array, and its format and flags.
    fn write_array(&mut self, dimensions: usize) {
        let sizes: [u64; 3] = [self.mostly(&[1, 4, 16]), self.mostly(&[0, 1, 4]), self.mostly(&[0, 0, 3, 6])];
        let format = self.mostly(&[1, 2, 3, 8, 9, 10, 16, 32]) & 0xffff_ffff | self.random.pick(&[1, 2, 4, 3]) << 32;
        let flags = self.random.pick(&[0, 0, 1, 2, 3, 4, 5, 8, 0x800]);
        let words = if dimensions == 2 {
            [sizes[0], sizes[1], format, 0, 0]
        } else {
            [sizes[0], sizes[1], sizes[2], format, flags]
        };
        self.write_words(&words);
    }

    /// The memory of a texture or a surface.
    fn write_resource(&mut self) {
        let kind = self.random.pick(&[0, 0, 1, 2, 3, 4]);
        let handle = if kind == 1 { Handle::Mipmap } else { Handle::Array };
        let start = if kind < 2 { self.handle(handle) as u64 } else { self.block() };
        let format = self.mostly(&[1, 2, 3, 8, 9, 10, 16, 32]) & 0xffff_ffff | self.random.pick(&[1, 2, 4, 3]) << 32;
        let mut words = [0; 18];
        words[..6].copy_from_slice(&[
            kind,
            start,
            format,
            self.mostly(&[4, 64]),
            self.mostly(&[1, 4]),
            self.mostly(&[64]),
        ]);
        self.write_words(&words);
    }

    fn write_texture_parameters(&mut self, to: Pointee) -> bool {
        if to.is::<CUDA_ARRAY_DESCRIPTOR>() {
            self.write_array(2);
        } else if to.is::<CUDA_ARRAY3D_DESCRIPTOR>() {
            self.write_array(3);
        } else if to.is::<CUDA_RESOURCE_DESC>() {
            self.write_resource();
        } else if to.is::<CUDA_TEXTURE_DESC>() {
            let halves: [u64; 4] = std::array::from_fn(|_| self.random.below(4) | self.random.below(3) << 32);
            self.write_words(&[halves[0], halves[1] >> 32 << 32, halves[2] & 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        } else {
            return false;
        }
        true
    }

    fn write_graph_parameters(&mut self, to: Pointee) -> bool {
        if to.is::<CUDA_MEMCPY3D>() && self.is_of_graphs() {
            self.write_node_copy(0);
        } else if to.is::<CUgraphNode>() {
            let nodes: [u64; 4] = std::array::from_fn(|_| self.handle(Handle::Node) as u64);
            self.write_words(&nodes);
        } else if to.is::<CUgraphEdgeData>() || to.is::<CUlaunchAttributeValue>() {
            self.write_words(&[0; 8]);
        } else if to.is::<CUgraphNodeParams>() {
            self.write_node();
        } else if to.is::<CUDA_KERNEL_NODE_PARAMS>() {
            let words = self.kernel();
            self.write_words(&words);
        } else if to.is::<CUDA_MEMSET_NODE_PARAMS>() {
            let words = self.memset();
            self.write_words(&words);
        } else if to.is::<CUDA_HOST_NODE_PARAMS>() {
            let words = self.host();
            self.write_words(&words);
        } else if to.is::<CUDA_BATCH_MEM_OP_NODE_PARAMS>() {
            let words = self.mem_ops();
            self.write_words(&words);
        } else if to.is::<CUDA_MEM_ALLOC_NODE_PARAMS>() {
            let words = self.alloc();
            self.write_words(&words);
        } else if to.is::<CUDA_GRAPH_INSTANTIATE_PARAMS>() {
            let words = [self.random.pick(&[0, 0, 1, 2, 4, 8]), self.handle(Handle::Stream) as u64, 0, 0];
            self.write_words(&words);
        } else if to.is::<usize>() && self.is_of_graphs() {
            // The room in a list of nodes.
            let words = [self.random.pick(&[0, 1, 4, 64])];
            self.write_words(&words);
        } else {
            return false;
        }
        true
    }

    pub(super) fn fill_scratch(&mut self, to: Pointee) {
        if self.write_graph_parameters(to) || self.write_texture_parameters(to) {
            return;
        }
        let device = [1, 1, 1, 1 | 1 << 32];
        if to.is::<CUDA_MEMCPY2D>() {
            self.write_copy(0, 2);
        } else if to.is::<CUDA_MEMCPY3D>() || to.is::<CUDA_MEMCPY3D_PEER>() {
            self.write_copy(0, 3);
        } else if to.is::<CUmemPoolProps>() {
            // Pinned memory of a device without a handle or with a descriptor, of no size in particular.
            let words =
                [self.mostly(&[1, 1 | 1 << 32]), self.mostly(&device), 0, self.mostly(&[0]), 0, 0, 0, 0, 0, 0, 0];
            self.write_words(&words);
        } else if to.is::<CUmemAllocationProp>() {
            let words = [self.mostly(&[1, 1 | 1 << 32]), self.mostly(&device), self.mostly(&[0]), self.mostly(&[0])];
            self.write_words(&words);
        } else if to.is::<CUmemLocation>() {
            let word = self.mostly(&device);
            self.write_words(&[word]);
        } else if to.is::<CUmemAccessDesc>() {
            self.write_access();
        } else if to.is::<CUmemPoolPtrExportData>() {
            let words: [u64; 8] = zerocopy::transmute!(self.token_of(Shared::PoolBlock));
            self.write_words(&words);
        } else if to.is::<CUlaunchConfig>() {
            self.write_launch();
        } else if to.is::<CUmem_range_attribute>() {
            // Where a range was prefetched to, and the four bytes of the answer, which are read at the same place.
            self.write_words(&[4; 32]);
        } else if to.is::<CUstreamBatchMemOpParams>() {
            self.write_operations();
        } else {
            let words: [u64; 32] = std::array::from_fn(|_| self.word());
            self.write_words(&words);
        }
    }
}
