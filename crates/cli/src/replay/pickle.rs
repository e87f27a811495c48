//! Reads the data in Python pickles: numbers, strings, lists, tuples and dicts. Never imports or calls anything:
//! instances of classes become [`Value::Opaque`].
//!
//! Reading any bytes terminates, and uses memory in proportion to their number: a value has 16 bytes, an instruction
//! creates at most one, and strings stay in the input. Lists may contain themselves, as in Python: code that walks them
//! must bound the walk.

use std::collections::HashMap;

/// A value. Containers are shared, as in Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Number(i64),
    /// The position of a string in the input.
    Text {
        start: u32,
        bytes: u32,
    },
    /// The index of a list or tuple.
    List(u32),
    /// The index of a dict, whose keys and values alternate.
    Dict(u32),
    /// Anything that replay does not need: None, floats, bytes, sets, classes and their instances.
    Opaque,
}

/// Why bytes are not a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    #[error("the pickle is truncated at byte {at}")]
    Cut { at: usize },
    #[error("unknown instruction {code:#04x} at byte {at} of the pickle")]
    NoInstruction { at: usize, code: u8 },
    #[error("invalid pickle at byte {at}")]
    Damaged { at: usize },
    #[error("the pickle is larger than 4 GiB")]
    TooLarge,
}

/// A parsed pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    bytes: &'a [u8],
    containers: Vec<Vec<Value>>,
    pub(super) root: Value,
}

/// How many pairs of a dict are searched for a key: a dict that is shared a million times must not cost a million full
/// searches.
const PAIRS_MAX: usize = 256;

impl<'a> Pickle<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, PickleError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(PickleError::TooLarge);
        }
        let mut reader =
            Reader { bytes, at: 0, stack: Vec::new(), marks: Vec::new(), memo: HashMap::new(), made: Vec::new() };
        let root = reader.run()?;
        Ok(Self { bytes, containers: reader.made, root })
    }

    /// Returns the elements of a list or tuple; of anything else, none.
    pub(super) fn elements(&self, value: Value) -> &[Value] {
        if let Value::List(at) = value { &self.containers[at as usize] } else { &[] }
    }

    /// Returns a dict's value for a key.
    pub(super) fn field(&self, value: Value, key: &str) -> Option<Value> {
        let Value::Dict(at) = value else { return None };
        let mut pairs = self.containers[at as usize].chunks_exact(2).take(PAIRS_MAX);
        pairs.find(|pair| self.text(pair[0]) == Some(key.as_bytes())).map(|pair| pair[1])
    }

    pub(super) fn text(&self, value: Value) -> Option<&'a [u8]> {
        let Value::Text { start, bytes } = value else { return None };
        Some(&self.bytes[start as usize..][..bytes as usize])
    }
}

/// Python's pickle machine: a stack, marks on it, and a memo.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    made: Vec<Vec<Value>>,
}

impl<'a> Reader<'a> {
    fn run(&mut self) -> Result<Value, PickleError> {
        loop {
            let (at, code) = (self.at, self.take(1)?[0]);
            match code {
                b'.' => return self.pop(),
                0x80 => drop(self.take(1)?),
                0x95 => drop(self.take(8)?),
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'1' => drop(self.pop_mark()?),
                b'2' => self.stack.push(self.top()?),
                b'I' | b'L' => self.line_of_digits()?,
                b'J' | b'K' | b'M' | 0x8a | 0x8b => self.number(code)?,
                b'X' | 0x8c | 0x8d | b'T' | b'U' | b'V' | b'S' => self.put_text(code)?,
                b']' | b')' | b'l' | b't' | 0x85..=0x87 | b'a' | b'e' => self.list(code)?,
                b'}' | b'd' | b's' | b'u' => self.dict(code)?,
                b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memoize(code)?,
                _ => self.opaque(at, code)?,
            }
        }
    }

    fn number(&mut self, code: u8) -> Result<(), PickleError> {
        let length = match code {
            b'K' => 1,
            b'M' => 2,
            b'J' => 4,
            0x8a => self.length(1)?,
            _ => self.length(4)?,
        };
        let digits = self.take(length)?;
        let Some(&last) = digits.last() else {
            self.stack.push(Value::Number(0));
            return Ok(());
        };
        // The two short forms are unsigned, the others two's complement. A number of more than 64 bits is neither an
        // address nor a size, unless the excess is only the sign.
        let is_negative = !matches!(code, b'K' | b'M') && last & 0x80 != 0;
        let mut wide = [if is_negative { 0xff } else { 0 }; 8];
        let (low, high) = digits.split_at(length.min(8));
        wide[..low.len()].copy_from_slice(low);
        let is_short = high.iter().all(|&byte| byte == if is_negative { 0xff } else { 0 });
        self.stack.push(if is_short { Value::Number(i64::from_le_bytes(wide)) } else { Value::Opaque });
        Ok(())
    }

    /// The text forms of protocol 0.
    fn line_of_digits(&mut self) -> Result<(), PickleError> {
        let line = self.line()?;
        let digits = std::str::from_utf8(line).ok().and_then(|digits| digits.trim_end_matches('L').parse().ok());
        self.stack.push(digits.map_or(Value::Opaque, Value::Number));
        Ok(())
    }

    fn put_text(&mut self, code: u8) -> Result<(), PickleError> {
        let text = match code {
            b'V' | b'S' => self.line()?,
            b'U' | 0x8c => self.counted_bytes(1)?,
            b'X' | b'T' => self.counted_bytes(4)?,
            _ => self.counted_bytes(8)?,
        };
        let end = self.at - usize::from(matches!(code, b'V' | b'S'));
        self.stack.push(Value::Text { start: (end - text.len()) as u32, bytes: text.len() as u32 });
        Ok(())
    }

    fn list(&mut self, code: u8) -> Result<(), PickleError> {
        match code {
            b']' | b')' => self.put(Vec::new(), Value::List),
            b'l' | b't' => {
                let elements = self.pop_mark()?;
                self.put(elements, Value::List);
            }
            b'a' => {
                let element = self.pop()?;
                self.extend(&[element])?;
            }
            b'e' => {
                let elements = self.pop_mark()?;
                self.extend(&elements)?;
            }
            _ => {
                let count = usize::from(code - 0x84);
                let elements = self.pop_many(count)?;
                self.put(elements, Value::List);
            }
        }
        Ok(())
    }

    fn dict(&mut self, code: u8) -> Result<(), PickleError> {
        let pairs = match code {
            b'}' => Vec::new(),
            b's' => self.pop_many(2)?,
            _ => self.pop_mark()?,
        };
        if pairs.len() % 2 != 0 {
            return Err(PickleError::Damaged { at: self.at - 1 });
        }
        match code {
            b'}' | b'd' => self.put(pairs, Value::Dict),
            _ => self.extend(&pairs)?,
        }
        Ok(())
    }

    fn memoize(&mut self, code: u8) -> Result<(), PickleError> {
        let key = match code {
            b'p' | b'g' => {
                let (line, at) = (self.line()?, self.at);
                let digits = std::str::from_utf8(line).ok().and_then(|digits| digits.parse().ok());
                digits.ok_or(PickleError::Damaged { at })?
            }
            b'q' | b'h' => self.length(1)? as u64,
            b'r' | b'j' => self.length(4)? as u64,
            _ => self.memo.len() as u64,
        };
        if matches!(code, b'g' | b'h' | b'j') {
            let known = self.memo.get(&key).copied().ok_or(PickleError::Damaged { at: self.at })?;
            self.stack.push(known);
        } else {
            self.memo.insert(key, self.top()?);
        }
        Ok(())
    }

    /// Handles everything not needed here, including classes and calls: pops the operands, pushes an opaque value.
    fn opaque(&mut self, at: usize, code: u8) -> Result<(), PickleError> {
        match code {
            b'N' | 0x88 | 0x89 | 0x8f => {}
            b'F' | b'P' => drop(self.line()?),
            b'G' => drop(self.take(8)?),
            b'C' => drop(self.counted_bytes(1)?),
            b'B' => drop(self.counted_bytes(4)?),
            0x8e | 0x96 => drop(self.counted_bytes(8)?),
            0x82 => drop(self.take(1)?),
            0x83 => drop(self.take(2)?),
            0x84 => drop(self.take(4)?),
            b'c' => {
                self.line()?;
                self.line()?;
            }
            b'i' => {
                self.line()?;
                self.line()?;
                self.pop_mark()?;
            }
            b'Q' => drop(self.pop()?),
            b'R' | b'b' | 0x81 | 0x93 => drop(self.pop_many(2)?),
            0x92 => drop(self.pop_many(3)?),
            b'o' | 0x91 => drop(self.pop_mark()?),
            0x90 => {
                self.pop_mark()?;
                self.pop()?;
            }
            _ => return Err(PickleError::NoInstruction { at, code }),
        }
        self.stack.push(Value::Opaque);
        Ok(())
    }

    fn put(&mut self, elements: Vec<Value>, kind: fn(u32) -> Value) {
        self.stack.push(kind(self.made.len() as u32));
        self.made.push(elements);
    }

    /// Appends elements to the container on top of the stack. Instances of classes accept them too.
    fn extend(&mut self, elements: &[Value]) -> Result<(), PickleError> {
        match self.top()? {
            Value::List(at) | Value::Dict(at) => self.made[at as usize].extend_from_slice(elements),
            Value::Opaque => {}
            Value::Number(_) | Value::Text { .. } => return Err(PickleError::Damaged { at: self.at - 1 }),
        }
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Returns the value on top, if it is above the last mark.
    fn top(&self) -> Result<Value, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        self.stack[floor..].last().copied().ok_or(PickleError::Damaged { at: self.at - 1 })
    }

    fn pop_many(&mut self, count: usize) -> Result<Vec<Value>, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|&start| start >= floor);
        Ok(self.stack.split_off(start.ok_or(PickleError::Damaged { at: self.at - 1 })?))
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Damaged { at: self.at - 1 })?;
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], PickleError> {
        let taken = self.bytes[self.at..].get(..count).ok_or(PickleError::Cut { at: self.bytes.len() })?;
        self.at += count;
        Ok(taken)
    }

    /// Returns the bytes after a length prefix.
    fn counted_bytes(&mut self, length_bytes: usize) -> Result<&'a [u8], PickleError> {
        let length = self.length(length_bytes)?;
        self.take(length)
    }

    fn length(&mut self, length_bytes: usize) -> Result<usize, PickleError> {
        let mut wide = [0; 8];
        wide[..length_bytes].copy_from_slice(self.take(length_bytes)?);
        usize::try_from(u64::from_le_bytes(wide)).map_err(|_| PickleError::TooLarge)
    }

    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or(PickleError::Cut { at: self.bytes.len() })?;
        self.at += end + 1;
        Ok(&rest[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(bytes: &[u8]) -> Result<Value, PickleError> {
        Pickle::read(bytes).map(|pickle| pickle.root)
    }

    #[test]
    fn numbers_of_every_form_are_read() {
        for (bytes, number) in [
            (&b"\x80\x02K\xff."[..], 255),
            (b"\x80\x02M\xff\xff.", 65535),
            (b"\x80\x02J\xfe\xff\xff\xff.", -2),
            (b"\x80\x02\x8a\x00.", 0),
            (b"\x80\x02\x8a\x06\x00\x00\x00\x00\x00\x7f.", 0x7f00_0000_0000),
            (b"\x80\x02\x8a\x01\xff.", -1),
            (b"\x80\x02\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.", -1),
            (b"\x80\x02\x8b\x02\x00\x00\x00\x34\x12.", 0x1234),
            (b"I42\n.", 42),
            (b"L42L\n.", 42),
        ] {
            assert_eq!(root(bytes), Ok(Value::Number(number)), "{bytes:?}");
        }
    }

    #[test]
    fn a_dict_has_its_fields_and_no_others() {
        let bytes =
            b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x05\x8c\x01b\x94]\x94(K\x01h\x01eu.";
        let pickle = Pickle::read(bytes).unwrap();
        assert_eq!(pickle.field(pickle.root, "a"), Some(Value::Number(5)));
        let elements = pickle.elements(pickle.field(pickle.root, "b").unwrap());
        assert_eq!(elements[0], Value::Number(1));
        assert_eq!(pickle.text(elements[1]), Some(&b"a"[..]));
        assert_eq!(pickle.field(pickle.root, "c"), None);
        assert_eq!(pickle.elements(pickle.root), []);
    }

    #[test]
    fn a_class_is_neither_imported_nor_called() {
        // os.system("true"), which Python would run when loading this pickle.
        assert_eq!(root(b"\x80\x02cos\nsystem\nU\x04true\x85R."), Ok(Value::Opaque));
        assert_eq!(root(b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R."), Ok(Value::Opaque));
    }

    #[test]
    fn a_length_beyond_the_bytes_is_a_cut_and_takes_no_memory() {
        assert_eq!(root(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc."), Err(PickleError::Cut { at: 15 }));
        assert_eq!(root(b"\x80\x04\x8b\xff\xff\xff\x7fabc."), Err(PickleError::Cut { at: 11 }));
        assert_eq!(root(b"\x80\x04"), Err(PickleError::Cut { at: 2 }));
    }

    #[test]
    fn what_the_stack_does_not_hold_is_damage() {
        for bytes in
            [&b"."[..], b"e.", b"(0.", b"K\x01\x87.", b"]K\x01K\x02u.", b"}(K\x01u.", b"h\x00.", b"2.", b"K\x01K\x01a."]
        {
            assert!(matches!(root(bytes), Err(PickleError::Damaged { .. })), "{bytes:?}: {:?}", root(bytes));
        }
        assert_eq!(root(b"\x80\x02\xfe."), Err(PickleError::NoInstruction { at: 2, code: 0xfe }));
    }

    #[test]
    fn a_list_may_hold_itself() {
        let pickle = Pickle::read(b"\x80\x02]q\x00h\x00a.").unwrap();
        assert_eq!(pickle.elements(pickle.root), [pickle.root]);
    }
}
