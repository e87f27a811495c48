//! Lowers arithmetic on integers and floating-point numbers.

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::arith::half::Half;
use crate::arith::{Mode, Rounding};
use crate::error::Error;
use crate::ir::{CarryOp, Extend, Float, Integer, Logic, Op, Slot};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn mode(&self, modifiers: &mut Modifiers<'_>) -> Mode {
        let rounding = modifiers.rounding().unwrap_or(Rounding::Nearest);
        Mode { rounding, ftz: self.flushes(modifiers), sat: modifiers.has("sat") }
    }

    /// Returns whether an instruction flushes subnormal numbers. All do in texts for targets before sm_20.
    fn flushes(&self, modifiers: &mut Modifiers<'_>) -> bool {
        modifiers.has("ftz") || self.unit.module.target < 20
    }

    /// Returns the mode of `mad` and `fma`. Texts for targets before sm_20, and versions up to 3.0, leave out that
    /// `mad` rounds to nearest.
    fn fused_mode(&self, opcode: &str, modifiers: &mut Modifiers<'_>) -> Result<Mode, Error> {
        let module = self.unit.module;
        let is_legacy = opcode == "mad" && (module.target < 20 || module.version <= (3, 0));
        if is_legacy { Ok(self.mode(modifiers)) } else { self.rounded_mode(modifiers) }
    }

    /// Lowers an integer instruction on 16, 32 or 64 bits.
    pub(super) fn integer(
        &mut self,
        op: Integer,
        ty: Type,
        to: &Operand<'m>,
        from: [Option<&Operand<'m>>; 3],
    ) -> Result<(), Error> {
        if ty.bits() == 64 {
            let to = self.wide_target(to, ty)?;
            let [a, b, c] = self.three(from.into_iter().flatten(), |this, operand| this.wide(operand, ty))?;
            self.emit(Op::Wide { op, to, a, b, c });
            return Ok(());
        }
        let half = match ty.bits() {
            16 if ty.is_signed() => Some(Extend::Sign),
            16 => Some(Extend::Zero),
            32 => None,
            _ => return Err(self.wrong_type(ty)),
        };
        let to = self.narrow_target(to, ty)?;
        let [a, b, c] = self.three(from.into_iter().flatten(), |this, operand| this.narrow(operand, ty))?;
        self.emit(Op::Narrow { op, half, to, a, b, c });
        Ok(())
    }

    /// Lowers a floating-point instruction of any format.
    fn float(
        &mut self,
        op: Float,
        ty: Type,
        mode: Mode,
        relu: bool,
        to: &Operand<'m>,
        from: &[&Operand<'m>],
    ) -> Result<(), Error> {
        if mode.rounding == Rounding::NearestAway {
            return Err(self.error("'.rna' is not allowed here"));
        }
        if ty == Type::F64 {
            if mode.ftz && !matches!(op, Float::RcpApprox | Float::RsqrtApprox) || mode.sat {
                return Err(self.error("'.ftz' and '.sat' are not allowed for .f64"));
            }
            let to = self.wide_target(to, ty)?;
            let [a, b, c] = self.three(from.iter().copied(), |this, operand| this.wide(operand, ty))?;
            self.emit(Op::Double { op, mode, to, a, b, c });
            return Ok(());
        }
        let to = self.narrow_target(to, ty)?;
        let [a, b, c] = self.three(from.iter().copied(), |this, operand| this.narrow(operand, ty))?;
        let (format, packed) = match ty {
            Type::F32 => {
                self.emit(Op::Single { op, mode, to, a, b, c });
                return Ok(());
            }
            Type::F16 => (Half::F16, false),
            Type::F16x2 => (Half::F16, true),
            Type::Bf16 => (Half::Bf16, false),
            Type::Bf16x2 => (Half::Bf16, true),
            _ => return Err(self.wrong_type(ty)),
        };
        if mode.rounding != Rounding::Nearest {
            return Err(self.error("half precision allows only '.rn'"));
        }
        self.emit(Op::Half { op, format, packed, mode, relu, to, a, b, c });
        Ok(())
    }

    /// Returns the mode of an instruction that requires a rounding mode.
    fn rounded_mode(&self, modifiers: &mut Modifiers<'_>) -> Result<Mode, Error> {
        let rounding = modifiers.rounding().ok_or_else(|| self.error("the instruction requires a rounding mode"))?;
        Ok(Mode { rounding, ftz: self.flushes(modifiers), sat: modifiers.has("sat") })
    }

    pub(super) fn sum(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        if modifiers.has("cc") {
            return self.carry(opcode, modifiers, operands, false, true);
        }
        if let Some(extend) = packed(modifiers) {
            let op = if opcode == "add" { Integer::Add } else { return Err(self.error("expected 'add'")) };
            return self.pairs(op, extend, operands);
        }
        let ty = self.some_type(modifiers)?;
        let [to, a, b] = self.operands(operands)?;
        if ty.is_float() {
            let op = if opcode == "add" { Float::Add } else { Float::Sub };
            let mode = self.mode(modifiers);
            // f32 sums of halves: the operand is widened first.
            if ty == Type::F32
                && let Some(narrow) = modifiers.ty()
            {
                return Err(self.unsupported(format!("a sum of .f32 and .{narrow:?}").to_lowercase()));
            }
            return self.float(op, ty, mode, false, to, &[a, b]);
        }
        let sat = modifiers.has("sat");
        if sat && ty != Type::S32 {
            return Err(self.error("'.sat' requires .s32"));
        }
        let op = match (opcode, sat) {
            ("add", false) => Integer::Add,
            ("add", true) => Integer::AddSat,
            (_, false) => Integer::Sub,
            (_, true) => Integer::SubSat,
        };
        match ty {
            Type::S16 | Type::U16 | Type::S32 | Type::U32 | Type::S64 | Type::U64 => {
                self.integer(op, ty, to, [Some(a), Some(b), None])
            }
            _ => Err(self.wrong_type(ty)),
        }
    }

    /// Lowers an instruction on pairs of 16 bits.
    fn pairs(&mut self, op: Integer, extend: Extend, operands: &[Operand<'m>]) -> Result<(), Error> {
        let [to, a, b] = self.operands(operands)?;
        let (a, b) = (self.narrow(a, Type::B32)?, self.narrow(b, Type::B32)?);
        let to = self.narrow_target(to, Type::B32)?;
        self.emit(Op::Packed { op, extend, to, a, b });
        Ok(())
    }

    pub(super) fn carried_sum(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
        reads: bool,
    ) -> Result<(), Error> {
        let writes = modifiers.has("cc");
        self.carry(opcode, modifiers, operands, reads, writes)
    }

    fn carry(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
        reads: bool,
        writes: bool,
    ) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64) {
            return Err(self.wrong_type(ty));
        }
        let [to, a, b] = self.operands(operands)?;
        let op = if opcode.starts_with("add") { CarryOp::Add } else { CarryOp::Sub };
        let (a, b, to) = (self.source(a, ty)?, self.source(b, ty)?, self.target(to, ty)?);
        self.emit(Op::Carry { op, reads, writes, to, a, b, c: a });
        Ok(())
    }

    pub(super) fn carried_mad(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let writes = modifiers.has("cc");
        self.mad_with_carry(modifiers, operands, true, writes)
    }

    fn mad_with_carry(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
        reads: bool,
        writes: bool,
    ) -> Result<(), Error> {
        let high = modifiers.has("hi");
        if !high && !modifiers.has("lo") {
            return Err(self.error("expected '.lo' or '.hi'"));
        }
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64) {
            return Err(self.wrong_type(ty));
        }
        let [to, a, b, c] = self.operands(operands)?;
        let op = if high { CarryOp::MadHigh { signed: ty.is_signed() } } else { CarryOp::MadLow };
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ty)?);
        let to = self.target(to, ty)?;
        self.emit(Op::Carry { op, reads, writes, to, a, b, c });
        Ok(())
    }

    pub(super) fn product(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let [to, a, b] = self.operands(operands)?;
        if modifiers.has("wide") {
            return self.widening(modifiers, to, a, b, None);
        }
        let (high, low) = (modifiers.has("hi"), modifiers.has("lo"));
        let ty = self.some_type(modifiers)?;
        if ty.is_float() {
            if high || low {
                return Err(self.error("'.hi' and '.lo' are for integers"));
            }
            let mode = self.mode(modifiers);
            return self.float(Float::Mul, ty, mode, false, to, &[a, b]);
        }
        if !ty.is_integer() || ty.bits() == 8 {
            return Err(self.wrong_type(ty));
        }
        let op = match (high, low) {
            (true, _) if ty.is_signed() => Integer::MulHighSigned,
            (true, _) => Integer::MulHighUnsigned,
            (_, true) => Integer::Mul,
            _ => return Err(self.error("expected '.lo', '.hi' or '.wide'")),
        };
        self.integer(op, ty, to, [Some(a), Some(b), None])
    }

    fn widening(
        &mut self,
        modifiers: &mut Modifiers<'m>,
        to: &Operand<'m>,
        a: &Operand<'m>,
        b: &Operand<'m>,
        c: Option<&Operand<'m>>,
    ) -> Result<(), Error> {
        let ty = self.some_type(modifiers)?;
        let signed = ty.is_signed();
        let (a, b) = (self.narrow(a, ty)?, self.narrow(b, ty)?);
        let (half, to, c) = match ty {
            Type::U16 | Type::S16 => {
                let double = if signed { Type::S32 } else { Type::U32 };
                (true, self.narrow_target(to, double)?, c.map(|c| self.narrow(c, double)).transpose()?)
            }
            Type::U32 | Type::S32 => {
                let double = if signed { Type::S64 } else { Type::U64 };
                (false, self.wide_target(to, double)?, c.map(|c| self.wide(c, double)).transpose()?)
            }
            _ => return Err(self.wrong_type(ty)),
        };
        self.emit(Op::Widening { signed, half, to, a, b, c });
        Ok(())
    }

    pub(super) fn mad(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let [to, a, b, c] = self.operands(operands)?;
        if modifiers.has("cc") {
            return self.mad_with_carry(modifiers, operands, false, true);
        }
        if modifiers.has("wide") {
            return self.widening(modifiers, to, a, b, Some(c));
        }
        let (high, low) = (modifiers.has("hi"), modifiers.has("lo"));
        let ty = self.some_type(modifiers)?;
        if ty.is_float() {
            if modifiers.has("oob") {
                return Err(self.unsupported("'fma.oob'"));
            }
            let relu = modifiers.has("relu");
            let mode = self.fused_mode(opcode, modifiers)?;
            return self.float(Float::Fma, ty, mode, relu, to, &[a, b, c]);
        }
        if opcode == "fma" || !ty.is_integer() || ty.bits() == 8 {
            return Err(self.wrong_type(ty));
        }
        let sat = modifiers.has("sat");
        let op = match (high, low) {
            (true, _) if sat && ty == Type::S32 => Integer::MadHighSat,
            (true, _) if ty.is_signed() => Integer::MadHighSigned,
            (true, _) => Integer::MadHighUnsigned,
            (_, true) => Integer::Mad,
            _ => return Err(self.error("expected '.lo', '.hi' or '.wide'")),
        };
        if sat && op != Integer::MadHighSat {
            return Err(self.error("'.sat' requires 'mad.hi.s32'"));
        }
        self.integer(op, ty, to, [Some(a), Some(b), Some(c)])
    }

    pub(super) fn two_operands(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let [to, a, b] = self.operands(operands)?;
        if let Some(extend) = packed(modifiers) {
            let op = match (opcode, extend, modifiers.has("relu")) {
                ("min", Extend::Sign, true) => Integer::MinRelu,
                ("max", Extend::Sign, true) => Integer::MaxRelu,
                ("min", Extend::Sign, false) => Integer::MinSigned,
                ("max", Extend::Sign, false) => Integer::MaxSigned,
                ("min", Extend::Zero, false) => Integer::MinUnsigned,
                ("max", Extend::Zero, false) => Integer::MaxUnsigned,
                _ => return Err(self.error(format!("'{opcode}' does not have this type"))),
            };
            return self.pairs(op, extend, operands);
        }
        let ty = self.some_type(modifiers)?;
        if ty.is_float() {
            let (approx, full) = (modifiers.has("approx"), modifiers.has("full"));
            let (nan, xorsign) = (modifiers.has("NaN"), modifiers.has("xorsign"));
            if xorsign && !modifiers.has("abs") {
                return Err(self.error("'.xorsign' requires '.abs'"));
            }
            let mode = match opcode {
                "div" if !approx && !full => self.rounded_mode(modifiers)?,
                _ => self.mode(modifiers),
            };
            let op = match opcode {
                "div" if approx && ty == Type::F32 => Float::DivApprox,
                "div" if full && ty == Type::F32 => Float::DivFull,
                "div" if !approx && !full && matches!(ty, Type::F32 | Type::F64) => Float::Div,
                "min" => Float::Min { nan, xorsign },
                "max" => Float::Max { nan, xorsign },
                _ => return Err(self.wrong_type(ty)),
            };
            return self.float(op, ty, mode, false, to, &[a, b]);
        }
        let relu = modifiers.has("relu");
        let signed = ty.is_signed();
        if !ty.is_integer() || ty.bits() == 8 || (relu && ty != Type::S32) {
            return Err(self.wrong_type(ty));
        }
        let op = match (opcode, signed) {
            ("div", false) => Integer::DivUnsigned,
            ("div", true) => Integer::DivSigned,
            ("rem", false) => Integer::RemUnsigned,
            ("rem", true) => Integer::RemSigned,
            ("min", false) => Integer::MinUnsigned,
            ("min", true) if relu => Integer::MinRelu,
            ("min", true) => Integer::MinSigned,
            (_, false) => Integer::MaxUnsigned,
            (_, true) if relu => Integer::MaxRelu,
            (_, true) => Integer::MaxSigned,
        };
        self.integer(op, ty, to, [Some(a), Some(b), None])
    }

    pub(super) fn one_operand(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let [to, a] = self.operands(operands)?;
        let ty = self.some_type(modifiers)?;
        if !ty.is_float() {
            let op = if opcode == "neg" { Integer::Neg } else { Integer::Abs };
            if !matches!(opcode, "neg" | "abs") || !ty.is_signed() || ty.bits() == 8 {
                return Err(self.wrong_type(ty));
            }
            return self.integer(op, ty, to, [Some(a), None, None]);
        }
        let approx = modifiers.has("approx");
        let rounded = modifiers.rounding();
        let mode = Mode {
            rounding: rounded.unwrap_or(Rounding::Nearest),
            ftz: modifiers.has("ftz"),
            sat: modifiers.has("sat"),
        };
        if mode.sat {
            return Err(self.error("'.sat' is not allowed here"));
        }
        // The first versions of PTX leave out that these are approximations.
        if !approx && matches!(opcode, "sin" | "cos" | "lg2" | "ex2" | "tanh") && self.unit.module.version >= (1, 4) {
            return Err(self.error("expected '.approx'"));
        }
        let precise = matches!(ty, Type::F32 | Type::F64) && !approx;
        let half = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
        let op = match opcode {
            "neg" => Float::Neg,
            "abs" => Float::Abs,
            "sqrt" if approx && ty == Type::F32 => Float::SqrtApprox,
            "sqrt" if precise => Float::Sqrt,
            "rcp" if approx && (ty == Type::F32 || ty == Type::F64 && mode.ftz) => Float::RcpApprox,
            "rcp" if precise => Float::Rcp,
            "rsqrt" if approx && !half => Float::RsqrtApprox,
            "sin" if ty == Type::F32 => Float::Sin,
            "cos" if ty == Type::F32 => Float::Cos,
            "lg2" if ty == Type::F32 => Float::Log2,
            "ex2" if ty != Type::F64 => Float::Exp2,
            "tanh" if ty != Type::F64 => Float::Tanh,
            _ => return Err(self.wrong_type(ty)),
        };
        if matches!(op, Float::Sqrt | Float::Rcp) && rounded.is_none() {
            return Err(self.error("expected a rounding mode or '.approx'"));
        }
        self.float(op, ty, mode, false, to, &[a])
    }

    pub(super) fn copysign(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let [to, a, b] = self.operands(operands)?;
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(self.wrong_type(ty));
        }
        self.float(Float::CopySign, ty, Mode::NEAREST, false, to, &[a, b])
    }

    pub(super) fn sad(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let [to, a, b, c] = self.operands(operands)?;
        let ty = self.some_type(modifiers)?;
        if !ty.is_integer() || ty.bits() == 8 {
            return Err(self.wrong_type(ty));
        }
        let op = if ty.is_signed() { Integer::SadSigned } else { Integer::SadUnsigned };
        self.integer(op, ty, to, [Some(a), Some(b), Some(c)])
    }

    pub(super) fn logic(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let [to, a, b] = self.operands(operands)?;
        let ty = self.some_type(modifiers)?;
        if ty == Type::Pred {
            let op = super::compare::logic_of(opcode).unwrap_or(Logic::Xor);
            let ((a, a_negated), (b, b_negated)) = (self.predicate(a)?, self.predicate(b)?);
            let to = self.written_predicate(to)?;
            self.emit(Op::Logic { op, to, a, a_negated, b, b_negated });
            return Ok(());
        }
        let op = match opcode {
            "and" => Integer::And,
            "or" => Integer::Or,
            _ => Integer::Xor,
        };
        self.untyped(ty)?;
        self.integer(op, ty, to, [Some(a), Some(b), None])
    }

    pub(super) fn written_predicate(&mut self, operand: &Operand<'m>) -> Result<Slot, Error> {
        match self.predicate_target(operand)? {
            Some(slot) => Ok(slot),
            None => Ok(self.new_predicate()),
        }
    }

    /// Accepts only `.b16`, `.b32` and `.b64`.
    pub(super) fn untyped(&self, ty: Type) -> Result<(), Error> {
        match ty {
            Type::B16 | Type::B32 | Type::B64 => Ok(()),
            _ => Err(self.wrong_type(ty)),
        }
    }

    pub(super) fn complement(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let [to, a] = self.operands(operands)?;
        let ty = self.some_type(modifiers)?;
        if ty == Type::Pred && opcode == "not" {
            let (from, negated) = self.predicate(a)?;
            let to = self.written_predicate(to)?;
            self.emit(Op::MovePredicate { to, from, negated: !negated });
            return Ok(());
        }
        self.untyped(ty)?;
        let op = if opcode == "not" { Integer::Not } else { Integer::CNot };
        self.integer(op, ty, to, [Some(a), None, None])
    }
}

/// `.u16x2` or `.s16x2`
fn packed(modifiers: &mut Modifiers<'_>) -> Option<Extend> {
    modifiers.take(|word| match word {
        "u16x2" => Some(Extend::Zero),
        "s16x2" => Some(Extend::Sign),
        _ => None,
    })
}
