//! Parses `.version`, `.target` and `.address_size` at the start of a text.

use super::{Parser, Punct, Token, TokenKind, VERSION_MAX};
use crate::error::{Error, ErrorKind};

/// The targets, after `sm_` or `compute_`, with the PTX version that introduced each.
const TARGETS: &[(&str, u32, (u32, u32))] = &[
    ("10", 10, (1, 0)),
    ("11", 11, (1, 0)),
    ("12", 12, (1, 2)),
    ("13", 13, (1, 2)),
    ("20", 20, (2, 0)),
    ("21", 21, (2, 0)),
    ("30", 30, (3, 0)),
    ("32", 32, (4, 0)),
    ("35", 35, (3, 1)),
    ("37", 37, (4, 1)),
    ("50", 50, (4, 0)),
    ("52", 52, (4, 1)),
    ("53", 53, (4, 2)),
    ("60", 60, (5, 0)),
    ("61", 61, (5, 0)),
    ("62", 62, (5, 0)),
    ("70", 70, (6, 0)),
    ("72", 72, (6, 1)),
    ("75", 75, (6, 3)),
    ("80", 80, (7, 0)),
    ("86", 86, (7, 1)),
    ("87", 87, (7, 4)),
    ("88", 88, (9, 0)),
    ("89", 89, (7, 8)),
    ("90", 90, (7, 8)),
    ("90a", 90, (8, 0)),
];

/// Options that may follow the target.
const TARGET_OPTIONS: &[&str] = &["texmode_unified", "texmode_independent", "debug"];

impl Parser<'_> {
    /// Parses the head. Returns the version and the target.
    pub(super) fn header(&mut self) -> Result<((u32, u32), u32), Error> {
        let version = self.version()?;
        if self.dotted() != ".target" {
            return self.expected(".target");
        }
        let target = self.target(version)?;
        self.address_size()?;
        Ok((version, target))
    }

    fn version(&mut self) -> Result<(u32, u32), Error> {
        if self.dotted() != ".version" {
            return self.expected(".version");
        }
        self.advance();
        let parts = match self.token.kind {
            TokenKind::Double(_) => self.token.text.split_once('.'),
            _ => None,
        };
        let Some((Ok(major), Ok(minor))) = parts.map(|(major, minor)| (major.parse(), minor.parse())) else {
            return self.expected("a version such as 8.4");
        };
        let version = (major, minor);
        let at = self.token.at;
        self.advance();
        if version > VERSION_MAX {
            let message = format!("version {major}.{minor} is newer than {}.{}", VERSION_MAX.0, VERSION_MAX.1);
            return Err(Error::new(at, ErrorKind::Version, message));
        }
        Ok(version)
    }

    /// Parses `.target sm_90, debug`. Returns the highest target.
    fn target(&mut self, version: (u32, u32)) -> Result<u32, Error> {
        let mut highest = 0;
        loop {
            self.advance();
            if highest == 0 || !TARGET_OPTIONS.contains(&self.token.text) {
                highest = highest.max(self.target_number(version)?);
            }
            self.advance();
            if !self.is(Punct::Comma) {
                return Ok(highest);
            }
        }
    }

    /// Returns the number of the next target.
    fn target_number(&self, version: (u32, u32)) -> Result<u32, Error> {
        let Token { text: word, at, .. } = self.token;
        let number = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_"));
        let Some(number) = number else {
            return self.expected("a target such as sm_90");
        };
        if let Some(&(_, target, since)) = TARGETS.iter().find(|(name, ..)| *name == number) {
            if version >= since {
                return Ok(target);
            }
            let message = format!("target {word} needs version {}.{} or newer", since.0, since.1);
            return Err(Error::new(at, ErrorKind::Semantic, message));
        }
        match number.trim_end_matches(['a', 'f']).parse::<u32>() {
            Ok(100..) => Err(Error::new(at, ErrorKind::Version, format!("target {word} is newer than sm_90"))),
            _ => self.expected("a target such as sm_90"),
        }
    }

    /// Addresses have 64 bits, whether the text states it or not.
    fn address_size(&mut self) -> Result<(), Error> {
        if self.dotted() != ".address_size" {
            return Ok(());
        }
        self.advance();
        match self.token.kind {
            TokenKind::Integer { value: 64, .. } => {}
            TokenKind::Integer { value: 32, .. } => {
                return Err(Error::new(self.token.at, ErrorKind::Semantic, "addresses of 32 bits are not supported"));
            }
            _ => return self.expected("an address size of 32 or 64"),
        }
        self.advance();
        Ok(())
    }
}
