//! The gate of `freehold serve --listen`: a process beside the broker, started again when it dies. The listener is this process's, so
//! that clients who come meanwhile wait instead of being turned away.

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

/// The variable in which a gate is told the token.
const TOKEN_VARIABLE: &str = "FREEHOLD_TOKEN";

/// A gate that ends so soon has not served anybody, and so many that did in a row are enough.
const FAST_EXIT: Duration = Duration::from_secs(1);
const FAILURES_MAX: u32 = 8;

/// What a gate that finds no broker prints for `serve`, which knows whether that is an error. Its exit status does not come through:
/// the keeper, which is in the same process, waits for all children.
const NO_BROKER: &str = "no broker";
const NO_BROKER_STATUS: u8 = 3;

#[derive(clap::Args)]
pub(crate) struct ListenArguments {
    /// Serve clients of other machines too, at this address, as in 127.0.0.1:7070
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,
    /// The certificate and its key, as PEM; without them only an address of this machine is served
    #[arg(long, num_args = 2, value_names = ["CERTIFICATE", "KEY"], requires = "listen")]
    tls: Option<Vec<PathBuf>>,
}

/// What a gate is told that is started by `serve`.
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
    text.parse().map_err(|_| format!("{text:?} is no address: say numbers and a port, as in 127.0.0.1:7070"))
}

/// All that is needed to start a gate, which was looked at.
#[derive(Debug)]
pub(super) struct RemoteListener {
    listener: OwnedFd,
    address: SocketAddr,
    tls: Option<Vec<PathBuf>>,
    token: Token,
}

impl ListenArguments {
    /// Takes the address, and looks at certificate, key and token. Nothing where nobody is to be served elsewhere.
    pub(super) fn bind(&self, remote_options: &RemoteOptions) -> Result<Option<RemoteListener>, Failure> {
        let Some(listen) = self.listen else { return Ok(None) };
        let token = remote_options.token()?;
        identity(self.tls.as_deref())?;
        if self.tls.is_none() && !listen.ip().is_loopback() {
            let sentence =
                "without TLS everybody on the way reads the token; say --tls CERTIFICATE KEY, or listen at 127.0.0.1";
            return Err(Failure::Wrong(format!("--listen {listen}: {sentence}")));
        }
        let taken = |error| Failure::Wrong(format!("--listen {listen}: {error}: name another address"));
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

    /// Keeps a gate going, in a thread of its own.
    pub(super) fn supervise(self, socket: PathBuf, device: Option<String>) -> io::Result<()> {
        let keep = move || {
            if let Err(error) = self.supervise_loop(&socket, device.as_deref()) {
                eprintln!("error: clients elsewhere are not served any more: {error}");
            }
        };
        std::thread::Builder::new().name("gate".to_owned()).spawn(keep).map(drop)
    }

    fn supervise_loop(&self, socket: &std::path::Path, device: Option<&str>) -> io::Result<()> {
        let mut failures = 0;
        while failures < FAILURES_MAX {
            let started = Instant::now();
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("gate").arg("--socket").arg(socket).env(TOKEN_VARIABLE, self.token.as_str());
            if let Some(device) = device {
                command.args(["--device", device]);
            }
            if let Some(tls) = &self.tls {
                command.arg("--tls").args(tls);
            }
            // What a terminal says to one process is not said to all: it ends when the broker does.
            command.stdin(self.listener.try_clone()?).stdout(Stdio::piped()).process_group(0);
            let mut gate = command.spawn()?;
            // It closes its output when it ends, however that is.
            let mut said = Vec::new();
            gate.stdout.take().expect("it is piped").read_to_end(&mut said)?;
            failures = if started.elapsed() < FAST_EXIT { failures + 1 } else { 0 };
            if said.starts_with(NO_BROKER.as_bytes()) {
                // The broker was stopped, and this process ends with it; or it is started again in a moment.
                std::thread::park_timeout(FAST_EXIT);
            }
        }
        Err(io::Error::other(
            "the gate ends as soon as it is started, because no broker runs or for what it says above",
        ))
    }
}

/// Certificate and key, if they belong together.
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

/// Is the gate. Standard input is the listener.
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

/// How a gate ends that could begin.
enum ServeEnd {
    Stopped,
    NoBroker,
}

fn serve(arguments: &RemoteServerArguments) -> Result<ServeEnd, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("the gate: {error}"));
    let token = std::env::var(TOKEN_VARIABLE)
        .map_err(|_| Failure::Wrong("a gate is started by `freehold serve --listen`".to_owned()))?;
    let token = Token::parse(&token).map_err(|wrong| Failure::Wrong(wrong.to_string()))?;
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?);
    let device = open::device(arguments.device.as_deref()).map_err(|error| Failure::Failed(error.to_string()))?;
    let identity = identity(arguments.tls.as_deref())?;
    let gate = RemoteServer {
        listener,
        identity,
        token,
        socket: arguments.at.path(),
        device,
        limits: ServerLimits::default(),
    };
    match gate.serve() {
        Ok(()) => Ok(ServeEnd::Stopped),
        Err(error) if is_no_broker(&error) => Ok(ServeEnd::NoBroker),
        Err(error) => Err(failed(error)),
    }
}
