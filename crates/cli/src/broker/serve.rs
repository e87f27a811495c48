//! `freehold serve`: this process becomes the fdstore of a broker, which it starts and restarts.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use freehold_broker::signals::Signals;
use freehold_broker::wire::{Request, RequestError};
use freehold_broker::{BrokerLimits, Config, DeviceInfo, Link, LinkError, fdstore, socket_path};
use rustix::process::Signal;

use super::remote::RemoteOptions;
use super::remote_server::ListenArguments;
use super::stop::published_text;
use super::{Failure, SocketOption, owner};
use crate::output::size;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Device memory limit, such as 8GiB [default: half of the device's memory]
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    memory: Option<u64>,
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else an NVIDIA GPU, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// A group, by name or number, whose users may use the broker too; each user has its own quota, reads what others
    /// publish, and removes only its own names
    #[arg(long, value_parser = group, value_name = "NAME")]
    group: Option<u32>,
    /// Device memory limit for each user, over all its processes, such as 2GiB; `freehold quota` changes it for one user
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    user_memory: Option<u64>,
    /// Device memory limit for each process
    #[arg(long, value_parser = size::parse, value_name = "SIZE")]
    tenant_memory: Option<u64>,
    /// Run time limit for a kernel in a worker, in seconds
    #[arg(long, value_parser = seconds, value_name = "SECONDS", default_value = "10")]
    launch_time: u64,
    /// Limit on pending launches of one process in a worker
    #[arg(long, value_parser = size::parse_count::<u64>(1..=65_536), value_name = "COUNT", default_value = "512")]
    launches: u64,
    #[command(flatten)]
    listen: ListenArguments,
    #[command(flatten)]
    at: SocketOption,
    /// How long the broker polls for the next request before it sleeps, in microseconds
    #[arg(long, value_parser = size::parse_count::<u64>(0..=u64::MAX), value_name = "MICROSECONDS", default_value_t = 50)]
    spin: u64,
    /// Internal: the process that this broker belongs to, and ends with
    #[arg(long, hide = true)]
    own_of: Option<u32>,
}

/// How long a second Ctrl-C confirms the first.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a broker may take to answer whether it can stop.
const STOP_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The command that starts a broker's process.
const ROLE_COMMAND: &str = "role";

/// Which of the broker's processes this is, and its arguments.
#[derive(clap::Args)]
pub(crate) struct RoleArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments, remote_options: &RemoteOptions) -> ExitCode {
    let outcome = serve(arguments, remote_options);
    if let Some(process) = arguments.own_of {
        owner::remove_folder(process, &arguments.at.path());
    }
    super::exit_code(outcome)
}

fn group(text: &str) -> Result<u32, String> {
    socket_path::group_id(text).ok_or_else(|| format!("unknown group {text:?}: see `getent group`"))
}

/// Parses seconds. Returns milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().unwrap_or(0.0);
    // A day is longer than any useful limit.
    match (0.001..=86_400.0).contains(&seconds) {
        true => Ok((seconds * 1e3) as u64),
        false => Err(format!("expected seconds from 0.001 to 86400, such as 10, found {text:?}")),
    }
}

fn serve(arguments: &Arguments, remote_options: &RemoteOptions) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(error.to_string());
    if let Some(process) = arguments.own_of {
        // A signal may arrive before the fdstore waits for it.
        Signals::block().map_err(failed)?;
        owner::die_with(process, Signal::TERM).map_err(failed)?;
    }
    let program = std::env::current_exe().map_err(failed)?;
    let mut config = Config {
        program,
        leading_args: vec![ROLE_COMMAND.into()],
        socket: arguments.at.path(),
        device: arguments.device.clone(),
        device_uuid: 0,
        memory_bytes: 0,
        spin_us: arguments.spin,
        limits: BrokerLimits {
            group: arguments.group,
            user_bytes: arguments.user_memory,
            tenant_bytes: arguments.tenant_memory,
            launch_ms_max: Some(arguments.launch_time),
            launches_max: Some(arguments.launches),
        },
    };
    socket_path::prepare_dir(&config.socket, arguments.group).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::InvalidFilename | ErrorKind::NotFound => {
            Failure::Wrong(error.to_string())
        }
        _ => Failure::Failed(format!("{}: {error}", config.socket.display())),
    })?;
    let DeviceInfo { description: device, total_bytes, uuid } =
        config.probe().map_err(|error| Failure::Wrong(error.to_string()))?;
    config.device_uuid = uuid;
    config.memory_bytes = arguments.memory.unwrap_or(total_bytes / 2);
    if config.memory_bytes < 2 << 20 || config.memory_bytes > total_bytes {
        let (wanted, has) = (size::format(config.memory_bytes), size::format(total_bytes));
        return Err(Failure::Wrong(format!(
            "--memory {wanted}: expected 2MiB or more, and at most the device's {has}"
        )));
    }
    for (option, size) in [("--user-memory", arguments.user_memory), ("--tenant-memory", arguments.tenant_memory)] {
        if size.is_some_and(|size| size < 2 << 20) {
            return Err(Failure::Wrong(format!("{option}: expected 2MiB or more, the smallest segment")));
        }
    }
    let mut listener = arguments.listen.bind(remote_options)?;
    let mut is_ready = || {
        let (budget, socket) = (size::format(config.memory_bytes), config.socket.display());
        let mut said = format!("{device}\nbroker with {budget} at {socket}\n");
        if let Some(listener) = listener.take() {
            said += &format!("remote clients connect to {}\n", listener.url());
            if let Err(error) = listener.supervise(config.socket.clone(), config.device.clone()) {
                eprintln!("error: remote clients are not served: {error}");
            }
        }
        let at = arguments.at.description();
        // A closed standard output does not stop the broker.
        let _ = writeln!(
            std::io::stdout(),
            "{said}stop it with Ctrl-C or `freehold stop{at}`; published memory is then lost"
        );
    };
    let mut is_told = false;
    let is_ready = || {
        if !std::mem::replace(&mut is_told, true) {
            is_ready();
        }
    };
    let mut asked = None::<Instant>;
    let may_stop = || {
        if asked.is_some_and(|asked| asked.elapsed() < CONFIRM_TIMEOUT) {
            return true;
        }
        let Some(loss) = refused_stop(&config.socket) else { return true };
        asked = Some(Instant::now());
        eprintln!("{loss}; press Ctrl-C again within {} s to stop", CONFIRM_TIMEOUT.as_secs());
        false
    };
    let outcome = fdstore::run(&config, None, is_ready, may_stop);
    outcome.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            let at = arguments.at.description();
            Failure::Wrong(format!(
                "{error}: use it, stop it with `freehold stop{at}`, or choose another socket with --socket"
            ))
        }
        ErrorKind::AlreadyExists => Failure::Wrong(error.to_string()),
        _ => Failure::Failed(error.to_string()),
    })
}

/// Stops the broker if nothing is published there. Otherwise returns what would be lost. A broker that does not answer
/// is stopped in any case, by its fdstore.
fn refused_stop(socket: &Path) -> Option<String> {
    let mut link = Link::connect_timeout(socket, STOP_ANSWER_TIMEOUT).ok()?;
    match link.call(Request::Stop { is_forced: false }) {
        Err(LinkError::Request { error: RequestError::NamesPublished { names, modules, bytes }, .. }) => {
            Some(format!("{} would be lost", published_text(names, modules, bytes)))
        }
        _ => None,
    }
}

/// Runs one of a broker's processes.
pub(crate) fn role(arguments: &RoleArguments) -> ExitCode {
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let Some((part, config)) = Config::from_args(program, vec![ROLE_COMMAND.into()], &arguments.words) else {
        eprintln!("error: this command is internal: run `freehold serve`");
        return ExitCode::from(2);
    };
    match freehold_broker::run_role(part, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
