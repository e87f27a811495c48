//! The parts that client and server share: the token, the lengths of chunks and windows, and connections that end when
//! idle.

mod idle_timeout;
mod limits;
mod token;

pub(crate) use idle_timeout::{IDLE_MAX, IdleTimeout, PING_INTERVAL, PONG_TIMEOUT};
pub use limits::CHUNK_BYTES_MAX;
pub(crate) use limits::WINDOW_BYTES;
pub use token::{Token, TokenError};
