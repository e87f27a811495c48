//! Parses and evaluates constant expressions, with the 64-bit types of the language.

use super::{Parser, Position, Punct, TokenKind};
use crate::error::Error;
use crate::syntax::tree::{Initial, Operand};

/// The value of a constant expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
}

impl Value {
    /// Returns the 64 bits of an integer.
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

/// Returns the precedence of a binary operator; `None` for other punctuation.
fn precedence(kind: TokenKind) -> Option<(u32, Punct)> {
    let TokenKind::Punct(punct) = kind else { return None };
    let strength = match punct {
        Punct::BarBar => 1,
        Punct::AmpersandAmpersand => 2,
        Punct::Bar => 3,
        Punct::Caret => 4,
        Punct::Ampersand => 5,
        Punct::EqualsEquals | Punct::BangEquals => 6,
        Punct::Less | Punct::Greater | Punct::LessEquals | Punct::GreaterEquals => 7,
        Punct::LessLess | Punct::GreaterGreater => 8,
        Punct::Plus | Punct::Minus => 9,
        Punct::Star | Punct::Slash | Punct::Percent => 10,
        _ => return None,
    };
    Some((strength, punct))
}

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Result<Value, Error> {
        let at = self.token.at;
        let condition = self.operation(1)?;
        if !self.accept(Punct::Question) {
            return Ok(condition);
        }
        let (yes, no) = self.nested(|parser| {
            let yes = parser.expression()?;
            parser.expect(Punct::Colon)?;
            Ok((yes, parser.expression()?))
        })?;
        let (Some(condition), Some(yes_bits), Some(no_bits)) = (condition.as_bits(), yes.as_bits(), no.as_bits())
        else {
            return Err(not_an_integer(at, Punct::Question));
        };
        let chosen = if condition != 0 { yes_bits } else { no_bits };
        Ok(match (yes, no) {
            (Value::Signed(_), Value::Signed(_)) => Value::Signed(chosen as i64),
            _ => Value::Unsigned(chosen),
        })
    }

    /// Parses `+8`, `+-8`, `+2*4`: the offset of a name. Zero if there is none.
    pub(super) fn addend(&mut self) -> Result<i64, Error> {
        if !self.accept(Punct::Plus) {
            return Ok(0);
        }
        let at = self.token.at;
        match self.expression()?.as_bits() {
            Some(bits) => Ok(bits as i64),
            None => Err(Error::syntax(at, "the offset of an address must be an integer")),
        }
    }

    /// Parses binary operators of at least this precedence.
    fn operation(&mut self, precedence_min: u32) -> Result<Value, Error> {
        let mut left = self.factor()?;
        while let Some((strength, punct)) = precedence(self.token.kind) {
            if strength < precedence_min {
                break;
            }
            let at = self.advance().at;
            let right = self.operation(strength + 1)?;
            left = apply(at, punct, left, right)?;
        }
        Ok(left)
    }

    /// Parses a number, a sign and its factor, a cast, or parentheses.
    fn factor(&mut self) -> Result<Value, Error> {
        let at = self.token.at;
        match self.token.kind {
            TokenKind::Integer { value, unsigned } => {
                self.advance();
                Ok(if unsigned { Value::Unsigned(value) } else { Value::Signed(value as i64) })
            }
            TokenKind::Double(bits) => {
                self.advance();
                Ok(Value::Double(f64::from_bits(bits)))
            }
            TokenKind::Single(_) => {
                Err(Error::syntax(at, "an exact single precision number cannot be part of an expression"))
            }
            TokenKind::Punct(punct @ (Punct::Plus | Punct::Minus | Punct::Bang | Punct::Tilde)) => {
                self.advance();
                let value = self.nested(Self::factor)?;
                apply_sign(at, punct, value)
            }
            TokenKind::Punct(Punct::OpenParenthesis) => {
                self.advance();
                match self.dotted() {
                    ".s64" | ".u64" => self.cast(),
                    _ => {
                        let value = self.nested(Self::expression)?;
                        self.expect(Punct::CloseParenthesis)?;
                        Ok(value)
                    }
                }
            }
            _ => self.expected("a constant"),
        }
    }

    /// Parses `.s64) factor`: the rest of a cast after its opening parenthesis.
    fn cast(&mut self) -> Result<Value, Error> {
        let signed = self.advance().text == ".s64";
        self.expect(Punct::CloseParenthesis)?;
        let at = self.token.at;
        let Some(bits) = self.nested(Self::factor)?.as_bits() else {
            return Err(Error::syntax(at, "only integers can be cast"));
        };
        Ok(if signed { Value::Signed(bits as i64) } else { Value::Unsigned(bits) })
    }
}

fn apply_sign(at: Position, punct: Punct, value: Value) -> Result<Value, Error> {
    Ok(match (punct, value) {
        (Punct::Plus, value) => value,
        (Punct::Minus, Value::Signed(value)) => Value::Signed(value.wrapping_neg()),
        (Punct::Minus, Value::Unsigned(value)) => Value::Unsigned(value.wrapping_neg()),
        (Punct::Minus, Value::Double(value)) => Value::Double(-value),
        (_, value) => {
            let Some(bits) = value.as_bits() else {
                return Err(not_an_integer(at, punct));
            };
            if punct == Punct::Bang { Value::Signed(i64::from(bits == 0)) } else { Value::Unsigned(!bits) }
        }
    })
}

fn apply(at: Position, punct: Punct, left: Value, right: Value) -> Result<Value, Error> {
    match punct {
        Punct::BarBar | Punct::AmpersandAmpersand | Punct::Bar | Punct::Caret | Punct::Ampersand => {
            let (Some(left), Some(right)) = (left.as_bits(), right.as_bits()) else {
                return Err(not_an_integer(at, punct));
            };
            return Ok(match punct {
                Punct::BarBar => Value::Signed(i64::from(left != 0 || right != 0)),
                Punct::AmpersandAmpersand => Value::Signed(i64::from(left != 0 && right != 0)),
                Punct::Bar => Value::Unsigned(left | right),
                Punct::Caret => Value::Unsigned(left ^ right),
                _ => Value::Unsigned(left & right),
            });
        }
        Punct::LessLess | Punct::GreaterGreater => return shift(at, punct, left, right),
        _ => {}
    }
    match (left, right) {
        (Value::Signed(left), Value::Signed(right)) => apply_signed(at, punct, left, right),
        (Value::Double(left), Value::Double(right)) => apply_doubles(at, punct, left, right),
        _ => match (left.as_bits(), right.as_bits()) {
            (Some(left), Some(right)) => apply_unsigned(at, punct, left, right),
            _ => Err(Error::syntax(at, "integers and floating-point numbers cannot be mixed in an expression")),
        },
    }
}

/// The result has the type of the left operand. Bits that are shifted out are lost, even if all of them are.
fn shift(at: Position, punct: Punct, left: Value, right: Value) -> Result<Value, Error> {
    let Some(count) = right.as_bits() else {
        return Err(not_an_integer(at, punct));
    };
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok(match (punct, left) {
        (_, Value::Double(_)) => return Err(not_an_integer(at, punct)),
        (Punct::LessLess, Value::Signed(value)) => Value::Signed(value.checked_shl(count).unwrap_or(0)),
        (Punct::LessLess, Value::Unsigned(value)) => Value::Unsigned(value.checked_shl(count).unwrap_or(0)),
        (_, Value::Signed(value)) => Value::Signed(value >> count.min(63)),
        (_, Value::Unsigned(value)) => Value::Unsigned(value.checked_shr(count).unwrap_or(0)),
    })
}

fn apply_signed(at: Position, punct: Punct, left: i64, right: i64) -> Result<Value, Error> {
    Ok(Value::Signed(match punct {
        Punct::Plus => left.wrapping_add(right),
        Punct::Minus => left.wrapping_sub(right),
        Punct::Star => left.wrapping_mul(right),
        Punct::Slash | Punct::Percent if right == 0 => return Err(division_by_zero(at)),
        Punct::Slash => left.wrapping_div(right),
        Punct::Percent => left.wrapping_rem(right),
        _ => compared(punct, &left, &right),
    }))
}

fn apply_unsigned(at: Position, punct: Punct, left: u64, right: u64) -> Result<Value, Error> {
    Ok(Value::Unsigned(match punct {
        Punct::Plus => left.wrapping_add(right),
        Punct::Minus => left.wrapping_sub(right),
        Punct::Star => left.wrapping_mul(right),
        Punct::Slash | Punct::Percent if right == 0 => return Err(division_by_zero(at)),
        Punct::Slash => left / right,
        Punct::Percent => left % right,
        _ => return Ok(Value::Signed(compared(punct, &left, &right))),
    }))
}

fn apply_doubles(at: Position, punct: Punct, left: f64, right: f64) -> Result<Value, Error> {
    Ok(Value::Double(match punct {
        Punct::Plus => left + right,
        Punct::Minus => left - right,
        Punct::Star => left * right,
        Punct::Slash => left / right,
        Punct::Percent => return Err(not_an_integer(at, punct)),
        _ => return Ok(Value::Signed(compared(punct, &left, &right))),
    }))
}

fn compared<T: PartialOrd>(punct: Punct, left: &T, right: &T) -> i64 {
    i64::from(match punct {
        Punct::Less => left < right,
        Punct::Greater => left > right,
        Punct::LessEquals => left <= right,
        Punct::GreaterEquals => left >= right,
        Punct::EqualsEquals => left == right,
        _ => left != right,
    })
}

fn not_an_integer(at: Position, punct: Punct) -> Error {
    Error::syntax(at, format!("'{}' is an operator for integers only", punct.text()))
}

fn division_by_zero(at: Position) -> Error {
    Error::syntax(at, "division by zero")
}
