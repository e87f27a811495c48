//! Parses `.version`, `.target` and `.address_size` at the start of a text.

use super::{Parser, Punct, Token, TokenKind, VERSION_MAX};
use crate::error::{Error, ErrorKind};

/// The targets, after `sm_` or `compute_`, with the PTX version that introduced each. Names with
/// `a` and `f` are of an architecture and of a family, with instructions of their own.
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
    ("100", 100, (8, 6)),
    ("100a", 100, (8, 6)),
    ("100f", 100, (8, 8)),
    ("101", 101, (8, 6)),
    ("101a", 101, (8, 6)),
    ("101f", 101, (8, 8)),
    ("103", 103, (8, 8)),
    ("103a", 103, (8, 8)),
    ("103f", 103, (8, 8)),
    ("110", 110, (9, 0)),
    ("110a", 110, (9, 0)),
    ("110f", 110, (9, 0)),
    ("120", 120, (8, 7)),
    ("120a", 120, (8, 7)),
    ("120f", 120, (8, 8)),
    ("121", 121, (8, 8)),
    ("121a", 121, (8, 8)),
    ("121f", 121, (8, 8)),
];

/// The newest target.
const NEWEST: u32 = 121;

/// Options that may follow the target.
const TARGET_OPTIONS: &[&str] = &["texmode_unified", "texmode_independent", "debug"];

/// An option of targets without double precision: `.f64` means `.f32`.
const MAP_DOUBLES: &str = "map_f64_to_f32";

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
            if highest != 0 && self.token.text == MAP_DOUBLES {
                self.check_no_doubles()?;
            } else if highest == 0 || !TARGET_OPTIONS.contains(&self.token.text) {
                highest = highest.max(self.target_number(version)?);
            }
            self.advance();
            if !self.is(Punct::Comma) {
                return Ok(highest);
            }
        }
    }

    /// Rejects a text with numbers that [`MAP_DOUBLES`] would narrow.
    fn check_no_doubles(&self) -> Result<(), Error> {
        if !self.text.contains(".f64") {
            return Ok(());
        }
        let message = format!("'{MAP_DOUBLES}' in a text with .f64 is not supported");
        Err(Error::new(self.token.at, ErrorKind::Unsupported, message))
    }

    /// Returns the number of the next target.
    fn target_number(&self, version: (u32, u32)) -> Result<u32, Error> {
        let Token { text: word, at, .. } = self.token;
        let number = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_"));
        let Some(number) = number else {
            return self.expected("a target such as sm_90");
        };
        if let Some(&(_, target, since)) = TARGETS.iter().find(|(name, ..)| *name == number) {
            self.check_target(word, target)?;
            if version >= since {
                return Ok(target);
            }
            let message = format!("target {word} needs version {}.{} or newer", since.0, since.1);
            return Err(Error::new(at, ErrorKind::Semantic, message));
        }
        match number.trim_end_matches(['a', 'f']).parse::<u32>() {
            Ok(100..) => Err(self.newer_target(word, self.device.unwrap_or(NEWEST))),
            _ => self.expected("a target such as sm_90"),
        }
    }

    /// Checks that the device runs a target.
    fn check_target(&self, word: &str, target: u32) -> Result<(), Error> {
        let Some(device) = self.device else { return Ok(()) };
        if target > device {
            return Err(self.newer_target(word, device));
        }
        let runs = match word.as_bytes().last() {
            Some(b'a') => target == device,
            Some(b'f') => target / 10 == device / 10,
            _ => true,
        };
        if runs {
            return Ok(());
        }
        let message = format!("target {word} does not run on sm_{device}");
        Err(Error::new(self.token.at, ErrorKind::Version, message))
    }

    fn newer_target(&self, word: &str, newest: u32) -> Error {
        Error::new(self.token.at, ErrorKind::Version, format!("target {word} is newer than sm_{newest}"))
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
