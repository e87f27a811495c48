//! One function: its names, its registers and constants, and the list of its instructions.

use std::collections::{HashMap, HashSet};

use super::scope::{Family, Label, Register, Scope, Variable};
use super::words::{WORDS_MAX, Words};
use super::{Lowering, SymbolKind, meaning, signature, size};
use crate::error::{Error, ErrorKind};
use crate::program::{
    Address, Code, Constant, Guard, Instruction, LaneMask, MemorySpace, Op, PARAM_WINDOW, Place, Signature, Slot,
    Special, SymbolIndex,
};
use crate::syntax::tree::{
    self, Base, Function, FunctionKind, Operand, Parameter, Position, Space, Statement, Type, Variable as Declared,
};

/// Registers of one file that a function can have.
const REGISTERS_MAX: u32 = 1 << 20;
/// Bytes of local memory that a frame can have.
const LOCAL_BYTES_MAX: u64 = 512 << 10;

/// A function while it is lowered.
#[derive(Debug)]
pub(super) struct Builder<'l, 'm> {
    pub(super) unit: &'l mut Lowering<'m>,
    function: &'m Function<'m>,
    scopes: Vec<Scope<'m>>,
    instructions: Vec<Instruction>,
    lines: Vec<u32>,
    narrow: u32,
    wide: u32,
    predicates: u32,
    constants: HashMap<(File, Constant), Place>,
    /// Where each label stands.
    labels: Vec<Option<u32>>,
    /// Names of labels that are branched to.
    reached: HashSet<&'m str>,
    local_bytes: u64,
    /// Of local variables alone.
    declared_local_bytes: u64,
    /// Empty for a kernel.
    signature: Signature,
    pub(super) mentions: Vec<SymbolIndex>,
    pub(super) calls_indirectly: bool,
    /// The instruction at hand.
    pub(super) at: Position,
    line: u32,
}

#[derive(Debug, Clone, Copy)]
enum Access {
    Load,
    Store,
}

/// Which register file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum File {
    Narrow,
    Wide,
    Predicate,
}

impl File {
    fn of(ty: Type) -> Option<Self> {
        match ty.bits() {
            1 => Some(Self::Predicate),
            8 | 16 | 32 => Some(Self::Narrow),
            64 => Some(Self::Wide),
            _ => None,
        }
    }
}

/// Lowers a function and tells the bytes of its local variables.
pub(super) fn lower<'m>(unit: &mut Lowering<'m>, function: &'m Function<'m>) -> Result<(Code, u32), Error> {
    let body = function.body.as_deref().unwrap_or_default();
    let mut builder = Builder {
        unit,
        function,
        scopes: vec![Scope::default()],
        instructions: Vec::new(),
        lines: Vec::new(),
        narrow: 0,
        wide: 0,
        predicates: 0,
        constants: HashMap::new(),
        labels: Vec::new(),
        reached: HashSet::new(),
        local_bytes: 0,
        declared_local_bytes: 0,
        signature: Signature::default(),
        mentions: Vec::new(),
        calls_indirectly: false,
        at: function.at,
        line: function.at.line,
    };
    collect_targets(body, &mut builder.reached);
    builder.parameters()?;
    builder.statements(body)?;
    builder.at = function.at;
    builder.leave()?;
    builder.resolve_labels()?;
    let constants = builder.constants.iter().map(|(&(_, constant), &place)| (place, constant)).collect();
    let code = Code {
        instructions: builder.instructions,
        lines: builder.lines,
        narrow: builder.narrow,
        wide: builder.wide,
        predicates: builder.predicates,
        constants,
        local_bytes: builder.local_bytes.next_multiple_of(16) as u32,
        signature: builder.signature,
        mentions: builder.mentions,
        calls_indirectly: builder.calls_indirectly,
    };
    Ok((code, builder.declared_local_bytes as u32))
}

/// Names of labels that instructions branch to, so that others cost nothing.
fn collect_targets<'m>(statements: &'m [Statement<'m>], into: &mut HashSet<&'m str>) {
    for statement in statements {
        match statement {
            Statement::Block(inner) => collect_targets(inner, into),
            Statement::Targets { targets, .. } => into.extend(targets.iter().copied()),
            Statement::Instruction(instruction) if instruction.opcode == "bra" => {
                if let [Operand::Name(name)] = instruction.operands.as_slice() {
                    into.insert(name);
                }
            }
            _ => {}
        }
    }
}

impl<'m> Builder<'_, 'm> {
    pub(super) fn is_kernel(&self) -> bool {
        self.function.kind == FunctionKind::Kernel
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        meaning(self.at, message)
    }

    pub(super) fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::new(self.at, ErrorKind::Unsupported, message)
    }

    fn scope(&mut self) -> &mut Scope<'m> {
        self.scopes.last_mut().expect("a function has a scope")
    }

    /// Gives the formal parameters their places, and registers among them their first values.
    fn parameters(&mut self) -> Result<(), Error> {
        let function = self.function;
        if self.is_kernel() {
            let kernel = self.unit.kernel(function)?;
            for (parameter, place) in function.parameters.iter().zip(&kernel.parameters) {
                if let Parameter::Param(variable) = parameter {
                    let offset = place.offset as u32;
                    self.scope().variables.insert(variable.name, Variable::Kernel { offset });
                }
            }
            return Ok(());
        }
        self.signature = signature(&function.returns, &function.parameters)?;
        self.local_bytes = u64::from(self.signature.bytes);
        let signature = self.signature.clone();
        let formals = signature.returns.iter().chain(&signature.parameters);
        let parameters = function.returns.iter().chain(&function.parameters);
        for (index, (parameter, formal)) in parameters.zip(formals).enumerate() {
            match parameter {
                Parameter::Param(variable) => {
                    let place = Variable::Frame { offset: formal.offset, bytes: formal.bytes, is_param: true };
                    self.scope().variables.insert(variable.name, place);
                }
                Parameter::Register { ty, name, at } => {
                    self.at = *at;
                    let register = self.new_register(*ty)?;
                    self.scope().registers.insert(name, register);
                    let is_result = index < signature.returns.len();
                    if !is_result {
                        let op = self.frame_access(register, formal.offset, Access::Load)?;
                        self.emit(op);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns from a function: results in registers go to their places in the frame first.
    pub(super) fn leave(&mut self) -> Result<(), Error> {
        if self.is_kernel() {
            self.emit(Op::Exit);
            return Ok(());
        }
        for (index, parameter) in self.function.returns.iter().enumerate() {
            if let Parameter::Register { name, .. } = parameter {
                let register = self.scopes[0].register(name).expect("results are declared with the function");
                let op = self.frame_access(register, self.signature.returns[index].offset, Access::Store)?;
                self.emit(op);
            }
        }
        self.emit(Op::Return);
        Ok(())
    }

    fn frame_access(&mut self, register: Register, offset: u32, access: Access) -> Result<Op, Error> {
        let width = self.width(register.ty)?;
        let base = self.constant_wide(Constant::Local { offset, generic: false });
        let at = Address { base, offset: 0 };
        let space = MemorySpace::Local;
        Ok(match access {
            Access::Store => Op::Store { space, width, from: register.place, at },
            Access::Load => Op::Load { space, width, signed: false, to: register.place, at },
        })
    }

    fn statements(&mut self, statements: &'m [Statement<'m>]) -> Result<(), Error> {
        for statement in statements {
            if let Statement::Label { name, at } = statement {
                let label = self.labels.len() as Label;
                self.labels.push(None);
                if self.scope().labels.insert(name, label).is_some() {
                    return Err(meaning(*at, format!("label '{name}' stands twice")));
                }
            }
            if let Statement::Targets { name, targets, .. } = statement {
                self.scope().targets.insert(name, targets.clone());
            }
            if let Statement::Prototype { name, returns, parameters, .. } = statement {
                let signature = signature(returns, parameters)?;
                self.scope().prototypes.insert(name, signature);
            }
        }
        for statement in statements {
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'m Statement<'m>) -> Result<(), Error> {
        match statement {
            Statement::Label { name, at } => {
                let label = self.scope().labels[name];
                if self.reached.contains(name) {
                    self.at = *at;
                    self.line = at.line;
                    let falls = self.instructions.last().is_none_or(|last| {
                        last.guard.is_some()
                            || !matches!(last.op, Op::Branch { .. } | Op::Return | Op::Exit | Op::BranchIndexed { .. })
                    });
                    if falls {
                        self.emit(Op::Land);
                    }
                }
                self.labels[label as usize] = Some(self.instructions.len() as u32);
            }
            Statement::Registers { at, ty, vector, names } => {
                self.at = *at;
                for &(name, count) in names {
                    self.declare_registers(name, count, *ty, *vector)?;
                }
            }
            Statement::Variable(variable) => self.declare_variable(variable)?,
            Statement::Block(inner) => {
                self.scopes.push(Scope::default());
                self.statements(inner)?;
                self.scopes.pop();
            }
            Statement::Instruction(instruction) => self.instruction(instruction).map_err(|mut error| {
                error.instruction = instruction.text.split_whitespace().collect::<Vec<_>>().join(" ");
                error
            })?,
            Statement::Targets { .. } | Statement::Prototype { .. } => {}
        }
        Ok(())
    }

    fn declare_registers(&mut self, name: &'m str, count: Option<u32>, ty: Type, vector: u32) -> Result<(), Error> {
        if vector > 1 {
            return Err(self.unsupported("registers of a vector type"));
        }
        let Some(count) = count else {
            let register = self.new_register(ty)?;
            if self.scope().registers.insert(name, register).is_some() {
                return Err(self.error(format!("register '{name}' is declared twice")));
            }
            return Ok(());
        };
        if count == 0 {
            return Ok(());
        }
        let first = self.new_register(ty)?;
        let file = match first.place {
            Place::Narrow(_) => &mut self.narrow,
            Place::Wide(_) => &mut self.wide,
            Place::Predicate(_) => &mut self.predicates,
        };
        *file = file.saturating_add(count - 1);
        if *file > REGISTERS_MAX {
            return Err(self.error(format!("more than {REGISTERS_MAX} registers")));
        }
        if self.scope().families.insert(name, Family { first, count }).is_some() {
            return Err(self.error(format!("registers '{name}' are declared twice")));
        }
        Ok(())
    }

    pub(super) fn new_register(&mut self, ty: Type) -> Result<Register, Error> {
        let file = File::of(ty).ok_or_else(|| self.unsupported("registers of 128 bits"))?;
        let place = self.new_place(file);
        if self.narrow.max(self.wide).max(self.predicates) > REGISTERS_MAX {
            return Err(self.error(format!("more than {REGISTERS_MAX} registers")));
        }
        Ok(Register { ty, place })
    }

    fn new_place(&mut self, file: File) -> Place {
        let (counter, place): (_, fn(Slot) -> Place) = match file {
            File::Narrow => (&mut self.narrow, Place::Narrow),
            File::Wide => (&mut self.wide, Place::Wide),
            File::Predicate => (&mut self.predicates, Place::Predicate),
        };
        *counter += 1;
        place(*counter - 1)
    }

    pub(super) fn new_predicate(&mut self) -> Slot {
        self.predicates += 1;
        self.predicates - 1
    }

    pub(super) fn new_narrow(&mut self) -> Slot {
        self.narrow += 1;
        self.narrow - 1
    }

    fn declare_variable(&mut self, variable: &'m Declared<'m>) -> Result<(), Error> {
        self.at = variable.at;
        let place = match variable.space {
            Space::Local | Space::Param => {
                let (bytes, align) = size(variable)?;
                let offset = self.local_bytes.next_multiple_of(align);
                self.local_bytes = offset + bytes;
                if variable.space == Space::Local {
                    self.declared_local_bytes += bytes.next_multiple_of(align);
                }
                if self.local_bytes > LOCAL_BYTES_MAX {
                    return Err(self.error(format!("more than {LOCAL_BYTES_MAX} bytes of local memory")));
                }
                let is_param = variable.space == Space::Param;
                Variable::Frame { offset: offset as u32, bytes: bytes as u32, is_param }
            }
            _ => {
                let mut symbol = self.unit.variable(variable)?;
                symbol.linkage = match symbol.linkage {
                    tree::Linkage::Extern => tree::Linkage::Extern,
                    _ => tree::Linkage::Local,
                };
                let index = self.unit.symbols.len() as SymbolIndex;
                self.unit.symbols.push(symbol);
                self.unit.initialise_symbol(index, variable)?;
                Variable::Symbol(index)
            }
        };
        if self.scope().variables.insert(variable.name, place).is_some() {
            return Err(self.error(format!("variable '{}' is declared twice", variable.name)));
        }
        Ok(())
    }

    fn instruction(&mut self, instruction: &'m tree::Instruction<'m>) -> Result<(), Error> {
        self.at = instruction.at;
        self.line = instruction.at.line;
        if instruction.modifiers.len() > WORDS_MAX {
            return Err(self.error("too many words"));
        }
        let guard = match instruction.guard {
            None => None,
            Some(guard) => {
                let register = self.find_register(guard.register);
                let Some(Register { place: Place::Predicate(predicate), .. }) = register else {
                    return Err(self.error(format!("'{}' is no predicate", guard.register)));
                };
                Some(Guard { predicate, negated: guard.negated })
            }
        };
        let first = self.instructions.len();
        let mut words = Words::new(&instruction.modifiers);
        self.select(instruction.opcode, &mut words, &instruction.operands)?;
        if let Some(word) = words.left_over() {
            return Err(self.error(format!("'.{word}' does not belong to '{}' here", instruction.opcode)));
        }
        if let Some(guard) = guard {
            for instruction in &mut self.instructions[first..] {
                instruction.guard = Some(guard);
            }
        }
        Ok(())
    }

    pub(super) fn emit(&mut self, op: Op) {
        self.instructions.push(Instruction { guard: None, op });
        self.lines.push(self.line);
    }

    /// Puts positions where branches had labels.
    fn resolve_labels(&mut self) -> Result<(), Error> {
        let end = self.instructions.len() as u32;
        let position = |labels: &[Option<u32>], label: u32| labels[label as usize].unwrap_or(end);
        for instruction in &mut self.instructions {
            match &mut instruction.op {
                Op::Branch { target } => *target = position(&self.labels, *target),
                Op::BranchIndexed { targets, .. } => {
                    for target in targets.iter_mut() {
                        *target = position(&self.labels, *target);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn find_register(&self, name: &str) -> Option<Register> {
        self.scopes.iter().rev().find_map(|scope| scope.register(name))
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
        self.mention(symbol);
        Some(symbol)
    }

    fn mention(&mut self, symbol: SymbolIndex) {
        if !self.mentions.contains(&symbol) {
            self.mentions.push(symbol);
        }
    }

    pub(super) fn is_function(&self, symbol: SymbolIndex) -> bool {
        matches!(self.unit.symbols[symbol as usize].kind, SymbolKind::Function { .. } | SymbolKind::Alias(_))
    }

    fn constant(&mut self, file: File, constant: Constant) -> Place {
        if let Some(&place) = self.constants.get(&(file, constant)) {
            return place;
        }
        let place = self.new_place(file);
        self.constants.insert((file, constant), place);
        place
    }

    pub(super) fn constant_wide(&mut self, constant: Constant) -> Place {
        self.constant(File::Wide, constant)
    }

    pub(super) fn constant_in_narrow(&mut self, constant: Constant) -> Place {
        self.constant(File::Narrow, constant)
    }

    pub(super) fn constant_narrow(&mut self, value: u32) -> Slot {
        match self.constant(File::Narrow, Constant::Bits(u64::from(value))) {
            Place::Narrow(slot) => slot,
            _ => unreachable!("a constant lies in the file it was asked for"),
        }
    }

    pub(super) fn constant_predicate(&mut self, value: bool) -> Slot {
        match self.constant(File::Predicate, Constant::Bits(if value { u64::MAX } else { 0 })) {
            Place::Predicate(slot) => slot,
            _ => unreachable!("a constant lies in the file it was asked for"),
        }
    }

    /// The address of a variable or function as a constant. `generic` as `mov` and `cvta` differ for shared and local.
    pub(super) fn address_of(&mut self, name: &str, addend: i64, generic: bool) -> Option<Constant> {
        Some(match self.find_variable(name) {
            // A frame address keeps its offset within 32 bits.
            Some(Variable::Frame { offset, is_param, .. }) => {
                Constant::Local { offset: offset.wrapping_add(addend as u32), generic: generic || is_param }
            }
            Some(Variable::Kernel { offset }) => {
                Constant::Bits(PARAM_WINDOW.wrapping_add(u64::from(offset)).wrapping_add_signed(addend))
            }
            Some(Variable::Symbol(symbol)) => {
                self.mention(symbol);
                Constant::Symbol { symbol, generic, addend }
            }
            None => Constant::Symbol { symbol: self.find_symbol(name)?, generic, addend },
        })
    }

    /// A source operand of a type; a register may be wider where `relaxed`.
    pub(super) fn source_as(&mut self, operand: &Operand<'m>, ty: Type, relaxed: bool) -> Result<Place, Error> {
        let file = File::of(ty).ok_or_else(|| self.unsupported("operands of 128 bits"))?;
        let constant = match *operand {
            Operand::Name(name) => {
                if let Some(register) = self.find_register(name) {
                    return self.checked(name, register, ty, relaxed);
                }
                match special(name) {
                    Some(special) => Constant::Special(special),
                    None => {
                        self.address_of(name, 0, false).ok_or_else(|| self.error(format!("unknown name '{name}'")))?
                    }
                }
            }
            Operand::Sum(name, addend) => {
                if self.find_register(name).is_some() {
                    return Err(self.error(format!("'{name}' is a register: only an address can be added to")));
                }
                self.address_of(name, addend, false).ok_or_else(|| self.error(format!("unknown name '{name}'")))?
            }
            Operand::Integer(value)
                if ty.is_float() && !matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) =>
            {
                return Err(self.error(
                    format!("{value} is an integer, and '.{ty:?}' wants a floating-point number").to_lowercase(),
                ));
            }
            Operand::Integer(value) => Constant::Bits(truncate(value, ty)),
            Operand::Single(bits) if ty.bits() == 64 => Constant::Bits(f64::from(f32::from_bits(bits)).to_bits()),
            Operand::Single(bits) => Constant::Bits(u64::from(bits)),
            Operand::Double(bits) if ty.bits() == 32 => {
                Constant::Bits(u64::from((f64::from_bits(bits) as f32).to_bits()))
            }
            Operand::Double(bits) if ty.bits() == 64 => Constant::Bits(bits),
            _ => return Err(self.error(format!("expected a register or a constant, found {}", kind_of(operand)))),
        };
        if file == File::Predicate {
            return Err(self.error("expected a predicate"));
        }
        Ok(self.constant(file, constant))
    }

    fn checked(&mut self, name: &str, register: Register, ty: Type, relaxed: bool) -> Result<Place, Error> {
        let fits = match relaxed {
            true => register.ty.bits() >= ty.bits() && (register.ty == Type::Pred) == (ty == Type::Pred),
            false => register.ty.bits() == ty.bits() && ty.agrees_with(register.ty),
        };
        if fits {
            return Ok(register.place);
        }
        let (is, wants) = (format!("{:?}", register.ty).to_lowercase(), format!("{ty:?}").to_lowercase());
        Err(self.error(format!("'{name}' is .{is}, and the instruction wants .{wants}")))
    }

    pub(super) fn source(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Place, Error> {
        self.source_as(operand, ty, false)
    }

    pub(super) fn narrow(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.source(operand, ty)? {
            Place::Narrow(slot) => Ok(slot),
            _ => Err(self.error("expected a register of at most 32 bits")),
        }
    }

    pub(super) fn wide(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.source(operand, ty)? {
            Place::Wide(slot) => Ok(slot),
            _ => Err(self.error("expected a register of 64 bits")),
        }
    }

    /// A predicate, perhaps negated.
    pub(super) fn predicate(&mut self, operand: &Operand<'m>) -> Result<(Slot, bool), Error> {
        let (name, negated) = match *operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Integer(value) => return Ok((self.constant_predicate(value != 0), false)),
            _ => return Err(self.error(format!("expected a predicate, found {}", kind_of(operand)))),
        };
        match self.find_register(name) {
            Some(Register { place: Place::Predicate(slot), .. }) => Ok((slot, negated)),
            Some(_) => Err(self.error(format!("'{name}' is no predicate"))),
            None => Err(self.error(format!("unknown name '{name}'"))),
        }
    }

    /// A register to write; one to throw away for `_`.
    pub(super) fn target_as(&mut self, operand: &Operand<'m>, ty: Type, relaxed: bool) -> Result<Place, Error> {
        match *operand {
            Operand::Name(name) => match self.find_register(name) {
                Some(register) => self.checked(name, register, ty, relaxed),
                None => Err(self.error(format!("'{name}' is no register"))),
            },
            Operand::Sink => Ok(self.new_register(ty)?.place),
            _ => Err(self.error(format!("expected a register to write to, found {}", kind_of(operand)))),
        }
    }

    pub(super) fn target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Place, Error> {
        self.target_as(operand, ty, false)
    }

    pub(super) fn narrow_target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.target(operand, ty)? {
            Place::Narrow(slot) => Ok(slot),
            _ => Err(self.error("expected a register of at most 32 bits")),
        }
    }

    pub(super) fn wide_target(&mut self, operand: &Operand<'m>, ty: Type) -> Result<Slot, Error> {
        match self.target(operand, ty)? {
            Place::Wide(slot) => Ok(slot),
            _ => Err(self.error("expected a register of 64 bits")),
        }
    }

    pub(super) fn predicate_target(&mut self, operand: &Operand<'m>) -> Result<Option<Slot>, Error> {
        if matches!(operand, Operand::Sink) {
            return Ok(None);
        }
        match self.target(operand, Type::Pred)? {
            Place::Predicate(slot) => Ok(Some(slot)),
            _ => Err(self.error("expected a predicate")),
        }
    }

    /// The type of a register operand; a register's size decides for instructions that have no type of their own.
    pub(super) fn register_type(&self, operand: &Operand<'m>) -> Option<Type> {
        match operand {
            Operand::Name(name) => self.find_register(name).map(|register| register.ty),
            _ => None,
        }
    }

    /// `[base+offset]`
    pub(super) fn address(&mut self, operand: &Operand<'m>, space: MemorySpace) -> Result<Address, Error> {
        let Operand::Address { base, offset } = *operand else {
            return Err(self.error(format!("expected an address in brackets, found {}", kind_of(operand))));
        };
        match base {
            Base::Integer(value) => Ok(Address { base: self.constant_wide(Constant::Bits(value)), offset }),
            Base::Name(name) => {
                if let Some(register) = self.find_register(name) {
                    let fits = matches!(register.ty.bits(), 32 | 64) && !register.ty.is_float();
                    return match fits {
                        true => Ok(Address { base: register.place, offset }),
                        false => Err(self.error(format!("'{name}' cannot hold an address"))),
                    };
                }
                let generic = matches!(space, MemorySpace::Generic | MemorySpace::Param);
                let constant =
                    self.address_of(name, 0, generic).ok_or_else(|| self.error(format!("unknown name '{name}'")))?;
                Ok(Address { base: self.constant_wide(constant), offset })
            }
        }
    }

    /// The operands, exactly so many.
    pub(super) fn operands<'o, const N: usize>(
        &self,
        operands: &'o [Operand<'m>],
    ) -> Result<&'o [Operand<'m>; N], Error> {
        operands.try_into().map_err(|_| self.error(format!("expected {N} operands, found {}", operands.len())))
    }

    pub(super) fn some_type(&self, words: &mut Words<'_>) -> Result<Type, Error> {
        words.ty().ok_or_else(|| self.error("the instruction needs a type"))
    }

    pub(super) fn width(&self, ty: Type) -> Result<crate::memory::Width, Error> {
        use crate::memory::Width;
        match ty.bits() {
            8 => Ok(Width::One),
            16 => Ok(Width::Two),
            32 => Ok(Width::Four),
            64 => Ok(Width::Eight),
            _ => Err(self.unsupported(format!(".{ty:?} in memory").to_lowercase())),
        }
    }

    pub(super) fn wrong_type(&self, ty: Type) -> Error {
        self.error(format!("the instruction has no type .{}", format!("{ty:?}").to_lowercase()))
    }
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
        Operand::Vector(_) => "a vector",
        Operand::Pair(_) => "a pair",
        Operand::List(_) => "a list",
    }
}

/// Special registers whose value a thread keeps.
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
            // A cluster is one block here.
            "clusterid" => Special::Ctaid(component),
            "nclusterid" => Special::Nctaid(component),
            "cluster_ctaid" => Special::Zero,
            "cluster_nctaid" => Special::One,
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
        "reserved_smem_offset_begin" | "reserved_smem_offset_end" | "cluster_ctarank" | "is_explicit_cluster" => {
            Special::Zero
        }
        "cluster_nctarank" => Special::One,
        "WARP_SZ" => Special::WarpSize,
        _ => {
            let number = stem.strip_prefix("envreg")?.parse().ok().filter(|&number: &u8| number < 32)?;
            Special::Env(number)
        }
    })
}
