//! Operands of bulk copies.

use super::{Address, AtomicKind, AtomicOp, MemorySpace, Slot};
use crate::tensor_map::MapField;

/// A copy of a range of memory, or of a box of a tensor, by each active lane.
#[derive(Debug, Clone)]
pub(crate) struct BulkCopy {
    pub(crate) from: BulkEnd,
    pub(crate) to: BulkEnd,
    /// The number of bytes; a tensor map has it for a box.
    pub(crate) bytes: Option<Slot>,
    /// What combines the source with the target. The type of an element is that of the tensor map, if it has one.
    pub(crate) reduction: Option<(AtomicOp, Option<AtomicKind>)>,
    /// Which bytes of each 16 are written.
    pub(crate) byte_mask: Option<Slot>,
    /// The mbarrier at which the bytes complete.
    pub(crate) barrier: Option<Address>,
    /// The blocks of the cluster that get the data, at the same offset in their shared memory.
    pub(crate) ranks: Option<Slot>,
    /// Whether the threads of a warp copy together.
    pub(crate) is_once: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum BulkEnd {
    Range {
        space: MemorySpace,
        at: Address,
    },
    Box {
        map: Address,
        coordinates: Box<[Slot]>,
        /// What `.im2col` adds to the spatial coordinates; `None` for a box.
        offsets: Option<Box<[Slot]>>,
    },
}

/// `tensormap.replace`
#[derive(Debug, Clone)]
pub(crate) struct MapReplace {
    pub(crate) space: MemorySpace,
    pub(crate) at: Address,
    pub(crate) field: MapField,
    pub(crate) value: super::Reg,
}
