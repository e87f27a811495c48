//! Programs in safe Rust that try to corrupt memory. Each does not compile (`compiled`), gets an error, or does what it
//! says, which is checked by reading the memory back (the others).

mod closed;
mod compiled;
mod forgotten;
mod numbers;
mod threads;
