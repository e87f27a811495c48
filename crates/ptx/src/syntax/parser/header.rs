//! `.version`, `.target` and `.address_size`, which stand at the start of every text.

use super::{Kind, Mark, Parser};
use crate::error::{Error, ErrorKind};

/// The newest version of the language that is supported.
const VERSION_MAX: (u32, u32) = (9, 0);

/// The oldest one: before it, functions were called in another way.
const VERSION_MIN: (u32, u32) = (3, 0);

/// The targets, with the version of the language that each came with.
const TARGETS: &[(&str, u32, (u32, u32))] = &[
    ("sm_20", 20, (2, 0)),
    ("sm_30", 30, (3, 0)),
    ("sm_32", 32, (4, 0)),
    ("sm_35", 35, (3, 1)),
    ("sm_37", 37, (4, 1)),
    ("sm_50", 50, (4, 0)),
    ("sm_52", 52, (4, 1)),
    ("sm_53", 53, (4, 2)),
    ("sm_60", 60, (5, 0)),
    ("sm_61", 61, (5, 0)),
    ("sm_62", 62, (5, 0)),
    ("sm_70", 70, (6, 0)),
    ("sm_72", 72, (6, 1)),
    ("sm_75", 75, (6, 3)),
    ("sm_80", 80, (7, 0)),
    ("sm_86", 86, (7, 1)),
    ("sm_87", 87, (7, 4)),
    ("sm_88", 88, (9, 0)),
    ("sm_89", 89, (7, 8)),
    ("sm_90", 90, (7, 8)),
    ("sm_90a", 90, (8, 0)),
];

/// Words that may stand beside the target.
const TARGET_OPTIONS: &[&str] = &["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"];

impl Parser<'_> {
    /// The version, the target and the bytes of an address.
    pub(super) fn header(&mut self) -> Result<((u32, u32), u32, u32), Error> {
        let version = self.version()?;
        if self.dotted() != ".target" {
            return self.expected(".target");
        }
        let target = self.target(version)?;
        let address_bytes = self.address_size()?;
        Ok((version, target, address_bytes))
    }

    fn version(&mut self) -> Result<(u32, u32), Error> {
        if self.dotted() != ".version" {
            return self.expected(".version");
        }
        self.take();
        let parts = match self.token.kind {
            Kind::Double(_) => self.token.text.split_once('.'),
            _ => None,
        };
        let Some((Ok(major), Ok(minor))) = parts.map(|(major, minor)| (major.parse(), minor.parse())) else {
            return self.expected("a version such as 8.4");
        };
        let version = (major, minor);
        let at = self.token.at;
        self.take();
        let ((oldest, _), (newest, newest_minor)) = (VERSION_MIN, VERSION_MAX);
        if version > VERSION_MAX {
            let message = format!("version {major}.{minor} is newer than {newest}.{newest_minor}");
            return Err(Error::new(at, ErrorKind::Version, message));
        }
        if version < VERSION_MIN {
            let message = format!("version {major}.{minor} is older than {oldest}.0");
            return Err(Error::new(at, ErrorKind::Version, message));
        }
        Ok(version)
    }

    /// `.target sm_90, debug`: the number of the target.
    pub(super) fn target(&mut self, version: (u32, u32)) -> Result<u32, Error> {
        self.take();
        let at = self.token.at;
        let word = self.word("a target such as sm_90")?;
        let Some(&(_, target, since)) = TARGETS.iter().find(|(name, ..)| *name == word) else {
            return Err(unknown_target(at, word));
        };
        if version < since {
            let message = format!("target {word} needs version {}.{} or newer", since.0, since.1);
            return Err(Error::new(at, ErrorKind::Meaning, message));
        }
        while self.accept(Mark::Comma) {
            if !TARGET_OPTIONS.contains(&self.token.text) {
                return self.expected("texmode_unified, texmode_independent, debug or map_f64_to_f32");
            }
            self.take();
        }
        Ok(target)
    }

    fn address_size(&mut self) -> Result<u32, Error> {
        if self.dotted() != ".address_size" {
            return Ok(4);
        }
        self.take();
        let bytes = match self.token.kind {
            Kind::Integer { value: 32, .. } => 4,
            Kind::Integer { value: 64, .. } => 8,
            _ => return self.expected("an address size of 32 or 64"),
        };
        self.take();
        Ok(bytes)
    }
}

fn unknown_target(at: super::Position, word: &str) -> Error {
    let digits = word.strip_prefix("sm_").map(|number| number.trim_end_matches(['a', 'f']));
    match digits.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(100..) => Error::new(at, ErrorKind::Version, format!("target {word} is newer than sm_90")),
        Some(..20) => Error::new(at, ErrorKind::Version, format!("target {word} is older than sm_20")),
        _ => Error::syntax(at, format!("expected a target such as sm_90, found {}", super::quote(word))),
    }
}
