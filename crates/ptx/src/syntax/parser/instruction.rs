//! Instructions: guard, opcode, modifiers, operands.

use super::{Kind, Mark, Parser, unsupported};
use crate::error::Error;
use crate::syntax::tree::{Base, Guard, Instruction, Operand};

impl<'a> Parser<'a> {
    /// An instruction to its semicolon. A mistake in it carries its text.
    pub(super) fn instruction(&mut self) -> Result<Instruction<'a>, Error> {
        let start = self.token.start;
        self.instruction_at(start).map_err(|mut error| {
            error.instruction = self.instruction_text(start);
            error
        })
    }

    fn instruction_at(&mut self, start: usize) -> Result<Instruction<'a>, Error> {
        let at = self.token.at;
        let guard = if self.accept(Mark::At) { Some(self.guard()?) } else { None };
        let opcode = self.name("an instruction")?;
        let mut modifiers = Vec::new();
        while self.token.kind == Kind::Dotted {
            modifiers.push(&self.take().text[1..]);
        }
        let mut operands = Vec::new();
        if !self.is(Mark::Semicolon) {
            loop {
                operands.push(self.operand(opcode)?);
                if !self.accept(Mark::Comma) {
                    break;
                }
            }
        }
        let text = &self.text[start..self.taken_end];
        if !self.accept(Mark::Semicolon) {
            return self.expected("',' or ';'");
        }
        Ok(Instruction { at, guard, opcode, modifiers, operands, text })
    }

    /// The text of a wrong instruction: to its semicolon, or to the end of the line with the mistake.
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

    /// `p` or `!p` behind the at sign.
    fn guard(&mut self) -> Result<Guard<'a>, Error> {
        let negated = self.accept(Mark::Bang);
        Ok(Guard { register: self.name("a predicate")?, negated })
    }

    fn operand(&mut self, opcode: &str) -> Result<Operand<'a>, Error> {
        match self.token.kind {
            Kind::Mark(Mark::OpenBracket) => self.address(),
            Kind::Mark(Mark::OpenBrace) => self.several(Mark::CloseBrace).map(Operand::Vector),
            // A call has lists; elsewhere a parenthesis opens a constant expression.
            Kind::Mark(Mark::OpenParenthesis) if opcode == "call" => {
                self.several(Mark::CloseParenthesis).map(Operand::List)
            }
            Kind::Word => {
                let first = self.scalar()?;
                if !self.accept(Mark::Bar) {
                    return Ok(first);
                }
                let second = self.scalar()?;
                Ok(Operand::Pair(Box::new((first, second))))
            }
            _ => self.scalar(),
        }
    }

    /// Scalar operands between the mark that is next and `close`.
    fn several(&mut self, close: Mark) -> Result<Vec<Operand<'a>>, Error> {
        self.take();
        let mut operands = Vec::new();
        if close == Mark::CloseParenthesis && self.accept(close) {
            return Ok(operands);
        }
        loop {
            operands.push(self.scalar()?);
            if !self.accept(Mark::Comma) {
                break;
            }
        }
        if self.accept(close) { Ok(operands) } else { self.expected(&format!("',' or '{}'", close.text())) }
    }

    /// A name, a sum, a negated name, a constant, or `_`.
    fn scalar(&mut self) -> Result<Operand<'a>, Error> {
        match (self.token.kind, self.ahead.kind) {
            (Kind::Word, _) if self.token.text == "_" => {
                self.take();
                Ok(Operand::Sink)
            }
            (Kind::Word, _) => {
                let name = self.dotted_name();
                match self.token.kind {
                    Kind::Mark(Mark::Plus) => Ok(Operand::Sum(name, self.addend()?)),
                    Kind::Mark(Mark::OpenBracket) => {
                        unsupported(self.token.at, "an array's element as an operand is not supported")
                    }
                    _ => Ok(Operand::Name(name)),
                }
            }
            (Kind::Mark(Mark::Bang), Kind::Word) => {
                self.take();
                Ok(Operand::Not(self.dotted_name()))
            }
            (Kind::Single(bits), _) => {
                self.take();
                Ok(Operand::Single(bits))
            }
            (Kind::Integer { .. } | Kind::Double(_), _)
            | (Kind::Mark(Mark::Plus | Mark::Minus | Mark::Bang | Mark::Tilde | Mark::OpenParenthesis), _) => {
                Ok(self.expression()?.into())
            }
            _ => self.expected("an operand"),
        }
    }

    /// A word with the `.x` that stands directly behind it: `%tid.x` is one name.
    fn dotted_name(&mut self) -> &'a str {
        let name = self.take();
        if self.token.kind != Kind::Dotted || self.token.start != name.end() {
            return name.text;
        }
        let end = self.take().end();
        &self.text[name.start..end]
    }

    /// `[base+offset]`
    fn address(&mut self) -> Result<Operand<'a>, Error> {
        self.take();
        let (base, offset) = if self.token.kind == Kind::Word {
            let base = Base::Name(self.name("an address")?);
            (base, self.addend()?)
        } else {
            let at = self.token.at;
            match self.token.kind {
                Kind::Integer { .. } | Kind::Mark(Mark::OpenParenthesis | Mark::Minus | Mark::Plus | Mark::Tilde) => {}
                _ => return self.expected("an address"),
            }
            let Some(bits) = self.expression()?.as_bits() else {
                return Err(Error::syntax(at, "an address is an integer"));
            };
            (Base::Integer(bits), 0)
        };
        if self.is(Mark::Comma) {
            return unsupported(self.token.at, "an address of several parts is not supported");
        }
        self.expect(Mark::CloseBracket)?;
        Ok(Operand::Address { base, offset })
    }
}
