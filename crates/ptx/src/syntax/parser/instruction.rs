//! Parses instructions: guard, opcode, modifiers, operands.

use super::{Parser, Punct, TokenKind, unsupported};
use crate::error::Error;
use crate::syntax::tree::{Base, Guard, Instruction, Operand};

impl<'a> Parser<'a> {
    /// Parses an instruction to its semicolon. An error in it carries its text.
    pub(super) fn instruction(&mut self) -> Result<Instruction<'a>, Error> {
        let start = self.token.start;
        self.instruction_at(start).map_err(|mut error| {
            error.instruction = self.instruction_text(start);
            error
        })
    }

    fn instruction_at(&mut self, start: usize) -> Result<Instruction<'a>, Error> {
        let at = self.token.at;
        let guard = if self.accept(Punct::At) { Some(self.guard()?) } else { None };
        let opcode = self.name("an instruction")?;
        let mut modifiers = Vec::new();
        while self.token.kind == TokenKind::Dotted {
            modifiers.push(&self.advance().text[1..]);
        }
        let mut operands = Vec::new();
        if !self.is(Punct::Semicolon) {
            loop {
                operands.push(self.operand(opcode)?);
                if !self.accept(Punct::Comma) {
                    break;
                }
            }
        }
        let text = &self.text[start..self.taken_end];
        if !self.accept(Punct::Semicolon) {
            return self.expected("',' or ';'");
        }
        Ok(Instruction { at, guard, opcode, modifiers, operands, text })
    }

    /// Returns the text of an invalid instruction: to its semicolon, or to the end of the line with the error.
    fn instruction_text(&self, start: usize) -> String {
        const SHOWN_MAX: usize = 400;
        let rest = &self.text[start..];
        let known = self.token.start - start;
        let end = match rest[..known].find(';') {
            Some(end) => end,
            None => known + rest[known..].find([';', '\n']).unwrap_or(rest.len() - known),
        };
        let text = rest[..end].trim_end();
        match text.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        }
    }

    /// Parses `p` or `!p` after the at sign.
    fn guard(&mut self) -> Result<Guard<'a>, Error> {
        let negated = self.accept(Punct::Bang);
        Ok(Guard { register: self.name("a predicate")?, negated })
    }

    fn operand(&mut self, opcode: &str) -> Result<Operand<'a>, Error> {
        match self.token.kind {
            TokenKind::Punct(Punct::OpenBracket) => self.address(),
            TokenKind::Punct(Punct::OpenBrace) => self.operand_list(Punct::CloseBrace).map(Operand::Vector),
            // A call has lists; elsewhere a parenthesis opens a constant expression.
            TokenKind::Punct(Punct::OpenParenthesis) if opcode == "call" => {
                self.operand_list(Punct::CloseParenthesis).map(Operand::List)
            }
            TokenKind::Word => {
                let first = self.scalar()?;
                if !self.accept(Punct::Bar) {
                    return Ok(first);
                }
                let second = self.scalar()?;
                Ok(Operand::Pair(Box::new((first, second))))
            }
            _ => self.scalar(),
        }
    }

    /// Parses scalar operands between the next token and `close`.
    fn operand_list(&mut self, close: Punct) -> Result<Vec<Operand<'a>>, Error> {
        self.advance();
        let mut operands = Vec::new();
        if close == Punct::CloseParenthesis && self.accept(close) {
            return Ok(operands);
        }
        loop {
            operands.push(self.scalar()?);
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        if self.accept(close) { Ok(operands) } else { self.expected(&format!("',' or '{}'", close.text())) }
    }

    /// Parses a name, a sum, a negated name, a constant, or `_`.
    fn scalar(&mut self) -> Result<Operand<'a>, Error> {
        match (self.token.kind, self.lookahead.kind) {
            (TokenKind::Word, _) if self.token.text == "_" => {
                self.advance();
                Ok(Operand::Sink)
            }
            (TokenKind::Word, _) => {
                let name = self.dotted_name();
                match self.token.kind {
                    TokenKind::Punct(Punct::Plus) => Ok(Operand::Sum(name, self.addend()?)),
                    TokenKind::Punct(Punct::OpenBracket) => {
                        unsupported(self.token.at, "an array's element as an operand is not supported")
                    }
                    _ => Ok(Operand::Name(name)),
                }
            }
            (TokenKind::Punct(Punct::Bang), TokenKind::Word) => {
                self.advance();
                Ok(Operand::Not(self.dotted_name()))
            }
            (TokenKind::Single(bits), _) => {
                self.advance();
                Ok(Operand::Single(bits))
            }
            (TokenKind::Integer { .. } | TokenKind::Double(_), _)
            | (TokenKind::Punct(Punct::Plus | Punct::Minus | Punct::Bang | Punct::Tilde | Punct::OpenParenthesis), _) => {
                Ok(self.expression()?.into())
            }
            _ => self.expected("an operand"),
        }
    }

    /// Parses a word and a directly adjacent `.x`: `%tid.x` is one name.
    fn dotted_name(&mut self) -> &'a str {
        let name = self.advance();
        if self.token.kind != TokenKind::Dotted || self.token.start != name.end() {
            return name.text;
        }
        let end = self.advance().end();
        &self.text[name.start..end]
    }

    /// `[base+offset]`
    fn address(&mut self) -> Result<Operand<'a>, Error> {
        self.advance();
        let (base, offset) = if self.token.kind == TokenKind::Word {
            let base = Base::Name(self.name("an address")?);
            (base, self.addend()?)
        } else {
            let at = self.token.at;
            match self.token.kind {
                TokenKind::Integer { .. }
                | TokenKind::Punct(Punct::OpenParenthesis | Punct::Minus | Punct::Plus | Punct::Tilde) => {}
                _ => return self.expected("an address"),
            }
            let Some(bits) = self.expression()?.as_bits() else {
                return Err(Error::syntax(at, "an address must be an integer"));
            };
            (Base::Integer(bits), 0)
        };
        if self.is(Punct::Comma) {
            return self.texel(base, offset);
        }
        self.expect(Punct::CloseBracket)?;
        Ok(Operand::Address { base, offset })
    }

    /// `, {x, y}]`: the rest of an address in a texture.
    fn texel(&mut self, base: Base<'a>, offset: i64) -> Result<Operand<'a>, Error> {
        let Base::Name(base) = base else {
            return unsupported(self.token.at, "a number as the address of a texture is not supported");
        };
        self.advance();
        let coordinates = match self.token.kind {
            TokenKind::Punct(Punct::OpenBrace) => Operand::Vector(self.operand_list(Punct::CloseBrace)?),
            _ => self.scalar()?,
        };
        if self.is(Punct::Comma) {
            return unsupported(self.token.at, "an address of three parts is not supported");
        }
        self.expect(Punct::CloseBracket)?;
        Ok(Operand::Texel { base, offset, coordinates: Box::new(coordinates) })
    }
}
