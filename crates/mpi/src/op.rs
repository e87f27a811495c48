//! The operations that reduce elements.

use std::fmt;

use mpi::ffi;

/// How elements of several ranks are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Op {
    pub(crate) fn raw(self) -> ffi::MPI_Op {
        match self {
            // SAFETY: a constant of the library, set before the program starts.
            Self::Sum => unsafe { ffi::RSMPI_SUM },
            // SAFETY: as above.
            Self::Product => unsafe { ffi::RSMPI_PROD },
            // SAFETY: as above.
            Self::Min => unsafe { ffi::RSMPI_MIN },
            // SAFETY: as above.
            Self::Max => unsafe { ffi::RSMPI_MAX },
            // SAFETY: as above.
            Self::And => unsafe { ffi::RSMPI_BAND },
            // SAFETY: as above.
            Self::Or => unsafe { ffi::RSMPI_BOR },
            // SAFETY: as above.
            Self::Xor => unsafe { ffi::RSMPI_BXOR },
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "a sum",
            Self::Product => "a product",
            Self::Min => "a minimum",
            Self::Max => "a maximum",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "exclusive or",
        })
    }
}
