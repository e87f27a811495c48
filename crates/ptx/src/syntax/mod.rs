//! The language: text to tokens to tree.

pub mod tree;
