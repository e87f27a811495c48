//! The client: a session at a server, used from plain threads. A call that is repeated after a lost connection has the
//! same number, so it is executed once.

mod call_numbers;
mod connection;
mod launches;
mod remote;
mod transfer;

pub use self::launches::{RemoteArgument, RemoteCall, RemoteModule};
pub use self::remote::{Remote, RemoteBlock, RemoteBlockError};
