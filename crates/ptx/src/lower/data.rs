//! Lowers the initial values of variables.

use super::module::{Lowering, semantic_error, size};
use super::unit::{Data, Relocation, SymbolKind, Variable};
use crate::error::Error;
use crate::syntax::tree::{Initial, Position, Type, Variable as Declared};

/// The maximum size of a variable with initial values.
const INITIAL_BYTES_MAX: u64 = 1 << 30;

impl<'m> Lowering<'m> {
    pub(super) fn initialize(&mut self, declared: &Declared<'m>) -> Result<(), Error> {
        let Some(&symbol) = self.names.get(declared.name) else { return Ok(()) };
        self.initialize_symbol(symbol, declared)
    }

    pub(super) fn initialize_symbol(&mut self, symbol: u32, declared: &Declared<'m>) -> Result<(), Error> {
        let Some(initial) = &declared.initial else { return Ok(()) };
        let (bytes, _) = size(declared)?;
        if bytes > INITIAL_BYTES_MAX {
            return Err(semantic_error(declared.at, format!("'{}' is too large to be initialized", declared.name)));
        }
        let mut writer = Writer { lowering: self, at: declared.at, ty: declared.ty, data: Data::default(), bytes };
        writer.write(initial)?;
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
    /// Writes values one after the other. As in the hardware's assembler, nested braces have no effect: values that an
    /// inner list omits are not skipped.
    fn write(&mut self, initial: &Initial<'_>) -> Result<(), Error> {
        let offset = self.data.bytes.len() as u64;
        match initial {
            Initial::List(list) => list.iter().try_for_each(|value| self.write(value)),
            Initial::Integer(value) => self.put_bits(*value),
            Initial::Single(bits) => match self.ty {
                Type::F64 => self.put_bits(f64::from(f32::from_bits(*bits)).to_bits()),
                _ => self.put_bits((*bits).into()),
            },
            // The assembler makes a float of a double for .b32 too.
            Initial::Double(bits) => match self.ty {
                Type::F32 | Type::B32 => self.put_bits((f64::from_bits(*bits) as f32).to_bits().into()),
                _ => self.put_bits(*bits),
            },
            Initial::Address { at, name, addend, mask, .. } => {
                let symbol = *self
                    .lowering
                    .names
                    .get(name)
                    .ok_or_else(|| semantic_error(*at, format!("unknown name '{name}'")))?;
                let bytes = self.ty.bytes().min(8);
                self.put(&[0; 8][..bytes as usize])?;
                self.data.relocations.push(Relocation { offset, bytes, symbol, addend: *addend, mask: *mask });
                Ok(())
            }
        }
    }

    /// Writes one element: the low bytes of `bits`, after which those of 128 bits are zero.
    fn put_bits(&mut self, bits: u64) -> Result<(), Error> {
        self.put(&u128::from(bits).to_le_bytes()[..self.ty.bytes() as usize])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.data.bytes.extend_from_slice(bytes);
        match self.data.bytes.len() as u64 > self.bytes {
            true => Err(semantic_error(self.at, "more initial values than elements")),
            false => Ok(()),
        }
    }
}
