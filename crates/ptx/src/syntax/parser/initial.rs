//! Parses the initial values of a variable.

use super::{Parser, Punct, TokenKind, semantic_error};
use crate::error::Error;
use crate::syntax::tree::{Initial, Type};

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
    pub(super) fn initial(&mut self, ty: Type, lengths: &[Length]) -> Result<Initial<'a>, Error> {
        match lengths {
            [] => {
                let at = self.token.at;
                let value = self.initial_scalar()?;
                match mismatch(ty, &value) {
                    Some(message) => semantic_error(at, message),
                    None => Ok(value),
                }
            }
            [length, inner @ ..] => self.nested(|parser| parser.initial_list(ty, *length, inner)),
        }
    }

    fn initial_list(&mut self, ty: Type, length: Length, inner: &[Length]) -> Result<Initial<'a>, Error> {
        let at = self.token.at;
        self.expect(Punct::OpenBrace)?;
        let mut values = Vec::new();
        if !self.is(Punct::CloseBrace) {
            loop {
                if matches!(length, Length::Most(Some(most)) if values.len() as u64 == most) {
                    return semantic_error(self.token.at, "more initial values than the array has elements");
                }
                values.push(self.initial(ty, inner)?);
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

/// Returns why a value cannot initialize an element of a type, if it cannot.
fn mismatch(ty: Type, value: &Initial<'_>) -> Option<String> {
    let name = format!(".{ty:?}").to_lowercase();
    let is_float = matches!(ty, Type::F32 | Type::F64);
    let is_untyped = matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128);
    match value {
        _ if matches!(ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2) => {
            Some(format!("a variable of type {name} takes no initial value: declare it as '.b{}'", ty.bits()))
        }
        Initial::Integer(value) if is_float => {
            Some(format!("{value} is an integer, expected a floating-point number of type {name}"))
        }
        Initial::Single(_) | Initial::Double(_) if !is_float && !is_untyped => {
            Some(format!("expected an integer of type {name}"))
        }
        Initial::Address { .. } if is_float => Some(format!("an address cannot be the value of a {name}")),
        Initial::Address { mask: 0, .. } if ty.bytes() < 4 => {
            Some(format!("an address does not fit in a {name}: take each byte with a mask, as in '0xff(name)'"))
        }
        _ => None,
    }
}
