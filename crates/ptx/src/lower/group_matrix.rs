//! Lowers `wgmma`, the matrix instructions of four warps.

use super::function::Builder;
use super::matrix::{element_of, shape_of};
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{Element, GroupFactor, GroupMultiply, MatrixOp, Shape, SharedMatrix};
use crate::syntax::tree::{Operand, Type};

/// The rows of the product that each warp computes.
const ROWS_PER_WARP: usize = 16;

impl<'m> Builder<'_, 'm> {
    pub(super) fn group_matrix_operation(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        const ACTIONS: [&str; 4] = ["mma_async", "fence", "commit_group", "wait_group"];
        let action = modifiers.take(|word| ACTIONS.iter().find(|&&known| known == word).copied());
        let action =
            action.ok_or_else(|| self.error("expected '.mma_async', '.fence', '.commit_group' or '.wait_group'"))?;
        if modifiers.has("sp") || modifiers.has("sp::ordered_metadata") {
            return Err(self.unsupported("'wgmma' with sparse matrices"));
        }
        if !modifiers.has("sync") || !modifiers.has("aligned") {
            return Err(self.error("expected '.sync.aligned'"));
        }
        // A product is complete when the instruction is.
        match action {
            "mma_async" => self.group_multiply(modifiers, operands),
            "wait_group" => match self.operands(operands)? {
                [Operand::Integer(_)] => Ok(()),
                [_] => Err(self.error("expected a number of groups")),
            },
            _ => self.operands(operands).map(|[]| ()),
        }
    }

    fn group_multiply(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let shape = modifiers.take(shape_of).ok_or_else(|| self.error("expected a shape such as '.m64n64k16'"))?;
        let mut element = || modifiers.take(element_of).ok_or_else(|| self.error("expected the type of a matrix"));
        let (d_element, a_element, b_element) = (element()?, element()?, element()?);
        let saturates = modifiers.has("satfinite");
        if !is_group_product(shape, d_element, a_element, b_element) {
            return Err(self.unsupported("products of four warps of this shape and these types"));
        }
        let [d, a, b, adds, rest @ ..] = operands else {
            return Err(self.error("expected the operands 'd, a, b, scale-d' and immediates"));
        };
        let is_a_shared = !matches!(a, Operand::Vector(_));
        let immediates = match a_element {
            Element::F16 | Element::Bf16 if is_a_shared => 4,
            Element::F16 | Element::Bf16 => 3,
            element if element.is_integer() => 0,
            _ => 2,
        };
        if rest.len() != immediates {
            return Err(self.error(format!("expected {immediates} immediates after 'scale-d', found {}", rest.len())));
        }
        let mut signs = rest.iter().take(2).map(|sign| self.sign(sign));
        let negates_a = signs.next().unwrap_or(Ok(false))?;
        let negates_b = signs.next().unwrap_or(Ok(false))?;
        let mut transposes = rest.iter().skip(2).map(|flag| self.flag(flag));
        let is_a_transposed = if immediates == 4 { transposes.next().unwrap_or(Ok(false))? } else { false };
        let is_b_transposed = transposes.next().unwrap_or(Ok(false))?;
        let part = Shape { m: ROWS_PER_WARP, ..shape };
        let a = match is_a_shared {
            true => GroupFactor::Shared(self.shared_matrix(a, is_a_transposed)?),
            false => GroupFactor::Registers(self.source_vector(a, Type::B32, 4)?),
        };
        let b = self.shared_matrix(b, is_b_transposed)?;
        let d_count = part.m * part.n / 32 / d_element.per_register();
        let d = self.fragment_targets(d, d_element, d_count)?;
        let adds = self.predicate(adds)?;
        let op = GroupMultiply {
            shape: part,
            a_element,
            b_element,
            d_element,
            saturates,
            a,
            b,
            d,
            adds,
            negates_a,
            negates_b,
        };
        self.emit_matrix(MatrixOp::GroupMultiply(op), None);
        Ok(())
    }

    fn shared_matrix(&mut self, operand: &Operand<'m>, is_transposed: bool) -> Result<SharedMatrix, Error> {
        Ok(SharedMatrix { descriptor: self.wide(operand, Type::B64)?, is_transposed })
    }

    /// Returns whether a matrix is negated.
    fn sign(&self, operand: &Operand<'m>) -> Result<bool, Error> {
        match *operand {
            Operand::Integer(1) => Ok(false),
            Operand::Integer(value) if value as i32 == -1 => Ok(true),
            _ => Err(self.error("expected 1 or -1")),
        }
    }

    fn flag(&self, operand: &Operand<'m>) -> Result<bool, Error> {
        match *operand {
            Operand::Integer(value @ (0 | 1)) => Ok(value == 1),
            _ => Err(self.error("expected 0 or 1")),
        }
    }
}

/// Returns whether `wgmma` has this shape for these types.
fn is_group_product(shape: Shape, d: Element, a: Element, b: Element) -> bool {
    use Element as E;
    let is_wide = shape.m == 64 && shape.n.is_multiple_of(8) && (8..=256).contains(&shape.n);
    let is_float = matches!(d, E::F16 | E::F32);
    is_wide
        && match (a, b) {
            (E::F16, E::F16) => is_float && shape.k == 16,
            (E::Bf16, E::Bf16) => d == E::F32 && shape.k == 16,
            (E::Tf32, E::Tf32) => d == E::F32 && shape.k == 8,
            (E::E4m3 | E::E5m2, E::E4m3 | E::E5m2) => is_float && shape.k == 32,
            (E::S8 | E::U8, E::S8 | E::U8) => {
                d == E::S32 && shape.k == 32 && (shape.n.is_multiple_of(16) || matches!(shape.n, 8 | 24))
            }
            _ => false,
        }
}
