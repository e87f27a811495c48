//! Lowers comparisons and selections.

use super::function::Builder;
use super::modifiers::Modifiers;
use super::operand::dotted;
use crate::arith::Property;
use crate::arith::half::Half;
use crate::error::Error;
use crate::ir::{Compare, CompareKind, Integer, Logic, Op, Reg, Relation, Slot};
use crate::syntax::tree::{Instruction, Operand, Type};

impl<'m> Builder<'_, 'm> {
    /// Lowers the common part of `setp` and `set`: the comparison without its results.
    fn comparison(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        ty: Type,
        relation: Relation,
        [a, b]: [&Operand<'m>; 2],
        combine: Option<(Logic, &Operand<'m>)>,
    ) -> Result<Compare, Error> {
        let ftz = modifiers.has("ftz");
        if ftz && !matches!(ty, Type::F32 | Type::F16 | Type::F16x2) {
            return Err(self.error(format!("'.ftz' is not allowed for values of type {}", dotted(ty))));
        }
        let half = |format| CompareKind::Half { format, ftz };
        let packed = |format| CompareKind::PackedHalf { format, ftz };
        let kind = match ty {
            Type::U16 | Type::B16 => CompareKind::Unsigned16,
            Type::S16 => CompareKind::Signed16,
            Type::U32 | Type::B32 => CompareKind::Unsigned32,
            Type::S32 => CompareKind::Signed32,
            Type::U64 | Type::B64 => CompareKind::Unsigned64,
            Type::S64 => CompareKind::Signed64,
            Type::F32 => CompareKind::Single { ftz },
            Type::F64 => CompareKind::Double,
            Type::F16 => half(Half::F16),
            Type::Bf16 => half(Half::Bf16),
            Type::F16x2 => packed(Half::F16),
            Type::Bf16x2 => packed(Half::Bf16),
            _ => return Err(self.wrong_type(ty)),
        };
        let ordered =
            matches!(relation, Relation::Eq | Relation::Ne | Relation::Lt | Relation::Le | Relation::Gt | Relation::Ge);
        if !ty.is_float() && !ordered {
            return Err(self.error("integers have no unordered comparison"));
        }
        if ty.is_untyped() && !matches!(relation, Relation::Eq | Relation::Ne) {
            return Err(self.error("untyped bits can only be compared with '.eq' or '.ne'"));
        }
        let has_name = |instruction: &Instruction<'_>| {
            instruction.modifiers.iter().any(|word| matches!(*word, "lo" | "ls" | "hi" | "hs"))
        };
        if !matches!(ty, Type::U16 | Type::U32 | Type::U64) && self.current.is_some_and(has_name) {
            return Err(self.error("'.lo', '.ls', '.hi' and '.hs' are for unsigned integers"));
        }
        let combine = match combine {
            None => None,
            Some((op, operand)) => {
                let (slot, negated) = self.predicate(operand)?;
                Some((op, slot, negated))
            }
        };
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        Ok(Compare { kind, relation, a, b, combine, to: None, second: None })
    }

    pub(super) fn setp(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let relation = modifiers.relation().ok_or_else(|| self.error("expected a comparison"))?;
        let logic = modifiers.take(logic_of);
        let ty = self.some_type(modifiers)?;
        let (to, a, b, combine) = match (operands, logic) {
            ([to, a, b], None) => (to, a, b, None),
            ([to, a, b, c], Some(op)) => (to, a, b, Some((op, c))),
            _ => return Err(self.error("expected the operands 'd, a, b', and with '.and', '.or' or '.xor' 'c'")),
        };
        let mut compare = self.comparison(modifiers, ty, relation, [a, b], combine)?;
        (compare.to, compare.second) = match to {
            Operand::Pair(pair) => (self.predicate_target(&pair.0)?, self.predicate_target(&pair.1)?),
            one => (self.predicate_target(one)?, None),
        };
        self.emit(Op::Compare(Box::new(compare)));
        Ok(())
    }

    pub(super) fn set(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let relation = modifiers.relation().ok_or_else(|| self.error("expected a comparison"))?;
        let logic = modifiers.take(logic_of);
        let (to_type, ty) = (self.some_type(modifiers)?, self.some_type(modifiers)?);
        let (to, a, b, combine) = match (operands, logic) {
            ([to, a, b], None) => (to, a, b, None),
            ([to, a, b, c], Some(op)) => (to, a, b, Some((op, c))),
            _ => return Err(self.error("expected the operands 'd, a, b', and with '.and', '.or' or '.xor' 'c'")),
        };
        let mut compare = self.comparison(modifiers, ty, relation, [a, b], combine)?;
        let (first, second) = (self.new_predicate(), self.new_predicate());
        (compare.to, compare.second) = (Some(first), Some(second));
        let packed = matches!(compare.kind, CompareKind::PackedHalf { .. });
        self.emit(Op::Compare(Box::new(compare)));
        let truth = match to_type {
            Type::U32 | Type::S32 if !packed => u32::MAX,
            Type::F32 => 1.0f32.to_bits(),
            Type::U16 | Type::S16 => 0xffff,
            Type::F16 => 0x3c00,
            Type::Bf16 => 0x3f80,
            Type::F16x2 => 0x3c00_3c00,
            Type::Bf16x2 => 0x3f80_3f80,
            Type::U32 | Type::S32 => u32::MAX,
            _ => return Err(self.wrong_type(to_type)),
        };
        let to = self.narrow_target(to, to_type)?;
        let zero = self.constant_narrow(0);
        if !packed {
            let one = self.constant_narrow(truth);
            self.emit(Op::SelectNarrow { to, a: one, b: zero, predicate: first, negated: false });
            return Ok(());
        }
        let (low, high) = (self.constant_narrow(truth & 0xffff), self.constant_narrow(truth & 0xffff_0000));
        let (one, two) = (self.new_narrow(), self.new_narrow());
        self.emit(Op::SelectNarrow { to: one, a: low, b: zero, predicate: first, negated: false });
        self.emit(Op::SelectNarrow { to: two, a: high, b: zero, predicate: second, negated: false });
        self.emit(Op::Narrow { op: Integer::Or, half: None, to, a: one, b: two, c: two });
        Ok(())
    }

    fn select_value(
        &mut self,
        ty: Type,
        to: &Operand<'m>,
        [a, b]: [&Operand<'m>; 2],
        (predicate, negated): (Slot, bool),
    ) -> Result<(), Error> {
        let (a, b, to) = (self.source(a, ty)?, self.source(b, ty)?, self.target(to, ty)?);
        match (to, a, b) {
            (Reg::Narrow(to), Reg::Narrow(a), Reg::Narrow(b)) => {
                self.emit(Op::SelectNarrow { to, a, b, predicate, negated });
            }
            (Reg::Wide(to), Reg::Wide(a), Reg::Wide(b)) => {
                self.emit(Op::SelectWide { to, a, b, predicate, negated });
            }
            _ => return Err(self.wrong_type(ty)),
        }
        Ok(())
    }

    pub(super) fn selp(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let [to, a, b, predicate] = self.operands(operands)?;
        let predicate = self.predicate(predicate)?;
        self.select_value(ty, to, [a, b], predicate)
    }

    pub(super) fn slct(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let by = self.some_type(modifiers)?;
        let [to, a, b, c] = self.operands(operands)?;
        let zero = match by {
            Type::S32 => Operand::Integer(0),
            Type::F32 => Operand::Single(0),
            _ => return Err(self.wrong_type(by)),
        };
        let mut compare = self.comparison(modifiers, by, Relation::Ge, [c, &zero], None)?;
        let predicate = self.new_predicate();
        compare.to = Some(predicate);
        self.emit(Op::Compare(Box::new(compare)));
        self.select_value(ty, to, [a, b], (predicate, false))
    }

    pub(super) fn testp(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let class = modifiers.take(|word| {
            Some(match word {
                "finite" => Property::Finite,
                "infinite" => Property::Infinite,
                "number" => Property::Number,
                "notanumber" => Property::NotANumber,
                "normal" => Property::Normal,
                "subnormal" => Property::Subnormal,
                _ => return None,
            })
        });
        let class = class.ok_or_else(|| self.error("expected a class of numbers such as '.finite'"))?;
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(self.wrong_type(ty));
        }
        let [to, from] = self.operands(operands)?;
        let (from, to) = (self.source(from, ty)?, self.written_predicate(to)?);
        self.emit(Op::Test { class, to, from });
        Ok(())
    }
}

pub(super) fn logic_of(word: &str) -> Option<Logic> {
    match word {
        "and" => Some(Logic::And),
        "or" => Some(Logic::Or),
        "xor" => Some(Logic::Xor),
        _ => None,
    }
}
