//! The elements of transfers: types that have an MPI datatype.

use freehold::Pod;
use mpi::ffi;

use self::sealed::Sealed;
use crate::error::{Error, Result};
use crate::op::Op;

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
}
