//! The id of an experiment, and prefixes that select several.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Question, topic, experiment: `2.2.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(pub u8, pub u8, pub u8);

/// The first number of OpenCL experiments, written as the letter o: `o.2.1`.
pub const OPENCL: u8 = u8::MAX;

/// A prefix of an id, `2`, `2.2` or `2.2.1`: selects every id that starts with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdPrefix(Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one to three numbers separated by dots")]
pub struct NotAnId;

impl IdPrefix {
    pub fn matches(&self, id: Id) -> bool {
        [id.0, id.1, id.2].starts_with(&self.0)
    }

    /// Returns the prefix one level up; a question has none.
    pub fn parent(&self) -> Option<Self> {
        match self.0.len() {
            0 | 1 => None,
            length => Some(Self(self.0[..length - 1].to_vec())),
        }
    }
}

impl FromStr for IdPrefix {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let (first, rest) = match text.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (text, None),
        };
        let mut numbers = vec![question(first)?];
        for text in rest.iter().flat_map(|rest| rest.split('.')) {
            numbers.push(number(text)?);
        }
        if numbers.len() > 3 { Err(NotAnId) } else { Ok(Self(numbers)) }
    }
}

fn question(text: &str) -> Result<u8, NotAnId> {
    if text == "o" {
        Ok(OPENCL)
    } else {
        number(text).and_then(|number| if number == OPENCL { Err(NotAnId) } else { Ok(number) })
    }
}

/// Formats the first number of an id.
fn question_name(number: u8) -> String {
    if number == OPENCL { "o".to_owned() } else { number.to_string() }
}

fn number(text: &str) -> Result<u8, NotAnId> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().map_err(|_| NotAnId) } else { Err(NotAnId) }
}

impl FromStr for Id {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        match IdPrefix::from_str(text)?.0[..] {
            [question, fact, number] => Ok(Self(question, fact, number)),
            _ => Err(NotAnId),
        }
    }
}

impl TryFrom<String> for Id {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.to_string()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", question_name(self.0), self.1, self.2)
    }
}

impl fmt::Display for IdPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.0.split_first().expect("a prefix is not empty");
        f.write_str(&question_name(*first))?;
        rest.iter().try_for_each(|number| write!(f, ".{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> IdPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn a_part_holds_what_is_beneath_it_and_not_what_begins_with_its_digits() {
        assert!(part("2.1").matches(Id(2, 1, 7)));
        assert!(part("2").matches(Id(2, 1, 7)));
        assert!(part("2.1.7").matches(Id(2, 1, 7)));
        assert!(!part("2.1").matches(Id(2, 10, 1)));
        assert!(!part("2.1.7").matches(Id(2, 1, 8)));
    }

    #[test]
    fn only_numbers_and_dots_are_an_id() {
        let texts = ["", ".", "2.", ".2", "2..1", "a", "2.x", "1.2.3.4", "256", "+1", "-1", "02", " 2"];
        for text in texts.into_iter().chain(["255", "255.1.1", "O.1", "o.", "2.o", "oo"]) {
            assert_eq!(text.parse::<IdPrefix>(), Err(NotAnId), "{text:?}");
        }
    }

    #[test]
    fn an_id_of_opencl_begins_with_its_letter() {
        assert_eq!("o.2.11".parse::<Id>(), Ok(Id(OPENCL, 2, 11)));
        assert_eq!(Id(OPENCL, 2, 11).to_string(), "o.2.11");
        assert!(part("o").matches(Id(OPENCL, 2, 11)));
        assert_eq!(part("o.2").to_string(), "o.2");
    }

    #[test]
    fn ids_are_ordered_by_number_and_not_by_letter() {
        assert!("0.2.1".parse::<Id>().unwrap() < "0.10.1".parse::<Id>().unwrap());
    }
}
