//! The error of a refused free.

use crate::blocks::BlockKind;
use crate::finding::Kind;

/// What the function that refuses a free is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeFunction {
    /// Memory of a device.
    Device,
    /// Pinned memory of the host.
    Host,
    /// Blocks of a pool.
    Pool,
}

impl FreeFunction {
    /// `is_host`: whether the function frees pinned memory, not a device's.
    pub(crate) fn of_driver(is_host: bool) -> Self {
        if is_host { Self::Host } else { Self::Device }
    }

    fn frees(self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Host => self == Self::Host,
            BlockKind::Device | BlockKind::Defined => self == Self::Device,
            BlockKind::Registered | BlockKind::Imported | BlockKind::Mapped | BlockKind::Pool => false,
        }
    }
}

/// The block around an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around {
    pub(crate) start: u64,
    pub(crate) kind: BlockKind,
    pub(crate) is_freed: bool,
}

/// Returns the kind of the error, and what the function does.
pub(crate) fn describe(address: u64, function: FreeFunction, block: Option<Around>) -> (Kind, String) {
    match block {
        Some(block) if block.start != address => (Kind::InteriorFree, "frees an address inside a block".to_owned()),
        // A block that its function refuses to free is being freed, in the order of a stream.
        Some(block) if block.is_freed || function.frees(block.kind) => {
            (Kind::DoubleFree, "frees a block that is already freed".to_owned())
        }
        Some(_) => (Kind::InvalidFree, "frees a block that another function has to free".to_owned()),
        None => (Kind::InvalidFree, format!("frees {address:#x}, which was never allocated")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_its_own_function_refuses_to_free_is_already_freed() {
        let kind = |function, kind| {
            let block = Around { start: 64, kind, is_freed: false };
            describe(64, function, Some(block)).0
        };
        assert_eq!(kind(FreeFunction::Device, BlockKind::Device), Kind::DoubleFree);
        assert_eq!(kind(FreeFunction::Device, BlockKind::Host), Kind::InvalidFree);
        assert_eq!(kind(FreeFunction::Host, BlockKind::Host), Kind::DoubleFree);
        assert_eq!(kind(FreeFunction::Pool, BlockKind::Device), Kind::InvalidFree);
        assert_eq!(describe(64, FreeFunction::Pool, None).0, Kind::InvalidFree);
    }
}
