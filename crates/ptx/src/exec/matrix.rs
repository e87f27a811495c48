//! Matrix instructions of a warp. The elements of a matrix are gathered from the registers of all lanes, in row-major
//! order, and scattered again.
//!
//! The PTX ISA leaves the order and the rounding of sums open, except that they have at least single precision: here
//! sums are f32, one product after the other. Products of the 16-bit and 8-bit formats are exact in f32.

use super::frame::{Frame, lanes_of};
use super::run::{LaneFault, Run, address};
use super::sparse;
use super::warp::Warp;
use crate::arith::half::Half;
use crate::ir::{
    BitProduct, Element, Factor, FragmentAccess, Fragments, Matrix, MatrixOp, MemorySpace, Multiply, Reg, Shape, Slot,
    TileAccess,
};
use crate::memory::{LANES, Width};
use crate::observer::AccessKind;

/// The largest matrix has this many elements, or registers of several elements.
const ELEMENTS_MAX: usize = 1024;

impl Run<'_> {
    /// Executes an instruction in the lanes of a group that has converged.
    pub(super) fn matrix(
        &mut self,
        warp: &mut Warp,
        group: usize,
        matrix: &Matrix,
        lanes: u32,
    ) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        let addresses = |warp: &Warp| {
            let (space, at) = matrix.access.as_ref().expect("an access has an address");
            (*space, address(warp.frame(index), at))
        };
        match &matrix.op {
            MatrixOp::Multiply(multiply) => {
                execute_multiply(warp.frame_mut(index), multiply, lanes);
                Ok(())
            }
            MatrixOp::GroupMultiply(multiply) => self.group_multiply(warp, index, multiply, lanes),
            MatrixOp::LoadFragment(access) => {
                let (space, base) = addresses(warp);
                self.load_fragment(warp, group, access, space, &base, lanes)
            }
            MatrixOp::StoreFragment(access) => {
                let (space, base) = addresses(warp);
                self.store_fragment(warp, group, access, space, &base, lanes)
            }
            MatrixOp::LoadTiles(access) => self.load_tiles(warp, index, access, &addresses(warp).1, lanes),
            MatrixOp::StoreTiles(access) => self.store_tiles(warp, index, access, &addresses(warp).1, lanes),
            MatrixOp::Transpose { to, from } => {
                transpose(warp.frame_mut(index), *to, *from, lanes);
                Ok(())
            }
        }
    }

    fn load_fragment(
        &mut self,
        warp: &mut Warp,
        group: usize,
        access: &FragmentAccess,
        space: MemorySpace,
        base: &[u64; LANES],
        lanes: u32,
    ) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        let per_register = per_load(access.element);
        let width = width_of(access.element);
        for (number, &register) in access.registers.iter().enumerate() {
            let mut values = [0; LANES];
            for part in 0..per_register {
                let at = self.element_addresses(warp, index, access, base, number * per_register + part);
                self.check_bounds(warp, group, space, &at, lanes, width.bytes(), false)?;
                let loaded = self.load(warp, index, space, width, &at, lanes, width.bytes())?;
                for lane in 0..LANES {
                    values[lane] |= loaded[lane] << (part * access.element.bits() % 64);
                }
            }
            warp.frame_mut(index).write(register, lanes, &values);
        }
        Ok(())
    }

    fn store_fragment(
        &mut self,
        warp: &mut Warp,
        group: usize,
        access: &FragmentAccess,
        space: MemorySpace,
        base: &[u64; LANES],
        lanes: u32,
    ) -> Result<(), LaneFault> {
        let index = warp.groups[group].frame;
        let per_register = access.element.per_register();
        let width = width_of(access.element);
        for (number, &register) in access.registers.iter().enumerate() {
            let values = warp.frame(index).read(register);
            for part in 0..per_register {
                let at = self.element_addresses(warp, index, access, base, number * per_register + part);
                self.check_bounds(warp, group, space, &at, lanes, width.bytes(), true)?;
                let values = values.map(|value| value >> (part * access.element.bits() % 64));
                self.store(warp, index, space, width, &at, lanes, &values, width.bytes())?;
            }
        }
        Ok(())
    }

    /// Returns where each lane's element with a number is in memory.
    fn element_addresses(
        &self,
        warp: &Warp,
        frame: usize,
        access: &FragmentAccess,
        base: &[u64; LANES],
        number: usize,
    ) -> [u64; LANES] {
        let per_lane = access.registers.len() * per_load(access.element);
        let bits = access.element.bits() as u64;
        let strides = access.stride.map(|slot| warp.frame(frame).narrow[slot as usize]);
        std::array::from_fn(|lane| {
            let line_length = if access.is_row_major { access.columns } else { access.rows };
            let (line, offset) = if bits < 8 {
                // Whole registers, in the order of memory.
                let element = (lane * per_lane + number) * access.element.per_register();
                (element / line_length, element % line_length)
            } else {
                let element = (lane * per_lane + number) % (access.rows * access.columns);
                let (row, column) = (element / access.columns, element % access.columns);
                if access.is_row_major { (row, column) } else { (column, row) }
            };
            let stride = strides.map_or(line_length as u64, |strides| u64::from(strides[lane]));
            base[lane].wrapping_add((line as u64 * stride + offset as u64) * bits / 8)
        })
    }

    fn load_tiles(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        access: &TileAccess,
        rows: &[u64; LANES],
        lanes: u32,
    ) -> Result<(), LaneFault> {
        // All are read before one is written: a register may have an address.
        let mut loaded = Vec::with_capacity(access.registers.len());
        for tile in 0..access.registers.len() {
            let mut values = [0; LANES];
            for part in 0..2 {
                let at = tile_addresses(rows, tile, part, access.is_transposed);
                let halves = self.load_silently(warp, frame, MemorySpace::Shared, Width::Two, &at, lanes, 2)?;
                if self.is_observed {
                    self.observe_half(AccessKind::Read, &at, lanes, part, access.is_transposed);
                }
                for lane in 0..LANES {
                    values[lane] |= halves[lane] << (16 * part);
                }
            }
            loaded.push(values);
        }
        for (&register, values) in access.registers.iter().zip(&loaded) {
            warp.frame_mut(frame).write(register, lanes, values);
        }
        Ok(())
    }

    fn store_tiles(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        access: &TileAccess,
        rows: &[u64; LANES],
        lanes: u32,
    ) -> Result<(), LaneFault> {
        for (tile, &register) in access.registers.iter().enumerate() {
            let values = warp.frame(frame).read(register);
            for part in 0..2 {
                let at = tile_addresses(rows, tile, part, access.is_transposed);
                let halves = values.map(|value| value >> (16 * part));
                self.store_silently(warp, frame, MemorySpace::Shared, Width::Two, &at, lanes, &halves, 2)?;
                if self.is_observed {
                    self.observe_half(AccessKind::Write, &at, lanes, part, access.is_transposed);
                }
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Notifies the observer of accesses to the halves of a tile's register; if they are one word, of both with the
    /// second one.
    fn observe_half(&mut self, kind: AccessKind, at: &[u64; LANES], lanes: u32, part: usize, is_transposed: bool) {
        match (is_transposed, part) {
            (true, _) => self.observe(MemorySpace::Shared, kind, 2, at, lanes, 0),
            (false, 0) => {}
            (false, _) => self.observe(MemorySpace::Shared, kind, 4, &at.map(|at| at - 2), lanes, 0),
        }
    }
}

/// Returns where the halves of each lane are. The lanes `8 * tile` and following have the addresses of the rows.
fn tile_addresses(rows: &[u64; LANES], tile: usize, part: usize, is_transposed: bool) -> [u64; LANES] {
    std::array::from_fn(|lane| {
        let (row, column) = match is_transposed {
            false => (lane / 4, lane % 4 * 2 + part),
            true => (lane % 4 * 2 + part, lane / 4),
        };
        rows[8 * tile + row].wrapping_add(2 * column as u64)
    })
}

fn transpose(frame: &mut Frame, to: Slot, from: Slot, lanes: u32) {
    let values = frame.narrow[from as usize];
    let half = |row: usize, column: usize| values[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
    let transposed = std::array::from_fn(|lane| half(lane % 4 * 2, lane / 4) | half(lane % 4 * 2 + 1, lane / 4) << 16);
    frame.write_narrow(to, lanes, transposed);
}

/// Returns the size of an element in memory.
fn width_of(element: Element) -> Width {
    match element.bits() {
        64 => Width::Eight,
        32 => Width::Four,
        16 => Width::Two,
        8 => Width::One,
        _ => Width::Four,
    }
}

/// Returns how many loads fill a register: one of a whole register for elements smaller than a byte.
fn per_load(element: Element) -> usize {
    if element.bits() < 8 { 1 } else { element.per_register() }
}

fn execute_multiply(frame: &mut Frame, multiply: &Multiply, lanes: u32) {
    match multiply.a_element {
        Element::F64 => multiply_doubles(frame, multiply, lanes),
        Element::B1 => multiply_bits(frame, multiply, lanes),
        element if element.is_integer() => multiply_integers(frame, multiply, lanes),
        _ => multiply_singles(frame, multiply, lanes),
    }
}

fn multiply_singles(frame: &mut Frame, multiply: &Multiply, lanes: u32) {
    let matrix = |factor, registers, element| gather(frame, multiply, factor, registers, element, single_of(element));
    let a = matrix(Factor::A, &multiply.a, multiply.a_element);
    let b = matrix(Factor::B, &multiply.b, multiply.b_element);
    let mut sum = matrix(Factor::C, &multiply.c, multiply.c_element);
    accumulate_all(frame, multiply, &a, &b, &mut sum, |a, b, sum: f32| sum + a * b);
    let is_half = multiply.d_element == Element::F16;
    scatter(frame, multiply, &sum, lanes, |sum: f32| match is_half {
        true => Half::F16.narrow(sum.into()).into(),
        false if sum.is_nan() => 0x7fff_ffff,
        false => sum.to_bits().into(),
    });
}

fn multiply_doubles(frame: &mut Frame, multiply: &Multiply, lanes: u32) {
    let Shape { n, k, .. } = multiply.shape;
    let matrix = |factor, registers| gather(frame, multiply, factor, registers, Element::F64, f64::from_bits);
    let (a, b) = (matrix(Factor::A, &multiply.a), matrix(Factor::B, &multiply.b));
    let mut sum = matrix(Factor::C, &multiply.c);
    accumulate(&a, &b, &mut sum, n, k, |a: f64, b, sum| a.mul_add(b, sum));
    scatter(frame, multiply, &sum, lanes, f64::to_bits);
}

fn multiply_integers(frame: &mut Frame, multiply: &Multiply, lanes: u32) {
    let matrix = |factor, registers, element| gather(frame, multiply, factor, registers, element, integer_of(element));
    let a = matrix(Factor::A, &multiply.a, multiply.a_element);
    let b = matrix(Factor::B, &multiply.b, multiply.b_element);
    let sum = matrix(Factor::C, &multiply.c, Element::S32);
    let mut product = vec![0; sum.len()];
    // A product of 64 elements of 8 bits fits 32 bits: only the addition of `c` can overflow.
    accumulate_all(frame, multiply, &a, &b, &mut product, |a: i32, b, sum| sum + a * b);
    let add = if multiply.saturates { i32::saturating_add } else { i32::wrapping_add };
    product.iter_mut().zip(sum).for_each(|(product, sum)| *product = add(*product, sum));
    scatter(frame, multiply, &product, lanes, |sum: i32| sum.cast_unsigned().into());
}

/// A register has 32 bits of one row of `a`, or of one column of `b`.
fn multiply_bits(frame: &mut Frame, multiply: &Multiply, lanes: u32) {
    let Shape { m, n, k } = multiply.shape;
    let words = Multiply { shape: Shape { m, n, k: k / 32 }, ..multiply.clone() };
    let matrix = |factor, registers| gather(frame, &words, factor, registers, Element::S32, |bits| bits as u32);
    let (a, b) = (matrix(Factor::A, &multiply.a), matrix(Factor::B, &multiply.b));
    let mut sum = matrix(Factor::C, &multiply.c);
    let count = match multiply.bits {
        BitProduct::Xor => |a: u32, b: u32| (a ^ b).count_ones(),
        BitProduct::And => |a: u32, b: u32| (a & b).count_ones(),
    };
    accumulate(&a, &b, &mut sum, n, k / 32, |a, b, sum: u32| sum.wrapping_add(count(a, b)));
    scatter(frame, &words, &sum, lanes, u64::from);
}

/// Adds the product of `a`, which may be sparse, and `b` to `sum`.
fn accumulate_all<T: Copy>(
    frame: &Frame,
    multiply: &Multiply,
    a: &[T],
    b: &[T],
    sum: &mut [T],
    add: impl Fn(T, T, T) -> T,
) {
    let Shape { n, k, .. } = multiply.shape;
    match &multiply.sparsity {
        None => accumulate(a, b, sum, n, k, add),
        Some(sparsity) => {
            let columns = sparse::columns(multiply, &frame.narrow[sparsity.metadata as usize], sparsity.selector);
            for ((row, columns), sums) in
                a.chunks_exact(k / 2).zip(columns.chunks_exact(k / 2)).zip(sum.chunks_exact_mut(n))
            {
                for (&a, &column) in row.iter().zip(columns) {
                    let b = &b[column * n..][..n];
                    sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum = add(a, b, *sum));
                }
            }
        }
    }
}

/// Adds the product of two matrices with `k` columns and rows to one with `n` columns.
pub(super) fn accumulate<T: Copy>(a: &[T], b: &[T], sum: &mut [T], n: usize, k: usize, add: impl Fn(T, T, T) -> T) {
    match n {
        8 => accumulate_columns::<T, 8>(a, b, sum, k, add),
        16 => accumulate_columns::<T, 16>(a, b, sum, k, add),
        32 => accumulate_columns::<T, 32>(a, b, sum, k, add),
        _ => {
            for (row, sums) in a.chunks_exact(k).zip(sum.chunks_exact_mut(n)) {
                for (&a, b) in row.iter().zip(b.chunks_exact(n)) {
                    sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum = add(a, b, *sum));
                }
            }
        }
    }
}

fn accumulate_columns<T: Copy, const N: usize>(a: &[T], b: &[T], sum: &mut [T], k: usize, add: impl Fn(T, T, T) -> T) {
    let (sums, b) = (sum.as_chunks_mut::<N>().0, b.as_chunks::<N>().0);
    for (row, sums) in a.chunks_exact(k).zip(sums) {
        for (&a, b) in row.iter().zip(b) {
            for (sum, &b) in sums.iter_mut().zip(b) {
                *sum = add(a, b, *sum);
            }
        }
    }
}

/// Returns a matrix in row-major order.
fn gather<T: Copy + Default>(
    frame: &Frame,
    multiply: &Multiply,
    factor: Factor,
    registers: &[Reg],
    element: Element,
    value: impl Fn(u64) -> T,
) -> Vec<T> {
    let (rows, columns) = multiply.stored_size(factor);
    let mut matrix = vec![T::default(); rows * columns];
    debug_assert!(matrix.len() <= ELEMENTS_MAX, "no shape has more elements");
    let (per_register, bits) = (element.per_register(), element.bits());
    for (number, &register) in registers.iter().enumerate() {
        let values = frame.read(register);
        for (lane, &packed) in values.iter().enumerate() {
            for part in 0..per_register {
                let place = place(multiply, factor, lane, number, part, registers.len(), per_register);
                if let Some(target) = matrix.get_mut(place) {
                    *target = value(packed >> (part * bits % 64));
                }
            }
        }
    }
    matrix
}

/// Writes the result.
fn scatter<T: Copy>(frame: &mut Frame, multiply: &Multiply, matrix: &[T], lanes: u32, bits_of: impl Fn(T) -> u64) {
    let element = multiply.d_element;
    let (per_register, bits) = (element.per_register(), element.bits());
    for (number, &register) in multiply.d.iter().enumerate() {
        let mut values = [0; LANES];
        for lane in lanes_of(lanes) {
            for part in 0..per_register {
                let place = place(multiply, Factor::C, lane, number, part, multiply.d.len(), per_register);
                values[lane] |= bits_of(matrix[place]) << (part * bits % 64);
            }
        }
        frame.write(register, lanes, &values);
    }
}

/// Returns the index in row-major order of an element: the lane that has it, the number of its register, and its
/// part of the register. Beyond the last for a copy of another.
#[inline]
fn place(
    multiply: &Multiply,
    factor: Factor,
    lane: usize,
    number: usize,
    part: usize,
    registers: usize,
    per_register: usize,
) -> usize {
    if multiply.fragments == Fragments::Consecutive {
        let place = (lane * registers + number) * per_register + part;
        let Shape { n, k, .. } = multiply.shape;
        // A register has elements of one column of such a matrix `b`.
        let is_by_column = factor == Factor::B && multiply.b_element.bits() < 8;
        return if is_by_column { place % k * n + place / k } else { place };
    }
    let (group, thread) = (lane / 4, lane % 4);
    let (row, column) = match factor {
        Factor::A if multiply.shape.m == 8 => (group, (number * 4 + thread) * per_register + part),
        Factor::A => (group + number % 2 * 8, (number / 2 * 4 + thread) * per_register + part),
        Factor::B => ((number * 4 + thread) * per_register + part, group),
        Factor::C => {
            let index = number * per_register + part;
            (group + index / 2 * 8, thread * 2 + index % 2)
        }
    };
    row * multiply.stored_size(factor).1 + column
}

/// Returns how a floating-point element is read.
pub(super) fn single_of(element: Element) -> fn(u64) -> f32 {
    match element {
        Element::F16 => |bits| half(bits as u16),
        Element::Bf16 => |bits| f32::from_bits((bits as u32) << 16),
        // The hardware ignores the lowest bits.
        Element::Tf32 => |bits| f32::from_bits(bits as u32 & !0x1fff),
        Element::E4m3 => |bits| match bits as u8 & 0x7f {
            0x7f => f32::NAN,
            // Exponent and fraction, moved to an f32's bits, are off by the difference of the biases.
            magnitude => sign(bits as u8) * f32::from_bits(u32::from(magnitude) << 20) * power_of_two(127 - 7),
        },
        // An f16 with fewer bits.
        Element::E5m2 => |bits| half((bits as u8 as u16) << 8),
        _ => |bits| f32::from_bits(bits as u32),
    }
}

fn sign(bits: u8) -> f32 {
    if bits & 0x80 == 0 { 1.0 } else { -1.0 }
}

fn power_of_two(exponent: u32) -> f32 {
    f32::from_bits((127 + exponent) << 23)
}

fn half(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff);
    let value = match magnitude {
        0x7c00.. => f32::from_bits(0x7f80_0000 | magnitude << 13),
        _ => f32::from_bits(magnitude << 13) * power_of_two(127 - 15),
    };
    f32::from_bits(value.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// Returns how an integer element is read.
pub(super) fn integer_of(element: Element) -> fn(u64) -> i32 {
    match element {
        Element::S8 => |bits| i32::from(bits as i8),
        Element::U8 => |bits| i32::from(bits as u8),
        Element::S4 => |bits| (bits as i32) << 28 >> 28,
        Element::U4 => |bits| bits as i32 & 0xf,
        _ => |bits| bits as i32,
    }
}
