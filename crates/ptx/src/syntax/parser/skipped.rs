//! What is read and dropped: debug information, pragmas, attributes.

use super::{Kind, Mark, Parser};
use crate::error::Error;

impl Parser<'_> {
    /// Skips one directive that only informs; false if none is next.
    pub(super) fn skip_information(&mut self) -> Result<bool, Error> {
        match self.dotted() {
            ".file" => self.skip_file()?,
            ".loc" => self.skip_location()?,
            ".section" => self.skip_section()?,
            ".pragma" => self.skip_pragma()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `.file 1 "saxpy.cu", 1700000000, 512`
    fn skip_file(&mut self) -> Result<(), Error> {
        self.take();
        self.skip_integer("a file's number")?;
        self.skip_quoted("a file's name")?;
        if self.accept(Mark::Comma) {
            self.skip_integer("a file's time")?;
            self.expect(Mark::Comma)?;
            self.skip_integer("a file's size")?;
        }
        Ok(())
    }

    /// `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 9`
    fn skip_location(&mut self) -> Result<(), Error> {
        self.take();
        self.skip_place()?;
        while self.accept(Mark::Comma) {
            match self.token.text {
                "function_name" => {
                    self.take();
                    self.word("a label")?;
                    if self.accept(Mark::Plus) {
                        self.skip_integer("an offset")?;
                    }
                }
                "inlined_at" => {
                    self.take();
                    self.skip_place()?;
                }
                _ => return self.expected("function_name or inlined_at"),
            }
        }
        Ok(())
    }

    fn skip_place(&mut self) -> Result<(), Error> {
        self.skip_integer("a file's number")?;
        self.skip_integer("a line")?;
        self.skip_integer("a column")
    }

    /// `.section .debug_info { .b32 12 .b32 .debug_abbrev label: .b8 1, 2 }`
    fn skip_section(&mut self) -> Result<(), Error> {
        self.take();
        if self.token.kind != Kind::Dotted {
            return self.expected("a section's name");
        }
        self.take();
        self.expect(Mark::OpenBrace)?;
        loop {
            match self.token.kind {
                Kind::Mark(Mark::CloseBrace) => break,
                Kind::Dotted | Kind::Word | Kind::Integer { .. } => {}
                Kind::Mark(Mark::Colon | Mark::Comma | Mark::Plus | Mark::Minus | Mark::Semicolon) => {}
                _ => return self.expected("data of a section, or '}'"),
            }
            self.take();
        }
        self.expect(Mark::CloseBrace)
    }

    /// `.pragma "nounroll";`
    pub(super) fn skip_pragma(&mut self) -> Result<(), Error> {
        self.take();
        self.skip_quoted("a pragma in quotes")?;
        while self.accept(Mark::Comma) {
            self.skip_quoted("a pragma in quotes")?;
        }
        self.expect(Mark::Semicolon)
    }

    /// `.attribute(.unified(1, 2), .managed)`
    pub(super) fn skip_attribute(&mut self) -> Result<(), Error> {
        self.take();
        self.expect(Mark::OpenParenthesis)?;
        let mut open = 1;
        while open > 0 {
            match self.token.kind {
                Kind::Mark(Mark::OpenParenthesis) => open += 1,
                Kind::Mark(Mark::CloseParenthesis) => open -= 1,
                Kind::Dotted | Kind::Integer { .. } | Kind::Mark(Mark::Comma) => {}
                _ => return self.expected("an attribute, or ')'"),
            }
            self.take();
        }
        Ok(())
    }

    fn skip_integer(&mut self, what: &str) -> Result<(), Error> {
        let Kind::Integer { .. } = self.token.kind else {
            return self.expected(what);
        };
        self.take();
        Ok(())
    }

    fn skip_quoted(&mut self, what: &str) -> Result<(), Error> {
        if self.token.kind != Kind::Text {
            return self.expected(what);
        }
        self.take();
        Ok(())
    }
}
