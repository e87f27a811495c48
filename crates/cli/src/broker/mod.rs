//! The commands of the broker: `serve`, and the commands that talk to a broker.

pub(crate) mod call;
pub(crate) mod modules;
pub(crate) mod names;
pub(crate) mod owner;
pub(crate) mod put;
pub(crate) mod remote;
pub(crate) mod remote_server;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod top;
pub(crate) mod transfer;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use freehold_broker::tensors::TensorError;
use freehold_broker::wire::RequestError;
use freehold_broker::{CallError, ErrorOrigin, Link, LinkError, socket_path};

use crate::output::file::is_dash;
use crate::output::text;

/// How long to wait for an answer of the broker.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the broker is.
#[derive(clap::Args)]
pub(crate) struct SocketOption {
    /// The broker's socket [default: FREEHOLD_BROKER, else this user's own]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl SocketOption {
    fn path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(socket_path::resolve)
    }

    /// Returns the option that another command needs to find the same broker.
    fn description(&self) -> String {
        self.socket.as_ref().map_or(String::new(), |path| format!(" --socket {}", path.display()))
    }

    fn connect(&self) -> Result<Link, LinkError> {
        Link::connect_timeout(&self.path(), ANSWER_TIMEOUT)
    }
}

/// The options of a command that talks to a broker.
#[derive(clap::Args)]
pub(crate) struct ClientOptions {
    #[command(flatten)]
    at: SocketOption,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A name to remove.
#[derive(clap::Args)]
pub(crate) struct DropArguments {
    /// The name, as `ls` shows it
    name: String,
    #[command(flatten)]
    options: ClientOptions,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Broker(#[from] LinkError),
    #[error(transparent)]
    Tenant(#[from] freehold_broker::Error),
    #[error(transparent)]
    Tensors(TensorError),
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
    #[error("standard output is closed")]
    ClosedPipe,
}

impl From<TensorError> for Failure {
    fn from(error: TensorError) -> Self {
        match error {
            TensorError::Broker(error) => Self::Tenant(error),
            error => Self::Tensors(error),
        }
    }
}

impl Failure {
    /// Returns the error of a write. A closed standard output ends the command, as it ends `cat`.
    pub(crate) fn of_write(path: &Path, error: &std::io::Error) -> Self {
        match (is_dash(path), error.kind()) {
            (true, ErrorKind::BrokenPipe) => Self::ClosedPipe,
            (true, _) => Self::Failed(format!("standard output: {error}")),
            (false, _) => Self::Failed(format!("failed to write {}: {error}", path.display())),
        }
    }

    /// Returns 2 if the command was called wrongly, 3 if no broker answers, for a closed pipe the status of SIGPIPE in shells, else 1.
    fn status(&self) -> u8 {
        if matches!(self, Self::ClosedPipe) {
            return 128 + libc::SIGPIPE as u8;
        }
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
            // Like any other unknown name.
            (Self::Call(CallError::NoModule { .. }), None) => 1,
            (Self::Call(error), None) if error.origin() == ErrorOrigin::Caller => 2,
            _ => 1,
        }
    }
}

/// Prints a line to standard output.
pub(crate) fn print_line(line: impl std::fmt::Display) -> Result<(), Failure> {
    text::print(format!("{line}\n")).map_err(|error| Failure::Failed(format!("standard output: {error}")))
}

/// Prints the error, and returns its exit status.
pub(crate) fn exit_code(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Whoever closed the pipe knows it.
            if !matches!(failure, Failure::ClosedPipe) {
                eprintln!("error: {failure}");
            }
            ExitCode::from(failure.status())
        }
    }
}
