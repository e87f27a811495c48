//! `wgmma`: products of 64 rows, of which each of four warps computes 16. A factor in shared memory is read as its descriptor says.

use std::ops::Range;

use super::frame::{Frame, lanes_of};
use super::matrix::{accumulate, integer_of, single_of};
use super::run::{LaneFault, Run};
use super::warp::Warp;
use crate::arith::half::Half;
use crate::fault::FaultKind;
use crate::ir::{Element, GroupFactor, GroupMultiply, MemorySpace, Reg, Shape, SharedMatrix};
use crate::memory::{LANES, Width};

/// The unit in which the elements of a matrix follow each other.
const UNIT_BYTES: usize = 16;

/// A descriptor of a matrix in shared memory.
#[derive(Debug, Clone, Copy)]
struct Layout {
    start: u64,
    /// What the PTX ISA calls the leading dimension byte offset and the stride dimension byte offset.
    leading_bytes: u64,
    stride_bytes: u64,
    /// How many bytes of a row follow each other, and which bits of an address are exchanged with those of the row.
    row_bytes: u64,
    swizzle_mask: u64,
}

impl Layout {
    fn of(descriptor: u64) -> Option<Self> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) << 4;
        let (row_bytes, swizzle_mask) = match descriptor >> 62 {
            0 => (16, 0),
            1 => (128, 7),
            2 => (64, 3),
            _ => (32, 1),
        };
        let is_aligned = descriptor >> 49 & 7 == 0;
        let (start, leading_bytes, stride_bytes) = (field(0), field(16), field(32));
        is_aligned.then_some(Self { start, leading_bytes, stride_bytes, row_bytes, swizzle_mask })
    }

    /// Returns the address of an element: its byte in the direction in which elements follow each other, and its place in the other one.
    fn address(self, is_transposed: bool, byte: u64, line: u64) -> u64 {
        let (leading, stride, row) = (self.leading_bytes, self.stride_bytes, self.row_bytes);
        let (inner, outer) = (byte % row, byte / row);
        let offset = match (is_transposed, self.swizzle_mask) {
            (false, 0) => line % 8 * row + line / 8 * stride + inner + outer * leading,
            (false, _) => line % 8 * row + line / 8 * stride + byte,
            (true, 0) => line % 8 * row + line / 8 * leading + inner + outer * stride,
            (true, _) => line % 8 * row + line / 8 * stride + inner + outer * leading,
        };
        let address = self.start + offset;
        address ^ (address >> 7 & self.swizzle_mask) << 4
    }
}

/// Lines of a factor in shared memory: rows of `a`, or columns of `b`, with `k` elements each.
#[derive(Debug)]
struct Lines<'m> {
    matrix: &'m SharedMatrix,
    all: Range<usize>,
    k: usize,
    element: Element,
}

impl Run<'_> {
    pub(super) fn group_multiply(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        multiply: &GroupMultiply,
        lanes: u32,
    ) -> Result<(), LaneFault> {
        let is_integer = multiply.a_element.is_integer();
        let Shape { m, n, k } = multiply.shape;
        let first_row = self.warp_index as usize % 4 * m;
        let a = match &multiply.a {
            GroupFactor::Registers(registers) => a_of_registers(warp.frame(frame), registers, multiply),
            GroupFactor::Shared(matrix) => {
                let lines = Lines { matrix, all: first_row..first_row + m, k, element: multiply.a_element };
                self.shared_factor(warp, frame, &lines, lanes)?
            }
        };
        let lines = Lines { matrix: &multiply.b, all: 0..n, k, element: multiply.b_element };
        let b = self.shared_factor(warp, frame, &lines, lanes)?;
        let (slot, is_negated) = multiply.adds;
        let frame = warp.frame_mut(frame);
        let adds = (frame.read(Reg::Predicate(slot))[lanes.trailing_zeros() as usize] != 0) != is_negated;
        if is_integer {
            multiply_integers(frame, multiply, (&a, &b), adds, lanes);
        } else {
            multiply_singles(frame, multiply, (&a, &b), adds, lanes);
        }
        Ok(())
    }

    /// Returns the bits of the elements of a factor, line by line.
    fn shared_factor(
        &mut self,
        warp: &Warp,
        frame: usize,
        lines: &Lines<'_>,
        lanes: u32,
    ) -> Result<Vec<u64>, LaneFault> {
        let Lines { matrix, ref all, k, element } = *lines;
        let (first, count) = (all.start, all.len());
        let lane = lanes.trailing_zeros() as usize;
        let descriptor = warp.frame(frame).wide[matrix.descriptor as usize][lane];
        let layout = Layout::of(descriptor).ok_or_else(|| {
            let message = "wgmma: a descriptor of a matrix has a base offset, which is not supported".to_owned();
            (lane, FaultKind::Instruction { message })
        })?;
        let bytes = element.bits() / 8;
        let per_unit = UNIT_BYTES / bytes;
        let mut elements = vec![0; count * k];
        // The two halves of each unit.
        let mut at = Vec::new();
        let mut target = Vec::new();
        let mut add = |line: usize, k: usize, byte: usize, other: usize| {
            let address = layout.address(matrix.is_transposed, byte as u64, other as u64);
            for half in 0..2 {
                at.push(address + 8 * half);
                target.push((line, k, half as usize * per_unit / 2));
            }
        };
        if matrix.is_transposed {
            for k in 0..k {
                (0..count).step_by(per_unit).for_each(|line| add(line, k, (first + line) * bytes, k));
            }
        } else {
            for line in 0..count {
                (0..k).step_by(per_unit).for_each(|k| add(line, k, k * bytes, first + line));
            }
        }
        let mask = u64::MAX >> (64 - element.bits());
        for (at, target) in at.chunks(LANES).zip(target.chunks(LANES)) {
            let mut addresses = [0; LANES];
            addresses[..at.len()].copy_from_slice(at);
            let some = u32::MAX >> (LANES - at.len());
            let values = self.load(warp, frame, MemorySpace::Shared, Width::Eight, &addresses, some, 8)?;
            for (&(line, first_k, part), value) in target.iter().zip(values) {
                for number in 0..per_unit / 2 {
                    let (line, at_k) = match matrix.is_transposed {
                        true => (line + part + number, first_k),
                        false => (line, first_k + part + number),
                    };
                    if line < count {
                        elements[line * k + at_k] = value >> (number * element.bits()) & mask;
                    }
                }
            }
        }
        Ok(elements)
    }
}

/// Returns the bits of the elements of `a`, row by row.
fn a_of_registers(frame: &Frame, registers: &[Reg], multiply: &GroupMultiply) -> Vec<u64> {
    let element = multiply.a_element;
    let (k, per_register, bits) = (multiply.shape.k, element.per_register(), element.bits());
    let mask = u64::MAX >> (64 - bits);
    let mut elements = vec![0; multiply.shape.m * k];
    for (number, &register) in registers.iter().enumerate() {
        for (lane, packed) in frame.read(register).into_iter().enumerate() {
            let row = lane / 4 + number % 2 * 8;
            let column = (number / 2 * 4 + lane % 4) * per_register;
            for part in 0..per_register {
                elements[row * k + column + part] = packed >> (part * bits) & mask;
            }
        }
    }
    elements
}

/// Returns the row and column of an element of `d`, from its lane and its number in the lane.
fn place(lane: usize, number: usize) -> (usize, usize) {
    (lane / 4 + number / 2 % 2 * 8, number / 4 * 8 + lane % 4 * 2 + number % 2)
}

/// Returns `b` with a row for each `k`, from columns.
fn rows_of<T: Copy + Default>(columns: &[u64], n: usize, k: usize, value: impl Fn(u64) -> T) -> Vec<T> {
    let mut rows = vec![T::default(); n * k];
    for (column, elements) in columns.chunks_exact(k).enumerate() {
        elements.iter().enumerate().for_each(|(row, &bits)| rows[row * n + column] = value(bits));
    }
    rows
}

fn read_sums<T: Copy + Default>(frame: &Frame, multiply: &GroupMultiply, value: impl Fn(u64) -> T) -> Vec<T> {
    let (n, element) = (multiply.shape.n, multiply.d_element);
    let (per_register, bits) = (element.per_register(), element.bits());
    let mut sums = vec![T::default(); multiply.shape.m * n];
    for (number, &register) in multiply.d.iter().enumerate() {
        for (lane, packed) in frame.read(register).into_iter().enumerate() {
            for part in 0..per_register {
                let (row, column) = place(lane, number * per_register + part);
                sums[row * n + column] = value(packed >> (part * bits));
            }
        }
    }
    sums
}

fn write_sums<T: Copy>(
    frame: &mut Frame,
    multiply: &GroupMultiply,
    sums: &[T],
    lanes: u32,
    bits_of: impl Fn(T) -> u64,
) {
    let (n, element) = (multiply.shape.n, multiply.d_element);
    let (per_register, bits) = (element.per_register(), element.bits());
    for (number, &register) in multiply.d.iter().enumerate() {
        let mut values = [0; LANES];
        for lane in lanes_of(lanes) {
            for part in 0..per_register {
                let (row, column) = place(lane, number * per_register + part);
                values[lane] |= bits_of(sums[row * n + column]) << (part * bits);
            }
        }
        frame.write(register, lanes, &values);
    }
}

fn multiply_singles(frame: &mut Frame, multiply: &GroupMultiply, (a, b): (&[u64], &[u64]), adds: bool, lanes: u32) {
    let (n, k) = (multiply.shape.n, multiply.shape.k);
    let (a_value, b_value) = (single_of(multiply.a_element), single_of(multiply.b_element));
    let sign = |is_negated: bool| if is_negated { -1.0 } else { 1.0 };
    let (a_sign, b_sign) = (sign(multiply.negates_a), sign(multiply.negates_b));
    let a: Vec<f32> = a.iter().map(|&bits| a_value(bits) * a_sign).collect();
    let b = rows_of(b, n, k, |bits| b_value(bits) * b_sign);
    let mut sums = match adds {
        true => read_sums(frame, multiply, single_of(multiply.d_element)),
        false => vec![0.0; multiply.shape.m * n],
    };
    accumulate(&a, &b, &mut sums, n, k, |a, b, sum: f32| sum + a * b);
    let is_half = multiply.d_element == Element::F16;
    write_sums(frame, multiply, &sums, lanes, |sum| match is_half {
        true => Half::F16.narrow(sum.into()).into(),
        false if sum.is_nan() => 0x7fff_ffff,
        false => sum.to_bits().into(),
    });
}

fn multiply_integers(frame: &mut Frame, multiply: &GroupMultiply, (a, b): (&[u64], &[u64]), adds: bool, lanes: u32) {
    let (n, k) = (multiply.shape.n, multiply.shape.k);
    let (a_value, b_value) = (integer_of(multiply.a_element), integer_of(multiply.b_element));
    let a: Vec<i32> = a.iter().map(|&bits| a_value(bits)).collect();
    let b = rows_of(b, n, k, b_value);
    let mut product = vec![0; multiply.shape.m * n];
    accumulate(&a, &b, &mut product, n, k, |a: i32, b, sum| sum + a * b);
    if adds {
        let add = if multiply.saturates { i32::saturating_add } else { i32::wrapping_add };
        let sums = read_sums(frame, multiply, |bits| bits as i32);
        product.iter_mut().zip(sums).for_each(|(product, sum)| *product = add(*product, sum));
    }
    write_sums(frame, multiply, &product, lanes, |sum: i32| sum.cast_unsigned().into());
}
