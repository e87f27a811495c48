//! What a variable starts with.

use super::{Kind, Mark, Parser};
use crate::error::Error;
use crate::syntax::tree::Initial;

impl<'a> Parser<'a> {
    pub(super) fn initial(&mut self) -> Result<Initial<'a>, Error> {
        match self.token.kind {
            Kind::Mark(Mark::OpenBrace) => self.nested(Self::initial_list),
            Kind::Word => self.initial_address(),
            Kind::Integer { value, .. } if self.ahead.kind == Kind::Mark(Mark::OpenParenthesis) => {
                self.initial_mask(value)
            }
            Kind::Single(bits) => {
                self.take();
                Ok(Initial::Single(bits))
            }
            _ => Ok(self.expression()?.into()),
        }
    }

    fn initial_list(&mut self) -> Result<Initial<'a>, Error> {
        self.take();
        let mut values = Vec::new();
        loop {
            values.push(self.initial()?);
            if !self.accept(Mark::Comma) {
                break;
            }
        }
        if self.accept(Mark::CloseBrace) { Ok(Initial::List(values)) } else { self.expected("',' or '}'") }
    }

    /// `name`, `name+8`, `generic(name)+8`
    fn initial_address(&mut self) -> Result<Initial<'a>, Error> {
        let mut at = self.token.at;
        let mut name = self.word("a name")?;
        let generic = name == "generic" && self.accept(Mark::OpenParenthesis);
        if generic {
            at = self.token.at;
            name = self.word("a name")?;
            self.expect(Mark::CloseParenthesis)?;
        }
        let addend = self.addends()?;
        Ok(Initial::Address { at, name, generic, addend, mask: 0 })
    }

    /// `0xff00(name)`: the byte of an address that the mask names.
    fn initial_mask(&mut self, bits: u64) -> Result<Initial<'a>, Error> {
        if bits == 0 || bits >> bits.trailing_zeros() != 0xff || !bits.trailing_zeros().is_multiple_of(8) {
            return self.expected("a mask of one byte such as 0xff00");
        }
        self.take();
        self.expect(Mark::OpenParenthesis)?;
        let mut address = self.initial_address()?;
        self.expect(Mark::CloseParenthesis)?;
        let behind = self.addends()?;
        if let Initial::Address { addend, mask, .. } = &mut address {
            *addend = addend.wrapping_add(behind);
            *mask = bits;
        }
        Ok(address)
    }
}
