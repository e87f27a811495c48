//! `libcuda.so.1` as other programs see it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod exports;
mod header;
mod symbols;
