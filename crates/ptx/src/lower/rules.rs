//! Modifiers that exclude each other, those that need a newer version or target, and the ranges of constants, as NVIDIA's
//! assembler checks them. The families check what decides about the meaning of an instruction; what is here would have no
//! effect on it.

mod list;
mod rule;

use self::rule::{Rule, Values};
use super::function::Builder;
use crate::error::Error;
use crate::syntax::tree::{Instruction, Operand};

impl<'m> Builder<'_, 'm> {
    /// Checks what an instruction must not have, or not yet. Its family has found that it has a meaning.
    pub(super) fn check_rules(&self, instruction: &'m Instruction<'m>) -> Result<(), Error> {
        let words = &instruction.modifiers;
        for rule in list::rules(instruction.opcode) {
            if !rule.with.iter().all(|word| words.contains(word)) {
                continue;
            }
            if let Some(word) = words.iter().find(|word| rule.never.contains(word)) {
                let message = match rule.with {
                    [] => format!("'.{word}' is not allowed on '{}'", instruction.opcode),
                    with => format!("'.{word}' is not allowed with '.{}'", with.join(".")),
                };
                return Err(self.error_in_modifier(word, message));
            }
            if !rule.one_of.is_empty() && !words.iter().any(|word| rule.one_of.contains(word)) {
                return Err(self.error(format!("expected {}", alternatives(rule.one_of))));
            }
            self.check_age(instruction, rule)?;
            let found = instruction.operands.len();
            if let Some((least, most)) = rule.operands.filter(|&(least, most)| !(least..=most).contains(&found)) {
                let wanted = if found < least { least } else { most };
                return Err(self.error(format!("expected {wanted} operands, found {found}")));
            }
            if let Some((operand, values)) = rule.constant
                && let Some(operand) = instruction.operands.get(operand)
            {
                self.check_constant(operand, values)?;
            }
        }
        Ok(())
    }

    fn check_age(&self, instruction: &'m Instruction<'m>, rule: &Rule) -> Result<(), Error> {
        let (target, version) = (self.unit.module.target, self.unit.module.version);
        let last = rule.with.last().and_then(|last| instruction.modifiers.iter().find(|word| *word == last));
        let refused = |needs: String| {
            let what = last.map_or_else(|| format!("'{}'", instruction.opcode), |word| format!("'.{word}'"));
            let message = format!("{what} {needs}");
            last.map_or_else(|| self.error(message.clone()), |word| self.error_in_modifier(word, message.clone()))
        };
        if target < rule.target {
            return Err(refused(format!("needs sm_{} or higher, but the target is sm_{target}", rule.target)));
        }
        if version < rule.version {
            let (major, minor) = rule.version;
            let needs = format!("needs PTX {major}.{minor} or newer, but the text is for {}.{}", version.0, version.1);
            return Err(refused(needs));
        }
        Ok(())
    }

    fn check_constant(&self, operand: &Operand<'m>, values: Values) -> Result<(), Error> {
        let Values { least, most, unit, is_required } = values;
        let Operand::Integer(value) = *operand else {
            return if is_required { Err(self.error_at(operand, "expected a constant")) } else { Ok(()) };
        };
        if value % unit != 0 {
            return Err(self.error_at(operand, format!("expected a multiple of {unit}, found {value}")));
        }
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let wanted = if least == most { least.to_string() } else { format!("a number from {least} to {most}") };
        Err(self.error_at(operand, format!("expected {wanted}, found {}", value.cast_signed())))
    }
}

/// Returns modifiers as `'.a', '.b' or '.c'`.
fn alternatives(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'.{word}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
