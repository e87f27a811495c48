//! The language: text to tokens to tree.

mod lexer;
mod parser;
pub mod tree;

pub use parser::parse;
