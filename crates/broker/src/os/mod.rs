//! The operating system: shared memory, sockets, event counters, signals, and the path of a broker's socket. It does
//! not know the broker.

pub(crate) mod eventfd;
pub(crate) mod seqpacket;
pub(crate) mod shared_memory;
pub mod signals;
pub mod socket_path;
pub(crate) mod time;
