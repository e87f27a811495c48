//! Lowers `cvt`, and conversions of addresses between spaces.

use super::function::Builder;
use super::modifiers::Modifiers;
use super::operand::dotted;
use crate::arith::Rounding;
use crate::arith::convert::{Convert, Format};
use crate::arith::half::Half;
use crate::arith::packed::Fp8;
use crate::error::Error;
use crate::ir::{Bits, Constant, Op};
use crate::syntax::tree::{Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn cvt(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let integral = modifiers.integral_rounding();
        let rounding = integral.or_else(|| modifiers.rounding());
        let how = Convert {
            rounding,
            integral: integral.is_some(),
            ftz: modifiers.has("ftz"),
            sat: modifiers.has("sat"),
            finite: modifiers.has("satfinite"),
            relu: modifiers.has("relu"),
        };
        if modifiers.has("pack") {
            return self.pack(modifiers, operands, how.sat);
        }
        if modifiers.has("tf32") {
            let from = self.some_type(modifiers)?;
            let [to, a] = self.operands(operands)?;
            let (a, to) = (self.narrow(a, from)?, self.narrow_target(to, Type::B32)?);
            self.emit(Op::ConvertTf32 { how, to, a });
            return Ok(());
        }
        for (name, format) in [("e4m3x2", Fp8::E4m3), ("e5m2x2", Fp8::E5m2)] {
            if modifiers.has(name) {
                return self.cvt_fp8(format, how, modifiers, operands);
            }
        }
        let to_type = self.some_type(modifiers)?;
        let from_type = self.some_type(modifiers)?;
        if let [to, a, b] = operands {
            let format = match (to_type, from_type) {
                (Type::F16x2, Type::F32) => Half::F16,
                (Type::Bf16x2, Type::F32) => Half::Bf16,
                _ => return Err(self.wrong_type(to_type)),
            };
            let (a, b) = (self.narrow(a, Type::F32)?, self.narrow(b, Type::F32)?);
            let to = self.narrow_target(to, Type::B32)?;
            self.emit(Op::ConvertPair { format, how, to, a, b });
            return Ok(());
        }
        let [to, a] = self.operands(operands)?;
        let (to_format, from_format) = (self.format(to_type)?, self.format(from_type)?);
        if how.ftz && !to_type.is_float() && !from_type.is_float() {
            return Err(self.error("'.ftz' is for floating-point numbers"));
        }
        self.check_rounding(to_type, from_type, &how)?;
        let from = self.source_as(a, from_type, true)?;
        let to = self.target_as(to, to_type, true)?;
        self.emit(Op::Convert { to_format, from_format, how, to, from });
        Ok(())
    }

    /// Packs two integers with saturation; of small ones more than two, shifted in.
    fn pack(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>], sat: bool) -> Result<(), Error> {
        let small = |word| match word {
            "u2" => Some((2, false)),
            "s2" => Some((2, true)),
            "u4" => Some((4, false)),
            "s4" => Some((4, true)),
            "u8" => Some((8, false)),
            "s8" => Some((8, true)),
            "u16" => Some((16, false)),
            "s16" => Some((16, true)),
            _ => None,
        };
        let (bits, signed) = modifiers.take(small).ok_or_else(|| self.error("expected the type to convert to"))?;
        if !sat || modifiers.ty() != Some(Type::S32) {
            return Err(self.error("expected '.sat' and '.s32'"));
        }
        let (to, a, b, c) = match operands {
            [to, a, b] if bits == 16 => (to, a, b, None),
            [to, a, b, c] if bits < 16 && modifiers.ty() == Some(Type::B32) => (to, a, b, Some(c)),
            _ => return Err(self.error("expected the operands 'd, a, b', or with '.b32' 'd, a, b, c'")),
        };
        let (a, b) = (self.narrow(a, Type::S32)?, self.narrow(b, Type::S32)?);
        let c = match c {
            Some(c) => self.narrow(c, Type::B32)?,
            None => self.constant_narrow(0),
        };
        let to = self.narrow_target(to, Type::B32)?;
        self.emit(Op::Bits { op: Bits::Pack { bits, signed }, to, a, b, c });
        Ok(())
    }

    /// A conversion to an 8-bit float takes `.satfinite`; one from it does not.
    fn cvt_fp8(
        &mut self,
        format: Fp8,
        how: Convert,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        if how.rounding != Some(Rounding::Nearest) || how.integral {
            return Err(self.error("the conversion requires '.rn'"));
        }
        let (ty, relu) = (self.some_type(modifiers)?, how.relu);
        match (ty, how.finite, operands) {
            (Type::F32, true, [to, a, b]) => {
                let (a, b) = (self.narrow(a, Type::F32)?, self.narrow(b, Type::F32)?);
                let to = self.narrow_target(to, Type::B16)?;
                self.emit(Op::PackEighths { format, relu, to, a, b: Some(b) });
            }
            (Type::F16x2, true, [to, a]) => {
                let (a, to) = (self.narrow(a, Type::B32)?, self.narrow_target(to, Type::B16)?);
                self.emit(Op::PackEighths { format, relu, to, a, b: None });
            }
            (Type::F16x2, false, [to, a]) => {
                let (a, to) = (self.narrow(a, Type::B16)?, self.narrow_target(to, Type::B32)?);
                self.emit(Op::UnpackEighths { format, relu, to, a });
            }
            _ => return Err(self.wrong_type(ty)),
        }
        Ok(())
    }

    fn check_rounding(&self, to: Type, from: Type, how: &Convert) -> Result<(), Error> {
        let narrows = match (to.is_float(), from.is_float()) {
            (true, true) => to.bits() < from.bits() || (to != from && to.bits() == from.bits()),
            (false, false) => false,
            _ => true,
        };
        let same = to == from && to.is_float();
        if !to.is_float() && from.is_float() && !how.integral {
            return Err(self.error("a conversion to an integer requires '.rni', '.rzi', '.rmi' or '.rpi'"));
        }
        if how.integral && to.is_float() && (!from.is_float() || to.bits() < from.bits()) {
            return Err(self.error("expected '.rn', '.rz', '.rm' or '.rp'"));
        }
        if narrows && how.rounding.is_none() {
            return Err(self.error("the conversion requires a rounding mode"));
        }
        if how.rounding.is_some() && !narrows && !(same && how.integral) {
            // Widening is exact: a rounding mode is rejected, as the assembler does.
            let widening_bf16 = from == Type::Bf16;
            if !widening_bf16 {
                return Err(self.error("the conversion is exact and takes no rounding mode"));
            }
        }
        if how.rounding == Some(Rounding::NearestAway) && !how.integral {
            return Err(self.error("'.rna' is not allowed here"));
        }
        Ok(())
    }

    fn format(&self, ty: Type) -> Result<Format, Error> {
        Ok(match ty {
            Type::U8 => Format::U8,
            Type::U16 => Format::U16,
            Type::U32 => Format::U32,
            Type::U64 => Format::U64,
            Type::S8 => Format::S8,
            Type::S16 => Format::S16,
            Type::S32 => Format::S32,
            Type::S64 => Format::S64,
            Type::F16 => Format::F16,
            Type::Bf16 => Format::Bf16,
            Type::F32 => Format::F32,
            Type::F64 => Format::F64,
            _ => return Err(self.wrong_type(ty)),
        })
    }

    pub(super) fn cvta(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let back = modifiers.has("to");
        let space = modifiers.space().ok_or_else(|| self.error("expected a space"))?;
        let ty = self.some_type(modifiers)?;
        if !matches!(ty, Type::U32 | Type::U64) {
            return Err(self.wrong_type(ty));
        }
        let [to, from] = self.operands(operands)?;
        let named = match *from {
            Operand::Name(name) if !self.is_register(name) => Some((name, 0)),
            Operand::Sum(name, addend) => Some((name, addend)),
            _ => None,
        };
        let to = self.target(to, ty)?;
        if let Some((name, addend)) = named {
            if back {
                return Err(self.error_in_name(name, format!("'{name}' is a variable, expected a register")));
            }
            if let Some(found) = self.space_of(name).filter(|&found| found != space) {
                let message = format!("'{name}' is in {} memory, expected {}", dotted(found), dotted(space));
                return Err(self.error_in_name(name, message));
            }
            let constant = self
                .address_of(name, addend, true)
                .ok_or_else(|| self.error_in_name(name, format!("unknown name '{name}'")))?;
            let from = self.constant_of(constant, ty);
            return self.emit_move(to, from);
        }
        let from = self.source(from, ty)?;
        self.emit(match back {
            true => Op::FromGeneric { space, to, from },
            false => Op::ToGeneric { space, to, from },
        });
        Ok(())
    }

    fn constant_of(&mut self, constant: Constant, ty: Type) -> crate::ir::Reg {
        match ty.bits() {
            64 => self.constant_wide(constant),
            _ => self.constant_in_narrow(constant),
        }
    }

    pub(super) fn isspacep(&mut self, modifiers: &mut Modifiers<'m>, operands: &[Operand<'m>]) -> Result<(), Error> {
        let space = modifiers.space().ok_or_else(|| self.error("expected a space"))?;
        let [to, from] = self.operands(operands)?;
        let ty = match self.register_type(from) {
            Some(ty) if ty.bits() == 32 => Type::B32,
            _ => Type::B64,
        };
        let (from, to) = (self.source(from, ty)?, self.written_predicate(to)?);
        self.emit(Op::IsSpace { space, to, from });
        Ok(())
    }
}
