//! Parses variables and registers: space, alignment, type, name, dimensions.

use super::initial::Length;
use super::{Parser, Punct, REGISTERS_MAX, TokenKind, semantic_error, unsupported};
use crate::error::Error;
use crate::syntax::tree::{Linkage, Parameter, Space, Statement, Type, Variable};

/// The part of a declaration between its space and its names.
pub(super) struct VariableType {
    pub(super) align: Option<u32>,
    pub(super) ty: Type,
    pub(super) vector: u32,
    pub(super) is_managed: bool,
    pub(super) is_pointer: bool,
}

impl VariableType {
    /// Returns the number of initial values of a vector; `None` for a scalar.
    fn exact_length(&self) -> Option<Length> {
        (self.vector != 1).then_some(Length::Exactly(self.vector))
    }
}

impl<'a> Parser<'a> {
    /// Takes the space that starts a declaration, if one is next.
    pub(super) fn space(&mut self) -> Result<Option<Space>, Error> {
        let space = match self.dotted() {
            ".const" => Space::Const,
            ".global" => Space::Global,
            ".local" => Space::Local,
            ".shared" => Space::Shared,
            ".param" => Space::Param,
            ".reg" | ".sreg" | ".tex" => {
                return unsupported(self.token.at, format!("{} is not supported here", self.token.text));
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(space))
    }

    /// Parses the variables of one declaration, from after its space to its semicolon.
    pub(super) fn variables(
        &mut self,
        linkage: Linkage,
        space: Space,
        mut keep: impl FnMut(Variable<'a>),
    ) -> Result<(), Error> {
        let shape = self.variable_type()?;
        loop {
            let mut variable = self.variable(linkage, space, &shape)?;
            let at = self.token.at;
            if self.accept(Punct::Equals) {
                if linkage == Linkage::Extern || !matches!(space, Space::Global | Space::Const) {
                    return semantic_error(at, format!("'{}' cannot have an initial value", variable.name));
                }
                let lengths = variable.dimensions.iter().copied();
                let lengths: Vec<_> = lengths.map(Length::Most).chain(shape.exact_length()).collect();
                variable.initial = Some(self.initial(variable.ty, &lengths)?);
            } else if linkage != Linkage::Extern && variable.dimensions.first() == Some(&None) {
                return semantic_error(variable.at, format!("the length of '{}' is unknown", variable.name));
            }
            keep(variable);
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        if self.accept(Punct::Semicolon) { Ok(()) } else { self.expected("',' or ';'") }
    }

    /// `.param .u64 .ptr .global .align 4 x` or `.reg .b32 x`.
    pub(super) fn parameter(&mut self) -> Result<Parameter<'a>, Error> {
        match self.dotted() {
            ".param" => {
                self.advance();
                let shape = self.variable_type()?;
                Ok(Parameter::Param(self.variable(Linkage::Local, Space::Param, &shape)?))
            }
            ".reg" => {
                self.advance();
                let VariableType { ty, vector, .. } = self.variable_type()?;
                let at = self.token.at;
                if vector != 1 {
                    return unsupported(at, "a vector register as a parameter is not supported");
                }
                Ok(Parameter::Register { at, ty, name: self.word("a name")? })
            }
            _ => self.expected(".param or .reg"),
        }
    }

    /// `.reg .b32 %r<5>, x;`
    pub(super) fn registers(&mut self) -> Result<Statement<'a>, Error> {
        let at = self.advance().at;
        let VariableType { ty, vector, .. } = self.variable_type()?;
        let mut names = Vec::new();
        loop {
            let name = self.name("a name")?;
            let count = if self.accept(Punct::Less) { Some(self.register_count()?) } else { None };
            self.count_registers(count.unwrap_or(1))?;
            names.push((name, count));
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        if !self.accept(Punct::Semicolon) {
            return self.expected("',' or ';'");
        }
        Ok(Statement::Registers { at, ty, vector, names })
    }

    fn register_count(&mut self) -> Result<u32, Error> {
        let at = self.token.at;
        let count = self.integer("a number of registers")?;
        if count > REGISTERS_MAX {
            return Err(Error::syntax(at, format!("{count} registers are more than {REGISTERS_MAX}")));
        }
        self.expect(Punct::Greater)?;
        Ok(count)
    }

    fn count_registers(&mut self, count: u32) -> Result<(), Error> {
        self.registers += count as usize;
        let most = REGISTERS_MAX as usize + self.text.len();
        if self.registers > most {
            let message = format!("a text of this length may not declare more than {most} registers");
            return Err(Error::syntax(self.token.at, message));
        }
        Ok(())
    }

    /// `.align 8 .attribute(.managed) .v2 .f32`, and `.ptr`.
    fn variable_type(&mut self) -> Result<VariableType, Error> {
        let mut align = None;
        let mut is_managed = false;
        loop {
            match self.dotted() {
                ".align" if align.is_none() => align = Some(self.alignment()?),
                ".attribute" => is_managed |= self.attribute()?,
                _ => break,
            }
        }
        let at = self.token.at;
        let vector = match self.dotted() {
            ".v2" => 2,
            ".v4" => 4,
            _ => 1,
        };
        if vector != 1 {
            self.advance();
        }
        let word = self.dotted();
        if matches!(word, ".texref" | ".samplerref" | ".surfref") {
            return unsupported(self.token.at, format!("the type {word} is not supported"));
        }
        let Some(ty) = type_of(word) else {
            return self.expected("a type");
        };
        self.advance();
        if vector != 1 && (ty == Type::Pred || i64::from(ty.bytes() * vector) > 16) {
            return semantic_error(at, format!("there is no vector of {vector} {word}"));
        }
        let is_pointer = self.dotted() == ".ptr" && self.pointer()?;
        Ok(VariableType { align, ty, vector, is_managed, is_pointer })
    }

    fn alignment(&mut self) -> Result<u32, Error> {
        self.advance();
        let at = self.token.at;
        let align = self.integer("an alignment")?;
        if !align.is_power_of_two() {
            return Err(Error::syntax(at, format!("the alignment {align} is not a power of two")));
        }
        Ok(align)
    }

    /// Parses `.ptr .global .align 4`, which describes what a kernel's parameter points to. Returns whether that is
    /// device memory, which has the same addresses in all kernels.
    fn pointer(&mut self) -> Result<bool, Error> {
        self.advance();
        let is_device_memory = !matches!(self.dotted(), ".const" | ".local" | ".shared" | ".param");
        if !is_device_memory || self.dotted() == ".global" {
            self.advance();
        }
        if self.dotted() == ".align" {
            self.alignment()?;
        }
        Ok(is_device_memory)
    }

    /// Parses the name and the dimensions.
    fn variable(&mut self, linkage: Linkage, space: Space, shape: &VariableType) -> Result<Variable<'a>, Error> {
        let at = self.token.at;
        // The parameters of a prototype have no names.
        let name = if space == Space::Param { self.word("a name")? } else { self.name("a name")? };
        if shape.ty == Type::Pred {
            return semantic_error(at, format!("'{name}' is a predicate, which is always a register"));
        }
        if self.is(Punct::Less) {
            return unsupported(self.token.at, "numbered names are supported only for registers");
        }
        let mut bytes = i64::from(shape.ty.bytes() * shape.vector);
        let mut dimensions = Vec::new();
        while self.accept(Punct::OpenBracket) {
            let at = self.token.at;
            let length = self.length()?;
            if length.is_none() && !dimensions.is_empty() {
                return semantic_error(at, "only the first dimension may have no length");
            }
            let product = i64::try_from(length.unwrap_or(1)).ok().and_then(|length| bytes.checked_mul(length));
            let Some(product) = product else {
                return Err(Error::syntax(at, format!("'{name}' has more than {} bytes", i64::MAX)));
            };
            bytes = product;
            dimensions.push(length);
            self.expect(Punct::CloseBracket)?;
        }
        let VariableType { align, ty, vector, is_managed, is_pointer } = *shape;
        Ok(Variable { at, linkage, space, align, ty, vector, is_managed, is_pointer, name, dimensions, initial: None })
    }

    /// Parses the length of a dimension. Zero means the same as empty brackets.
    fn length(&mut self) -> Result<Option<u64>, Error> {
        match self.token.kind {
            TokenKind::Punct(Punct::CloseBracket) => Ok(None),
            TokenKind::Integer { value, .. } => {
                self.advance();
                Ok(Some(value).filter(|value| *value != 0))
            }
            _ => self.expected("the length of the dimension"),
        }
    }
}

/// Returns the type of a variable. Registers for `.bf16` values are `.b16`.
fn type_of(word: &str) -> Option<Type> {
    Some(match word {
        ".b8" => Type::B8,
        ".b16" => Type::B16,
        ".b32" => Type::B32,
        ".b64" => Type::B64,
        ".b128" => Type::B128,
        ".u8" => Type::U8,
        ".u16" => Type::U16,
        ".u32" => Type::U32,
        ".u64" => Type::U64,
        ".s8" => Type::S8,
        ".s16" => Type::S16,
        ".s32" => Type::S32,
        ".s64" => Type::S64,
        ".f16" => Type::F16,
        ".f16x2" => Type::F16x2,
        ".f32" => Type::F32,
        ".f64" => Type::F64,
        ".pred" => Type::Pred,
        _ => return None,
    })
}
