//! Device buffers through MPI: each test starts itself again as ranks, with the launcher of the library it was built
//! with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod command_line;
mod failures;
mod large_messages;
mod launcher;
mod operations;
mod random_programs;
