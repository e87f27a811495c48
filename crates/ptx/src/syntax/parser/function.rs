//! Functions: their heads and the directives that follow.

use super::{Kind, Mark, Parser};
use crate::error::Error;
use crate::syntax::tree::{Function, FunctionKind, Linkage, Parameter};

/// Directives between a function's parameters and its body that say nothing the tree has a place for, with how many
/// integers follow at most.
const IGNORED: &[(&str, usize)] = &[
    (".maxnctapersm", 1),
    (".maxclusterrank", 1),
    (".reqnctapercluster", 3),
    (".abi_preserve", 1),
    (".abi_preserve_control", 1),
    (".explicitcluster", 0),
    (".blocksareclusters", 0),
    (".unified", 0),
];

impl<'a> Parser<'a> {
    /// A function from its `.entry` or `.func` on.
    pub(super) fn function(&mut self, linkage: Linkage) -> Result<Function<'a>, Error> {
        let kind = if self.take().text == ".entry" { FunctionKind::Kernel } else { FunctionKind::Device };
        while self.dotted() == ".attribute" {
            self.skip_attribute()?;
        }
        let returns = match kind {
            FunctionKind::Device if self.is(Mark::OpenParenthesis) => self.parameters()?,
            _ => Vec::new(),
        };
        let at = self.token.at;
        let name = self.word("a function's name")?;
        let parameters = if self.is(Mark::OpenParenthesis) { self.parameters()? } else { Vec::new() };
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
            max_registers: None,
            body: None,
        };
        while self.token.kind == Kind::Dotted {
            self.function_directive(&mut function)?;
        }
        if self.accept(Mark::Semicolon) {
            return Ok(function);
        }
        if !self.is(Mark::OpenBrace) {
            return self.expected("'{' or ';'");
        }
        self.registers = 0;
        function.body = Some(self.block()?);
        Ok(function)
    }

    /// `(.param .b32 a, .reg .b32 b)`, also with nothing in it.
    pub(super) fn parameters(&mut self) -> Result<Vec<Parameter<'a>>, Error> {
        self.expect(Mark::OpenParenthesis)?;
        let mut parameters = Vec::new();
        if self.accept(Mark::CloseParenthesis) {
            return Ok(parameters);
        }
        loop {
            parameters.push(self.parameter()?);
            if !self.accept(Mark::Comma) {
                break;
            }
        }
        if self.accept(Mark::CloseParenthesis) { Ok(parameters) } else { self.expected("',' or ')'") }
    }

    fn function_directive(&mut self, function: &mut Function<'a>) -> Result<(), Error> {
        match self.dotted() {
            ".maxntid" => function.max_threads = Some(self.threads()?),
            ".reqntid" => function.required_threads = Some(self.threads()?),
            ".minnctapersm" => {
                self.take();
                function.min_blocks = Some(self.integer("a number of blocks")?);
            }
            ".maxnreg" => {
                self.take();
                function.max_registers = Some(self.integer("a number of registers")?);
            }
            ".noreturn" => {
                self.take();
                function.noreturn = true;
            }
            ".pragma" => self.skip_pragma()?,
            _ => self.skip_function_directive()?,
        }
        Ok(())
    }

    pub(super) fn skip_function_directive(&mut self) -> Result<(), Error> {
        if self.dotted() == ".attribute" {
            return self.skip_attribute();
        }
        let Some(&(_, integers_max)) = IGNORED.iter().find(|(word, _)| *word == self.dotted()) else {
            return self.expected("'{', ';' or a directive of functions");
        };
        self.take();
        if integers_max > 0 {
            self.integers(integers_max)?;
        }
        Ok(())
    }

    /// One to three numbers of threads, with 1 for those that are not said.
    fn threads(&mut self) -> Result<[u32; 3], Error> {
        self.take();
        self.integers(3)
    }

    fn integers(&mut self, count_max: usize) -> Result<[u32; 3], Error> {
        let mut integers = [1; 3];
        for (index, integer) in integers.iter_mut().take(count_max).enumerate() {
            if index > 0 && !self.accept(Mark::Comma) {
                break;
            }
            *integer = self.integer("an integer")?;
        }
        Ok(integers)
    }
}
