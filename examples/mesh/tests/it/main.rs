//! The solver in one process, and the numbers that follow from a plan.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod field;
mod plan;
mod reference;
