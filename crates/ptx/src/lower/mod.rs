//! Lowers a syntax tree to a program: names become slots and symbols, opcodes and modifiers become instructions.
//! Anything without a meaning is rejected, with its position in the text.

mod arithmetic;
mod bits;
mod bulk;
mod cluster;
mod compare;
mod control;
mod convert;
mod data;
mod function;
mod group_matrix;
mod matrix;
mod mbarrier;
mod memory;
mod modifiers;
mod module;
mod operand;
mod pair;
mod place;
mod rules;
mod scope;
mod select;
mod texture;
mod unit;
mod video;
mod warp;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::module::Lowering;
use crate::error::Error;
use crate::ir::{Code, SlotSharing};
use crate::syntax::tree::{FunctionKind, Item, Module};

pub(crate) use unit::{LoweredUnit, Relocation, Sources, Symbol, SymbolKind, VariableSpace};

/// Lowers a whole text.
///
/// # Errors
/// Returns the first error.
pub(crate) fn lower(module: &Module<'_>, sharing: SlotSharing) -> Result<LoweredUnit, Error> {
    let mut lowering = Lowering {
        module,
        sharing,
        symbols: Vec::new(),
        names: HashMap::new(),
        kernels: HashSet::new(),
        constant_bytes: 0,
    };
    lowering.declare_all()?;
    let mut functions = Vec::new();
    let mut kernels = Vec::new();
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        let Some(body) = &function.body else { continue };
        let kernel = (function.kind == FunctionKind::Kernel).then(|| lowering.kernel(function)).transpose()?;
        let (code, local_bytes) = function::lower(&mut lowering, function, body)?;
        if let Some(mut kernel) = kernel {
            kernel.local_bytes = u64::from(local_bytes);
            kernel.registers = estimate_registers(&code);
            kernels.push((kernel, functions.len()));
        }
        let symbol = lowering.names[function.name];
        if let SymbolKind::Function { code: index, .. } = &mut lowering.symbols[symbol as usize].kind {
            *index = Some(functions.len());
        }
        functions.push(Arc::new(code));
    }
    for item in &module.items {
        if let Item::Variable(variable) = item {
            lowering.initialize(variable)?;
        }
    }
    Ok(LoweredUnit { symbols: lowering.symbols, functions, kernels, sources: Sources::new(module) })
}

/// Estimates the number of registers that a compiler would use: it grows with the declared registers, up to the maximum
/// of a thread.
fn estimate_registers(code: &Code) -> u32 {
    let words = code.registers.narrow + 2 * code.registers.wide;
    (8 + words / 4).next_multiple_of(2).clamp(8, 255)
}
