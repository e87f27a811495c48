//! Handles of driver objects: numbers that only the backend that made them can interpret. Holding one is safe; each
//! call that takes one is `unsafe`, because drivers dereference handles.

use std::fmt;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// Makes a handle from its number.
            ///
            /// # Safety
            /// `number` is that of a handle that a backend made, or that other code made where the backend accepts such
            /// handles.
            pub const unsafe fn from_raw(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number: a pointer of the driver, or another number by which the backend identifies the
            /// object.
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
    /// A stream.
    Stream;
    /// An event.
    Event;
    /// Memory without an address.
    Memory;
    /// A loaded module.
    Module;
    /// A kernel of a module.
    Kernel;
}
