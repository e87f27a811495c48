//! The solver in one process, and the values derived from a plan.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod field;
mod plan;
mod reference;
