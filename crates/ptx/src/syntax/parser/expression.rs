//! Constant expressions: read and evaluated in one go, with the 64-bit types that the language gives them.

use super::{Kind, Mark, Parser, Position};
use crate::error::Error;
use crate::syntax::tree::{Initial, Operand};

/// What a constant expression comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
}

impl Value {
    /// The 64 bits of an integer.
    pub(super) fn as_bits(self) -> Option<u64> {
        match self {
            Self::Signed(value) => Some(value as u64),
            Self::Unsigned(value) => Some(value),
            Self::Double(_) => None,
        }
    }
}

impl From<Value> for Initial<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Signed(value) => Self::Integer(value as u64),
            Value::Unsigned(value) => Self::Integer(value),
            Value::Double(value) => Self::Double(value.to_bits()),
        }
    }
}

impl From<Value> for Operand<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Signed(value) => Self::Integer(value as u64),
            Value::Unsigned(value) => Self::Integer(value),
            Value::Double(value) => Self::Double(value.to_bits()),
        }
    }
}

/// How tightly an operator of two operands binds; nothing for other marks.
fn strength(kind: Kind) -> Option<(u32, Mark)> {
    let Kind::Mark(mark) = kind else { return None };
    let strength = match mark {
        Mark::BarBar => 1,
        Mark::AmpersandAmpersand => 2,
        Mark::Bar => 3,
        Mark::Caret => 4,
        Mark::Ampersand => 5,
        Mark::EqualsEquals | Mark::BangEquals => 6,
        Mark::Less | Mark::Greater | Mark::LessEquals | Mark::GreaterEquals => 7,
        Mark::LessLess | Mark::GreaterGreater => 8,
        Mark::Plus | Mark::Minus => 9,
        Mark::Star | Mark::Slash | Mark::Percent => 10,
        _ => return None,
    };
    Some((strength, mark))
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Value, Error> {
        let at = self.token.at;
        let condition = self.operation(1)?;
        if !self.accept(Mark::Question) {
            return Ok(condition);
        }
        let (yes, no) = self.nested(|parser| {
            let yes = parser.expression()?;
            parser.expect(Mark::Colon)?;
            Ok((yes, parser.expression()?))
        })?;
        let (Some(condition), Some(yes_bits), Some(no_bits)) = (condition.as_bits(), yes.as_bits(), no.as_bits())
        else {
            return Err(not_an_integer(at, Mark::Question));
        };
        let chosen = if condition != 0 { yes_bits } else { no_bits };
        Ok(match (yes, no) {
            (Value::Signed(_), Value::Signed(_)) => Value::Signed(chosen as i64),
            _ => Value::Unsigned(chosen),
        })
    }

    /// `+8`, `+-8`, `+2*4`: what is added to a name. Zero if there is nothing.
    pub(super) fn addend(&mut self) -> Result<i64, Error> {
        if !self.accept(Mark::Plus) {
            return Ok(0);
        }
        let at = self.token.at;
        match self.expression()?.as_bits() {
            Some(bits) => Ok(bits as i64),
            None => Err(Error::syntax(at, "what is added to an address is an integer")),
        }
    }

    /// Operators of two operands that bind at least so tightly.
    fn operation(&mut self, strength_min: u32) -> Result<Value, Error> {
        let mut left = self.factor()?;
        while let Some((strength, mark)) = strength(self.token.kind) {
            if strength < strength_min {
                break;
            }
            let at = self.take().at;
            let right = self.operation(strength + 1)?;
            left = apply(at, mark, left, right)?;
        }
        Ok(left)
    }

    /// A number, a sign and its factor, a cast, or parentheses.
    fn factor(&mut self) -> Result<Value, Error> {
        let at = self.token.at;
        match self.token.kind {
            Kind::Integer { value, unsigned } => {
                self.take();
                Ok(if unsigned { Value::Unsigned(value) } else { Value::Signed(value as i64) })
            }
            Kind::Double(bits) => {
                self.take();
                Ok(Value::Double(f64::from_bits(bits)))
            }
            Kind::Single(_) => Err(Error::syntax(at, "an exact single precision number may not be calculated with")),
            Kind::Mark(mark @ (Mark::Plus | Mark::Minus | Mark::Bang | Mark::Tilde)) => {
                self.take();
                let value = self.nested(Self::factor)?;
                apply_sign(at, mark, value)
            }
            Kind::Mark(Mark::OpenParenthesis) => {
                self.take();
                match self.dotted() {
                    ".s64" | ".u64" => self.cast(),
                    _ => {
                        let value = self.nested(Self::expression)?;
                        self.expect(Mark::CloseParenthesis)?;
                        Ok(value)
                    }
                }
            }
            _ => self.expected("a constant"),
        }
    }

    /// `.s64) factor`: what follows the parenthesis that opens a cast.
    fn cast(&mut self) -> Result<Value, Error> {
        let signed = self.take().text == ".s64";
        self.expect(Mark::CloseParenthesis)?;
        let at = self.token.at;
        let Some(bits) = self.nested(Self::factor)?.as_bits() else {
            return Err(Error::syntax(at, "only integers are cast"));
        };
        Ok(if signed { Value::Signed(bits as i64) } else { Value::Unsigned(bits) })
    }
}

fn apply_sign(at: Position, mark: Mark, value: Value) -> Result<Value, Error> {
    Ok(match (mark, value) {
        (Mark::Plus, value) => value,
        (Mark::Minus, Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
        (Mark::Minus, Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
        (Mark::Minus, Value::Double(value)) => Value::Double(-value),
        (_, value) => {
            let Some(bits) = value.as_bits() else {
                return Err(not_an_integer(at, mark));
            };
            if mark == Mark::Bang { Value::Signed(i64::from(bits == 0)) } else { Value::Unsigned(!bits) }
        }
    })
}

fn apply(at: Position, mark: Mark, left: Value, right: Value) -> Result<Value, Error> {
    match mark {
        Mark::BarBar | Mark::AmpersandAmpersand | Mark::Bar | Mark::Caret | Mark::Ampersand => {
            let (Some(left), Some(right)) = (left.as_bits(), right.as_bits()) else {
                return Err(not_an_integer(at, mark));
            };
            return Ok(match mark {
                Mark::BarBar => Value::Signed(i64::from(left != 0 || right != 0)),
                Mark::AmpersandAmpersand => Value::Signed(i64::from(left != 0 && right != 0)),
                Mark::Bar => Value::Unsigned(left | right),
                Mark::Caret => Value::Unsigned(left ^ right),
                _ => Value::Unsigned(left & right),
            });
        }
        Mark::LessLess | Mark::GreaterGreater => return shift(at, mark, left, right),
        _ => {}
    }
    match (left, right) {
        (Value::Signed(left), Value::Signed(right)) => of_signed(at, mark, left, right),
        (Value::Double(left), Value::Double(right)) => of_doubles(at, mark, left, right),
        _ => match (left.as_bits(), right.as_bits()) {
            (Some(left), Some(right)) => of_unsigned(at, mark, left, right),
            _ => Err(Error::syntax(at, "an integer and a floating-point number are not calculated with each other")),
        },
    }
}

/// The result has the type of the left operand; bits that leave the word are lost, also when all of them do.
fn shift(at: Position, mark: Mark, left: Value, right: Value) -> Result<Value, Error> {
    let Some(count) = right.as_bits() else {
        return Err(not_an_integer(at, mark));
    };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(match (mark, left) {
        (_, Value::Double(_)) => return Err(not_an_integer(at, mark)),
        (Mark::LessLess, Value::Signed(value)) => Value::Signed(value.checked_shl(count).unwrap_or(0)),
        (Mark::LessLess, Value::Unsigned(value)) => Value::Unsigned(value.checked_shl(count).unwrap_or(0)),
        (_, Value::Signed(value)) => Value::Signed(value >> count.min(63)),
        (_, Value::Unsigned(value)) => Value::Unsigned(value.checked_shr(count).unwrap_or(0)),
    })
}

fn of_signed(at: Position, mark: Mark, left: i64, right: i64) -> Result<Value, Error> {
    Ok(Value::Signed(match mark {
        Mark::Plus => left.wrapping_add(right),
        Mark::Minus => left.wrapping_sub(right),
        Mark::Star => left.wrapping_mul(right),
        Mark::Slash | Mark::Percent if right == 0 => return Err(division_by_zero(at)),
        Mark::Slash => left.wrapping_div(right),
        Mark::Percent => left.wrapping_rem(right),
        _ => compared(mark, &left, &right),
    }))
}

fn of_unsigned(at: Position, mark: Mark, left: u64, right: u64) -> Result<Value, Error> {
    Ok(Value::Unsigned(match mark {
        Mark::Plus => left.wrapping_add(right),
        Mark::Minus => left.wrapping_sub(right),
        Mark::Star => left.wrapping_mul(right),
        Mark::Slash | Mark::Percent if right == 0 => return Err(division_by_zero(at)),
        Mark::Slash => left / right,
        Mark::Percent => left % right,
        _ => return Ok(Value::Signed(compared(mark, &left, &right))),
    }))
}

fn of_doubles(at: Position, mark: Mark, left: f64, right: f64) -> Result<Value, Error> {
    Ok(Value::Double(match mark {
        Mark::Plus => left + right,
        Mark::Minus => left - right,
        Mark::Star => left * right,
        Mark::Slash => left / right,
        Mark::Percent => return Err(not_an_integer(at, mark)),
        _ => return Ok(Value::Signed(compared(mark, &left, &right))),
    }))
}

fn compared<T: PartialOrd>(mark: Mark, left: &T, right: &T) -> i64 {
    i64::from(match mark {
        Mark::Less => left < right,
        Mark::Greater => left > right,
        Mark::LessEquals => left <= right,
        Mark::GreaterEquals => left >= right,
        Mark::EqualsEquals => left == right,
        _ => left != right,
    })
}

fn not_an_integer(at: Position, mark: Mark) -> Error {
    Error::syntax(at, format!("'{}' is an operator of integers", mark.text()))
}

fn division_by_zero(at: Position) -> Error {
    Error::syntax(at, "division by zero")
}
