//! Matrix instructions, which all lanes of a warp execute together: `mma`, `wmma`, `wgmma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::operands::{Address, MemorySpace};
use super::reg::{Reg, Slot};

/// The type of a matrix's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    F32,
    F64,
    S32,
    S8,
    U8,
    S4,
    U4,
    B1,
}

impl Element {
    /// Returns the size in a register. A tf32 takes 32 bits.
    pub(crate) const fn bits(self) -> usize {
        match self {
            Self::B1 => 1,
            Self::S4 | Self::U4 => 4,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 | Self::F32 | Self::S32 => 32,
            Self::F64 => 64,
        }
    }

    /// Returns how many elements a register has.
    pub(crate) const fn per_register(self) -> usize {
        if self.bits() == 64 { 1 } else { 32 / self.bits() }
    }

    pub(crate) const fn is_integer(self) -> bool {
        matches!(self, Self::S32 | Self::S8 | Self::U8 | Self::S4 | Self::U4 | Self::B1)
    }
}

/// The sizes of a product: `m` by `k` times `k` by `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// Which matrix of `d = a * b + c`; `d` is like `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factor {
    A,
    B,
    C,
}

impl Shape {
    /// Returns the rows and columns of a matrix.
    pub(crate) const fn size(self, factor: Factor) -> (usize, usize) {
        match factor {
            Factor::A => (self.m, self.k),
            Factor::B => (self.k, self.n),
            Factor::C => (self.m, self.n),
        }
    }
}

/// Which lane has which elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fragments {
    /// As the PTX ISA states for `mma`.
    Documented,
    /// For `wmma` the ISA leaves it open: each lane has consecutive elements in row-major order, and where the lanes
    /// have room for more elements than there are, they begin again.
    Consecutive,
}

/// How bits are combined before they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitProduct {
    Xor,
    And,
}

/// Where the stored elements of a sparse matrix `a` are in its rows: half of each row is zero and not stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sparsity {
    /// The register with four bits for each pair of elements.
    pub(crate) metadata: Slot,
    /// Which lanes of each group of four have the metadata, if not all have.
    pub(crate) selector: usize,
}

/// `d = a * b + c`
#[derive(Debug, Clone)]
pub(crate) struct Multiply {
    pub(crate) shape: Shape,
    pub(crate) fragments: Fragments,
    pub(crate) a_element: Element,
    pub(crate) b_element: Element,
    pub(crate) c_element: Element,
    pub(crate) d_element: Element,
    /// Clamps an integer result instead of wrapping it.
    pub(crate) saturates: bool,
    pub(crate) bits: BitProduct,
    pub(crate) sparsity: Option<Sparsity>,
    pub(crate) a: Box<[Reg]>,
    pub(crate) b: Box<[Reg]>,
    pub(crate) c: Box<[Reg]>,
    pub(crate) d: Box<[Reg]>,
}

impl Multiply {
    /// Returns the rows and columns of a matrix as it is stored.
    pub(crate) fn stored_size(&self, factor: Factor) -> (usize, usize) {
        match (self.shape.size(factor), factor, self.sparsity) {
            ((rows, columns), Factor::A, Some(_)) => (rows, columns / 2),
            (size, ..) => size,
        }
    }
}

/// Where the matrix `a` of `wgmma` is.
#[derive(Debug, Clone)]
pub(crate) enum GroupFactor {
    /// In registers, 16 rows in each of four warps, as for `mma`.
    Registers(Box<[Reg]>),
    /// In shared memory.
    Shared(SharedMatrix),
}

/// A matrix in shared memory that `wgmma` reads.
#[derive(Debug, Clone)]
pub(crate) struct SharedMatrix {
    /// The register with its descriptor.
    pub(crate) descriptor: Slot,
    /// Whether elements of different `k` are apart, and those of one `k` together.
    pub(crate) is_transposed: bool,
}

/// `wgmma`: `d = a * b`, or `d += a * b`. Four warps execute it, each for 16 of the 64 rows.
#[derive(Debug, Clone)]
pub(crate) struct GroupMultiply {
    /// The sizes of the part of one warp.
    pub(crate) shape: Shape,
    pub(crate) a_element: Element,
    pub(crate) b_element: Element,
    pub(crate) d_element: Element,
    pub(crate) saturates: bool,
    pub(crate) a: GroupFactor,
    pub(crate) b: SharedMatrix,
    pub(crate) d: Box<[Reg]>,
    /// Whether the product is added to `d`: a predicate, and whether it is negated.
    pub(crate) adds: (Slot, bool),
    pub(crate) negates_a: bool,
    pub(crate) negates_b: bool,
}

/// A matrix in memory, for `wmma.load` and `wmma.store`.
#[derive(Debug, Clone)]
pub(crate) struct FragmentAccess {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) element: Element,
    pub(crate) is_row_major: bool,
    /// The distance of rows (or columns) in elements; without it they follow each other.
    pub(crate) stride: Option<Slot>,
    pub(crate) registers: Box<[Reg]>,
}

/// 8 by 8 matrices of 16-bit elements in shared memory, whose rows are at the addresses of eight lanes each.
#[derive(Debug, Clone)]
pub(crate) struct TileAccess {
    pub(crate) is_transposed: bool,
    pub(crate) registers: Box<[Reg]>,
}

#[derive(Debug, Clone)]
pub(crate) enum MatrixOp {
    Multiply(Multiply),
    GroupMultiply(GroupMultiply),
    LoadFragment(FragmentAccess),
    StoreFragment(FragmentAccess),
    LoadTiles(TileAccess),
    StoreTiles(TileAccess),
    Transpose { to: Slot, from: Slot },
}

#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    pub(crate) op: MatrixOp,
    /// Its space and address, if it is an access.
    pub(crate) access: Option<(MemorySpace, Address)>,
    /// All lanes.
    pub(crate) members: Slot,
}
