//! The deprecated copies of arrays, which count bytes in row order: each becomes at most a few copies of rectangles.

use std::ffi::c_void;

use freehold_driver::cuda::{CUarray, CUstream};

use super::array::{End, copy_rows, cudaMemcpy2DArrayToArray, row_bytes};
use crate::code::{CudaError, cudaError_t};
use crate::process;
use crate::types::cudaMemcpyKind;

/// A rectangle of an array, and the bytes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    x_bytes: usize,
    y: usize,
    width: usize,
    height: usize,
    before: usize,
}

/// Splits bytes of an array that start in a row into the rest of that row, whole rows, and the start of the last row.
fn split(row: usize, x_bytes: usize, y: usize, bytes: usize) -> Result<Vec<Part>, CudaError> {
    if row == 0 || x_bytes > row {
        return Err(CudaError::INVALID_VALUE);
    }
    let first = bytes.min(row - x_bytes);
    let (first, mut next) = if x_bytes == 0 { (0, y) } else { (first, y + 1) };
    let mut parts = Vec::new();
    if first > 0 {
        parts.push(Part { x_bytes, y, width: first, height: 1, before: 0 });
    }
    let (whole, rest) = ((bytes - first) / row, (bytes - first) % row);
    if whole > 0 {
        parts.push(Part { x_bytes: 0, y: next, width: row, height: whole, before: first });
        next += whole;
    }
    if rest > 0 {
        parts.push(Part { x_bytes: 0, y: next, width: rest, height: 1, before: first + whole * row });
    }
    Ok(parts)
}

fn parts_of(array: CUarray, x_bytes: usize, y: usize, bytes: usize) -> Result<Vec<Part>, CudaError> {
    split(row_bytes(&process::with_context()?.api, array)?, x_bytes, y, bytes)
}

/// A position in an array, at which consecutive bytes begin.
#[derive(Clone, Copy)]
struct Start {
    array: CUarray,
    x_bytes: usize,
    y: usize,
}

/// Which way bytes are copied, and the memory outside of the array.
#[derive(Clone, Copy)]
enum Memory {
    From(*const c_void),
    To(*mut c_void),
}

/// Copies consecutive bytes of an array, in a stream if there is one.
///
/// # Safety
/// The array and as many bytes of memory must be valid until they are copied.
unsafe fn copy_bytes(
    start: Start,
    memory: Memory,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: Option<CUstream>,
) -> cudaError_t {
    let Start { array, x_bytes, y } = start;
    for Part { x_bytes, y, width, height, before } in parts_of(array, x_bytes, y, bytes)? {
        let part = End::Array { array, x_bytes, y };
        let rows = |start: *mut c_void| End::Memory { start: start.wrapping_byte_add(before), pitch_bytes: width };
        let (from, to) = match memory {
            Memory::From(start) => (rows(start.cast_mut()), part),
            Memory::To(start) => (part, rows(start)),
        };
        // SAFETY: the caller guarantees that the array and the memory are valid, of which this is a part.
        unsafe { copy_rows(from, to, width, height, kind, stream) }?;
    }
    Ok(())
}

pub(crate) unsafe fn cudaMemcpyToArray(
    to: CUarray,
    x_bytes: usize,
    y: usize,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the array and the memory are valid.
    unsafe { copy_bytes(Start { array: to, x_bytes, y }, Memory::From(from), bytes, kind, None) }
}

pub(crate) unsafe fn cudaMemcpyToArrayAsync(
    to: CUarray,
    x_bytes: usize,
    y: usize,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the stream, the array and the memory are valid.
    unsafe { copy_bytes(Start { array: to, x_bytes, y }, Memory::From(from), bytes, kind, Some(stream)) }
}

pub(crate) unsafe fn cudaMemcpyFromArray(
    to: *mut c_void,
    from: CUarray,
    x_bytes: usize,
    y: usize,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the array and the memory are valid.
    unsafe { copy_bytes(Start { array: from, x_bytes, y }, Memory::To(to), bytes, kind, None) }
}

pub(crate) unsafe fn cudaMemcpyFromArrayAsync(
    to: *mut c_void,
    from: CUarray,
    x_bytes: usize,
    y: usize,
    bytes: usize,
    kind: cudaMemcpyKind,
    stream: CUstream,
) -> cudaError_t {
    // SAFETY: the C caller guarantees that the stream, the array and the memory are valid.
    unsafe { copy_bytes(Start { array: from, x_bytes, y }, Memory::To(to), bytes, kind, Some(stream)) }
}

pub(crate) unsafe fn cudaMemcpyArrayToArray(
    to: CUarray,
    to_x_bytes: usize,
    to_y: usize,
    from: CUarray,
    from_x_bytes: usize,
    from_y: usize,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> cudaError_t {
    let row = row_bytes(&process::with_context()?.api, to)?;
    for source in parts_of(from, from_x_bytes, from_y, bytes)? {
        // Row by row: the rows of the two arrays need not begin at the same bytes.
        for line in 0..source.height {
            let at = to_x_bytes + source.before + line * source.width;
            for part in split(row, at % row, to_y + at / row, source.width)? {
                let x_bytes = source.x_bytes + part.before;
                let Part { x_bytes: to_x, y: to_y, width, height, .. } = part;
                // SAFETY: the C caller guarantees that both arrays are valid.
                unsafe {
                    cudaMemcpy2DArrayToArray(to, to_x, to_y, from, x_bytes, source.y + line, width, height, kind)
                }?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_split_at_the_ends_of_rows() {
        let part = |x_bytes, y, width, height, before| Part { x_bytes, y, width, height, before };
        assert_eq!(split(40, 0, 1, 120), Ok(vec![part(0, 1, 40, 3, 0)]));
        assert_eq!(split(40, 10, 2, 20), Ok(vec![part(10, 2, 20, 1, 0)]));
        let three = vec![part(10, 2, 30, 1, 0), part(0, 3, 40, 2, 30), part(0, 5, 5, 1, 110)];
        assert_eq!(split(40, 10, 2, 115), Ok(three));
        assert_eq!(split(40, 41, 0, 1), Err(CudaError::INVALID_VALUE));
    }
}
