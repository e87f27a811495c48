//! The commands of the broker: `serve`, and those that speak to one.

pub(crate) mod call;
pub(crate) mod ephemeral;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod remote;
pub(crate) mod remote_server;
pub(crate) mod serve;
pub(crate) mod size;
pub(crate) mod stop;
pub(crate) mod top;
pub(crate) mod transfer;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use freehold_broker::wire::RequestError;
use freehold_broker::{CallError, ErrorOrigin, Link, LinkError, socket_path};

/// How long a broker may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the broker is.
#[derive(clap::Args)]
pub(crate) struct SocketOption {
    /// The broker's socket; without it FREEHOLD_BROKER, or this user's own
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl SocketOption {
    fn path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(socket_path::resolve)
    }

    /// What another command has to say to find the same broker.
    fn description(&self) -> String {
        self.socket.as_ref().map_or(String::new(), |path| format!(" --socket {}", path.display()))
    }

    fn connect(&self) -> Result<Link, LinkError> {
        Link::connect_timeout(&self.path(), ANSWER_TIMEOUT)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Broker(#[from] LinkError),
    #[error(transparent)]
    Tenant(#[from] freehold_broker::Error),
    #[error(transparent)]
    Device(#[from] freehold::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Remote(#[from] freehold_remote::RemoteError),
    #[error("{0}")]
    Wrong(String),
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// 2 where the call was wrong, 3 where no broker answers, 1 otherwise.
    fn status(&self) -> u8 {
        if let Self::Remote(failure) = self {
            return failure.exit_code();
        }
        let link = match self {
            Self::Broker(error)
            | Self::Tenant(freehold_broker::Error::Link(error))
            | Self::Call(CallError::Link(error)) => Some(error),
            _ => None,
        };
        match (self, link) {
            (
                _,
                Some(
                    LinkError::NoBroker { .. } | LinkError::NotAllowed { .. } | LinkError::Closed | LinkError::TimedOut,
                ),
            ) => 3,
            (_, Some(LinkError::Request { error: RequestError::InvalidName(_), .. } | LinkError::PathTooLong(_)))
            | (Self::Wrong(_), _) => 2,
            // As any other name that is not there.
            (Self::Call(CallError::NoModule { .. }), None) => 1,
            (Self::Call(error), None) if error.origin() == ErrorOrigin::Caller => 2,
            _ => 1,
        }
    }
}

/// Writes a line to standard output. Who has stopped to listen, as `head` does, has heard enough.
pub(crate) fn print_line(text: impl std::fmt::Display) -> Result<(), Failure> {
    let written = writeln!(std::io::stdout(), "{text}");
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Says what went wrong, and the exit status that goes with it.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.status())
        }
    }
}
