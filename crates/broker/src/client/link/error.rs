//! Errors of requests to the broker.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::os::seqpacket::ReceiveError;
use crate::os::socket_path;
use crate::protocol::name::Name;
use crate::protocol::request_error::RequestError;

/// Why a request failed.
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant describes it")]
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("no broker is running at {}: start one with `freehold serve`", .path.display())]
    NoBroker { path: PathBuf },
    #[error(transparent)]
    PathTooLong(#[from] socket_path::PathTooLong),
    #[error("the broker at {} belongs to another user, or does not serve this one", .path.display())]
    NotAllowed { path: PathBuf },
    #[error("the broker closed the connection: it was stopped, or both of its processes were killed")]
    Closed,
    #[error("the broker does not answer: its processes are stopped or hang, see `pgrep -af freehold`")]
    TimedOut,
    #[error("the broker sent an invalid message: update the program or the broker")]
    Malformed,
    /// `name` is the one that the request named, `detail` has the names that are similar to it; both may be empty.
    #[error("{}{error}{}", of(.name), nearest(.detail))]
    Request { error: RequestError, name: String, detail: String },
    #[error(
        "this process is a fork of the one that connected to the broker: connect again, or start a new program instead of forking"
    )]
    ForkedChild,
    #[error("system error: {0}")]
    System(Errno),
}

/// Same as `Display`, so that `unwrap` and a `main` that returns the error print the message.
impl fmt::Debug for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn of(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("{name}: ") }
}

fn nearest(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!("; nearest: {}", detail.replace('\n', ", ")) }
}

impl LinkError {
    /// Returns the error of a request about a name.
    pub fn about(error: RequestError, name: &Name) -> Self {
        Self::Request { error, name: name.as_str().to_owned(), detail: String::new() }
    }

    pub(in crate::client) fn from_system(error: std::io::Error) -> Self {
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<RequestError> for LinkError {
    fn from(error: RequestError) -> Self {
        Self::Request { error, name: String::new(), detail: String::new() }
    }
}

impl From<Errno> for LinkError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            error => Self::System(error),
        }
    }
}

impl From<ReceiveError> for LinkError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Closed => Self::Closed,
            ReceiveError::WouldBlock => Self::TimedOut,
            ReceiveError::Malformed => Self::Malformed,
            ReceiveError::System(error) => Self::System(error),
        }
    }
}
