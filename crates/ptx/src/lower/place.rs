//! Where the operands of an instruction stand in the text. A tree without errors needs no positions: they are found in
//! the text of the instruction when one of its operands is refused.

use crate::error::Position;
use crate::syntax::tree::{Instruction, Operand};

/// Returns where an operand stands, which is one of the instruction's or an element of one; else where the instruction
/// does.
pub(super) fn of_operand<'m>(instruction: &Instruction<'m>, operand: &Operand<'m>) -> Position {
    if let Some(name) = name_of(operand) {
        let at = of_name(instruction, name);
        return if let Operand::Not(_) = operand { before(instruction, name, '!').unwrap_or(at) } else { at };
    }
    let Some(start) = first_operand(instruction) else { return instruction.at };
    let offset = find(instruction.text, start, &instruction.operands, operand);
    offset.map_or(instruction.at, |offset| position(instruction, offset))
}

/// Returns where a name stands that the tree has from the text of the instruction.
pub(super) fn of_name(instruction: &Instruction<'_>, name: &str) -> Position {
    offset_of(instruction, name).map_or(instruction.at, |offset| position(instruction, offset))
}

/// Returns where a modifier stands, with its dot.
pub(super) fn of_modifier(instruction: &Instruction<'_>, word: &str) -> Position {
    before(instruction, word, '.').unwrap_or(instruction.at)
}

/// Returns the position of a mark in front of a name.
fn before(instruction: &Instruction<'_>, name: &str, mark: char) -> Option<Position> {
    let offset = instruction.text[..offset_of(instruction, name)?].rfind(mark)?;
    Some(position(instruction, offset))
}

/// Returns the offset of a part of the instruction's text; `None` for another text.
fn offset_of(instruction: &Instruction<'_>, part: &str) -> Option<usize> {
    let offset = (part.as_ptr() as usize).checked_sub(instruction.text.as_ptr() as usize)?;
    (offset + part.len() <= instruction.text.len()).then_some(offset)
}

fn name_of<'m>(operand: &Operand<'m>) -> Option<&'m str> {
    match *operand {
        Operand::Name(name) | Operand::Not(name) | Operand::Sum(name, _) => Some(name),
        _ => None,
    }
}

/// Returns the offset behind the opcode and its modifiers.
fn first_operand(instruction: &Instruction<'_>) -> Option<usize> {
    let last = instruction.modifiers.last().unwrap_or(&instruction.opcode);
    Some(offset_of(instruction, last)? + last.len())
}

/// Searches operands, the first of which stands at an offset, or behind white space there.
fn find<'m>(text: &str, start: usize, operands: &[Operand<'m>], wanted: &Operand<'m>) -> Option<usize> {
    let mut rest = Scanner { text, offset: start };
    for operand in operands {
        rest.skip_space();
        if std::ptr::eq(operand, wanted) {
            return Some(rest.offset);
        }
        let inner = match operand {
            Operand::Vector(elements) | Operand::List(elements) => elements.as_slice(),
            _ => &[],
        };
        if let Some(offset) = find(text, rest.offset + 1, inner, wanted) {
            return Some(offset);
        }
        rest.skip_operand();
    }
    None
}

/// Reads a text in which brackets are closed.
struct Scanner<'t> {
    text: &'t str,
    offset: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.offset.min(self.text.len())..]
    }

    /// Skips white space and comments.
    fn skip_space(&mut self) {
        loop {
            self.offset += self.rest().len() - self.rest().trim_start().len();
            let end = match self.rest() {
                comment if comment.starts_with("//") => comment.find('\n'),
                comment if comment.starts_with("/*") => comment.find("*/").map(|end| end + 2),
                _ => return,
            };
            self.offset += end.unwrap_or(self.rest().len());
        }
    }

    /// Skips everything to behind the next comma that is in no brackets.
    fn skip_operand(&mut self) {
        let mut depth = 0u32;
        loop {
            self.skip_space();
            let Some(next) = self.rest().chars().next() else { return };
            self.offset += next.len_utf8();
            match next {
                '[' | '{' | '(' => depth += 1,
                ']' | '}' | ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => return,
                _ => {}
            }
        }
    }
}

fn position(instruction: &Instruction<'_>, offset: usize) -> Position {
    let before = &instruction.text[..offset];
    let Position { line, column } = instruction.at;
    match before.rfind('\n') {
        None => Position { line, column: column + offset as u32 },
        Some(end) => Position { line: line + before.matches('\n').count() as u32, column: (offset - end) as u32 },
    }
}
