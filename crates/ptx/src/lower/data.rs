//! What variables start with.

use super::unit::{Data, Relocation};
use super::{Lowering, SymbolKind, Variable, meaning};
use crate::error::Error;
use crate::syntax::tree::{Initial, Position, Type, Variable as Declared};

/// Bytes of initial values that a text can carry for one variable: more cannot be written in one.
const INITIAL_BYTES_MAX: u64 = 1 << 30;

impl<'m> Lowering<'m> {
    pub(super) fn initialise(&mut self, declared: &Declared<'m>) -> Result<(), Error> {
        let Some(&symbol) = self.names.get(declared.name) else { return Ok(()) };
        self.initialise_symbol(symbol, declared)
    }

    pub(super) fn initialise_symbol(&mut self, symbol: u32, declared: &Declared<'m>) -> Result<(), Error> {
        let Some(initial) = &declared.initial else { return Ok(()) };
        let (bytes, _) = super::size(declared)?;
        if bytes > INITIAL_BYTES_MAX {
            return Err(meaning(declared.at, format!("'{}' is too large to be initialised", declared.name)));
        }
        let mut writer = Writer { lowering: self, at: declared.at, ty: declared.ty, data: Data::default(), bytes };
        let element = u64::from(declared.ty.bytes());
        // Sizes of what one brace of each depth holds, outermost first.
        let mut strides = Vec::new();
        let mut stride = element * u64::from(declared.vector);
        for dimension in declared.dimensions.iter().skip(1).rev() {
            strides.push(stride);
            stride *= dimension.unwrap_or(0);
        }
        strides.push(stride);
        strides.reverse();
        if declared.vector > 1 {
            strides.push(element);
        }
        writer.write(initial, 0, &strides, bytes)?;
        let data = writer.data;
        if let SymbolKind::Variable(Variable { initial, .. }) = &mut self.symbols[symbol as usize].kind {
            *initial = data;
        }
        Ok(())
    }
}

struct Writer<'l, 'm> {
    lowering: &'l Lowering<'m>,
    at: Position,
    ty: Type,
    data: Data,
    bytes: u64,
}

impl Writer<'_, '_> {
    /// Writes a value at `offset`; the elements of a list lie `strides[0]` bytes apart, within `room` bytes.
    fn write(&mut self, initial: &Initial<'_>, offset: u64, strides: &[u64], room: u64) -> Result<(), Error> {
        match initial {
            Initial::List(list) => {
                let (&stride, inner) = strides.split_first().unwrap_or((&0, &[]));
                let stride = if stride == 0 { u64::from(self.ty.bytes()) } else { stride };
                // A list of plain values may fill what inner braces would.
                let flat = list.iter().all(|value| !matches!(value, Initial::List(_)));
                let stride = if flat { u64::from(self.ty.bytes()) } else { stride };
                for (index, value) in list.iter().enumerate() {
                    let start = stride * index as u64;
                    if start + u64::from(self.ty.bytes()) > room {
                        return Err(meaning(self.at, "more initial values than elements"));
                    }
                    self.write(value, offset + start, inner, stride)?;
                }
                Ok(())
            }
            Initial::Integer(value) => {
                let value = match self.ty {
                    Type::F64 => (value.cast_signed() as f64).to_bits(),
                    Type::F32 => u64::from((value.cast_signed() as f32).to_bits()),
                    _ => *value,
                };
                self.put(offset, &value.to_le_bytes()[..self.ty.bytes().min(8) as usize])
            }
            Initial::Single(bits) => match self.ty {
                Type::F64 => self.put(offset, &f64::from(f32::from_bits(*bits)).to_le_bytes()),
                _ => self.put(offset, &bits.to_le_bytes()[..self.ty.bytes().min(4) as usize]),
            },
            Initial::Double(bits) => match self.ty {
                Type::F32 => self.put(offset, &(f64::from_bits(*bits) as f32).to_le_bytes()),
                _ => self.put(offset, &bits.to_le_bytes()[..self.ty.bytes().min(8) as usize]),
            },
            Initial::Address { at, name, addend, mask, .. } => {
                let symbol = *self.lowering.names.get(name).ok_or_else(|| meaning(*at, format!("unknown name '{name}'")))?;
                let bytes = self.ty.bytes().min(8);
                self.put(offset, &[0; 8][..bytes as usize])?;
                self.data.relocations.push(Relocation { offset, bytes, symbol, addend: *addend, mask: *mask });
                Ok(())
            }
        }
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = offset + bytes.len() as u64;
        if end > self.bytes {
            return Err(meaning(self.at, "more initial values than elements"));
        }
        if self.data.bytes.len() < end as usize {
            self.data.bytes.resize(end as usize, 0);
        }
        self.data.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }
}
