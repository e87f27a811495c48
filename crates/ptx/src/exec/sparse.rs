//! Sparse matrices: which columns the stored elements of a matrix `a` belong to. Of every four columns two are stored, of
//! tf32 one of every two, of 4-bit elements two pairs of every four.

use crate::ir::{Factor, Multiply};
use crate::memory::LANES;

/// Returns the column of each stored element, row by row.
pub(super) fn columns(multiply: &Multiply, metadata: &[u32; LANES], selector: usize) -> Vec<usize> {
    let (rows, stored) = multiply.stored_size(Factor::A);
    let bits = multiply.a_element.bits();
    let per_chunk = stored_per_chunk(bits);
    let chunks = stored / per_chunk;
    let mut columns = Vec::with_capacity(rows * stored);
    for row in 0..rows {
        for chunk in 0..chunks {
            let (lane, shift) = place(bits, row, chunk, chunks, selector);
            let code = metadata[lane] >> shift;
            let (first, second) = ((code & 3) as usize, (code >> 2 & 3) as usize);
            let start = chunk * 2 * per_chunk;
            match per_chunk {
                // The positions are those of the halves of an element.
                1 => columns.push(start + first / 2),
                2 => columns.extend([start + first, start + second]),
                _ => columns.extend([first, second].into_iter().flat_map(|pair| [0, 1].map(|k| start + pair * 2 + k))),
            }
        }
    }
    columns
}

/// Returns how many elements are stored for four bits of metadata.
fn stored_per_chunk(bits: usize) -> usize {
    match bits {
        32 => 1,
        16 | 8 => 2,
        _ => 4,
    }
}

/// Returns which lane has the four bits for a part of a row, and at which bit.
fn place(bits: usize, row: usize, chunk: usize, chunks: usize, selector: usize) -> (usize, usize) {
    let (group, half) = (row % 8, row / 8);
    let (thread, shift) = if bits >= 16 {
        // A lane has 16 bits for a row, and 16 for the row that is eight further.
        let per_row = chunks / 4;
        (selector * per_row + chunk / 4, 16 * half + chunk % 4 * 4)
    } else {
        // A lane has 32 bits for a row.
        (selector * 2 + chunk / 8 * 2 + half, chunk % 8 * 4)
    };
    (group * 4 + thread, shift)
}
