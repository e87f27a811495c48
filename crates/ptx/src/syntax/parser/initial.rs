//! Parses the initial values of a variable.

use super::{Parser, Punct, TokenKind, semantic_error};
use crate::error::Error;
use crate::syntax::tree::Initial;

/// The number of values in a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    /// Of an array: omitted ones are zero. Any number if the array has no length.
    Most(Option<u64>),
    /// Of a vector.
    Exactly(u32),
}

impl<'a> Parser<'a> {
    /// Parses values, nested in as many lists as there are `lengths`, outermost first.
    pub(super) fn initial(&mut self, lengths: &[Length]) -> Result<Initial<'a>, Error> {
        match lengths {
            [] => self.initial_scalar(),
            [length, inner @ ..] => self.nested(|parser| parser.initial_list(*length, inner)),
        }
    }

    fn initial_list(&mut self, length: Length, inner: &[Length]) -> Result<Initial<'a>, Error> {
        let at = self.token.at;
        self.expect(Punct::OpenBrace)?;
        let mut values = Vec::new();
        if !self.is(Punct::CloseBrace) {
            loop {
                if matches!(length, Length::Most(Some(most)) if values.len() as u64 == most) {
                    return semantic_error(self.token.at, "more initial values than the array has elements");
                }
                values.push(self.initial(inner)?);
                if !self.accept(Punct::Comma) {
                    break;
                }
            }
        }
        if !self.accept(Punct::CloseBrace) {
            return self.expected("',' or '}'");
        }
        match length {
            Length::Most(None) if values.is_empty() => {
                semantic_error(at, "an array of unknown length requires an initial value")
            }
            Length::Exactly(count) if values.len() != count as usize => {
                semantic_error(at, format!("a vector of {count} elements requires {count} initial values"))
            }
            _ => Ok(Initial::List(values)),
        }
    }

    fn initial_scalar(&mut self) -> Result<Initial<'a>, Error> {
        match self.token.kind {
            TokenKind::Word => self.initial_address(),
            TokenKind::Integer { value, .. } if self.lookahead.kind == TokenKind::Punct(Punct::OpenParenthesis) => {
                self.initial_mask(value)
            }
            TokenKind::Single(bits) => {
                self.advance();
                Ok(Initial::Single(bits))
            }
            _ => Ok(self.expression()?.into()),
        }
    }

    /// `name`, `name+8`, `generic(name)+8`
    fn initial_address(&mut self) -> Result<Initial<'a>, Error> {
        let mut at = self.token.at;
        let mut name = self.name("a name")?;
        let generic = name == "generic" && self.accept(Punct::OpenParenthesis);
        if generic {
            at = self.token.at;
            name = self.name("a name")?;
            self.expect(Punct::CloseParenthesis)?;
        }
        let addend = self.addend()?;
        Ok(Initial::Address { at, name, generic, addend, mask: 0 })
    }

    /// Parses `0xff00(name)`: the byte of an address that the mask selects.
    fn initial_mask(&mut self, bits: u64) -> Result<Initial<'a>, Error> {
        if bits == 0 || bits >> bits.trailing_zeros() != 0xff || !bits.trailing_zeros().is_multiple_of(8) {
            return self.expected("a mask of one byte such as 0xff00");
        }
        self.advance();
        self.expect(Punct::OpenParenthesis)?;
        let mut address = self.initial_address()?;
        self.expect(Punct::CloseParenthesis)?;
        if let Initial::Address { mask, .. } = &mut address {
            *mask = bits;
        }
        Ok(address)
    }
}
