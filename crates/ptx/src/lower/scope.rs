//! The names in a function: registers, variables, labels, prototypes.

use std::collections::HashMap;

use crate::ir::{Reg, Signature, SymbolIndex};
use crate::syntax::tree::Type;

/// The number of a label in a function.
pub(super) type Label = u32;

/// The names of one `{ }` block.
#[derive(Debug, Default)]
pub(super) struct Scope<'t> {
    pub(super) registers: HashMap<&'t str, Register>,
    /// `%r<5>`, by its stem.
    pub(super) ranges: HashMap<&'t str, RegisterRange>,
    /// Registers of 128 bits that were declared by name: each a range of one.
    pub(super) pairs: HashMap<&'t str, RegisterRange>,
    /// Registers of a vector type: their elements.
    pub(super) vectors: HashMap<&'t str, Vec<Register>>,
    pub(super) variables: HashMap<&'t str, Variable>,
    pub(super) labels: HashMap<&'t str, Label>,
    pub(super) targets: HashMap<&'t str, Vec<&'t str>>,
    pub(super) prototypes: HashMap<&'t str, Signature>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Register {
    pub(super) ty: Type,
    pub(super) reg: Reg,
}

/// Registers of one ranged declaration. A register gets its slot at its first use: unused ones cost nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct RegisterRange {
    pub(super) ty: Type,
    pub(super) count: u32,
    /// Unique among the ranges of a function.
    pub(super) id: u32,
}

/// A register that a name refers to.
#[derive(Debug, Clone, Copy)]
pub(super) enum FoundRegister {
    One(Register),
    Member(RegisterRange, u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Variable {
    /// In the frame of each call. Addresses of parameters are generic.
    Frame { offset: u32, bytes: u32, is_param: bool },
    /// A parameter of the kernel.
    Kernel { offset: u32 },
    /// A variable of the unit.
    Symbol(SymbolIndex),
}

impl Scope<'_> {
    /// Returns whether a name, or one of a range of `count` registers, is declared in this block.
    pub(super) fn has(&self, name: &str, count: Option<u32>) -> bool {
        let Some(count) = count else {
            let is_register = self.register(name).is_some() || self.vectors.contains_key(name);
            return is_register || self.variables.contains_key(name) || self.labels.contains_key(name);
        };
        let is_member = |other: &str| {
            let index = other.strip_prefix(name).filter(|index| !index.starts_with('0') || *index == "0");
            index.and_then(|index| index.parse().ok()).is_some_and(|index: u32| index < count)
        };
        self.ranges.contains_key(name) || self.registers.keys().chain(self.pairs.keys()).any(|other| is_member(other))
    }

    pub(super) fn register(&self, name: &str) -> Option<FoundRegister> {
        if let Some(&found) = self.registers.get(name) {
            return Some(FoundRegister::One(found));
        }
        if let Some(&pair) = self.pairs.get(name) {
            return Some(FoundRegister::Member(pair, 0));
        }
        if let Some((stem, component)) = name.rsplit_once('.') {
            let element = match component {
                "x" | "r" => 0,
                "y" | "g" => 1,
                "z" | "b" => 2,
                "w" | "a" => 3,
                _ => return None,
            };
            return self.vectors.get(stem).and_then(|elements| elements.get(element).copied()).map(FoundRegister::One);
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = &name[stem.len()..];
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return None;
        }
        let family = self.ranges.get(stem)?;
        let index: u32 = digits.parse().ok().filter(|&index| index < family.count)?;
        Some(FoundRegister::Member(*family, index))
    }
}
