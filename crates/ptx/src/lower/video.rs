//! Video instructions on four bytes: absolute differences of unsigned bytes, from operations on words.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::error::Error;
use crate::ir::{Integer, Op, Slot};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    /// `vabsdiff4`: the differences as four bytes, or with `.add` the third operand and their sum.
    pub(super) fn vabsdiff4(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        for _ in 0..3 {
            if self.some_type(modifiers)? != Type::U32 {
                return Err(self.unsupported("'vabsdiff4' of signed bytes"));
            }
        }
        let is_sum = modifiers.has("add");
        let [to, a, b, c] = self.operands(operands)?;
        let [a, b, c] = [self.narrow(a, Type::U32)?, self.narrow(b, Type::U32)?, self.narrow(c, Type::U32)?];
        let to = self.narrow_target(to, Type::U32)?;
        let zero = self.constant_narrow(0);
        let result = self.new_narrow();
        self.emit(Op::MoveNarrow { to: result, from: if is_sum { c } else { zero } });
        for index in 0..4 {
            let (a, b) = (self.byte(a, index), self.byte(b, index));
            if is_sum {
                self.word(Integer::SadUnsigned, result, [a, b, result]);
                continue;
            }
            let (difference, place) = (self.new_narrow(), self.constant_narrow(8 * index));
            self.word(Integer::SadUnsigned, difference, [a, b, zero]);
            self.word(Integer::ShiftLeft, difference, [difference, place, 0]);
            self.word(Integer::Or, result, [result, difference, 0]);
        }
        self.emit(Op::MoveNarrow { to, from: result });
        Ok(())
    }

    /// Returns a register with one byte of another.
    fn byte(&mut self, from: Slot, index: u32) -> Slot {
        let (byte, place, mask) = (self.new_narrow(), self.constant_narrow(8 * index), self.constant_narrow(0xff));
        self.word(Integer::ShiftRightUnsigned, byte, [from, place, 0]);
        self.word(Integer::And, byte, [byte, mask, 0]);
        byte
    }

    fn word(&mut self, op: Integer, to: Slot, [a, b, c]: [Slot; 3]) {
        self.emit(Op::Narrow { op, half: None, to, a, b, c });
    }
}
