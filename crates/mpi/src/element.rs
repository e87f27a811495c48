//! Element types that have an MPI datatype, and the operations that reduce them.

use std::fmt;

use freehold::Pod;
use mpi::ffi;

use self::sealed::Sealed;
use crate::error::{Error, Result};

mod sealed {
    pub trait Sealed {}
}

/// A number that MPI can reduce. The trait is sealed: each type must match its MPI datatype.
pub trait Element: Pod + Sealed {
    /// The type's name in Rust.
    const NAME: &'static str;
    /// Whether bitwise operations are defined for it.
    const IS_INTEGER: bool;
    #[doc(hidden)]
    fn datatype() -> Datatype;
}

/// An MPI datatype.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Datatype(pub(crate) ffi::MPI_Datatype);

// SAFETY: the handle is not `Send` where the library makes it a pointer; it names a constant of the library, which no
// thread changes.
unsafe impl Send for Datatype {}

macro_rules! elements {
    ($($element:ty, $is_integer:literal, $kind:ident;)*) => {$(
        impl Sealed for $element {}

        impl Element for $element {
            const NAME: &'static str = stringify!($element);
            const IS_INTEGER: bool = $is_integer;

            fn datatype() -> Datatype {
                // SAFETY: a constant of the library, set before the program starts.
                Datatype(unsafe { ffi::$kind })
            }
        }
    )*};
}

elements! {
    u8, true, RSMPI_UINT8_T;
    u16, true, RSMPI_UINT16_T;
    u32, true, RSMPI_UINT32_T;
    u64, true, RSMPI_UINT64_T;
    i8, true, RSMPI_INT8_T;
    i16, true, RSMPI_INT16_T;
    i32, true, RSMPI_INT32_T;
    i64, true, RSMPI_INT64_T;
    f32, false, RSMPI_FLOAT;
    f64, false, RSMPI_DOUBLE;
}

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
    /// Rejects bitwise operations on types that are not integers.
    pub(crate) fn check<T: Element>(self) -> Result<()> {
        let is_of_bits = matches!(self, Self::And | Self::Or | Self::Xor);
        if is_of_bits && !T::IS_INTEGER {
            Err(Error::UnsupportedOperation { op: self, element: T::NAME })
        } else {
            Ok(())
        }
    }

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
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "minimum",
            Self::Max => "maximum",
            Self::And => "bitwise and",
            Self::Or => "bitwise or",
            Self::Xor => "bitwise exclusive or",
        })
    }
}
