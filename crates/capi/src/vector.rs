//! Memory that grows and shrinks at a fixed address.

use std::ffi::{c_int, c_void};
use std::ptr;

use freehold::foreign::ForeignVector;

use crate::call::{catch_panic, pointer, pool, to_code};
use crate::last_error::{self, Failure, FreeholdError};

/// Memory that grows and shrinks at a fixed address. Calls for one vector must not run at the same time.
#[derive(Debug)]
pub struct FreeholdVector {
    vector: ForeignVector,
    device: c_int,
}

const NO_VECTOR: Failure = Failure::NullArgument { name: "vector" };

/// Returns a new vector of size 0, with addresses for `size_max` bytes, or, if that is 0, for as many as the device has
/// memory for. Addresses are not memory.
///
/// Returns null on failure: see freehold_last_error.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_new(device: c_int, size_max: usize) -> *mut FreeholdVector {
    let made = catch_panic(|| Ok(FreeholdVector { vector: pool(device)?.new_vector(size_max)?, device }));
    match made {
        Ok(vector) => Box::into_raw(Box::new(vector)),
        Err(failure) => {
            last_error::set(failure);
            ptr::null_mut()
        }
    }
}

/// Changes the size. The address and the contents stay, and the call waits for nothing: work of all streams may use the
/// vector meanwhile. Added bytes have no defined value. A smaller size keeps the memory: see freehold_vector_shrink.
///
/// Returns a freehold_error; a failed call changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_resize(vector: Option<&mut FreeholdVector>, size: usize) -> c_int {
    to_code(|| {
        let FreeholdVector { vector, device } = vector.ok_or(NO_VECTOR)?;
        Ok(pool(*device)?.resize_vector(vector, size)?)
    })
}

/// Returns the memory beyond the vector's size to the pool, in whole chunks of 2 MiB or more, when all work that was
/// submitted to the device before is complete. Does not wait.
///
/// Returns a freehold_error: FREEHOLD_ERROR_STREAM_CAPTURED while a stream is being captured.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_shrink(vector: Option<&mut FreeholdVector>) -> c_int {
    to_code(|| {
        let FreeholdVector { vector, device } = vector.ok_or(NO_VECTOR)?;
        Ok(pool(*device)?.shrink_vector(vector)?)
    })
}

/// Returns the first address of a vector, which never changes; null for null.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_address(vector: Option<&FreeholdVector>) -> *mut c_void {
    vector.map_or(ptr::null_mut(), |vector| pointer(vector.vector.address()))
}

/// Returns the size of a vector in bytes; 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_size(vector: Option<&FreeholdVector>) -> usize {
    vector.map_or(0, |vector| vector.vector.len())
}

/// Returns how many bytes a vector has memory for; 0 for null.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_vector_capacity(vector: Option<&FreeholdVector>) -> usize {
    vector.map_or(0, |vector| vector.vector.capacity())
}

/// Releases a vector after all work that was submitted to the device before, in any stream. Does not wait. Null is
/// ignored.
///
/// Returns a freehold_error.
#[unsafe(no_mangle)]
#[expect(clippy::missing_safety_doc, reason = "the comment is for the C header, and says what is released")]
pub unsafe extern "C" fn freehold_vector_free(vector: *mut FreeholdVector) -> c_int {
    if vector.is_null() {
        return FreeholdError::None as c_int;
    }
    // SAFETY: freehold_vector_new leaked the box, and the caller does not use it again.
    let FreeholdVector { vector, device } = *unsafe { Box::from_raw(vector) };
    to_code(|| Ok(pool(device)?.free_vector(vector)?))
}
