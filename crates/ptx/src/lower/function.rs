//! Lowers one function: its names, registers and constants, and the list of its instructions.

use std::collections::{HashMap, HashSet};

use super::modifiers::{MODIFIERS_MAX, Modifiers};
use super::module::{Lowering, semantic_error, signature, size};
use super::place;
use super::scope::{Label, Register, RegisterRange, Scope, Variable};
use crate::error::{Error, ErrorKind};
use crate::ir::{
    Address, Code, Constant, FileSizes, Guard, Instruction, MemorySpace, Op, Reg, RegisterUses, Signature, Slot,
    SlotAssignment, SlotSharing, SymbolIndex, analyze, decode,
};
use crate::observer::Ordering;
use crate::syntax::tree::{
    self, Function, FunctionKind, Operand, Parameter, Position, Space, Statement, Type, Variable as Declared,
};

/// The maximum local memory of a frame.
const LOCAL_BYTES_MAX: u64 = 512 << 10;

/// The minimum stack size of a call, and its unit.
const CALL_BYTES: u64 = 16;

/// A function that is being lowered.
#[derive(Debug)]
pub(super) struct Builder<'l, 'm> {
    pub(super) unit: &'l mut Lowering<'m>,
    function: &'m Function<'m>,
    pub(super) scopes: Vec<Scope<'m>>,
    /// Slots of registers that were declared as a range, by range and index.
    pub(super) members: HashMap<(u32, u32), Reg>,
    pub(super) range_count: u32,
    instructions: Vec<Instruction>,
    lines: Vec<u32>,
    orderings: Vec<(u32, Ordering)>,
    /// What the current instruction states.
    pub(super) ordering: Option<Ordering>,
    narrow: u32,
    wide: u32,
    predicates: u32,
    pub(super) constants: HashMap<(RegisterFile, Constant), Reg>,
    /// The position of each label.
    labels: Vec<Option<u32>>,
    /// Names of labels that are branch targets.
    reached: HashSet<&'m str>,
    local_bytes: u64,
    /// The largest alignment in the frame.
    local_align: u64,
    /// The size of the local variables alone.
    declared_local_bytes: u64,
    /// Empty for a kernel.
    signature: Signature,
    pub(super) mentions: Vec<SymbolIndex>,
    pub(super) calls_indirectly: bool,
    pub(super) current: Option<&'m tree::Instruction<'m>>,
    /// The position of the current instruction.
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
pub(super) enum RegisterFile {
    Narrow,
    Wide,
    Predicate,
}

impl RegisterFile {
    pub(super) fn of(ty: Type) -> Option<Self> {
        match ty.bits() {
            1 => Some(Self::Predicate),
            8 | 16 | 32 => Some(Self::Narrow),
            64 => Some(Self::Wide),
            _ => None,
        }
    }
}

/// Lowers a function, and returns the size of its local variables.
pub(super) fn lower<'m>(
    unit: &mut Lowering<'m>,
    function: &'m Function<'m>,
    body: &'m [Statement<'m>],
) -> Result<(Code, u32), Error> {
    let mut builder = Builder {
        unit,
        function,
        scopes: vec![Scope::default()],
        members: HashMap::new(),
        range_count: 0,
        instructions: Vec::new(),
        lines: Vec::new(),
        orderings: Vec::new(),
        ordering: None,
        narrow: 0,
        wide: 0,
        predicates: 0,
        constants: HashMap::new(),
        labels: Vec::new(),
        reached: HashSet::new(),
        local_bytes: 0,
        local_align: CALL_BYTES,
        declared_local_bytes: 0,
        signature: Signature::default(),
        mentions: Vec::new(),
        calls_indirectly: false,
        current: None,
        at: function.at,
        line: function.at.line,
    };
    collect_targets(body, &mut builder.reached);
    builder.parameters()?;
    builder.statements(body)?;
    builder.at = function.at;
    builder.emit_return()?;
    builder.resolve_labels()?;
    let local_bytes = builder.frame_bytes();
    let mut constants: Vec<_> = builder.constants.iter().map(|(&(_, constant), &reg)| (reg, constant)).collect();
    // A slot may have values of several registers, so what registers hold is analyzed before slots are assigned.
    let origins = analyze(&builder.instructions, &constants, builder.wide);
    let files = FileSizes { narrow: builder.narrow, wide: builder.wide, predicates: builder.predicates };
    let mut uses = RegisterUses::new(&mut builder.instructions);
    let parameter_bytes = match builder.is_kernel() {
        true => Some(builder.unit.kernel(function)?.parameter_bytes),
        false => None,
    };
    let slots = match builder.unit.sharing {
        SlotSharing::Shared => SlotAssignment::new(&builder.instructions, &uses, &constants, files, parameter_bytes),
        #[cfg(test)]
        SlotSharing::Apart => SlotAssignment::apart(&constants, files),
    };
    uses.rename(&mut builder.instructions, |reg| slots.slot_of(reg));
    constants.iter_mut().for_each(|(reg, _)| *reg = slots.slot_of(*reg));
    let is_cluster_barrier = |instruction: &Instruction| matches!(instruction.op, Op::ClusterArrive | Op::ClusterWait);
    let code = Code {
        uses_cluster_barrier: builder.instructions.iter().any(is_cluster_barrier),
        steps: decode(&builder.instructions, &uses, &origins, &slots.invariants.skipped, &slots.kinds),
        instructions: builder.instructions,
        lines: builder.lines,
        orderings: builder.orderings,
        registers: files,
        slots: slots.sizes,
        constants,
        uninitialized: slots.uninitialized,
        prelude: slots.invariants.prelude,
        local_bytes,
        local_align: builder.local_align as u32,
        signature: builder.signature,
        mentions: builder.mentions,
        calls_indirectly: builder.calls_indirectly,
        provenance: origins,
    };
    code.check(&uses);
    Ok((code, builder.declared_local_bytes as u32))
}

/// Collects the names of labels that instructions branch to, so that other labels cost nothing.
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

    /// Returns the stack size of a call: never zero, so that an endless recursion exhausts the stack.
    fn frame_bytes(&self) -> u32 {
        let least = if self.is_kernel() { 0 } else { CALL_BYTES };
        self.local_bytes.max(least).next_multiple_of(CALL_BYTES) as u32
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        semantic_error(self.at, message)
    }

    /// Returns an error in an operand of the current instruction.
    pub(super) fn error_at(&self, operand: &Operand<'m>, message: impl Into<String>) -> Error {
        let at = self.current.map_or(self.at, |instruction| place::of_operand(instruction, operand));
        semantic_error(at, message)
    }

    /// Returns an error in a name of the current instruction.
    pub(super) fn error_in_name(&self, name: &str, message: impl Into<String>) -> Error {
        semantic_error(self.current.map_or(self.at, |instruction| place::of_name(instruction, name)), message)
    }

    /// Returns an error in a modifier of the current instruction.
    pub(super) fn error_in_modifier(&self, word: &str, message: impl Into<String>) -> Error {
        semantic_error(self.current.map_or(self.at, |instruction| place::of_modifier(instruction, word)), message)
    }

    pub(super) fn unsupported(&self, message: impl Into<String>) -> Error {
        Error::new(self.at, ErrorKind::Unsupported, message)
    }

    fn scope(&mut self) -> &mut Scope<'m> {
        self.scopes.last_mut().expect("a function has a scope")
    }

    /// Assigns slots to the formal parameters, and initializes registers among them.
    fn parameters(&mut self) -> Result<(), Error> {
        let function = self.function;
        if self.is_kernel() {
            let kernel = self.unit.kernel(function)?;
            for (parameter, reg) in function.parameters.iter().zip(&kernel.parameters) {
                if let Parameter::Param(variable) = parameter {
                    self.check_undeclared(variable.name, variable.at)?;
                    let offset = reg.offset as u32;
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
                    self.check_undeclared(variable.name, variable.at)?;
                    self.local_align = self.local_align.max(size(variable)?.1);
                    let reg = Variable::Frame { offset: formal.offset, bytes: formal.bytes, is_param: true };
                    self.scope().variables.insert(variable.name, reg);
                }
                Parameter::Register { ty, name, at } => {
                    self.check_undeclared(name, *at)?;
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

    /// Checks that no parameter before this one has the same name.
    fn check_undeclared(&mut self, name: &str, at: Position) -> Result<(), Error> {
        match self.scope().has(name, None) {
            true => Err(semantic_error(at, format!("'{name}' is declared twice"))),
            false => Ok(()),
        }
    }

    /// Lowers a return: results in registers are first copied to their places in the frame.
    pub(super) fn emit_return(&mut self) -> Result<(), Error> {
        if self.is_kernel() {
            self.emit(Op::Exit);
            return Ok(());
        }
        for (index, parameter) in self.function.returns.iter().enumerate() {
            if let Parameter::Register { name, .. } = parameter {
                let register = self.find_register(name).expect("results are declared with the function");
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
            Access::Store => Op::Store { space, width, from: register.reg, at },
            Access::Load => Op::Load { space, width, signed: false, to: register.reg, at },
        })
    }

    fn statements(&mut self, statements: &'m [Statement<'m>]) -> Result<(), Error> {
        for statement in statements {
            if let Statement::Label { name, at } = statement {
                let label = self.labels.len() as Label;
                self.labels.push(None);
                if self.scope().labels.insert(name, label).is_some() {
                    return Err(semantic_error(*at, format!("label '{name}' is defined twice")));
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
                        self.emit(Op::Label);
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
        if self.scope().has(name, count) {
            return Err(self.error(format!("'{name}' is declared twice")));
        }
        if vector > 1 {
            if count.is_some() {
                return Err(self.unsupported("many registers of a vector type at once"));
            }
            let elements = (0..vector).map(|_| self.new_register(ty)).collect::<Result<_, _>>()?;
            self.scope().vectors.insert(name, elements);
            return Ok(());
        }
        if ty == Type::B128 {
            let family = self.new_pairs(count.unwrap_or(1))?;
            match count {
                Some(_) => self.scope().ranges.insert(name, family),
                None => self.scope().pairs.insert(name, family),
            };
            return Ok(());
        }
        let Some(count) = count else {
            let register = self.new_register(ty)?;
            self.scope().registers.insert(name, register);
            return Ok(());
        };
        self.range_count += 1;
        let family = RegisterRange { ty, count, id: self.range_count };
        self.scope().ranges.insert(name, family);
        Ok(())
    }

    pub(super) fn new_register(&mut self, ty: Type) -> Result<Register, Error> {
        let file = RegisterFile::of(ty).ok_or_else(|| self.unsupported("parameters in registers of 128 bits"))?;
        Ok(Register { ty, reg: self.new_reg(file) })
    }

    pub(super) fn new_reg(&mut self, file: RegisterFile) -> Reg {
        let (counter, reg): (_, fn(Slot) -> Reg) = match file {
            RegisterFile::Narrow => (&mut self.narrow, Reg::Narrow),
            RegisterFile::Wide => (&mut self.wide, Reg::Wide),
            RegisterFile::Predicate => (&mut self.predicates, Reg::Predicate),
        };
        *counter += 1;
        reg(*counter - 1)
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
        if self.scope().has(variable.name, None) {
            return Err(self.error(format!("'{}' is declared twice", variable.name)));
        }
        let reg = match variable.space {
            Space::Local | Space::Param => {
                let (bytes, align) = size(variable)?;
                let offset = self.local_bytes.next_multiple_of(align);
                self.local_align = self.local_align.max(align);
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
                self.unit.initialize_symbol(index, variable)?;
                Variable::Symbol(index)
            }
        };
        self.scope().variables.insert(variable.name, reg);
        Ok(())
    }

    fn instruction(&mut self, instruction: &'m tree::Instruction<'m>) -> Result<(), Error> {
        (self.at, self.current) = (instruction.at, Some(instruction));
        self.line = instruction.at.line;
        if instruction.modifiers.len() > MODIFIERS_MAX {
            return Err(self.error("too many modifiers"));
        }
        let guard = match instruction.guard {
            None => None,
            Some(guard) => {
                let register = self.find_register(guard.register);
                let Some(Register { reg: Reg::Predicate(predicate), .. }) = register else {
                    let message = format!("'{}' is not a predicate", guard.register);
                    return Err(self.error_in_name(guard.register, message));
                };
                Some(Guard { predicate, negated: guard.negated })
            }
        };
        let first = self.instructions.len();
        self.ordering = None;
        let mut modifiers = Modifiers::new(&instruction.modifiers);
        self.select(instruction.opcode, &mut modifiers, &instruction.operands)?;
        if let Some(word) = modifiers.unused() {
            let message = format!("'.{word}' is not allowed on '{}' here", instruction.opcode);
            return Err(semantic_error(place::of_modifier(instruction, word), message));
        }
        self.check_rules(instruction)?;
        self.ordering = None;
        if let Some(guard) = guard {
            for instruction in &mut self.instructions[first..] {
                instruction.guard = Some(guard);
            }
        }
        Ok(())
    }

    pub(super) fn emit(&mut self, op: Op) {
        self.orderings.extend(self.ordering.map(|ordering| (self.instructions.len() as u32, ordering)));
        self.instructions.push(Instruction { guard: None, op });
        self.lines.push(self.line);
    }

    /// Replaces the labels of branches by positions.
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
}
