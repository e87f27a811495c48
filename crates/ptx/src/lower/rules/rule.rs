//! What a rule says.

/// A rule for instructions that have some modifiers.
pub(super) struct Rule {
    /// The modifiers.
    pub(super) with: &'static [&'static str],
    /// Those that are refused with them.
    pub(super) never: &'static [&'static str],
    /// One of them is required with them.
    pub(super) one_of: &'static [&'static str],
    /// The first target.
    pub(super) target: u32,
    /// The first version of PTX.
    pub(super) version: (u32, u32),
    /// Constants: the operand, and the values that it can have.
    pub(super) constant: Option<(usize, Values)>,
    /// The least and the most operands.
    pub(super) operands: Option<(usize, usize)>,
}

/// The values of a constant.
#[derive(Clone, Copy)]
pub(super) struct Values {
    pub(super) least: u64,
    pub(super) most: u64,
    /// Of what it is a multiple.
    pub(super) unit: u64,
    /// Whether a register is refused.
    pub(super) is_required: bool,
}

const ANY: Rule =
    Rule { with: &[], never: &[], one_of: &[], target: 0, version: (0, 0), constant: None, operands: None };

pub(super) const fn never(with: &'static [&'static str], never: &'static [&'static str]) -> Rule {
    Rule { with, never, ..ANY }
}

pub(super) const fn since(with: &'static [&'static str], target: u32, version: (u32, u32)) -> Rule {
    Rule { with, target, version, ..ANY }
}

pub(super) const fn constant(with: &'static [&'static str], operand: usize, least: u64, most: u64, unit: u64) -> Rule {
    Rule { with, constant: Some((operand, Values { least, most, unit, is_required: false })), ..ANY }
}

/// Like [`constant`], for an operand that cannot be a register.
pub(super) const fn immediate(with: &'static [&'static str], operand: usize, least: u64, most: u64, unit: u64) -> Rule {
    Rule { with, constant: Some((operand, Values { least, most, unit, is_required: true })), ..ANY }
}

pub(super) const fn one_of(with: &'static [&'static str], one_of: &'static [&'static str]) -> Rule {
    Rule { with, one_of, ..ANY }
}

pub(super) const fn operands(with: &'static [&'static str], least: usize, most: usize) -> Rule {
    Rule { with, operands: Some((least, most)), ..ANY }
}
