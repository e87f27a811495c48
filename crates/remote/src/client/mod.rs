//! The client: a session with a server, with a blocking interface. A call that is retried after a lost connection keeps
//! its number, so it is executed once.

mod call_numbers;
mod connection;
mod launches;
mod remote;
mod transfer;

pub use self::launches::{RemoteArgument, RemoteCall, RemoteModule};
pub use self::remote::{Remote, RemoteBlock, RemoteBlockError};
