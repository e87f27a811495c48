//! Parses the body of a function.

use super::{Parser, Punct, TokenKind};
use crate::error::Error;
use crate::syntax::tree::{Linkage, Position, Statement};

impl<'a> Parser<'a> {
    /// `{ ... }`
    pub(super) fn block(&mut self) -> Result<Vec<Statement<'a>>, Error> {
        self.nested(|parser| {
            parser.expect(Punct::OpenBrace)?;
            let mut statements = Vec::new();
            while !parser.accept(Punct::CloseBrace) {
                parser.statement(&mut statements)?;
            }
            Ok(statements)
        })
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), Error> {
        match self.token.kind {
            TokenKind::Word if self.lookahead.kind == TokenKind::Punct(Punct::Colon) => statements.push(self.label()?),
            TokenKind::Word | TokenKind::Punct(Punct::At) => {
                statements.push(Statement::Instruction(self.instruction()?))
            }
            TokenKind::Punct(Punct::OpenBrace) => statements.push(Statement::Block(self.block()?)),
            TokenKind::Dotted => self.declaration(statements)?,
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
            ".loc" => return self.location(),
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

    /// Parses a label, or one of the lists that a label names.
    fn label(&mut self) -> Result<Statement<'a>, Error> {
        let at = self.token.at;
        let name = self.name("a label")?;
        self.expect(Punct::Colon)?;
        match self.dotted() {
            ".branchtargets" | ".calltargets" => self.targets(at, name),
            ".callprototype" => self.prototype(at, name),
            _ => Ok(Statement::Label { at, name }),
        }
    }

    fn targets(&mut self, at: Position, name: &'a str) -> Result<Statement<'a>, Error> {
        self.advance();
        let mut targets = Vec::new();
        loop {
            targets.push(self.name("a target")?);
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        if !self.accept(Punct::Semicolon) {
            return self.expected("',' or ';'");
        }
        Ok(Statement::Targets { at, name, targets })
    }

    fn prototype(&mut self, at: Position, name: &'a str) -> Result<Statement<'a>, Error> {
        self.advance();
        let returns = if self.is(Punct::OpenParenthesis) { self.parameters()? } else { Vec::new() };
        if self.token.text != "_" {
            return self.expected("'_'");
        }
        self.advance();
        let parameters = if self.is(Punct::OpenParenthesis) { self.parameters()? } else { Vec::new() };
        while self.token.kind == TokenKind::Dotted {
            self.function_directive()?;
        }
        self.expect(Punct::Semicolon)?;
        Ok(Statement::Prototype { at, name, returns, parameters })
    }
}
