//! Handles: numbers that OpenCL gave out as pointers to things of its own.

use std::ffi::c_void;
use std::ptr;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub(crate) usize);

        impl $name {
            pub const NULL: Self = Self(0);

            #[allow(dead_code, reason = "not every kind of handle goes both ways")]
            pub(crate) fn of(raw: *mut c_void) -> Self {
                Self(raw.expose_provenance())
            }

            /// A handle by its number.
            ///
            /// # Safety
            /// Whoever has it vouches for what it is named in: OpenCL follows it.
            pub const unsafe fn from_raw(number: usize) -> Self {
                Self(number)
            }

            /// Its number.
            pub const fn as_raw(self) -> usize {
                self.0
            }

            pub(crate) fn raw(self) -> *mut c_void {
                ptr::with_exposed_provenance_mut(self.0)
            }
        }
    )*};
}

handles! {
    /// A vendor's driver.
    PlatformId;
    DeviceId;
    /// Counted, as all below: a release takes one count, and what has none left ends when nothing uses it.
    ContextId;
    /// A command queue.
    Queue;
    /// A buffer, or a part of one.
    Memory;
    Program;
    Kernel;
    /// A command's state, or one that the host sets (a user event).
    Event;
}
