//! Slots and their contents: registers, constants, special registers, and the addresses of functions and windows.

/// An index into one of the three files of a frame; the instruction determines which.
pub(crate) type Slot = u32;

/// Generic addresses from here on belong to the windows below. Every address of a device or a host is lower.
pub(crate) const WINDOWS: u64 = 0x0000_f000_0000_0000;
pub(crate) const FUNCTION_WINDOW: u64 = 0x0000_fb00_0000_0000;
pub(crate) const PARAM_WINDOW: u64 = 0x0000_fc00_0000_0000;
pub(crate) const LOCAL_WINDOW: u64 = 0x0000_fd00_0000_0000;
pub(crate) const SHARED_WINDOW: u64 = 0x0000_fe00_0000_0000;
/// The size of each window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
/// The distance between the shared memories of the blocks of a cluster. Addresses below it are the block's own; block
/// `n` of the cluster begins at `n + 1` times it.
pub(crate) const RANK_BYTES: u64 = 1 << 24;
/// The distance between the addresses of two functions.
pub(crate) const FUNCTION_BYTES: u64 = 16;

/// Index into the symbols of a unit.
pub(crate) type SymbolIndex = u32;

/// The slot of a value, and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Reg {
    Narrow(Slot),
    Wide(Slot),
    Predicate(Slot),
}

/// The value of a slot at the start of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Bits(u64),
    Special(Special),
    /// The address of a variable or function of the unit, plus a number.
    Symbol {
        symbol: SymbolIndex,
        generic: bool,
        addend: i64,
    },
    /// An address in the local memory of this frame, in local or in generic space.
    Local {
        offset: u32,
        generic: bool,
    },
}

impl Constant {
    /// Returns whether it may differ between the blocks of a launch, for threads with the same number in their block.
    pub(crate) fn varies_between_blocks(self) -> bool {
        use Special::{ClusterCtaid, ClusterRank, Clusterid, Ctaid, Sm};
        match self {
            Self::Special(special) => {
                matches!(special, Ctaid(_) | Sm | ClusterCtaid(_) | ClusterRank | Clusterid(_))
            }
            // The generic address of a shared variable states the block of the cluster.
            Self::Symbol { generic, .. } => generic,
            Self::Bits(_) | Self::Local { .. } => false,
        }
    }

    /// Returns whether it may differ between the lanes of a warp.
    pub(crate) fn varies_between_lanes(self) -> bool {
        matches!(self, Self::Special(Special::Tid(_) | Special::Lane | Special::LaneMask(_)))
    }
}

/// Special registers that keep their value while a thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Lane,
    Warp,
    Warps,
    Sm,
    Sms,
    Grid,
    LaneMask(LaneMask),
    DynamicShared,
    TotalShared,
    Env(u8),
    /// The number of lanes of a warp: 32.
    WarpSize,
    /// The position of the block in its cluster, and the size of a cluster in blocks.
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterRank,
    ClusterRanks,
    /// The position of the cluster in the grid, and the size of the grid in clusters.
    Clusterid(u8),
    Nclusterid(u8),
    /// Whether the launch or the kernel states the size of a cluster: all bits, or none.
    IsExplicitCluster,
    /// Always zero here.
    Zero,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneMask {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

/// Special registers that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    Clock,
    ClockHigh,
    Clock64,
    Nanoseconds,
    NanosecondsLow,
    NanosecondsHigh,
}

/// The layout of a function's results and parameters, at the start of its frame.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Signature {
    pub(crate) returns: Vec<FormalParameter>,
    pub(crate) parameters: Vec<FormalParameter>,
    /// The size of all of them, with padding.
    pub(crate) bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FormalParameter {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}
