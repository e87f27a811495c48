//! What names mean within a function: registers, variables, labels, prototypes.

use std::collections::HashMap;

use crate::program::{Place, Signature, SymbolIndex};
use crate::syntax::tree::Type;

/// Number of a label within a function.
pub(super) type Label = u32;

/// Names of one `{ }`.
#[derive(Debug, Default)]
pub(super) struct Scope<'t> {
    pub(super) registers: HashMap<&'t str, Register>,
    /// `%r<5>` by its stem: the registers are made one after the other.
    pub(super) families: HashMap<&'t str, Family>,
    pub(super) variables: HashMap<&'t str, Variable>,
    pub(super) labels: HashMap<&'t str, Label>,
    pub(super) targets: HashMap<&'t str, Vec<&'t str>>,
    pub(super) prototypes: HashMap<&'t str, Signature>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register {
    pub(super) ty: Type,
    pub(super) place: Place,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) first: Register,
    pub(super) count: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Variable {
    /// In the frame of each call. Addresses of parameters are generic ones.
    Frame { offset: u32, bytes: u32, is_param: bool },
    /// A parameter of the kernel.
    Kernel { offset: u32 },
    /// Of the whole unit.
    Symbol(SymbolIndex),
}

impl<'t> Scope<'t> {
    pub(super) fn register(&self, name: &str) -> Option<Register> {
        if let Some(&found) = self.registers.get(name) {
            return Some(found);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        let family = self.families.get(stem)?;
        let index: u32 = digits.parse().ok().filter(|&index| index < family.count)?;
        let place = match family.first.place {
            Place::Narrow(slot) => Place::Narrow(slot + index),
            Place::Wide(slot) => Place::Wide(slot + index),
            Place::Predicate(slot) => Place::Predicate(slot + index),
        };
        Some(Register { ty: family.first.ty, place })
    }
}
