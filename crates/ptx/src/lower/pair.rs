//! Lowers values of 128 bits: a register of type `.b128` is a pair of 64-bit registers, the low one first.

use super::function::{Builder, RegisterFile};
use super::operand::kind_of;
use super::scope::{FoundRegister, RegisterRange};
use crate::error::Error;
use crate::ir::{AtomicOp, AtomicPair, Constant, MemorySpace, Op, Reg};
use crate::memory::Width;
use crate::syntax::tree::{Operand, Type};

type Pair = [Reg; 2];

impl<'m> Builder<'_, 'm> {
    /// Checks that the module may have values of 128 bits.
    pub(super) fn check_128_bits(&self) -> Result<(), Error> {
        let module = self.unit.module;
        if module.version < (8, 3) || module.target < 70 {
            return Err(self.error("the type .b128 needs '.version 8.3' and sm_70 or higher"));
        }
        let is_for_system = || self.current.is_some_and(|instruction| instruction.modifiers.contains(&"sys"));
        if module.version < (8, 4) && is_for_system() {
            return Err(self.error_in_name("sys", "'.sys' with the type .b128 needs '.version 8.4' or higher"));
        }
        Ok(())
    }

    /// Returns the two halves of a register, and assigns their slots at the first use.
    fn find_pair(&mut self, name: &str) -> Option<Pair> {
        let FoundRegister::Member(family, index) = self.lookup(name)? else { return None };
        if family.ty != Type::B128 {
            return None;
        }
        Some([family.id, family.id + 1].map(|id| match self.members.get(&(id, index)) {
            Some(&reg) => reg,
            None => {
                let reg = self.new_reg(RegisterFile::Wide);
                self.members.insert((id, index), reg);
                reg
            }
        }))
    }

    fn source_pair(&mut self, operand: &Operand<'m>) -> Result<Pair, Error> {
        match *operand {
            Operand::Name(name) => self.named_pair(operand, name),
            // The assembler extends a constant of 64 bits with zeros.
            Operand::Integer(value) => Ok([value, 0].map(|half| self.constant_wide(Constant::Bits(half)))),
            _ => Err(self.error_at(operand, format!("expected a register of 128 bits, found {}", kind_of(operand)))),
        }
    }

    fn target_pair(&mut self, operand: &Operand<'m>) -> Result<Pair, Error> {
        match *operand {
            Operand::Name(name) => self.named_pair(operand, name),
            Operand::Sink => Ok([(); 2].map(|()| self.new_reg(RegisterFile::Wide))),
            _ => Err(self.error_at(operand, format!("expected a register to write to, found {}", kind_of(operand)))),
        }
    }

    fn named_pair(&mut self, operand: &Operand<'m>, name: &str) -> Result<Pair, Error> {
        if let Some(pair) = self.find_pair(name) {
            return Ok(pair);
        }
        Err(match self.register_type(operand) {
            Some(ty) => self.error_at(operand, format!("'{name}' is .{ty:?}, expected .b128").to_lowercase()),
            None => self.error_at(operand, format!("'{name}' is not a register")),
        })
    }

    /// `mov.b128`: a copy, or the parts of a value.
    pub(super) fn move_pair(&mut self, to: &Operand<'m>, from: &Operand<'m>) -> Result<(), Error> {
        self.check_128_bits()?;
        match (to, from) {
            (Operand::Vector(parts), Operand::Name(_)) if parts.len() > 1 => {
                let ty = self.half_parts(to, parts)?;
                let from = self.source_pair(from)?;
                for (half, parts) in from.into_iter().zip(parts.chunks(parts.len() / 2)) {
                    self.split_half(half, ty, parts)?;
                }
            }
            (Operand::Name(_), Operand::Vector(parts)) if parts.len() > 1 => {
                let ty = self.half_parts(from, parts)?;
                let to = self.target_pair(to)?;
                for (half, parts) in to.into_iter().zip(parts.chunks(parts.len() / 2)) {
                    self.join_half(half, ty, parts)?;
                }
            }
            _ => {
                let (from, to) = (self.source_pair(from)?, self.target_pair(to)?);
                for (to, from) in to.into_iter().zip(from) {
                    self.emit_move(to, from)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the type of the parts of a value.
    fn half_parts(&self, operand: &Operand<'m>, parts: &[Operand<'m>]) -> Result<Type, Error> {
        match parts.len() {
            2 => Ok(Type::B64),
            4 => Ok(Type::B32),
            count => Err(self.error_at(operand, format!("128 bits have 2 or 4 parts, not {count}"))),
        }
    }

    fn split_half(&mut self, half: Reg, ty: Type, parts: &[Operand<'m>]) -> Result<(), Error> {
        let to = parts.iter().map(|part| match part {
            Operand::Sink => Ok(None),
            _ => self.target(part, ty).map(Some),
        });
        let to: Box<[Option<Reg>]> = to.collect::<Result<_, _>>()?;
        match *to {
            [None] => {}
            [Some(to)] => self.emit_move(to, half)?,
            _ => self.emit(Op::Split { from: half, part_bits: ty.bits(), to }),
        }
        Ok(())
    }

    fn join_half(&mut self, half: Reg, ty: Type, parts: &[Operand<'m>]) -> Result<(), Error> {
        let from: Box<[Reg]> = parts.iter().map(|part| self.source(part, ty)).collect::<Result<_, _>>()?;
        match *from {
            [from] => self.emit_move(half, from)?,
            _ => self.emit(Op::Join { to: half, part_bits: ty.bits(), from }),
        }
        Ok(())
    }

    /// A load, after its modifiers: an access of 16 bytes, like that of a vector.
    pub(super) fn load_pair(&mut self, space: MemorySpace, to: &Operand<'m>, at: &Operand<'m>) -> Result<(), Error> {
        self.check_128_bits()?;
        if matches!(to, Operand::Sink) {
            return Err(self.error_at(to, "a load of one element needs a register"));
        }
        let to = self.target_pair(to)?.map(Some).into();
        let (space, at) = self.access_address(at, space)?;
        self.emit(Op::LoadVector { space, width: Width::Eight, signed: false, to, at });
        Ok(())
    }

    /// A store, after its modifiers.
    pub(super) fn store_pair(&mut self, space: MemorySpace, at: &Operand<'m>, from: &Operand<'m>) -> Result<(), Error> {
        self.check_128_bits()?;
        let from = self.source_pair(from)?.into();
        let (space, at) = self.access_address(at, space)?;
        self.emit(Op::StoreVector { space, width: Width::Eight, from, at });
        Ok(())
    }

    /// `atom.exch.b128` and `atom.cas.b128`, after their modifiers.
    pub(super) fn atomic_pair(
        &mut self,
        op: AtomicOp,
        space: MemorySpace,
        operands: &[Operand<'m>],
    ) -> Result<(), Error> {
        self.check_128_bits()?;
        let target = self.unit.module.target;
        if target < 90 {
            return Err(self
                .error(format!("an atomic operation on .b128 needs sm_90 or higher, but the target is sm_{target}")));
        }
        let (to, at, compare, value) = match (op, operands) {
            (AtomicOp::Exchange, [to, at, value]) => (to, at, None, value),
            (AtomicOp::CompareExchange, [to, at, compare, value]) => (to, at, Some(compare), value),
            (AtomicOp::Exchange, _) => return Err(self.error("expected the operands 'd, [a], b'")),
            (AtomicOp::CompareExchange, _) => return Err(self.error("expected the operands 'd, [a], b, c'")),
            _ => return Err(self.wrong_type(Type::B128)),
        };
        let to = if matches!(to, Operand::Sink) { None } else { Some(self.target_pair(to)?) };
        let compare = compare.map(|compare| self.source_pair(compare)).transpose()?;
        let value = self.source_pair(value)?;
        let at = self.address(at, space)?;
        self.emit(Op::AtomicPair(Box::new(AtomicPair { space, to, at, compare, value })));
        Ok(())
    }

    /// Declares registers of 128 bits: two ranges of 64-bit registers, of which the second has the upper halves.
    pub(super) fn new_pairs(&mut self, count: u32) -> Result<RegisterRange, Error> {
        self.check_128_bits()?;
        let family = RegisterRange { ty: Type::B128, count, id: self.range_count + 1 };
        self.range_count += 2;
        Ok(family)
    }
}
