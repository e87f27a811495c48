//! Handles of what a driver makes: numbers that only the backend that made them understands. They are inert: each call that is given
//! one is `unsafe`, for drivers follow them.

use std::fmt;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// A handle by its number.
            ///
            /// # Safety
            /// It is the number of a handle that a backend made, or others where the backend takes theirs.
            pub const unsafe fn from_raw(number: u64) -> Self {
                Self(number)
            }

            /// Its number: a pointer of the driver's, or whatever else the backend knows it by.
            pub const fn as_raw(self) -> u64 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    )*};
}

handles! {
    Stream;
    Event;
    /// Memory without an address.
    Memory;
    Module;
    Kernel;
}
