//! Structures for typed pointers, most of them with valid values.

use freehold_driver::cuda::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUlaunchConfig, CUmem_range_attribute, CUmemAccessDesc,
    CUmemAllocationProp, CUmemLocation, CUmemPoolProps, CUmemPoolPtrExportData, CUstreamBatchMemOpParams,
};

use super::known::Shared;
use super::wild::Wild;
use crate::common::api_calls::{Handle, Pointee, Source};

impl Wild<'_> {
    fn write_words(&self, words: &[u64]) {
        words.iter().enumerate().for_each(|(index, word)| self.scratch.write(index * 8, *word));
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

    pub(super) fn fill_scratch(&mut self, to: Pointee) {
        let device = [1, 1, 1, 1 | 1 << 32];
        if to.is::<CUDA_MEMCPY2D>() {
            self.write_copy(2);
        } else if to.is::<CUDA_MEMCPY3D>() || to.is::<CUDA_MEMCPY3D_PEER>() {
            self.write_copy(3);
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
