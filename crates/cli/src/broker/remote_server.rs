//! The gRPC server of `freehold serve --listen`: a separate process, restarted when it dies. The broker's process owns
//! the listener, so that clients wait during a restart instead of being rejected.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use freehold::open;
use freehold_broker::LinkError;
use freehold_remote::{Identity, RemoteServer, ServerLimits, Token};

use super::remote::{RemoteOptions, read};
use super::{Failure, SocketOption};

/// The environment variable with the token.
const TOKEN_VARIABLE: &str = "FREEHOLD_TOKEN";

/// A server that exits within this time has served nobody; after this many in a row, it is not restarted.
const FAST_EXIT: Duration = Duration::from_secs(1);
const FAILURES_MAX: u32 = 8;

/// Printed by a server that finds no broker, for `serve`, which knows whether that is an error. The exit status is not
/// available: the fdstore, in the same process, waits for all children.
const NO_BROKER: &str = "no broker";
const NO_BROKER_STATUS: u8 = 3;

#[derive(clap::Args)]
pub(crate) struct ListenArguments {
    /// Also serve remote clients, at this address, such as 127.0.0.1:7070
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// PEM certificate and key; without them, --listen accepts only loopback addresses
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"], requires = "listen")]
    tls: Option<Vec<PathBuf>>,
}

/// Arguments of a server that `serve` starts.
#[derive(clap::Args)]
pub(crate) struct RemoteServerArguments {
    #[command(flatten)]
    at: SocketOption,
    #[arg(long)]
    device: Option<String>,
    #[arg(long, num_args = 2)]
    tls: Option<Vec<PathBuf>>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected an IP address and a port such as 127.0.0.1:7070, found {text:?}"))
}

/// Everything needed to start a server, already checked.
#[derive(Debug)]
pub(super) struct RemoteListener {
    listener: OwnedFd,
    address: SocketAddr,
    tls: Option<Vec<PathBuf>>,
    token: Token,
}

impl ListenArguments {
    /// Binds the address, and checks certificate, key and token. Returns `None` without `--listen`.
    pub(super) fn bind(&self, remote_options: &RemoteOptions) -> Result<Option<RemoteListener>, Failure> {
        let Some(listen) = self.listen else { return Ok(None) };
        let token = remote_options.token()?;
        identity(self.tls.as_deref())?;
        if self.tls.is_none() && !listen.ip().is_loopback() {
            let sentence =
                "without TLS the token is sent in clear text: give --tls CERTIFICATE KEY, or listen on 127.0.0.1";
            return Err(Failure::Wrong(format!("--listen {listen}: {sentence}")));
        }
        let taken = |error| Failure::Wrong(format!("--listen {listen}: {error}: choose another address"));
        let listener = TcpListener::bind(listen).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        Ok(Some(RemoteListener { listener: listener.into(), address, tls: self.tls.clone(), token }))
    }
}

impl RemoteListener {
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Keeps a server running, from a thread.
    pub(super) fn supervise(self, socket: PathBuf, device: Option<String>) -> io::Result<()> {
        let keep = move || {
            if let Err(error) = self.supervise_loop(&socket, device.as_deref()) {
                eprintln!("error: remote clients are no longer served: {error}");
            }
        };
        std::thread::Builder::new().name("remote-server".to_owned()).spawn(keep).map(drop)
    }

    fn supervise_loop(&self, socket: &std::path::Path, device: Option<&str>) -> io::Result<()> {
        let mut failures = 0;
        while failures < FAILURES_MAX {
            let started = Instant::now();
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("remote-server").arg("--socket").arg(socket).env(TOKEN_VARIABLE, self.token.as_str());
            if let Some(device) = device {
                command.args(["--device", device]);
            }
            if let Some(tls) = &self.tls {
                command.arg("--tls").args(tls);
            }
            // Signals of the terminal do not reach it: it ends when the broker does.
            command.stdin(self.listener.try_clone()?).stdout(Stdio::piped()).process_group(0);
            let mut server = command.spawn()?;
            // Its output closes when it ends, for whatever reason.
            let mut said = Vec::new();
            server.stdout.take().expect("it is piped").read_to_end(&mut said)?;
            failures = if started.elapsed() < FAST_EXIT { failures + 1 } else { 0 };
            if said.starts_with(NO_BROKER.as_bytes()) {
                // The broker was stopped, and this process ends with it; or the broker is restarting.
                std::thread::park_timeout(FAST_EXIT);
            }
        }
        Err(io::Error::other("the gRPC server exits at once: no broker runs, or its output above says why"))
    }
}

/// Reads certificate and key, and checks that they match.
fn identity(tls: Option<&[PathBuf]>) -> Result<Option<Identity>, Failure> {
    let Some([certificate, key]) = tls else { return Ok(None) };
    let (names, parts) = ((certificate.display(), key.display()), (read(certificate)?, read(key)?));
    let wrong = |error| Failure::Wrong(format!("--tls {} {}: {error}", names.0, names.1));
    Identity::new(parts.0, parts.1).map(Some).map_err(wrong)
}

fn is_no_broker(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<LinkError>());
    matches!(cause, Some(LinkError::NoBroker { .. }))
}

/// Runs the gRPC server. Standard input is the listener.
pub(crate) fn run(arguments: &RemoteServerArguments) -> ExitCode {
    match serve(arguments) {
        Ok(ServeEnd::Stopped) => ExitCode::SUCCESS,
        Ok(ServeEnd::NoBroker) => {
            println!("{NO_BROKER}");
            ExitCode::from(NO_BROKER_STATUS)
        }
        Err(failure) => super::exit_code(Err(failure)),
    }
}

/// How a started server ends.
enum ServeEnd {
    Stopped,
    NoBroker,
}

fn serve(arguments: &RemoteServerArguments) -> Result<ServeEnd, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("the gRPC server: {error}"));
    let token = std::env::var(TOKEN_VARIABLE)
        .map_err(|_| Failure::Wrong("this command is internal: run `freehold serve --listen`".to_owned()))?;
    let token = Token::parse(&token).map_err(|wrong| Failure::Wrong(wrong.to_string()))?;
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let device = open::device(arguments.device.as_deref()).map_err(|error| Failure::Failed(error.to_string()))?;
    let identity = identity(arguments.tls.as_deref())?;
    let server = RemoteServer {
        listener,
        identity,
        token,
        socket: arguments.at.path(),
        device,
        limits: ServerLimits::default(),
    };
    match server.serve() {
        Ok(()) => Ok(ServeEnd::Stopped),
        Err(error) if is_no_broker(&error) => Ok(ServeEnd::NoBroker),
        Err(error) => Err(failed(error)),
    }
}
