//! Which bytes of global memory a box of a tensor has, and a column of pixels.

use crate::tensor_map::{Columns, TensorMap};

/// Consecutive bytes. Those outside a tensor have no address.
pub(super) struct Piece {
    pub(super) start: Option<u64>,
    pub(super) bytes: u64,
}

/// Returns the pieces of a box of a tensor, beginning at these coordinates.
pub(super) fn box_pieces(map: &TensorMap, from: &[i64]) -> Vec<Piece> {
    let outer = &map.dimensions[1..];
    let rows: u64 = outer.iter().map(|dimension| dimension.count()).product();
    let mut pieces = Vec::new();
    for row in 0..rows {
        let mut left = row;
        let at = outer.iter().zip(&from[1..]).map(|(dimension, &from)| {
            let number = left % dimension.count();
            left /= dimension.count();
            from + (number * u64::from(dimension.step)).cast_signed()
        });
        let at: Vec<i64> = at.collect();
        push_row(map, from[0], &at, &mut pieces);
    }
    pieces
}

/// Returns the pieces of a column of pixels. The pixel at the coordinates is the first one; the next one is a step further
/// in the innermost spatial dimension, or at its lower corner and a step further in the next dimension. The offsets are
/// added after that.
pub(super) fn column_pieces(map: &TensorMap, columns: &Columns, from: &[i64], offsets: &[i64]) -> Vec<Piece> {
    let outer = &map.dimensions[1..];
    let mut base = from[1..].to_vec();
    let mut pieces = Vec::new();
    for _ in 0..columns.pixels {
        let mut at = base.clone();
        at.iter_mut().zip(offsets).for_each(|(at, offset)| *at += offset);
        push_row(map, from[0], &at, &mut pieces);
        for (number, dimension) in outer.iter().enumerate() {
            base[number] += i64::from(dimension.step);
            // The images have no corners.
            let (Some(&lower), Some(&upper)) = (columns.lower.get(number), columns.upper.get(number)) else { break };
            if base[number] < dimension.size.cast_signed() + i64::from(upper) {
                break;
            }
            base[number] = lower.into();
        }
    }
    pieces
}

/// Adds the pieces of a row that begins at `first`, at these coordinates of the outer dimensions.
fn push_row(map: &TensorMap, first: i64, outer: &[i64], pieces: &mut Vec<Piece>) {
    let (mut start, mut is_inside) = (map.start, true);
    for (dimension, &at) in map.dimensions[1..].iter().zip(outer) {
        is_inside &= (0..dimension.size.cast_signed()).contains(&at);
        start = start.wrapping_add(dimension.stride.wrapping_mul(at.cast_unsigned()));
    }
    if !is_inside {
        pieces.push(Piece { start: None, bytes: map.row_bytes() });
        return;
    }
    let inner = &map.dimensions[0];
    let (size, element) = (inner.size.cast_signed(), map.element.bytes());
    let address = |at: i64| start.wrapping_add(at.cast_unsigned().wrapping_mul(element));
    let end = first + i64::from(inner.box_size);
    let (from, to) = (first.clamp(0, size), end.clamp(0, size));
    let parts = if from < to { [from - first, to - from, end - to] } else { [end - first, 0, 0] };
    for (part, begin) in parts.into_iter().zip([None, Some(address(from)), None]).filter(|(part, _)| *part > 0) {
        pieces.push(Piece { start: begin, bytes: part.cast_unsigned() * element });
    }
}
