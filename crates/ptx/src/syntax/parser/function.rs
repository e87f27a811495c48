//! Parses functions: their heads and directives.

use super::{Parser, Punct, TokenKind, semantic_error};
use crate::error::Error;
use crate::syntax::tree::{Function, FunctionKind, Linkage, Parameter};

/// Directives of device functions and prototypes that the tree does not represent, with the maximum number of integers
/// after each.
const IGNORED_OF_FUNCTIONS: &[(&str, usize)] = &[(".abi_preserve", 1), (".abi_preserve_control", 1)];

impl<'a> Parser<'a> {
    /// Parses a function, from `.entry` or `.func` on.
    pub(super) fn function(&mut self, linkage: Linkage) -> Result<Function<'a>, Error> {
        let kind = if self.advance().text == ".entry" { FunctionKind::Kernel } else { FunctionKind::Device };
        while self.dotted() == ".attribute" {
            self.attribute()?;
        }
        let returns = match kind {
            FunctionKind::Device if self.is(Punct::OpenParenthesis) => self.parameters()?,
            _ => Vec::new(),
        };
        let at = self.token.at;
        let name = self.name("a function's name")?;
        let parameters = if self.is(Punct::OpenParenthesis) { self.parameters()? } else { Vec::new() };
        if kind == FunctionKind::Kernel {
            check_kernel_parameters(&parameters)?;
        }
        let mut function = Function {
            at,
            linkage,
            kind,
            name,
            returns,
            parameters,
            noreturn: false,
            max_threads: None,
            required_threads: None,
            min_blocks: None,
            required_cluster: None,
            max_cluster_rank: None,
            is_cluster_explicit: false,
            blocks_are_clusters: false,
            max_registers: None,
            body: None,
        };
        while self.token.kind == TokenKind::Dotted {
            match kind {
                FunctionKind::Kernel => self.kernel_directive(&mut function)?,
                FunctionKind::Device => function.noreturn |= self.function_directive()?,
            }
        }
        if function.noreturn && !function.returns.is_empty() {
            return semantic_error(at, format!("'{name}' is .noreturn, but has a return value"));
        }
        if self.accept(Punct::Semicolon) {
            return Ok(function);
        }
        if !self.is(Punct::OpenBrace) {
            return self.expected("'{' or ';'");
        }
        if linkage == Linkage::Extern {
            return semantic_error(self.token.at, format!("'{name}' is .extern, but has a body"));
        }
        function.body = Some(self.block()?);
        Ok(function)
    }

    /// Parses `(.param .b32 a, .reg .b32 b)`, which may be empty.
    pub(super) fn parameters(&mut self) -> Result<Vec<Parameter<'a>>, Error> {
        self.expect(Punct::OpenParenthesis)?;
        let mut parameters = Vec::new();
        if self.accept(Punct::CloseParenthesis) {
            return Ok(parameters);
        }
        loop {
            parameters.push(self.parameter()?);
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        if self.accept(Punct::CloseParenthesis) { Ok(parameters) } else { self.expected("',' or ')'") }
    }

    fn kernel_directive(&mut self, function: &mut Function<'a>) -> Result<(), Error> {
        let at = self.token.at;
        match self.dotted() {
            ".maxntid" => function.max_threads = Some(self.positive(3)?),
            ".reqntid" => function.required_threads = Some(self.positive(3)?),
            ".minnctapersm" => function.min_blocks = Some(self.positive(1)?[0]),
            ".maxnreg" => function.max_registers = Some(self.positive(1)?[0]),
            ".pragma" => self.skip_pragma()?,
            ".reqnctapercluster" => function.required_cluster = Some(self.positive(3)?),
            ".maxclusterrank" => function.max_cluster_rank = Some(self.positive(1)?[0]),
            ".explicitcluster" => {
                self.advance();
                function.is_cluster_explicit = true;
            }
            ".blocksareclusters" => {
                self.advance();
                function.blocks_are_clusters = true;
            }
            _ => self.skip_directive(&[])?,
        }
        if function.max_threads.is_some() && function.required_threads.is_some() {
            return semantic_error(at, "a kernel cannot have both .maxntid and .reqntid");
        }
        Ok(())
    }

    /// Parses one directive of a function or a prototype. Returns whether it is `.noreturn`.
    pub(super) fn function_directive(&mut self) -> Result<bool, Error> {
        let noreturn = self.dotted() == ".noreturn";
        match self.dotted() {
            ".noreturn" => {
                self.advance();
            }
            ".attribute" => {
                self.attribute()?;
            }
            ".pragma" => self.skip_pragma()?,
            _ => self.skip_directive(IGNORED_OF_FUNCTIONS)?,
        }
        Ok(noreturn)
    }

    fn skip_directive(&mut self, known: &[(&str, usize)]) -> Result<(), Error> {
        let Some(&(_, integers_max)) = known.iter().find(|(word, _)| *word == self.dotted()) else {
            return self.expected("'{', ';' or a directive of functions");
        };
        self.advance();
        if integers_max > 0 {
            self.integers(integers_max)?;
        }
        Ok(())
    }

    /// Parses a directive with up to `count_max` integers, none of which may be zero.
    fn positive(&mut self, count_max: usize) -> Result<[u32; 3], Error> {
        let word = self.advance().text;
        let at = self.token.at;
        let integers = self.integers(count_max)?;
        if integers.contains(&0) { semantic_error(at, format!("{word} must not be zero")) } else { Ok(integers) }
    }

    /// Parses one to `count_max` integers, with 1 for omitted ones.
    fn integers(&mut self, count_max: usize) -> Result<[u32; 3], Error> {
        let mut integers = [1; 3];
        for (index, integer) in integers.iter_mut().take(count_max).enumerate() {
            if index > 0 && !self.accept(Punct::Comma) {
                break;
            }
            *integer = self.integer("an integer")?;
        }
        Ok(integers)
    }
}

/// Checks that a kernel's parameters are in memory and of known size.
fn check_kernel_parameters(parameters: &[Parameter<'_>]) -> Result<(), Error> {
    for parameter in parameters {
        match parameter {
            Parameter::Register { at, name, .. } => {
                return semantic_error(*at, format!("'{name}' is a register: a kernel's parameters must be .param"));
            }
            Parameter::Param(variable) if variable.dimensions.first() == Some(&None) => {
                return semantic_error(variable.at, format!("the length of '{}' is unknown", variable.name));
            }
            Parameter::Param(_) => {}
        }
    }
    Ok(())
}
