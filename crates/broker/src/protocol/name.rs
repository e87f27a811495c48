//! Names of published memory. [`Name::parse`] refuses everything that could be a file path, so no other code has to
//! check for that.

use std::fmt;

/// The longest name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 200;

/// The longest part between two slashes.
const PART_BYTES_MAX: usize = 64;

/// One or more parts separated by slashes, such as `model/weights`. A part consists of letters, digits, `-`, `_` and
/// `.`, and does not begin with `.` or `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Why a text is not a name.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("empty name: expected one such as model/weights")]
    Empty,
    #[error("the name has {bytes} bytes: expected at most {NAME_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("part {part} of the name has {bytes} bytes: expected 1 to {PART_BYTES_MAX} between slashes")]
    PartLength { part: usize, bytes: usize },
    #[error("invalid byte {at} in the name: expected letters, digits, '-', '_', '.' and '/'")]
    InvalidByte { at: usize },
    #[error("part {part} of the name begins with '.' or '-': expected a letter, a digit or '_'")]
    InvalidStart { part: usize },
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Name {
    /// Checks and copies a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: text.len() });
        }
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if let Some(at) = text.bytes().position(|byte| !is_letter(byte)) {
            return Err(NameError::InvalidByte { at });
        }
        for (part, letters) in (1..).zip(text.split('/')) {
            if letters.is_empty() || letters.len() > PART_BYTES_MAX {
                return Err(NameError::PartLength { part, bytes: letters.len() });
            }
            if letters.starts_with(['.', '-']) {
                return Err(NameError::InvalidStart { part });
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other`, at this edit distance, may be a misspelling of this name: at most a third of the letters
    /// differ, or one of the names is a part of the other.
    pub(crate) fn is_similar(&self, other: &Self, distance: usize) -> bool {
        let is_part = |part: &str, whole: &str| {
            whole.strip_prefix(part).is_some_and(|rest| rest.starts_with('/'))
                || whole.strip_suffix(part).is_some_and(|rest| rest.ends_with('/'))
        };
        let (own, theirs) = (self.as_str(), other.as_str());
        3 * distance <= own.len().max(theirs.len()) || is_part(own, theirs) || is_part(theirs, own)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The Levenshtein distance of two texts, in characters.
pub(crate) fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, theirs) in other.bytes().enumerate() {
            let changed = diagonal + usize::from(letter != theirs);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_letters_digits_and_punctuation_are_a_name() {
        for text in ["a", "model/weights", "kv_cache.0/layer-12", "A/b/C/1"] {
            assert_eq!(Name::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_could_be_a_path_is_none() {
        let refused = |text: &str| Name::parse(text).unwrap_err();
        assert_eq!(refused(""), NameError::Empty);
        assert_eq!(refused("/etc/passwd"), NameError::PartLength { part: 1, bytes: 0 });
        assert_eq!(refused("a/../b"), NameError::InvalidStart { part: 2 });
        assert_eq!(refused("a/"), NameError::PartLength { part: 2, bytes: 0 });
        assert_eq!(refused("a//b"), NameError::PartLength { part: 2, bytes: 0 });
        assert_eq!(refused("-rf"), NameError::InvalidStart { part: 1 });
        assert_eq!(refused("a b"), NameError::InvalidByte { at: 1 });
        assert_eq!(refused("a\0b"), NameError::InvalidByte { at: 1 });
        assert_eq!(refused("\u{fc}"), NameError::InvalidByte { at: 0 });
        assert_eq!(refused(&"a".repeat(65)), NameError::PartLength { part: 1, bytes: 65 });
        assert_eq!(refused(&"a/".repeat(101)), NameError::TooLong { bytes: 202 });
    }

    #[test]
    fn the_distance_counts_letters() {
        assert_eq!(edit_distance("weights", "weights"), 0);
        assert_eq!(edit_distance("weihgts", "weights"), 2);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("model/a", "model/b"), 1);
    }
}
