//! Shared by the parser's tests: a text around the part under test.

use super::*;
use crate::syntax::tree::*;

mod body;
mod errors;
mod head;

fn text(rest: &str) -> String {
    format!(".version 8.0\n.target sm_90\n.address_size 64\n{rest}")
}

fn with_module(rest: &str, check: impl FnOnce(&Module<'_>)) {
    let text = text(rest);
    match parse(&text) {
        Ok(module) => check(&module),
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Passes the only item of a text, a variable, to `check`.
fn with_variable(declaration: &str, check: impl FnOnce(&Variable<'_>)) {
    with_module(declaration, |module| match module.items.as_slice() {
        [Item::Variable(variable)] => check(variable),
        items => panic!("not one variable: {items:?}"),
    });
}

/// Passes the only item of a text, a function, to `check`.
fn with_function(text: &str, check: impl FnOnce(&Function<'_>)) {
    with_module(text, |module| match module.items.as_slice() {
        [Item::Function(function)] => check(function),
        items => panic!("not one function: {items:?}"),
    });
}

/// Passes the statements of a kernel with this body, which starts in line 5, to `check`.
fn with_body(body: &str, check: impl FnOnce(&[Statement<'_>])) {
    with_function(&format!(".entry k() {{\n{body}\n}}"), |function| {
        check(function.body.as_ref().expect("the kernel has a body"));
    });
}

/// Passes the only statement of a body, an instruction, to `check`.
fn with_instruction(text: &str, check: impl FnOnce(&Instruction<'_>)) {
    with_body(text, |statements| match statements {
        [Statement::Instruction(instruction)] => check(instruction),
        statements => panic!("not one instruction: {statements:?}"),
    });
}

/// Passes the operands of `x <operands>;` to `check`.
fn with_operands(operands: &str, check: impl FnOnce(&[Operand<'_>])) {
    with_instruction(&format!("x {operands};"), |instruction| check(&instruction.operands));
}

/// Returns the error of a text whose line 4 is `rest`.
fn mistake(rest: &str) -> Error {
    parse(&text(rest)).expect_err("the text is invalid")
}

/// Returns the error of a kernel whose body starts in line 5.
fn mistake_in_body(body: &str) -> Error {
    mistake(&format!(".entry k() {{\n{body}\n}}"))
}

fn at(line: u32, column: u32) -> Position {
    Position { line, column }
}
