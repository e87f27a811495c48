//! Conversion of C arguments to checked values. A null or misaligned pointer is rejected before the API function runs.

use std::ffi::{CStr, c_char, c_void};

use freehold_driver::cuda::{
    CUarray, CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUdeviceptr, CUerror, CUevent,
    CUfunc_cache, CUfunction, CUfunction_attribute, CUgraph, CUgraphExec, CUgraphMem_attribute, CUgraphNode, CUhostFn,
    CUipcEventHandle, CUipcMemHandle, CUjitInputType, CUkernel, CUlaunchAttributeID, CUlibrary, CUlimit, CUlinkState,
    CUlogsCallback, CUlogsCallbackHandle, CUmem_advise, CUmem_range_attribute, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemGenericAllocationHandle, CUmemLocation, CUmemPool_attribute, CUmemoryPool,
    CUmipmappedArray, CUmodule, CUoccupancyB2DSize, CUpointer_attribute, CUresult, CUsharedconfig, CUstream,
    CUstreamCallback, CUstreamCaptureMode, CUsurfObject, CUtensorMapDataType, CUtexObject, CUuserObject,
};

use crate::memory::mem_ref::MemRef;

/// Conversion of a C argument to the argument type of an API function.
pub(crate) trait FromC<C>: Sized {
    /// # Safety
    /// A pointer that is neither null nor misaligned points to what the C signature says, for as long as the call
    /// lasts.
    unsafe fn from_c(argument: C) -> Result<Self, CUerror>;
}

macro_rules! by_value {
    ($($kind:ty),* $(,)?) => {$(
        impl FromC<$kind> for $kind {
            unsafe fn from_c(argument: $kind) -> Result<Self, CUerror> {
                Ok(argument)
            }
        }
    )*};
}

by_value!(
    u8,
    u16,
    u32,
    u64,
    usize,
    i32,
    CUarray,
    CUmipmappedArray,
    CUtexObject,
    CUsurfObject,
    CUtensorMapDataType,
    CUcontext,
    CUdevice,
    CUdevice_P2PAttribute,
    CUdevice_attribute,
    CUdeviceptr,
    CUevent,
    CUfunc_cache,
    CUfunction,
    CUfunction_attribute,
    CUgraph,
    CUgraphExec,
    CUgraphMem_attribute,
    CUgraphNode,
    CUhostFn,
    CUjitInputType,
    CUkernel,
    CUlaunchAttributeID,
    CUlibrary,
    CUlimit,
    CUlinkState,
    CUlogsCallback,
    CUlogsCallbackHandle,
    CUipcEventHandle,
    CUipcMemHandle,
    CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType,
    CUmemGenericAllocationHandle,
    CUmemLocation,
    CUmemPool_attribute,
    CUmem_advise,
    CUmem_range_attribute,
    CUmemoryPool,
    CUmodule,
    CUoccupancyB2DSize,
    CUsharedconfig,
    CUpointer_attribute,
    CUstream,
    CUstreamCallback,
    CUstreamCaptureMode,
    CUuserObject,
);

/// A pointer that a call writes a result to.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    pub(crate) fn set(self, value: T) {
        // SAFETY: `from_c` refused null and misaligned pointers; its caller guarantees that the rest point to a `T`.
        unsafe { self.0.write(value) }
    }
}

impl Out<c_char> {
    /// Writes as much of `text` as fits into `length` characters, including the terminating NUL.
    pub(crate) fn set_str(self, text: &str, length: i32) -> CUresult {
        let room = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let room = room.ok_or(CUerror::INVALID_VALUE)?;
        let bytes = text.bytes().take(room).chain([0]);
        for (index, byte) in bytes.enumerate() {
            let at = self.0.wrapping_add(index);
            // SAFETY: the C caller guarantees `length` characters, and `index` is less than that.
            unsafe { at.write(byte as c_char) };
        }
        Ok(())
    }
}

impl<T> FromC<*mut T> for Out<T> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        if argument.is_null() || !argument.is_aligned() {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(Self(argument))
    }
}

impl<T> Out<T> {
    /// Writes all of `values`. The API function passes no more values than the C caller provided space for.
    pub(crate) fn set_slice(self, values: &[T])
    where
        T: Copy,
    {
        for (index, value) in values.iter().enumerate() {
            let at = self.0.wrapping_add(index);
            // SAFETY: `from_c` refused null and misaligned pointers, and the C caller guarantees as many values as it
            // requested, which the API function does not exceed.
            unsafe { at.write(*value) };
        }
    }
}

/// A pointer to a value that a call reads and then writes.
#[derive(Debug)]
pub(crate) struct InOut<T>(*mut T);

impl<T: Copy> InOut<T> {
    pub(crate) fn read(&self) -> T {
        // SAFETY: `from_c` refused null and misaligned pointers; its caller guarantees that the rest point to a `T`.
        unsafe { self.0.read() }
    }

    pub(crate) fn set(self, value: T) {
        Out(self.0).set(value);
    }
}

impl<T> FromC<*mut T> for InOut<T> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { Out::from_c(argument) }.map(|Out(pointer)| Self(pointer))
    }
}

impl<T> FromC<*mut T> for Option<InOut<T>> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { InOut::from_c(argument) }.map(Some)
    }
}

impl<T> FromC<*mut T> for Option<Out<T>> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { Out::from_c(argument) }.map(Some)
    }
}

/// A structure that a call reads.
#[derive(Debug)]
pub(crate) struct In<T>(pub(crate) T);

impl<T: Copy> FromC<*const T> for In<T> {
    unsafe fn from_c(argument: *const T) -> Result<Self, CUerror> {
        if argument.is_null() || !argument.is_aligned() {
            return Err(CUerror::INVALID_VALUE);
        }
        // SAFETY: neither null nor misaligned, and the caller guarantees that it points to a `T`.
        Ok(Self(unsafe { argument.read() }))
    }
}

impl<T: Copy> FromC<*mut T> for In<T> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { Self::from_c(argument.cast_const()) }
    }
}

impl<T: Copy> FromC<*const T> for Option<In<T>> {
    unsafe fn from_c(argument: *const T) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { In::from_c(argument) }.map(Some)
    }
}

impl<T: Copy> FromC<*mut T> for Option<In<T>> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { In::from_c(argument) }.map(Some)
    }
}

/// An array that a call reads. Another argument is its length.
#[derive(Debug)]
pub(crate) struct InArray<T>(*const T);

impl<T> InArray<T> {
    /// An array of length zero.
    pub(crate) const EMPTY: Self = Self(std::ptr::null());

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> InArray<T> {
    /// Reads the first `count` elements.
    pub(crate) fn read(&self, count: usize) -> Result<Vec<T>, CUerror> {
        if count > 0 && (self.0.is_null() || !self.0.is_aligned()) {
            return Err(CUerror::INVALID_VALUE);
        }
        let elements = (0..count).map(|index| {
            let at = self.0.wrapping_add(index);
            // SAFETY: the start is neither null nor misaligned, and the C caller guarantees `count` elements.
            unsafe { at.read() }
        });
        Ok(elements.collect())
    }
}

impl<T> FromC<*mut T> for InArray<T> {
    unsafe fn from_c(argument: *mut T) -> Result<Self, CUerror> {
        Ok(Self(argument))
    }
}

impl<T> FromC<*const T> for InArray<T> {
    unsafe fn from_c(argument: *const T) -> Result<Self, CUerror> {
        Ok(Self(argument))
    }
}

/// An array of 64-bit words in the program's memory. Accesses are system calls, so that an unmapped address is an error
/// code.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordArray(u64);

impl WordArray {
    /// Returns the array that a field of a structure points to.
    pub(crate) fn at(start: *mut *mut c_void) -> Result<Self, CUerror> {
        if start.is_aligned() { Ok(Self(start as u64)) } else { Err(CUerror::INVALID_VALUE) }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn read(self, index: usize) -> Result<u64, CUerror> {
        let mut word = [0; 8];
        self.mem_ref().read(index as u64 * 8, &mut word).map_err(|_| CUerror::INVALID_VALUE)?;
        Ok(u64::from_le_bytes(word))
    }

    pub(crate) fn write(self, index: usize, word: u64) -> CUresult {
        self.mem_ref().write(index as u64 * 8, &word.to_le_bytes()).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn mem_ref(self) -> MemRef {
        MemRef::host(self.0)
    }
}

impl FromC<*mut *mut c_void> for WordArray {
    unsafe fn from_c(argument: *mut *mut c_void) -> Result<Self, CUerror> {
        Self::at(argument)
    }
}

/// A string that a call reads.
#[derive(Debug)]
pub(crate) struct InStr(pub(crate) String);

impl FromC<*const c_char> for InStr {
    unsafe fn from_c(argument: *const c_char) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        // SAFETY: not null, and the caller guarantees that it ends in a NUL.
        Ok(Self(unsafe { CStr::from_ptr(argument) }.to_string_lossy().into_owned()))
    }
}

impl FromC<*const c_char> for Option<InStr> {
    unsafe fn from_c(argument: *const c_char) -> Result<Self, CUerror> {
        if argument.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller guarantees that the pointer is valid, as `from_c` requires.
        unsafe { InStr::from_c(argument) }.map(Some)
    }
}

/// A host address that the call itself does not dereference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostAddress(pub(crate) u64);

impl FromC<*mut c_void> for HostAddress {
    unsafe fn from_c(argument: *mut c_void) -> Result<Self, CUerror> {
        Ok(Self(argument as u64))
    }
}

impl FromC<*const c_void> for HostAddress {
    unsafe fn from_c(argument: *const c_void) -> Result<Self, CUerror> {
        Ok(Self(argument as u64))
    }
}

/// A pointer to a value of a type that another argument selects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UntypedPtr(*mut c_void);

impl UntypedPtr {
    pub(crate) fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    fn checked<T>(self) -> Result<*mut T, CUerror> {
        let pointer = self.0.cast::<T>();
        if pointer.is_null() || !pointer.is_aligned() { Err(CUerror::INVALID_VALUE) } else { Ok(pointer) }
    }

    pub(crate) fn set<T>(self, value: T) -> CUresult {
        let pointer = self.checked::<T>()?;
        // SAFETY: neither null nor misaligned, and the C caller guarantees space for the type of the attribute.
        unsafe { pointer.write(value) };
        Ok(())
    }

    pub(crate) fn read<T: Copy>(self) -> Result<T, CUerror> {
        let pointer = self.checked::<T>()?;
        // SAFETY: neither null nor misaligned, and the C caller guarantees that it holds the type of the attribute.
        Ok(unsafe { pointer.read() })
    }
}

impl FromC<*mut c_void> for UntypedPtr {
    unsafe fn from_c(argument: *mut c_void) -> Result<Self, CUerror> {
        Ok(Self(argument))
    }
}

impl FromC<*const c_void> for UntypedPtr {
    unsafe fn from_c(argument: *const c_void) -> Result<Self, CUerror> {
        Ok(Self(argument.cast_mut()))
    }
}
