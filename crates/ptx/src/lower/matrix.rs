//! Lowers matrix instructions of a warp.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{
    BitProduct, Element, Factor, FragmentAccess, Fragments, Matrix, MatrixOp, MemorySpace, Multiply, Op, Reg, Shape,
    Sparsity, TileAccess,
};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn matrix_operation(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let action = modifiers.take(|word| ["load", "store", "mma"].iter().find(|&&known| known == word).copied());
        if !modifiers.has("sync") {
            return Err(self.error("expected '.sync'"));
        }
        let _aligned = modifiers.has("aligned");
        match (opcode, action) {
            ("mma", None) => self.multiply(modifiers, operands, Fragments::Documented),
            ("wmma", Some("mma")) => self.multiply(modifiers, operands, Fragments::Consecutive),
            ("wmma", Some("load")) => self.load_fragment(modifiers, operands),
            ("wmma", Some("store")) => self.store_fragment(modifiers, operands),
            ("ldmatrix", None) => self.load_tiles(modifiers, operands),
            ("stmatrix", None) => self.store_tiles(modifiers, operands),
            ("movmatrix", None) => self.move_matrix(modifiers, operands),
            _ => Err(self.error("expected '.load', '.store' or '.mma'")),
        }
    }

    pub(super) fn emit_matrix(&mut self, op: MatrixOp, access: Option<(MemorySpace, crate::ir::Address)>) {
        let members = self.constant_narrow(u32::MAX);
        self.emit(Op::Matrix(Box::new(Matrix { op, access, members })));
    }

    fn matrix_shape(&self, modifiers: &mut Modifiers<'m>) -> Result<Shape, Error> {
        modifiers.take(shape_of).ok_or_else(|| self.error("expected a shape such as '.m16n8k16'"))
    }

    fn element(&self, modifiers: &mut Modifiers<'m>) -> Result<Element, Error> {
        let element = modifiers.take(element_of).ok_or_else(|| self.error("expected the type of a matrix"))?;
        let since = match element {
            Element::F16 | Element::F32 => 70,
            Element::S32 | Element::S8 | Element::U8 | Element::S4 | Element::U4 | Element::B1 => 72,
            Element::Bf16 | Element::Tf32 | Element::F64 => 80,
            Element::E4m3 | Element::E5m2 => 89,
        };
        let target = self.unit.module.target;
        if target < since {
            return Err(self.error(format!("this type needs sm_{since} or higher, but the target is sm_{target}")));
        }
        Ok(element)
    }

    /// `.row` and `.col`, which decide where elements are in memory, and nothing else.
    fn is_row_major(&self, modifiers: &mut Modifiers<'m>) -> Result<bool, Error> {
        let layout = modifiers.take(|word| match word {
            "row" => Some(true),
            "col" => Some(false),
            _ => None,
        });
        layout.ok_or_else(|| self.error("expected '.row' or '.col'"))
    }

    fn multiply(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
        fragments: Fragments,
    ) -> Result<(), Error> {
        let is_sparse = fragments == Fragments::Documented && modifiers.has_any(&["sp", "sp::ordered_metadata"]);
        let shape = self.matrix_shape(modifiers)?;
        let (a_row, b_row) = (self.is_row_major(modifiers)?, self.is_row_major(modifiers)?);
        if fragments == Fragments::Documented && (!a_row || b_row) {
            return Err(self.unsupported("'mma' with a layout other than '.row.col'"));
        }
        let d_element = self.element(modifiers)?;
        let second = self.element(modifiers)?;
        let (a_element, b_element, c_element) = match modifiers.take(element_of) {
            // `wmma` with f16 names only the types of d and c.
            None => (Element::F16, Element::F16, second),
            Some(b_element) => (second, b_element, self.element(modifiers)?),
        };
        let saturates = modifiers.has("satfinite");
        let bits = match (modifiers.has("popc"), modifiers.has("xor"), modifiers.has("and")) {
            (true, false, true) => BitProduct::And,
            (_, true, false) | (false, false, false) => BitProduct::Xor,
            _ => return Err(self.error("expected '.xor.popc' or '.and.popc'")),
        };
        if modifiers.rounding().is_some_and(|rounding| rounding != crate::arith::Rounding::Nearest) {
            return Err(self.unsupported("matrix products that round in another way than '.rn'"));
        }
        let is_known = match fragments {
            Fragments::Documented if is_sparse => is_sparse_mma(shape, a_element, b_element, c_element, d_element),
            Fragments::Documented => is_mma(shape, a_element, b_element, c_element, d_element),
            Fragments::Consecutive => is_wmma(shape, a_element, b_element, c_element, d_element),
        };
        if !is_known {
            return Err(self.unsupported("matrix products of this shape and these types"));
        }
        let (operands, sparsity) = match (is_sparse, operands) {
            (true, [dense @ .., metadata, selector]) => (dense, Some((metadata, selector))),
            (true, _) => return Err(self.error("expected the operands 'd, a, b, c, e, selector'")),
            (false, _) => (operands, None),
        };
        let sparsity =
            sparsity.map(|(metadata, selector)| self.sparsity(metadata, selector, shape, a_element)).transpose()?;
        let [d, a, b, c] = self.operands(operands)?;
        let counts = [Factor::A, Factor::B, Factor::C, Factor::C];
        let elements = [a_element, b_element, c_element, d_element];
        let mut count = counts.iter().zip(elements).map(|(&factor, element)| match fragments {
            Fragments::Documented => mma_registers(shape, factor, element),
            Fragments::Consecutive => wmma_registers(shape, factor, element),
        });
        let mut next = || count.next().expect("there is a count for each operand");
        let a_count = if is_sparse { next() / 2 } else { next() };
        let a = self.fragment_sources(a, a_element, a_count)?;
        let b = self.fragment_sources(b, b_element, next())?;
        let c = self.fragment_sources(c, c_element, next())?;
        let d = self.fragment_targets(d, d_element, next())?;
        let multiply = Multiply {
            shape,
            fragments,
            a_element,
            b_element,
            c_element,
            d_element,
            saturates,
            bits,
            sparsity,
            a,
            b,
            c,
            d,
        };
        self.emit_matrix(MatrixOp::Multiply(multiply), None);
        Ok(())
    }

    /// Reads the last two operands of a product with a sparse matrix.
    fn sparsity(
        &mut self,
        metadata: &Operand<'m>,
        selector: &Operand<'m>,
        shape: Shape,
        element: Element,
    ) -> Result<Sparsity, Error> {
        // How many lanes of each group of four have metadata for one product.
        let lanes = match element.bits() {
            32 => shape.k / 8,
            16 => shape.k / 16,
            8 => shape.k / 16,
            _ => shape.k / 32,
        };
        let count = 4 / lanes as u64;
        match *selector {
            Operand::Integer(selector) if selector < count => {
                Ok(Sparsity { metadata: self.narrow(metadata, Type::B32)?, selector: selector as usize })
            }
            _ => Err(self.error(format!("the sparsity selector must be a constant below {count}"))),
        }
    }

    fn fragment_sources(&mut self, operand: &Operand<'m>, element: Element, count: usize) -> Result<Box<[Reg]>, Error> {
        match operand {
            Operand::Vector(_) => self.source_vector(operand, register_type(element), count),
            _ if count == 1 => Ok([self.source(operand, register_type(element))?].into()),
            _ => self.source_vector(operand, register_type(element), count),
        }
    }

    pub(super) fn fragment_targets(
        &mut self,
        operand: &Operand<'m>,
        element: Element,
        count: usize,
    ) -> Result<Box<[Reg]>, Error> {
        let ty = register_type(element);
        let targets = match operand {
            Operand::Vector(_) => self.target_vector(operand, ty, count)?,
            _ if count == 1 => [Some(self.target(operand, ty)?)].into(),
            _ => self.target_vector(operand, ty, count)?,
        };
        targets.iter().map(|target| target.map_or_else(|| Ok(self.new_register(ty)?.reg), Ok)).collect()
    }

    /// Reads what `wmma.load` and `wmma.store` have in common: the matrix, its layout, shape, space and element type.
    fn fragment(
        &mut self,
        modifiers: &mut Modifiers<'m>,
    ) -> Result<(FragmentAccess, Factor, Shape, MemorySpace), Error> {
        let factor = modifiers.take(|word| match word {
            "a" => Some(Factor::A),
            "b" => Some(Factor::B),
            "c" | "d" => Some(Factor::C),
            _ => None,
        });
        let factor = factor.ok_or_else(|| self.error("expected '.a', '.b', '.c' or '.d'"))?;
        let is_row_major = self.is_row_major(modifiers)?;
        let shape = self.matrix_shape(modifiers)?;
        let space = modifiers.space().unwrap_or(MemorySpace::Generic);
        let element = self.element(modifiers)?;
        let is_known = match (factor, element) {
            (Factor::C, Element::F16 | Element::F32) => is_wmma(shape, Element::F16, Element::F16, element, element),
            (Factor::C, Element::F64) => is_wmma(shape, element, element, element, element),
            (Factor::C, Element::S32) => {
                let factors = [Element::S8, Element::S4, Element::B1];
                factors.into_iter().any(|factor| is_wmma(shape, factor, factor, element, element))
            }
            (Factor::C, _) => false,
            (_, Element::F16 | Element::Bf16 | Element::Tf32) => {
                is_wmma(shape, element, element, Element::F32, Element::F32)
            }
            (_, Element::F64) => is_wmma(shape, element, element, element, element),
            (_, _) => is_wmma(shape, element, element, Element::S32, Element::S32),
        };
        let is_tf32_sum = factor == Factor::C && element == Element::F32 && (shape.m, shape.n, shape.k) == (16, 16, 8);
        let is_by_word = factor != Factor::C && element.bits() < 8;
        if is_by_word && is_row_major != (factor == Factor::A) {
            return Err(self.error("matrices of elements below a byte are '.row' for 'a' and '.col' for 'b'"));
        }
        if !is_known && !is_tf32_sum {
            return Err(self.unsupported("matrices of this shape and type"));
        }
        let (rows, columns) = shape.size(factor);
        let access = FragmentAccess { rows, columns, element, is_row_major, stride: None, registers: [].into() };
        Ok((access, factor, shape, space))
    }

    fn load_fragment(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (mut access, factor, shape, space) = self.fragment(modifiers)?;
        let (to, at, stride) = match operands {
            [to, at] => (to, at, None),
            [to, at, stride] => (to, at, Some(stride)),
            _ => return Err(self.error("expected the operands 'r, [p]' or 'r, [p], stride'")),
        };
        access.stride = stride.map(|stride| self.narrow(stride, Type::B32)).transpose()?;
        let at = self.address(at, space)?;
        access.registers = self.fragment_targets(to, access.element, wmma_registers(shape, factor, access.element))?;
        self.emit_matrix(MatrixOp::LoadFragment(access), Some((space, at)));
        Ok(())
    }

    fn store_fragment(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (mut access, factor, shape, space) = self.fragment(modifiers)?;
        let (at, from, stride) = match operands {
            [at, from] => (at, from, None),
            [at, from, stride] => (at, from, Some(stride)),
            _ => return Err(self.error("expected the operands '[p], r' or '[p], r, stride'")),
        };
        access.stride = stride.map(|stride| self.narrow(stride, Type::B32)).transpose()?;
        let at = self.address(at, space)?;
        access.registers =
            self.fragment_sources(from, access.element, wmma_registers(shape, factor, access.element))?;
        self.emit_matrix(MatrixOp::StoreFragment(access), Some((space, at)));
        Ok(())
    }

    /// Reads the modifiers of `ldmatrix` and `stmatrix`, and returns how many matrices there are.
    fn tiles(&mut self, modifiers: &mut Modifiers<'m>) -> Result<(usize, bool), Error> {
        let shape = modifiers.take(|word| (word == "m8n8").then_some(()));
        let count = modifiers.take(|word| match word {
            "x1" => Some(1),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let is_transposed = modifiers.has("trans");
        let is_shared = modifiers.space().is_none_or(|space| space == MemorySpace::Shared);
        let (Some(()), Some(count), Some(Type::B16), true) = (shape, count, modifiers.ty(), is_shared) else {
            return Err(self.unsupported("only '.m8n8' with '.x1', '.x2' or '.x4', '.shared' and '.b16' is supported"));
        };
        Ok((count, is_transposed))
    }

    fn load_tiles(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (count, is_transposed) = self.tiles(modifiers)?;
        let [to, at] = self.operands(operands)?;
        let at = self.address(at, MemorySpace::Shared)?;
        let registers = self.fragment_targets(to, Element::F16, count)?;
        let op = MatrixOp::LoadTiles(TileAccess { is_transposed, registers });
        self.emit_matrix(op, Some((MemorySpace::Shared, at)));
        Ok(())
    }

    fn store_tiles(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let (count, is_transposed) = self.tiles(modifiers)?;
        let [at, from] = self.operands(operands)?;
        let at = self.address(at, MemorySpace::Shared)?;
        let registers = self.fragment_sources(from, Element::F16, count)?;
        let op = MatrixOp::StoreTiles(TileAccess { is_transposed, registers });
        self.emit_matrix(op, Some((MemorySpace::Shared, at)));
        Ok(())
    }

    fn move_matrix(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if !(modifiers.has("m8n8") && modifiers.has("trans") && modifiers.ty() == Some(Type::B16)) {
            return Err(self.error("expected '.m8n8.trans.b16'"));
        }
        let [to, from] = self.operands(operands)?;
        let from = self.narrow(from, Type::B32)?;
        let to = self.narrow_target(to, Type::B32)?;
        self.emit_matrix(MatrixOp::Transpose { to, from }, None);
        Ok(())
    }
}

pub(super) fn shape_of(word: &str) -> Option<Shape> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some(Shape { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
}

pub(super) fn element_of(word: &str) -> Option<Element> {
    Some(match word {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "f32" => Element::F32,
        "f64" => Element::F64,
        "s32" => Element::S32,
        "s8" => Element::S8,
        "u8" => Element::U8,
        "s4" => Element::S4,
        "u4" => Element::U4,
        "b1" => Element::B1,
        _ => return None,
    })
}

fn register_type(element: Element) -> Type {
    if element.bits() == 64 { Type::B64 } else { Type::B32 }
}

/// Returns whether `mma` has this shape for these types.
fn is_mma(shape: Shape, a: Element, b: Element, c: Element, d: Element) -> bool {
    use Element as E;
    let size = (shape.m, shape.n, shape.k);
    let is_float = |element| matches!(element, E::F16 | E::F32);
    match (a, b) {
        (E::F16, E::F16) => is_float(c) && is_float(d) && matches!(size, (16, 8, 8 | 16)),
        (E::Bf16, E::Bf16) => (c, d) == (E::F32, E::F32) && matches!(size, (16, 8, 8 | 16)),
        (E::Tf32, E::Tf32) => (c, d) == (E::F32, E::F32) && matches!(size, (16, 8, 4 | 8)),
        (E::E4m3 | E::E5m2, E::E4m3 | E::E5m2) => is_float(c) && is_float(d) && matches!(size, (16, 8, 16 | 32)),
        (E::F64, E::F64) => (c, d) == (E::F64, E::F64) && matches!(size, (8, 8, 4) | (16, 8, 4 | 8 | 16)),
        (E::S8 | E::U8, E::S8 | E::U8) => (c, d) == (E::S32, E::S32) && matches!(size, (8, 8, 16) | (16, 8, 16 | 32)),
        (E::S4 | E::U4, E::S4 | E::U4) => (c, d) == (E::S32, E::S32) && matches!(size, (8, 8, 32) | (16, 8, 32 | 64)),
        (E::B1, E::B1) => (c, d) == (E::S32, E::S32) && matches!(size, (8, 8, 128) | (16, 8, 128 | 256)),
        _ => false,
    }
}

/// Returns whether `mma.sp` has this shape for these types.
fn is_sparse_mma(shape: Shape, a: Element, b: Element, c: Element, d: Element) -> bool {
    use Element as E;
    let k = match shape {
        Shape { m: 16, n: 8, k } => k,
        _ => return false,
    };
    let is_float = |element| matches!(element, E::F16 | E::F32);
    match (a, b) {
        (E::F16, E::F16) => is_float(c) && c == d && matches!(k, 16 | 32),
        (E::Bf16, E::Bf16) => (c, d) == (E::F32, E::F32) && matches!(k, 16 | 32),
        (E::Tf32, E::Tf32) => (c, d) == (E::F32, E::F32) && matches!(k, 8 | 16),
        (E::E4m3 | E::E5m2, E::E4m3 | E::E5m2) => is_float(c) && c == d && k == 64,
        (E::S8 | E::U8, E::S8 | E::U8) => (c, d) == (E::S32, E::S32) && matches!(k, 32 | 64),
        (E::S4 | E::U4, E::S4 | E::U4) => (c, d) == (E::S32, E::S32) && matches!(k, 64 | 128),
        _ => false,
    }
}

/// Returns whether `wmma` has this shape for these types.
fn is_wmma(shape: Shape, a: Element, b: Element, c: Element, d: Element) -> bool {
    use Element as E;
    let size = (shape.m, shape.n, shape.k);
    let is_sixteen = matches!(size, (16, 16, 16) | (8, 32, 16) | (32, 8, 16));
    let is_float = |element| matches!(element, E::F16 | E::F32);
    match (a, b) {
        (E::F16, E::F16) => is_float(c) && is_float(d) && is_sixteen,
        (E::Bf16, E::Bf16) => (c, d) == (E::F32, E::F32) && is_sixteen,
        (E::Tf32, E::Tf32) => (c, d) == (E::F32, E::F32) && size == (16, 16, 8),
        (E::F64, E::F64) => (c, d) == (E::F64, E::F64) && size == (8, 8, 4),
        (E::S8, E::S8) | (E::U8, E::U8) => (c, d) == (E::S32, E::S32) && is_sixteen,
        (E::S4, E::S4) | (E::U4, E::U4) => (c, d) == (E::S32, E::S32) && size == (8, 8, 32),
        (E::B1, E::B1) => (c, d) == (E::S32, E::S32) && size == (8, 8, 128),
        _ => false,
    }
}

/// Returns how many registers of a lane a matrix of `mma` takes.
fn mma_registers(shape: Shape, factor: Factor, element: Element) -> usize {
    let (rows, columns) = shape.size(factor);
    rows * columns / 32 / element.per_register()
}

/// The same for `wmma`. Each element of an f16 matrix of less than 512 elements is in several lanes.
fn wmma_registers(shape: Shape, factor: Factor, element: Element) -> usize {
    match (factor, element) {
        (Factor::A | Factor::B, Element::F16) => 8,
        _ => mma_registers(shape, factor, element),
    }
}
