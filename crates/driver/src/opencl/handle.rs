//! Handles: OpenCL's pointers to its objects, as numbers.

use std::ffi::c_void;
use std::ptr;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub(crate) usize);

        impl $name {
            /// No handle.
            pub const NULL: Self = Self(0);

            #[allow(dead_code, reason = "not every kind of handle is converted in both directions")]
            pub(crate) fn of(raw: *mut c_void) -> Self {
                Self(raw.expose_provenance())
            }

            /// Makes a handle from its number.
            ///
            /// # Safety
            /// Code that has the handle is responsible for every call that it is passed to: OpenCL dereferences it.
            pub const unsafe fn from_raw(number: usize) -> Self {
                Self(number)
            }

            /// Returns the number.
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
    /// A platform: a vendor's driver.
    PlatformId;
    /// A device of a platform.
    DeviceId;
    /// Reference-counted, as all below: an object without references is deleted when no command uses it.
    ContextId;
    /// A command queue.
    Queue;
    /// A buffer, or a sub-buffer.
    Memory;
    /// A program, built or not.
    Program;
    /// A kernel of a program, with its arguments.
    Kernel;
    /// The state of a command, or a user event.
    Event;
}
