//! Lowers bit operations and moves.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::arith::integer::{FunnelMode, Permutation};
use crate::error::Error;
use crate::ir::{Bits, BitsWide, Compare, CompareKind, Integer, Op, Reg, Relation, Shift, Timer};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn bit_operation(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        match opcode {
            "shl" | "shr" => self.shift(opcode, modifiers, operands),
            "shf" => self.funnel(modifiers, operands),
            "lop3" => self.lop3(modifiers, operands),
            "bfe" => self.extract(modifiers, operands),
            "bfi" => self.insert(modifiers, operands),
            "bfind" | "brev" | "clz" | "popc" => self.scan(opcode, modifiers, operands),
            "prmt" => self.permute(modifiers, operands),
            "mul24" | "mad24" => self.product24(opcode, modifiers, operands),
            "dp4a" | "dp2a" => self.dot(opcode, modifiers, operands),
            _ => self.uncommon_bit_operation(opcode, modifiers, operands),
        }
    }

    fn shift(&mut self, opcode: &str, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let [to, a, amount] = self.operands(operands)?;
        let right = opcode == "shr";
        if ty.is_float() || ty == Type::Pred || ty.bits() == 8 || (!right && !ty.is_untyped()) {
            return Err(self.wrong_type(ty));
        }
        let amount = self.narrow(amount, Type::B32)?;
        if ty.bits() == 64 {
            let (a, to) = (self.wide(a, ty)?, self.wide_target(to, ty)?);
            let op = match (right, ty.is_signed()) {
                (false, _) => Shift::Left,
                (true, false) => Shift::RightUnsigned,
                (true, true) => Shift::RightSigned,
            };
            self.emit(Op::ShiftWide { op, to, a, amount });
            return Ok(());
        }
        let (a, to) = (self.narrow(a, ty)?, self.narrow_target(to, ty)?);
        let op = match (right, ty.is_signed()) {
            (false, _) => Integer::ShiftLeft,
            (true, false) => Integer::ShiftRightUnsigned,
            (true, true) => Integer::ShiftRightSigned,
        };
        if ty.bits() == 32 {
            self.emit(Op::Narrow { op, half: None, to, a, b: amount, c: amount });
            return Ok(());
        }
        // The amount has 32 bits and must not be truncated to 16.
        let extended = self.new_narrow();
        let left = self.constant_narrow(16);
        if ty.is_signed() {
            self.emit(Op::Narrow { op: Integer::ShiftLeft, half: None, to: extended, a, b: left, c: left });
            self.emit(Op::Narrow {
                op: Integer::ShiftRightSigned,
                half: None,
                to: extended,
                a: extended,
                b: left,
                c: left,
            });
        } else {
            self.emit(Op::MoveNarrow { to: extended, from: a });
        }
        self.emit(Op::Narrow { op, half: None, to: extended, a: extended, b: amount, c: amount });
        let mask = self.constant_narrow(0xffff);
        self.emit(Op::Narrow { op: Integer::And, half: None, to, a: extended, b: mask, c: mask });
        Ok(())
    }

    fn bits(&mut self, op: Bits, to: &Operand<'m>, from: &[&Operand<'m>], types: &[Type]) -> Result<(), Error> {
        let typed = from.iter().zip(types);
        let [a, b, c] = self.three(typed, |this, (operand, ty)| this.narrow(operand, *ty))?;
        let to = self.narrow_target(to, Type::B32)?;
        self.emit(Op::Bits { op, to, a, b, c });
        Ok(())
    }

    fn funnel(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let left = modifiers.has("l");
        if !left && !modifiers.has("r") {
            return Err(self.error("expected '.l' or '.r'"));
        }
        let mode = self.funnel_mode(modifiers)?;
        if self.some_type(modifiers)? != Type::B32 {
            return Err(self.error("the instruction requires .b32"));
        }
        let [to, a, b, c] = self.operands(operands)?;
        let op = if left { Bits::FunnelLeft(mode) } else { Bits::FunnelRight(mode) };
        self.bits(op, to, &[a, b, c], &[Type::B32; 3])
    }

    fn funnel_mode(&self, modifiers: &mut Modifiers<'m>) -> Result<FunnelMode, Error> {
        let mode = modifiers.take(|word| match word {
            "wrap" => Some(FunnelMode::Wrap),
            "clamp" => Some(FunnelMode::Clamp),
            _ => None,
        });
        mode.ok_or_else(|| self.error("expected '.wrap' or '.clamp'"))
    }

    fn lop3(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let logic = modifiers.take(super::compare::logic_of);
        if self.some_type(modifiers)? != Type::B32 {
            return Err(self.error("the instruction requires .b32"));
        }
        let (to, a, b, c, table, rest) = match operands {
            [to, a, b, c, Operand::Integer(table @ 0..=255), rest @ ..] => (to, a, b, c, *table as u8, rest),
            _ => return Err(self.error("expected three operands and a table, a constant from 0 to 255")),
        };
        match (logic, to, rest) {
            (None, _, []) => self.bits(Bits::Lop3(table), to, &[a, b, c], &[Type::B32; 3]),
            (Some(op), Operand::Pair(pair), [with]) => {
                let to = self.narrow_target(&pair.0, Type::B32)?;
                let [a, b, c] = [self.narrow(a, Type::B32)?, self.narrow(b, Type::B32)?, self.narrow(c, Type::B32)?];
                let (with, with_negated) = self.predicate(with)?;
                let (predicate, zero) = (self.written_predicate(&pair.1)?, self.constant_narrow(0));
                let any = self.new_predicate();
                self.emit(Op::Bits { op: Bits::Lop3(table), to, a, b, c });
                self.emit(Op::Compare(Box::new(Compare {
                    kind: CompareKind::Unsigned32,
                    relation: Relation::Ne,
                    a: Reg::Narrow(to),
                    b: Reg::Narrow(zero),
                    combine: None,
                    to: Some(any),
                    second: None,
                })));
                self.emit(Op::Logic { op, to: predicate, a: any, a_negated: false, b: with, b_negated: with_negated });
                Ok(())
            }
            _ => Err(self.error("expected both a source and a destination predicate, or neither")),
        }
    }

    fn extract(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let [to, a, start, length] = self.operands(operands)?;
        match ty {
            Type::U32 => self.bits(Bits::ExtractUnsigned, to, &[a, start, length], &[ty, Type::U32, Type::U32]),
            Type::S32 => self.bits(Bits::ExtractSigned, to, &[a, start, length], &[ty, Type::U32, Type::U32]),
            Type::U64 | Type::S64 => {
                let op = if ty.is_signed() { BitsWide::ExtractSigned } else { BitsWide::ExtractUnsigned };
                let (a, b, c) = (self.wide(a, ty)?, self.narrow(start, Type::U32)?, self.narrow(length, Type::U32)?);
                let to = self.wide_target(to, ty)?;
                self.emit(Op::BitsWide { op, to, a, b, c, d: 0 });
                Ok(())
            }
            _ => Err(self.wrong_type(ty)),
        }
    }

    fn insert(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let [to, a, b, start, length] = self.operands(operands)?;
        let (c, d) = (self.narrow(start, Type::U32)?, self.narrow(length, Type::U32)?);
        let op = match ty {
            Type::B32 => {
                let (a, b, to) = (self.narrow(a, ty)?, self.narrow(b, ty)?, self.narrow_target(to, ty)?);
                Op::BitsWide { op: BitsWide::InsertNarrow, to, a, b, c, d }
            }
            Type::B64 => {
                let (a, b, to) = (self.wide(a, ty)?, self.wide(b, ty)?, self.wide_target(to, ty)?);
                Op::BitsWide { op: BitsWide::Insert, to, a, b, c, d }
            }
            _ => return Err(self.wrong_type(ty)),
        };
        self.emit(op);
        Ok(())
    }

    fn scan(&mut self, opcode: &str, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let shift_amount = opcode == "bfind" && modifiers.has("shiftamt");
        let ty = self.some_type(modifiers)?;
        let [to, a] = self.operands(operands)?;
        let fits = match opcode {
            "bfind" => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            _ => matches!(ty, Type::B32 | Type::B64),
        };
        if !fits {
            return Err(self.wrong_type(ty));
        }
        let signed = ty.is_signed();
        if ty.bits() == 32 {
            let op = match opcode {
                "bfind" => Bits::Find { signed, shift_amount },
                "brev" => Bits::Reverse,
                "clz" => Bits::LeadingZeros,
                _ => Bits::Count,
            };
            return self.bits(op, to, &[a], &[ty]);
        }
        let a = self.wide(a, ty)?;
        let op = match opcode {
            "bfind" => BitsWide::Find { signed, shift_amount },
            "brev" => BitsWide::Reverse,
            "clz" => BitsWide::LeadingZeros,
            _ => BitsWide::Count,
        };
        let to = match op {
            BitsWide::Reverse => self.wide_target(to, Type::B64)?,
            _ => self.narrow_target(to, Type::U32)?,
        };
        self.emit(Op::BitsWide { op, to, a, b: 0, c: 0, d: 0 });
        Ok(())
    }

    fn permute(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        if self.some_type(modifiers)? != Type::B32 {
            return Err(self.error("the instruction requires .b32"));
        }
        let mode = modifiers.take(|word| {
            Some(match word {
                "f4e" => Permutation::Forward,
                "b4e" => Permutation::Backward,
                "rc8" => Permutation::ReplicateByte,
                "ecl" => Permutation::ClampLeft,
                "ecr" => Permutation::ClampRight,
                "rc16" => Permutation::ReplicateHalf,
                _ => return None,
            })
        });
        let [to, a, b, c] = self.operands(operands)?;
        self.bits(Bits::Permute(mode), to, &[a, b, c], &[Type::B32; 3])
    }

    fn product24(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let high = modifiers.has("hi");
        if !high && !modifiers.has("lo") {
            return Err(self.error("expected '.lo' or '.hi'"));
        }
        let sat = modifiers.has("sat");
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::U32 | Type::S32) || (sat && !(high && ty == Type::S32 && opcode == "mad24")) {
            return Err(self.wrong_type(ty));
        }
        let signed = ty.is_signed();
        if opcode == "mul24" {
            let [to, a, b] = self.operands(operands)?;
            return self.bits(Bits::Mul24 { signed, high }, to, &[a, b], &[ty; 3]);
        }
        let [to, a, b, c] = self.operands(operands)?;
        let op = if sat { Bits::Mad24HighSat } else { Bits::Mad24 { signed, high } };
        self.bits(op, to, &[a, b, c], &[ty; 3])
    }

    fn dot(&mut self, opcode: &str, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let high = opcode == "dp2a" && modifiers.has("hi");
        if opcode == "dp2a" && !high && !modifiers.has("lo") {
            return Err(self.error("expected '.lo' or '.hi'"));
        }
        let (first, second) = (self.some_type(modifiers)?, self.some_type(modifiers)?);
        let (a_signed, b_signed) = (first.is_signed(), second.is_signed());
        let [to, a, b, c] = self.operands(operands)?;
        let op = match opcode {
            "dp4a" => Bits::Dot4 { a_signed, b_signed },
            _ => Bits::Dot2 { a_signed, b_signed, high },
        };
        self.bits(op, to, &[a, b, c], &[Type::B32; 3])
    }

    fn uncommon_bit_operation(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        if opcode == "fns" {
            let _b32 = modifiers.ty();
            let [to, a, b, c] = self.operands(operands)?;
            return self.bits(Bits::NthSet, to, &[a, b, c], &[Type::B32; 3]);
        }
        let mode = self.funnel_mode(modifiers)?;
        let ty = self.some_type(modifiers)?;
        let [to, a, b] = self.operands(operands)?;
        let op = match opcode {
            "szext" => Bits::SignZeroExtend { signed: ty.is_signed(), mode },
            _ => Bits::Mask(mode),
        };
        self.bits(op, to, &[a, b], &[Type::B32; 3])
    }

    pub(super) fn mov(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let vector = modifiers.vector();
        let ty = self.some_type(modifiers)?;
        let [to, from] = self.operands(operands)?;
        if ty == Type::B128 && vector == 1 {
            return self.move_pair(to, from);
        }
        if matches!(ty, Type::B8 | Type::U8 | Type::S8 | Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) {
            return Err(self.wrong_type(ty));
        }
        if vector > 1 || (self.is_vector(to) && self.is_vector(from)) {
            let (from, to) = (self.source_vector(from, ty, vector)?, self.target_vector(to, ty, vector)?);
            for (&from, to) in from.iter().zip(&to) {
                to.map_or(Ok(()), |to| self.emit_move(to, from))?;
            }
            return Ok(());
        }
        if !ty.is_untyped() && [to, from].iter().any(|operand| matches!(operand, Operand::Vector(_))) {
            return Err(self.wrong_type(ty));
        }
        match (to, from) {
            (Operand::Vector(parts), _) => return self.split(ty, parts, from),
            (_, Operand::Vector(parts)) => return self.join(ty, to, parts),
            _ => {}
        }
        if ty == Type::Pred {
            let (from, negated) = self.predicate(from)?;
            let to = self.written_predicate(to)?;
            self.emit(Op::MovePredicate { to, from, negated });
            return Ok(());
        }
        if let Operand::Name(name) = from
            && let Some((timer, bits)) = timer(name)
        {
            if bits != ty.bits() {
                return Err(self.error_in_name(name, format!("'{name}' has {bits} bits")));
            }
            let to = self.target(to, ty)?;
            self.emit(Op::Read { timer, to });
            return Ok(());
        }
        let (from, to) = (self.source(from, ty)?, self.target(to, ty)?);
        self.emit_move(to, from)
    }

    pub(super) fn emit_move(&mut self, to: Reg, from: Reg) -> Result<(), Error> {
        match (to, from) {
            (Reg::Narrow(to), Reg::Narrow(from)) => self.emit(Op::MoveNarrow { to, from }),
            (Reg::Wide(to), Reg::Wide(from)) => self.emit(Op::MoveWide { to, from }),
            _ => return Err(self.error("the operands differ in size")),
        }
        Ok(())
    }

    fn part_type(&self, ty: Type, parts: usize) -> Result<Type, Error> {
        match (ty.bits(), parts) {
            (32, 2) => Ok(Type::B16),
            (64, 2) => Ok(Type::B32),
            (64, 4) => Ok(Type::B16),
            (32, 4) | (16, 2) => Ok(Type::B8),
            (64, 8) => Ok(Type::B8),
            _ => Err(self.unsupported(format!("{parts} parts of {} bits", ty.bits()))),
        }
    }

    fn split(&mut self, ty: Type, parts: &[Operand<'m>], from: &Operand<'m>) -> Result<(), Error> {
        let part = self.part_type(ty, parts.len())?;
        let from = self.source(from, ty)?;
        let to = parts.iter().map(|part_operand| match part_operand {
            Operand::Sink => Ok(None),
            _ => self.target(part_operand, part).map(Some),
        });
        let to = to.collect::<Result<_, _>>()?;
        self.emit(Op::Split { from, part_bits: part.bits(), to });
        Ok(())
    }

    fn join(&mut self, ty: Type, to: &Operand<'m>, parts: &[Operand<'m>]) -> Result<(), Error> {
        let part = self.part_type(ty, parts.len())?;
        let from = parts.iter().map(|operand| self.source(operand, part)).collect::<Result<_, _>>()?;
        let to = self.target(to, ty)?;
        self.emit(Op::Join { to, part_bits: part.bits(), from });
        Ok(())
    }
}

/// Returns the special registers that change, and their width in bits.
fn timer(name: &str) -> Option<(Timer, u32)> {
    Some(match name {
        "%clock" | "%clock_lo" => (Timer::Clock, 32),
        "%clock_hi" => (Timer::ClockHigh, 32),
        "%clock64" => (Timer::Clock64, 64),
        "%globaltimer" => (Timer::Nanoseconds, 64),
        "%globaltimer_lo" => (Timer::NanosecondsLow, 32),
        "%globaltimer_hi" => (Timer::NanosecondsHigh, 32),
        _ => return None,
    })
}
