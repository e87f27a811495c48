//! Parses text that is checked and dropped: debug information (except source lines), pragmas, most attributes.

use super::super::tree::Location;
use super::{Parser, Punct, TokenKind};
use crate::error::Error;

impl Parser<'_> {
    /// `.file 1 "saxpy.cu", 1700000000, 512`
    pub(super) fn file(&mut self) -> Result<(), Error> {
        self.advance();
        let number = self.number("a file's number")?;
        let name = self.token.text.trim_matches('"');
        self.skip_quoted("a file's name")?;
        self.files.push((number, name));
        if self.accept(Punct::Comma) {
            self.skip_integer("a file's time")?;
            self.expect(Punct::Comma)?;
            self.skip_integer("a file's size")?;
        }
        Ok(())
    }

    /// `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 9`
    pub(super) fn location(&mut self) -> Result<(), Error> {
        let at = self.token.at.line;
        self.advance();
        let [file, line] = [self.number("a file's number")?, self.number("a line")?];
        self.skip_integer("a column")?;
        let mut inlined_at = None;
        while self.accept(Punct::Comma) {
            match self.token.text {
                "function_name" => {
                    self.advance();
                    self.word("a label")?;
                    if self.accept(Punct::Plus) {
                        self.skip_integer("an offset")?;
                    }
                }
                "inlined_at" => {
                    self.advance();
                    inlined_at = Some((self.number("a file's number")?, self.number("a line")?));
                    self.skip_integer("a column")?;
                }
                _ => return self.expected("function_name or inlined_at"),
            }
        }
        self.locations.push(Location { at, file, line, inlined_at });
        Ok(())
    }

    /// `.section .debug_info { .b32 12 .b32 .debug_abbrev label: .b8 1, 2 .b64 end-label }`
    pub(super) fn skip_section(&mut self) -> Result<(), Error> {
        self.advance();
        if self.token.kind != TokenKind::Dotted {
            return self.expected("a section's name");
        }
        self.advance();
        self.expect(Punct::OpenBrace)?;
        while !self.accept(Punct::CloseBrace) {
            match self.dotted() {
                ".b8" | ".b16" | ".b32" | ".b64" => self.skip_data()?,
                _ if self.token.kind == TokenKind::Word => {
                    self.advance();
                    self.expect(Punct::Colon)?;
                }
                _ => return self.expected("data of a section, or '}'"),
            }
        }
        Ok(())
    }

    /// Skips integers, or one label with an offset or a difference.
    fn skip_data(&mut self) -> Result<(), Error> {
        self.advance();
        if !matches!(self.token.kind, TokenKind::Word | TokenKind::Dotted) {
            self.skip_signed()?;
            while self.accept(Punct::Comma) {
                self.skip_signed()?;
            }
            return Ok(());
        }
        self.advance();
        if self.accept(Punct::Plus) {
            self.skip_integer("an offset")?;
        } else if self.accept(Punct::Minus) {
            self.word("a label")?;
        }
        Ok(())
    }

    fn skip_signed(&mut self) -> Result<(), Error> {
        self.accept(Punct::Minus);
        self.skip_integer("data of a section")
    }

    /// `.pragma "nounroll";`
    pub(super) fn skip_pragma(&mut self) -> Result<(), Error> {
        self.advance();
        self.skip_quoted("a pragma in quotes")?;
        while self.accept(Punct::Comma) {
            self.skip_quoted("a pragma in quotes")?;
        }
        self.expect(Punct::Semicolon)
    }

    /// `.attribute(.managed, .unified(1, 2))`. Returns whether it says `.managed`.
    pub(super) fn attribute(&mut self) -> Result<bool, Error> {
        let mut is_managed = false;
        self.advance();
        self.expect(Punct::OpenParenthesis)?;
        loop {
            match self.dotted() {
                ".managed" => {
                    is_managed = true;
                    self.advance();
                }
                ".unified" => {
                    self.advance();
                    self.expect(Punct::OpenParenthesis)?;
                    self.skip_integer("an integer")?;
                    self.expect(Punct::Comma)?;
                    self.skip_integer("an integer")?;
                    self.expect(Punct::CloseParenthesis)?;
                }
                _ => return self.expected(".managed or .unified"),
            }
            if !self.accept(Punct::Comma) {
                break;
            }
        }
        self.expect(Punct::CloseParenthesis)?;
        Ok(is_managed)
    }

    fn skip_integer(&mut self, what: &str) -> Result<(), Error> {
        self.number(what).map(|_| ())
    }

    /// Parses an integer; one that is too large counts as the largest.
    fn number(&mut self, what: &str) -> Result<u32, Error> {
        let TokenKind::Integer { value, .. } = self.token.kind else {
            return self.expected(what);
        };
        self.advance();
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    fn skip_quoted(&mut self, what: &str) -> Result<(), Error> {
        if self.token.kind != TokenKind::Text {
            return self.expected(what);
        }
        self.advance();
        Ok(())
    }
}
