//! Lowers video instructions: on one part of each operand (`vadd`), on two halves (`vadd2`) and on four bytes (`vadd4`).

use super::function::Builder;
use super::modifiers::Modifiers;
use crate::arith::integer::FunnelMode;
use crate::arith::video::{Part, PartwiseVideo, Second, Video, VideoOp};
use crate::error::Error;
use crate::ir::{Bits, Op, Slot};
use crate::syntax::tree::{Operand, Type};

/// The types of an instruction: whether each is signed.
#[derive(Debug, Clone, Copy)]
struct Signs {
    d: bool,
    a: bool,
    b: bool,
}

impl<'m> Builder<'_, 'm> {
    pub(super) fn video(
        &mut self,
        opcode: &str,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let (name, parts) = match opcode.as_bytes().last() {
            Some(b'2') => (&opcode[..opcode.len() - 1], 2),
            Some(b'4') => (&opcode[..opcode.len() - 1], 4),
            _ => (opcode, 1),
        };
        let signs = self.signs(name, modifiers)?;
        let sat = modifiers.has("sat");
        let op = self.video_op(name, modifiers)?;
        match parts {
            1 => self.single_video(op, signs, sat, modifiers, operands),
            _ => self.partwise_video(op, signs, sat, parts, modifiers, operands),
        }
    }

    /// Reads the types: those of the result and of two operands. A comparison has only those of the operands: a
    /// minimum or maximum of its result is signed if one of them is.
    fn signs(&self, name: &str, modifiers: &mut Modifiers<'m>) -> Result<Signs, Error> {
        let mut next = || match modifiers.ty() {
            Some(Type::S32) => Ok(true),
            Some(Type::U32) => Ok(false),
            _ => Err(self.error("expected '.u32' or '.s32' for each operand")),
        };
        if name == "vset" {
            let (a, b) = (next()?, next()?);
            return Ok(Signs { d: a || b, a, b });
        }
        Ok(Signs { d: next()?, a: next()?, b: next()? })
    }

    fn video_op(&self, name: &str, modifiers: &mut Modifiers<'m>) -> Result<VideoOp, Error> {
        let mode = |modifiers: &mut Modifiers<'m>| {
            let mode = modifiers.take(|word| match word {
                "wrap" => Some(FunnelMode::Wrap),
                "clamp" => Some(FunnelMode::Clamp),
                _ => None,
            });
            mode.ok_or_else(|| self.error("expected '.wrap' or '.clamp'"))
        };
        Ok(match name {
            "vadd" => VideoOp::Add,
            "vsub" => VideoOp::Sub,
            "vabsdiff" => VideoOp::AbsDiff,
            "vmin" => VideoOp::Min,
            "vmax" => VideoOp::Max,
            "vavrg" => VideoOp::Average,
            "vshl" => VideoOp::ShiftLeft(mode(modifiers)?),
            "vshr" => VideoOp::ShiftRight(mode(modifiers)?),
            "vmad" => {
                let shift = modifiers.take(|word| match word {
                    "shr7" => Some(7),
                    "shr15" => Some(15),
                    _ => None,
                });
                VideoOp::MulAdd { plus_one: modifiers.has("po"), shift: shift.unwrap_or(0) }
            }
            _ => {
                let orders = modifiers.take(|word| {
                    Some(match word {
                        "eq" => (false, true, false),
                        "ne" => (true, false, true),
                        "lt" => (true, false, false),
                        "le" => (true, true, false),
                        "gt" => (false, false, true),
                        "ge" => (false, true, true),
                        _ => return None,
                    })
                });
                let (less, equal, greater) = orders.ok_or_else(|| self.error("expected a comparison such as '.eq'"))?;
                VideoOp::Compare { less, equal, greater }
            }
        })
    }

    fn single_video(
        &mut self,
        op: VideoOp,
        signs: Signs,
        sat: bool,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let second = modifiers.take(|word| match word {
            "add" => Some(Second::Add),
            "min" => Some(Second::Min),
            "max" => Some(Second::Max),
            _ => None,
        });
        let (to, a, b, c) = match operands {
            [to, a, b] => (to, a, b, None),
            [to, a, b, c] => (to, a, b, Some(c)),
            _ => return Err(self.error("expected the operands 'd, a, b' or 'd, a, b, c'")),
        };
        let (to, to_part) = self.selected(to);
        let (a, a_part) = self.selected(a);
        let (b, b_part) = self.selected(b);
        let [to_part, a_part, b_part] = [self.part(to_part)?, self.part(a_part)?, self.part(b_part)?];
        let second = match (op, to_part, second, c) {
            (VideoOp::MulAdd { .. }, Part::Word, None, Some(_)) | (_, Part::Word, None, None) => Second::None,
            (VideoOp::MulAdd { .. }, ..) => return Err(self.error("expected the operands 'd, a, b, c'")),
            (_, Part::Word, Some(second), Some(_)) => second,
            (_, part, None, Some(_)) if part != Part::Word => Second::Merge(part),
            _ => return Err(self.error("expected a third operand with a second operation, or with a part of 'd'")),
        };
        let [a, b] = [self.narrow(&a, Type::B32)?, self.narrow(&b, Type::B32)?];
        let c = self.third(c)?;
        let to = self.narrow_target(&to, Type::B32)?;
        let how =
            Video { op, signed: signs.d, a_signed: signs.a, b_signed: signs.b, sat, a: a_part, b: b_part, second };
        self.emit(Op::Bits { op: Bits::Video(how), to, a, b, c });
        Ok(())
    }

    fn partwise_video(
        &mut self,
        op: VideoOp,
        signs: Signs,
        sat: bool,
        parts: u8,
        modifiers: &mut Modifiers<'m>,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        let sums = modifiers.has("add");
        let [to, a, b, c] = self.operands(operands)?;
        let ((to, mask), (a, a_parts), (b, b_parts)) = (self.selected(to), self.selected(a), self.selected(b));
        let mask = match mask {
            None => (1 << parts) - 1,
            Some(mask) => self.indices(mask, parts, parts)?.iter().fold(0, |mask, part| mask | 1 << part),
        };
        let (a_parts, b_parts) = (self.selectors(a_parts, parts, 0)?, self.selectors(b_parts, parts, parts)?);
        let [a, b] = [self.narrow(&a, Type::B32)?, self.narrow(&b, Type::B32)?];
        let c = self.third(Some(c))?;
        let to = self.narrow_target(&to, Type::B32)?;
        let how = PartwiseVideo {
            op,
            signed: signs.d,
            a_signed: signs.a,
            b_signed: signs.b,
            sat,
            parts,
            a: a_parts,
            b: b_parts,
            mask,
            sums,
        };
        self.emit(Op::Bits { op: Bits::VideoParts(how), to, a, b, c });
        Ok(())
    }

    fn third(&mut self, operand: Option<&Operand<'m>>) -> Result<Slot, Error> {
        match operand {
            Some(operand) => self.narrow(operand, Type::B32),
            None => Ok(self.constant_narrow(0)),
        }
    }

    /// Splits `%r1.b0` into the register and its parts.
    fn selected(&self, operand: &Operand<'m>) -> (Operand<'m>, Option<&'m str>) {
        if let Operand::Name(name) = operand
            && !self.is_register(name)
            && let Some((register, parts)) = name.rsplit_once('.')
            && matches!(parts.as_bytes(), [b'b' | b'h', digits @ ..] if !digits.is_empty())
        {
            return (Operand::Name(register), Some(parts));
        }
        (operand.clone(), None)
    }

    fn part(&self, text: Option<&str>) -> Result<Part, Error> {
        Ok(match text {
            None => Part::Word,
            Some("h0") => Part::Half(0),
            Some("h1") => Part::Half(1),
            Some("b0") => Part::Byte(0),
            Some("b1") => Part::Byte(1),
            Some("b2") => Part::Byte(2),
            Some("b3") => Part::Byte(3),
            Some(_) => return Err(self.error("expected a part '.b0' to '.b3', '.h0' or '.h1'")),
        })
    }

    /// Reads digits such as those of `.b3210`, the lowest part last, all of them below `limit`.
    fn indices(&self, text: &str, parts: u8, limit: u8) -> Result<Vec<u8>, Error> {
        let letter = if parts == 2 { 'h' } else { 'b' };
        let digits = text.strip_prefix(letter).unwrap_or_default();
        let digits: Vec<u8> = digits.bytes().rev().map(|digit| digit.wrapping_sub(b'0')).collect();
        let is_valid = !digits.is_empty() && digits.len() <= parts.into() && digits.iter().all(|&digit| digit < limit);
        if is_valid { Ok(digits) } else { Err(self.error(format!("unknown part '.{text}'"))) }
    }

    /// Returns four bits for each part. Without a text the parts are those of one operand, which begin at `first`.
    fn selectors(&self, text: Option<&str>, parts: u8, first: u8) -> Result<u16, Error> {
        let digits = match text {
            None => (first..first + parts).collect(),
            Some(text) => self.indices(text, parts, 2 * parts)?,
        };
        if digits.len() != usize::from(parts) {
            return Err(self.error(format!("expected {parts} parts")));
        }
        Ok(digits.iter().rev().fold(0, |all, &digit| all << 4 | u16::from(digit)))
    }
}
