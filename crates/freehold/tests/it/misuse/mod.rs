//! Programs in safe Rust that try to corrupt memory. Each does not compile (`compiled`), is refused, or does what it says, which is seen
//! by reading the memory back (the others).

mod closed;
mod compiled;
mod forgotten;
mod numbers;
mod threads;
