//! The grammar: text to tokens to a syntax tree.

mod lexer;
mod parser;
pub mod tree;

pub use parser::{VERSION_MAX, parse};
