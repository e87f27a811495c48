//! Parses tokens into a tree. It knows the structure of a text, and leaves the meaning of names and words to the
//! lowering.
//!
//! Text that the tree does not represent (most debug information, pragmas, attributes) is checked to be well formed and
//! dropped. Nesting is limited by [`NESTING_MAX`], so that no text can exhaust the stack.

mod declaration;
mod expression;
mod function;
mod header;
mod initial;
mod instruction;
mod skipped;
mod statement;
#[cfg(test)]
mod tests;

use super::lexer::{Lexer, Punct, Token, TokenKind};
use super::tree::{Item, Linkage, Location, Module, Position, Space};
use crate::error::{Error, ErrorKind};

/// The maximum nesting of blocks, initializers and constant expressions.
const NESTING_MAX: u32 = 64;

/// The maximum number of registers in one declaration. A whole text may declare one more for each of its bytes: a text
/// that uses its registers is longer than their number, and one that does not use them cannot cause unbounded work.
const REGISTERS_MAX: u32 = 1_000_000;

/// Parses a whole text for a device of compute capability 9.0.
///
/// # Errors
/// Returns the first error in the text.
pub fn parse(text: &str) -> Result<Module<'_>, Error> {
    parse_for(text, Some(DEVICE_DEFAULT))
}

/// Parses a whole text for a device with a compute capability, as 90 for 9.0, or with any target if there is none.
///
/// # Errors
/// Returns the first error in the text, which may be that its target does not run on the device.
pub fn parse_for(text: &str, device: Option<u32>) -> Result<Module<'_>, Error> {
    check_ascii(text)?;
    Parser::new(text, device).module()
}

/// Rejects characters that are not ASCII, even in comments.
fn check_ascii(text: &str) -> Result<(), Error> {
    let Some(start) = text.bytes().position(|byte| !byte.is_ascii()) else { return Ok(()) };
    let before = &text[..start];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let [line, column] = [line, start - line_start + 1].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    Err(Error::new(Position { line, column }, ErrorKind::Syntax, "a character that is not ASCII"))
}

/// The newest PTX version that is supported, major and minor. Its new instructions are not: each is an error where it
/// is used.
pub const VERSION_MAX: (u32, u32) = (9, 5);

/// The compute capability of a device that is not named.
pub(crate) const DEVICE_DEFAULT: u32 = 90;

struct Parser<'a> {
    text: &'a str,
    /// The compute capability of the device. `None` accepts every target.
    device: Option<u32>,
    lexer: Lexer<'a>,
    token: Token<'a>,
    /// The token after `token`.
    lookahead: Token<'a>,
    /// The offset of the byte after the last token taken.
    taken_end: usize,
    /// The current nesting.
    nesting: u32,
    /// Registers declared so far.
    registers: usize,
    /// As in [`Module`].
    files: Vec<(u32, &'a str)>,
    locations: Vec<Location>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, device: Option<u32>) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.token();
        let ahead = lexer.token();
        Self {
            text,
            device,
            lexer,
            token,
            lookahead: ahead,
            taken_end: 0,
            nesting: 0,
            registers: 0,
            files: Vec::new(),
            locations: Vec::new(),
        }
    }

    fn module(mut self) -> Result<Module<'a>, Error> {
        let (version, target) = self.header()?;
        let mut module = Module { version, target, items: Vec::new(), files: Vec::new(), locations: Vec::new() };
        while self.token.kind != TokenKind::End {
            self.module_item(&mut module)?;
        }
        (module.files, module.locations) = (self.files, self.locations);
        Ok(module)
    }

    fn module_item(&mut self, module: &mut Module<'a>) -> Result<(), Error> {
        match self.dotted() {
            ".file" => self.file(),
            ".section" => self.skip_section(),
            ".pragma" => self.skip_pragma(),
            ".alias" => {
                module.items.push(self.alias()?);
                Ok(())
            }
            word @ (".version" | ".target" | ".address_size") => {
                Err(Error::syntax(self.token.at, format!("{word} is allowed only once, at the start of the text")))
            }
            _ => self.definition(module),
        }
    }

    /// Parses a function, or the variables of one declaration.
    fn definition(&mut self, module: &mut Module<'a>) -> Result<(), Error> {
        let mut is_managed = false;
        while self.dotted() == ".attribute" {
            is_managed |= self.attribute()?;
        }
        let linkage = self.linkage()?;
        if matches!(self.dotted(), ".entry" | ".func") && linkage != Linkage::Common {
            self.locations.push(Location { at: self.token.at.line, file: 0, line: 0, inlined_at: None });
            let function = self.function(linkage)?;
            module.items.push(Item::Function(function));
            return Ok(());
        }
        let at = self.token.at;
        let Some(space) = self.space()? else {
            return self.expected("a variable or a function");
        };
        if linkage == Linkage::Common && space != Space::Global {
            return semantic_error(at, "only global variables can be .common");
        }
        self.variables(linkage, space, |mut variable| {
            variable.is_managed |= is_managed;
            module.items.push(Item::Variable(variable));
        })
    }

    fn alias(&mut self) -> Result<Item<'a>, Error> {
        self.advance();
        let at = self.token.at;
        let name = self.name("a name")?;
        self.expect(Punct::Comma)?;
        let of = self.name("a name")?;
        self.expect(Punct::Semicolon)?;
        Ok(Item::Alias { at, name, of })
    }

    fn linkage(&mut self) -> Result<Linkage, Error> {
        let mut linkage = Linkage::Local;
        loop {
            let next = match self.dotted() {
                ".visible" => Linkage::Visible,
                ".extern" => Linkage::Extern,
                ".weak" => Linkage::Weak,
                ".common" => Linkage::Common,
                _ => return Ok(linkage),
            };
            if linkage != Linkage::Local {
                return self.expected("only one of .visible, .extern, .weak and .common");
            }
            linkage = next;
            self.advance();
        }
    }

    fn advance(&mut self) -> Token<'a> {
        self.taken_end = self.token.end();
        let ahead = std::mem::replace(&mut self.lookahead, self.lexer.token());
        std::mem::replace(&mut self.token, ahead)
    }

    fn is(&self, punct: Punct) -> bool {
        self.token.kind == TokenKind::Punct(punct)
    }

    /// Returns the next word if it starts with a dot, else an empty string.
    fn dotted(&self) -> &'a str {
        if self.token.kind == TokenKind::Dotted { self.token.text } else { "" }
    }

    /// Takes the next token if it is `punct`.
    fn accept(&mut self, punct: Punct) -> bool {
        let is = self.is(punct);
        if is {
            self.advance();
        }
        is
    }

    fn expect(&mut self, punct: Punct) -> Result<(), Error> {
        if self.accept(punct) { Ok(()) } else { self.expected(&format!("'{}'", punct.text())) }
    }

    /// Parses a word that names something: not `_`.
    fn name(&mut self, what: &str) -> Result<&'a str, Error> {
        if self.token.text == "_" { self.expected(what) } else { self.word(what) }
    }

    fn word(&mut self, what: &str) -> Result<&'a str, Error> {
        if self.token.kind == TokenKind::Word { Ok(self.advance().text) } else { self.expected(what) }
    }

    /// Parses a plain integer of at most 32 bits.
    fn integer(&mut self, what: &str) -> Result<u32, Error> {
        let TokenKind::Integer { value, .. } = self.token.kind else {
            return self.expected(what);
        };
        let Ok(value) = u32::try_from(value) else {
            return Err(Error::syntax(self.token.at, format!("{} is too large for {what}", self.token.text)));
        };
        self.advance();
        Ok(value)
    }

    /// Returns the error that another token was found instead of `what`.
    fn expected<T>(&self, what: &str) -> Result<T, Error> {
        let Token { kind, text, at, .. } = self.token;
        let found = match kind {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Bad(why) => return Err(Error::syntax(at, format!("{why}: {}", quote(text)))),
            _ => quote(text),
        };
        Err(Error::syntax(at, format!("expected {what}, found {found}")))
    }

    /// Parses something one level deeper.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.nesting == NESTING_MAX {
            return Err(Error::syntax(self.token.at, format!("nested more than {NESTING_MAX} deep")));
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }
}

fn semantic_error<T>(at: Position, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(at, ErrorKind::Semantic, message))
}

fn unsupported<T>(at: Position, message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(at, ErrorKind::Unsupported, message))
}

/// Returns the start of a token in quotes: tokens can be as long as the text.
fn quote(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let line = text.lines().next().unwrap_or("");
    match line.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("'{}...'", &line[..end]),
        None => format!("'{line}'"),
    }
}
