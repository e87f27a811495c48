//! Lowers operands: names, literals and addresses.

use super::function::{Builder, RegisterFile};
use super::modifiers::Modifiers;
use super::scope::{FoundRegister, Label, Register, Variable};
use super::{SymbolKind, VariableSpace};
use crate::error::Error;
use crate::ir::{
    Address, Constant, Integer, LaneMask, MemorySpace, Op, PARAM_WINDOW, Reg, Signature, Slot, Special, SymbolIndex,
};
use crate::memory::Width;
use crate::syntax::tree::{Base, Operand, Type};

impl<'m> Builder<'_, 'm> {
    pub(super) fn lookup(&self, name: &str) -> Option<FoundRegister> {
        self.scopes.iter().rev().find_map(|scope| scope.register(name))
    }

    pub(super) fn is_register(&self, name: &str) -> bool {
        self.lookup(name).is_some()
    }

    /// Returns a register, and assigns its slot at the first use.
    pub(super) fn find_register(&mut self, name: &str) -> Option<Register> {
        let (family, index) = match self.lookup(name)? {
            FoundRegister::One(register) => return Some(register),
            FoundRegister::Member(family, index) => (family, index),
        };
        // Of 128 bits, the lower half; only instructions on pairs use both.
        let file = if family.ty == Type::B128 { RegisterFile::Wide } else { RegisterFile::of(family.ty)? };
        if let Some(&reg) = self.members.get(&(family.id, index)) {
            return Some(Register { ty: family.ty, reg });
        }
        let reg = self.new_reg(file);
        self.members.insert((family.id, index), reg);
        Some(Register { ty: family.ty, reg })
    }

    /// Returns the elements of a vector: those in braces, or those of a register of a vector type.
    fn elements<'o>(&self, operand: &'o Operand<'m>) -> Option<Vec<Element<'o, 'm>>> {
        match operand {
            Operand::Vector(parts) => Some(parts.iter().map(Element::Operand).collect()),
            Operand::Name(name) => {
                let vector = self.scopes.iter().rev().find_map(|scope| scope.vectors.get(name))?;
                Some(vector.iter().copied().map(Element::Register).collect())
            }
            _ => None,
        }
    }

    pub(super) fn is_vector(&self, operand: &Operand<'m>) -> bool {
        self.elements(operand).is_some()
    }

    /// Returns the slots that a vector is read from.
    pub(super) fn source_vector(&mut self, operand: &Operand<'m>, ty: Type, count: usize) -> Result<Box<[Reg]>, Error> {
        let elements = self.elements_exactly(operand, count)?;
        let regs = elements.iter().map(|element| match element {
            // The assembler accepts the bits of a float where an element is an integer.
            Element::Operand(part @ Operand::Single(_)) if ty.bits() == 32 && ty.is_integer() => {
                self.source_as(part, Type::B32, true)
            }
            Element::Operand(part) => self.source_as(part, ty, true),
            Element::Register(register) => self.checked(operand, *register, ty, true),
        });
        regs.collect()
    }

    /// Returns the slots that a vector is written to; `None` for an element that is discarded.
    pub(super) fn target_vector(
        &mut self,
        operand: &Operand<'m>,
        ty: Type,
        count: usize,
    ) -> Result<Box<[Option<Reg>]>, Error> {
        let elements = self.elements_exactly(operand, count)?;
        let regs = elements.iter().map(|element| match element {
            Element::Operand(Operand::Sink) => Ok(None),
            Element::Operand(part) => self.target_as(part, ty, true).map(Some),
            Element::Register(register) => self.checked(operand, *register, ty, true).map(Some),
        });
        regs.collect()
    }

    /// Truncates the result of a signed load, which is extended to 32 bits, for smaller registers: their upper bits are
    /// zero.
    pub(super) fn truncate_signed(&mut self, to: &Operand<'m>, ty: Type) {
        if !ty.is_signed() {
            return;
        }
        let elements = self.elements(to).unwrap_or_else(|| vec![Element::Operand(to)]);
        for element in elements {
            let register = match element {
                Element::Register(register) => Some(register),
                Element::Operand(Operand::Name(name)) => self.find_register(name),
                Element::Operand(_) => None,
            };
            if let Some(Register { ty, reg: Reg::Narrow(to) }) = register
                && ty.bits() < 32
            {
                let mask = self.constant_narrow(u32::MAX >> (32 - ty.bits()));
                self.emit(Op::Narrow { op: Integer::And, half: None, to, a: to, b: mask, c: mask });
            }
        }
    }

    fn elements_exactly<'o>(&self, operand: &'o Operand<'m>, count: usize) -> Result<Vec<Element<'o, 'm>>, Error> {
        let elements = self.elements(operand).ok_or_else(|| self.error_at(operand, "expected a vector"))?;
        match elements.len() == count {
            true => Ok(elements),
            false => Err(self.error_at(operand, format!("expected {count} elements, found {}", elements.len()))),
        }
    }

    pub(super) fn find_variable(&self, name: &str) -> Option<Variable> {
        self.scopes.iter().rev().find_map(|scope| scope.variables.get(name).copied())
    }

    pub(super) fn find_label(&self, name: &str) -> Option<Label> {
        self.scopes.iter().rev().find_map(|scope| scope.labels.get(name).copied())
    }

    pub(super) fn find_targets(&self, name: &str) -> Option<&Vec<&'m str>> {
        self.scopes.iter().rev().find_map(|scope| scope.targets.get(name))
    }

    pub(super) fn find_prototype(&self, name: &str) -> Option<&Signature> {
        self.scopes.iter().rev().find_map(|scope| scope.prototypes.get(name))
    }

    pub(super) fn find_symbol(&mut self, name: &str) -> Option<SymbolIndex> {
        let symbol = self.unit.names.get(name).copied()?;
        self.add_reference(symbol);
        Some(symbol)
    }

    fn add_reference(&mut self, symbol: SymbolIndex) {
        if !self.mentions.contains(&symbol) {
            self.mentions.push(symbol);
        }
    }

    pub(super) fn is_function(&self, symbol: SymbolIndex) -> bool {
        matches!(self.unit.symbols[symbol as usize].kind, SymbolKind::Function { .. } | SymbolKind::Alias(_))
    }

    fn constant(&mut self, file: RegisterFile, constant: Constant) -> Reg {
        if let Some(&reg) = self.constants.get(&(file, constant)) {
            return reg;
        }
        let reg = self.new_reg(file);
        self.constants.insert((file, constant), reg);
        reg
    }

    pub(super) fn constant_wide(&mut self, constant: Constant) -> Reg {
        self.constant(RegisterFile::Wide, constant)
    }

    pub(super) fn constant_in_narrow(&mut self, constant: Constant) -> Reg {
        self.constant(RegisterFile::Narrow, constant)
    }

    pub(super) fn constant_narrow(&mut self, value: u32) -> Slot {
        match self.constant(RegisterFile::Narrow, Constant::Bits(u64::from(value))) {
            Reg::Narrow(slot) => slot,
            _ => unreachable!("a constant is in the requested register file"),
        }
    }

    pub(super) fn constant_predicate(&mut self, value: bool) -> Slot {
        match self.constant(RegisterFile::Predicate, Constant::Bits(if value { u64::MAX } else { 0 })) {
            Reg::Predicate(slot) => slot,
            _ => unreachable!("a constant is in the requested register file"),
        }
    }

    /// Returns the address of a variable or function as a constant. `generic` distinguishes `cvta` from `mov`, which
    /// differ for shared and local variables.
    pub(super) fn address_of(&mut self, name: &str, addend: i64, generic: bool) -> Option<Constant> {
        Some(match self.find_variable(name) {
            // The offset of a frame address fits 32 bits.
            Some(Variable::Frame { offset, is_param, .. }) => {
                Constant::Local { offset: offset.wrapping_add(addend as u32), generic: generic || is_param }
            }
            Some(Variable::Kernel { offset }) => {
                Constant::Bits(PARAM_WINDOW.wrapping_add(u64::from(offset)).wrapping_add_signed(addend))
            }
            Some(Variable::Symbol(symbol)) => {
                self.add_reference(symbol);
                Constant::Symbol { symbol, generic, addend }
            }
            None => Constant::Symbol { symbol: self.find_symbol(name)?, generic, addend },
        })
    }

    /// Returns a source operand of a type; with `relaxed`, a register may be wider.
    pub(super) fn source_as(&mut self, operand: &Operand<'m>, ty: Type, relaxed: bool) -> Result<Reg, Error> {
        let file = RegisterFile::of(ty).ok_or_else(|| self.unsupported("operands of 128 bits"))?;
        let constant = match *operand {
            Operand::Name(name) => {
                if let Some(register) = self.find_register(name) {
                    return self.checked(operand, register, ty, relaxed);
                }
                match special(name) {
                    Some(special) => {
                        self.check_special(name, special, ty)?;
                        Constant::Special(special)
                    }
                    None => self
                        .address_of(name, 0, false)
                        .ok_or_else(|| self.error_at(operand, format!("unknown name '{name}'")))?,
                }
            }
            Operand::Sum(name, addend) => {
                if self.is_register(name) {
                    return Err(self.error_at(
                        operand,
                        format!("'{name}' is a register: an offset can only be added to an address"),
                    ));
                }
                self.address_of(name, addend, false)
                    .ok_or_else(|| self.error_at(operand, format!("unknown name '{name}'")))?
            }
            Operand::Integer(value)
                if ty.is_float() && !matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) =>
            {
                return Err(self.error_at(
                    operand,
                    format!("{value} is an integer, expected a floating-point number of type .{ty:?}").to_lowercase(),
                ));
            }
            Operand::Integer(value) => Constant::Bits(truncate(value, ty)),
            Operand::Single(_) | Operand::Double(_) if ty.is_integer() => {
                return Err(self.error_at(operand, format!("expected an integer of type {}", dotted(ty))));
            }
            Operand::Double(_) if ty == Type::B32 => {
                return Err(self.error_at(operand, "a constant of 64 bits, expected .b32: write it as '0f...'"));
            }
            Operand::Single(bits) if ty.bits() == 64 => Constant::Bits(f64::from(f32::from_bits(bits)).to_bits()),
            Operand::Single(bits) => Constant::Bits(u64::from(bits)),
            Operand::Double(bits) if ty.bits() == 32 => {
                Constant::Bits(u64::from((f64::from_bits(bits) as f32).to_bits()))
            }
            Operand::Double(bits) if ty.bits() == 64 => Constant::Bits(bits),
            _ => {
                return Err(
                    self.error_at(operand, format!("expected a register or a constant, found {}", kind_of(operand)))
                );
            }
        };
        if file == RegisterFile::Predicate {
            return Err(self.error_at(operand, "expected a predicate"));
        }
        Ok(self.constant(file, constant))
    }

    /// Checks that an instruction may read a special register as a type.
    fn check_special(&self, name: &str, special: Special, ty: Type) -> Result<(), Error> {
        let fits = match special {
            // A constant rather than a register.
            Special::WarpSize => return Ok(()),
            Special::Tid(_) | Special::Ntid(_) | Special::Ctaid(_) | Special::Nctaid(_) => matches!(ty.bits(), 16 | 32),
            Special::Grid => matches!(ty.bits(), 32 | 64),
            Special::Zero if name == GRAPH => ty.bits() == 64,
            _ => ty.bits() == 32,
        };
        if !self.current.is_some_and(|instruction| matches!(instruction.opcode, "mov" | "cvt")) {
            return Err(self.error_in_name(name, format!("'{name}' is a special register: copy it with 'mov' first")));
        }
        match fits && !ty.is_float() {
            true => Ok(()),
            false => {
                let bits = if name == GRAPH { 64 } else { 32 };
                Err(self.error_in_name(name, format!("'{name}' has {bits} bits, expected {}", dotted(ty))))
            }
        }
    }

    /// Checks the type of a register that an operand names.
    fn checked(&self, operand: &Operand<'m>, register: Register, ty: Type, relaxed: bool) -> Result<Reg, Error> {
        let fits = match relaxed {
            _ if register.ty == Type::B128 => false,
            // A wider register has the value in its low bits, unless it is of floating-point type.
            true => {
                let is_kind = match (ty.is_float(), register.ty.is_float()) {
                    (true, true) => ty.bits() == register.ty.bits(),
                    (is_float, is_float_register) => {
                        ty.is_untyped() || register.ty.is_untyped() || is_float == is_float_register
                    }
                };
                let is_predicate = (register.ty == Type::Pred) == (ty == Type::Pred);
                register.ty.bits() >= ty.bits() && is_kind && is_predicate
            }
            false => register.ty.bits() == ty.bits() && ty.agrees_with(register.ty),
        };
        if fits {
            return Ok(register.reg);
        }
        let name = if let Operand::Name(name) = operand { name } else { "the vector" };
        Err(self.error_at(operand, format!("'{name}' is {}, expected {}", dotted(register.ty), dotted(ty))))
    }

    pub(super) fn source(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Reg, Error> {
        self.source_as(operand, ty, false)
    }

    pub(super) fn narrow(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.source(operand, ty)? {
            Reg::Narrow(slot) => Ok(slot),
            _ => Err(self.error_at(operand, "expected a register of at most 32 bits")),
        }
    }

    pub(super) fn wide(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.source(operand, ty)? {
            Reg::Wide(slot) => Ok(slot),
            _ => Err(self.error_at(operand, "expected a register of 64 bits")),
        }
    }

    /// Returns a predicate, and whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand<'m>) -> Result<(Slot, bool), Error> {
        let (name, negated) = match *operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Integer(value) => return Ok((self.constant_predicate(value != 0), false)),
            _ => return Err(self.error_at(operand, format!("expected a predicate, found {}", kind_of(operand)))),
        };
        match self.find_register(name) {
            Some(Register { reg: Reg::Predicate(slot), .. }) => Ok((slot, negated)),
            None if name == "%is_explicit_cluster" => {
                let constant = Constant::Special(Special::IsExplicitCluster);
                match self.constant(RegisterFile::Predicate, constant) {
                    Reg::Predicate(slot) => Ok((slot, negated)),
                    _ => unreachable!("a constant is in the requested register file"),
                }
            }
            Some(_) => Err(self.error_at(operand, format!("'{name}' is not a predicate"))),
            None => Err(self.error_at(operand, format!("unknown name '{name}'"))),
        }
    }

    /// Returns a register to write; an unused one for `_`.
    pub(super) fn target_as(&mut self, operand: &Operand<'m>, ty: Type, relaxed: bool) -> Result<Reg, Error> {
        match *operand {
            Operand::Name(name) => match self.find_register(name) {
                Some(register) => self.checked(operand, register, ty, relaxed),
                None => Err(self.error_at(operand, format!("'{name}' is not a register"))),
            },
            Operand::Sink => Ok(self.new_register(ty)?.reg),
            _ => Err(self.error_at(operand, format!("expected a register to write to, found {}", kind_of(operand)))),
        }
    }

    pub(super) fn target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Reg, Error> {
        self.target_as(operand, ty, false)
    }

    pub(super) fn narrow_target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.target(operand, ty)? {
            Reg::Narrow(slot) => Ok(slot),
            _ => Err(self.error_at(operand, "expected a register of at most 32 bits")),
        }
    }

    pub(super) fn wide_target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.target(operand, ty)? {
            Reg::Wide(slot) => Ok(slot),
            _ => Err(self.error_at(operand, "expected a register of 64 bits")),
        }
    }

    pub(super) fn predicate_target(&mut self, operand: &Operand<'m>) -> Result<Option<Slot>, Error> {
        if matches!(operand, Operand::Sink) {
            return Ok(None);
        }
        match self.target(operand, Type::Pred)? {
            Reg::Predicate(slot) => Ok(Some(slot)),
            _ => Err(self.error_at(operand, "expected a predicate")),
        }
    }

    /// Returns the type of a register operand, which determines the size for instructions without a type.
    pub(super) fn register_type(&self, operand: &Operand<'m>) -> Option<Type> {
        match operand {
            Operand::Name(name) => self.lookup(name).map(|found| match found {
                FoundRegister::One(register) => register.ty,
                FoundRegister::Member(family, _) => family.ty,
            }),
            _ => None,
        }
    }

    /// Returns the space of a variable; `None` for other names.
    pub(super) fn space_of(&self, name: &str) -> Option<MemorySpace> {
        let symbol = match self.find_variable(name) {
            Some(Variable::Kernel { .. } | Variable::Frame { is_param: true, .. }) => return Some(MemorySpace::Param),
            Some(Variable::Frame { is_param: false, .. }) => return Some(MemorySpace::Local),
            Some(Variable::Symbol(symbol)) => symbol,
            None => self.unit.names.get(name).copied()?,
        };
        let SymbolKind::Variable(variable) = &self.unit.symbols[symbol as usize].kind else { return None };
        Some(match variable.space {
            VariableSpace::Global => MemorySpace::Global,
            VariableSpace::Const => MemorySpace::Const,
            VariableSpace::Shared | VariableSpace::DynamicShared => MemorySpace::Shared,
        })
    }

    /// `[base+offset]`
    pub(super) fn address(&mut self, operand: &Operand<'m>, space: MemorySpace) -> Result<Address, Error> {
        let Operand::Address { base, offset } = *operand else {
            return Err(self.error_at(operand, format!("expected an address in brackets, found {}", kind_of(operand))));
        };
        match base {
            Base::Integer(value) => Ok(Address { base: self.constant_wide(Constant::Bits(value)), offset }),
            Base::Name(name) => {
                if let Some(register) = self.find_register(name) {
                    let fits = matches!(register.ty.bits(), 32 | 64) && !register.ty.is_float();
                    return match fits {
                        true => Ok(Address { base: register.reg, offset }),
                        false => Err(self.error_in_name(
                            name,
                            format!(
                                "'{name}' has type {}, expected a 32-bit or 64-bit integer register for an address",
                                dotted(register.ty)
                            ),
                        )),
                    };
                }
                // A block's own shared memory is part of its cluster's.
                let own = if space == MemorySpace::Cluster { MemorySpace::Shared } else { space };
                if space != MemorySpace::Generic
                    && let Some(found) = self.space_of(name).filter(|&found| found != own)
                {
                    let (found, space) = (dotted(found), dotted(space));
                    return Err(self.error_in_name(name, format!("'{name}' is in {found} memory, expected {space}")));
                }
                let generic = matches!(space, MemorySpace::Generic | MemorySpace::Param);
                let constant = self
                    .address_of(name, 0, generic)
                    .ok_or_else(|| self.error_in_name(name, format!("unknown name '{name}'")))?;
                Ok(Address { base: self.constant_wide(constant), offset })
            }
        }
    }

    /// Returns the slots of up to three operands. Of fewer, the first stands for the others, which have no effect: every
    /// slot of an instruction is one that it reads.
    pub(super) fn three<O>(
        &mut self,
        operands: impl Iterator<Item = O>,
        mut slot_of: impl FnMut(&mut Self, O) -> Result<Slot, Error>,
    ) -> Result<[Slot; 3], Error> {
        let mut slots = [None; 3];
        for (slot, operand) in slots.iter_mut().zip(operands) {
            *slot = Some(slot_of(self, operand)?);
        }
        Ok(slots.map(|slot| slot.or(slots[0]).unwrap_or(0)))
    }

    /// Checks that there are exactly `N` operands, and returns them.
    pub(super) fn operands<'o, const N: usize>(
        &self,
        operands: &'o [Operand<'m>],
    ) -> Result<&'o [Operand<'m>; N], Error> {
        operands.try_into().map_err(|_| self.error(format!("expected {N} operands, found {}", operands.len())))
    }

    pub(super) fn some_type(&self, modifiers: &mut Modifiers<'_>) -> Result<Type, Error> {
        modifiers.ty().ok_or_else(|| self.error("the instruction requires a type"))
    }

    pub(super) fn width(&self, ty: Type) -> Result<Width, Error> {
        match ty.bits() {
            8 => Ok(Width::One),
            16 => Ok(Width::Two),
            32 => Ok(Width::Four),
            64 => Ok(Width::Eight),
            _ => Err(self.unsupported(format!(".{ty:?} in memory").to_lowercase())),
        }
    }

    pub(super) fn wrong_type(&self, ty: Type) -> Error {
        self.error(format!("the instruction does not support type {}", dotted(ty)))
    }
}

/// Returns a type or a state space as PTX writes it: `.u32`, `.shared`.
pub(super) fn dotted(value: impl std::fmt::Debug) -> String {
    format!(".{value:?}").to_lowercase()
}

/// An element of a vector operand.
#[derive(Debug, Clone, Copy)]
enum Element<'o, 'm> {
    Operand(&'o Operand<'m>),
    Register(Register),
}

fn truncate(value: u64, ty: Type) -> u64 {
    match ty.bits() {
        8 => value & 0xff,
        16 => value & 0xffff,
        32 => value & 0xffff_ffff,
        _ => value,
    }
}

pub(super) fn kind_of(operand: &Operand<'_>) -> &'static str {
    match operand {
        Operand::Name(_) => "a name",
        Operand::Not(_) => "a negated predicate",
        Operand::Sum(..) => "a sum",
        Operand::Integer(_) => "an integer",
        Operand::Single(_) | Operand::Double(_) => "a floating-point number",
        Operand::Sink => "'_'",
        Operand::Address { .. } => "an address",
        Operand::Texel { .. } => "an address in a texture",
        Operand::Vector(_) => "a vector",
        Operand::Pair(_) => "a pair",
        Operand::List(_) => "a list",
    }
}

/// The graph that the host or a kernel has launched from the device, which is none here.
const GRAPH: &str = "%current_graph_exec";

/// Returns a special register whose value a thread keeps.
fn special(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%').or((name == "WARP_SZ").then_some(name))?;
    let (stem, component) = match name.rsplit_once('.') {
        Some((stem, "x")) => (stem, Some(0)),
        Some((stem, "y")) => (stem, Some(1)),
        Some((stem, "z")) => (stem, Some(2)),
        Some(_) => return None,
        None => (name, None),
    };
    if let Some(component) = component {
        return Some(match stem {
            "tid" => Special::Tid(component),
            "ntid" => Special::Ntid(component),
            "ctaid" => Special::Ctaid(component),
            "nctaid" => Special::Nctaid(component),
            "clusterid" => Special::Clusterid(component),
            "nclusterid" => Special::Nclusterid(component),
            "cluster_ctaid" => Special::ClusterCtaid(component),
            "cluster_nctaid" => Special::ClusterNctaid(component),
            _ => return None,
        });
    }
    Some(match stem {
        "laneid" => Special::Lane,
        "warpid" => Special::Warp,
        "nwarpid" => Special::Warps,
        "smid" => Special::Sm,
        "nsmid" => Special::Sms,
        "gridid" => Special::Grid,
        "lanemask_eq" => Special::LaneMask(LaneMask::Eq),
        "lanemask_le" => Special::LaneMask(LaneMask::Le),
        "lanemask_lt" => Special::LaneMask(LaneMask::Lt),
        "lanemask_ge" => Special::LaneMask(LaneMask::Ge),
        "lanemask_gt" => Special::LaneMask(LaneMask::Gt),
        "dynamic_smem_size" => Special::DynamicShared,
        "total_smem_size" | "aggr_smem_size" => Special::TotalShared,
        "reserved_smem_offset_begin" | "reserved_smem_offset_end" | "reserved_smem_offset_cap" => Special::Zero,
        "reserved_smem_offset_0" | "reserved_smem_offset_1" => Special::Zero,
        "current_graph_exec" => Special::Zero,
        "cluster_ctarank" => Special::ClusterRank,
        "cluster_nctarank" => Special::ClusterRanks,
        "is_explicit_cluster" => Special::IsExplicitCluster,
        "WARP_SZ" => Special::WarpSize,
        _ => {
            let number = stem.strip_prefix("envreg")?.parse().ok().filter(|&number: &u8| number < 32)?;
            Special::Env(number)
        }
    })
}
