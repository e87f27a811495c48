//! What stands in the body of a function.

use super::{Kind, Mark, Parser};
use crate::error::Error;
use crate::syntax::tree::{Linkage, Position, Statement};

impl<'a> Parser<'a> {
    /// `{ ... }`
    pub(super) fn block(&mut self) -> Result<Vec<Statement<'a>>, Error> {
        self.nested(|parser| {
            parser.expect(Mark::OpenBrace)?;
            let mut statements = Vec::new();
            while !parser.accept(Mark::CloseBrace) {
                parser.statement(&mut statements)?;
            }
            Ok(statements)
        })
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), Error> {
        match self.token.kind {
            Kind::Word if self.ahead.kind == Kind::Mark(Mark::Colon) => statements.push(self.label()?),
            Kind::Word | Kind::Mark(Mark::At) => statements.push(Statement::Instruction(self.instruction()?)),
            Kind::Mark(Mark::OpenBrace) => statements.push(Statement::Block(self.block()?)),
            Kind::Dotted => self.declaration(statements)?,
            _ => return self.expected("a statement or '}'"),
        }
        Ok(())
    }

    fn declaration(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), Error> {
        match self.dotted() {
            ".reg" => {
                statements.push(self.registers()?);
                return Ok(());
            }
            ".loc" => return self.skip_location(),
            ".pragma" => return self.skip_pragma(),
            _ => {}
        }
        match self.space()? {
            Some(space) => {
                self.variables(Linkage::Local, space, |variable| statements.push(Statement::Variable(variable)))
            }
            None => self.expected("a statement or '}'"),
        }
    }

    /// A label, or one of the lists that have a label for a name.
    fn label(&mut self) -> Result<Statement<'a>, Error> {
        let at = self.token.at;
        let name = self.name("a label")?;
        self.expect(Mark::Colon)?;
        match self.dotted() {
            ".branchtargets" | ".calltargets" => self.targets(at, name),
            ".callprototype" => self.prototype(at, name),
            _ => Ok(Statement::Label { at, name }),
        }
    }

    fn targets(&mut self, at: Position, name: &'a str) -> Result<Statement<'a>, Error> {
        self.take();
        let mut targets = Vec::new();
        loop {
            targets.push(self.name("a target")?);
            if !self.accept(Mark::Comma) {
                break;
            }
        }
        if !self.accept(Mark::Semicolon) {
            return self.expected("',' or ';'");
        }
        Ok(Statement::Targets { at, name, targets })
    }

    fn prototype(&mut self, at: Position, name: &'a str) -> Result<Statement<'a>, Error> {
        self.take();
        let returns = if self.is(Mark::OpenParenthesis) { self.parameters()? } else { Vec::new() };
        if self.token.text != "_" {
            return self.expected("'_'");
        }
        self.take();
        let parameters = if self.is(Mark::OpenParenthesis) { self.parameters()? } else { Vec::new() };
        while self.token.kind == Kind::Dotted {
            self.function_directive()?;
        }
        self.expect(Mark::Semicolon)?;
        Ok(Statement::Prototype { at, name, returns, parameters })
    }
}
