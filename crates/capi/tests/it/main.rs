//! The C interface, called through its C names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod blocks;
mod fixture;
mod fork;
mod memory;
mod sleep;
mod soft_checked;
mod soft_context;
mod soft_handles;
mod soft_header;
mod soft_program;
mod streams;
mod tags;
mod threads;
mod vectors;
