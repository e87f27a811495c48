//! The grammar: text to tokens to a syntax tree.

mod lexer;
mod parser;
pub mod tree;

#[cfg(feature = "interpreter")]
pub(crate) use parser::DEVICE_DEFAULT;
pub use parser::{VERSION_MAX, parse, parse_for};
