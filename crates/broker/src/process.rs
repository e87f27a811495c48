//! The processes of a broker. One starts another by running the same program again, with its role as arguments.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::os::seqpacket::socket_pair;

/// How long a kernel may run, by default.
const LAUNCH_LIMIT: Duration = Duration::from_secs(10);

/// The role of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Holds descriptors. It never loads a driver.
    FdStore,
    /// Serves tenants.
    Broker,
    /// Zeroes memory between tenants.
    Scrubber,
    /// Runs kernels for tenants.
    Worker,
    /// Prints a description of the device, and exits.
    Probe,
}

/// The users that a broker serves, and their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// A group whose users are served too. Without one, only the broker's own user is.
    pub group: Option<u32>,
    /// Device memory of one user, over all of its processes. `None`: no limit.
    pub user_bytes: Option<u64>,
    /// Device memory of one process.
    pub tenant_bytes: Option<u64>,
    /// How long a kernel may run in a worker, in milliseconds. `None`: 10 seconds.
    pub launch_ms_max: Option<u64>,
    /// Unfinished launches of one process in its worker. `None`: 512.
    pub launches_max: Option<u64>,
}

/// The configuration that all processes of a broker share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The program that is started for each role.
    pub program: PathBuf,
    /// Its arguments before those of the role.
    pub leading_args: Vec<OsString>,
    /// The path of the socket that tenants connect to.
    pub socket: PathBuf,
    /// The device, as for `freehold::open`.
    pub device: Option<String>,
    /// Its UUID as [`probe`](Self::probe) returned it, first byte lowest. 0 if it was not probed.
    pub device_uuid: u128,
    /// The most device memory that the broker may use.
    pub memory_bytes: u64,
    /// How long the broker polls for the next request before it sleeps.
    pub spin_us: u64,
    /// The limits of one user and of one process.
    pub limits: BrokerLimits,
}

impl Config {
    /// The arguments that carry the role and the configuration.
    fn args(&self, role: Role) -> Vec<OsString> {
        let role = match role {
            Role::FdStore => "fdstore",
            Role::Broker => "broker",
            Role::Scrubber => "scrubber",
            Role::Worker => "worker",
            Role::Probe => "probe",
        };
        let device = self.device.as_deref().unwrap_or("-");
        let BrokerLimits { group, user_bytes, tenant_bytes, launch_ms_max: launch_ms, launches_max: launches } =
            self.limits;
        let group = group.map(u64::from);
        let optional_limits = [group, user_bytes, tenant_bytes, launch_ms, launches];
        let numbers = [Some(self.memory_bytes), Some(self.spin_us)].into_iter().chain(optional_limits);
        let numbers = numbers.map(|number| number.map_or("-".to_owned(), |number| number.to_string()));
        let uuid = self.device_uuid.to_string();
        let mut words: Vec<OsString> = [role, device, &uuid].into_iter().map(OsString::from).collect();
        words.extend(numbers.map(OsString::from));
        words.push(self.socket.clone().into());
        words
    }

    /// Parses the arguments of a role, as `args` writes them. `None` if they are not valid.
    pub fn from_args(program: PathBuf, before: Vec<OsString>, words: &[OsString]) -> Option<(Role, Self)> {
        let [role, device, uuid, memory, spin, group, user, tenant, launch, launches, socket] = words else {
            return None;
        };
        let role = match role.to_str()? {
            "fdstore" => Role::FdStore,
            "broker" => Role::Broker,
            "scrubber" => Role::Scrubber,
            "worker" => Role::Worker,
            "probe" => Role::Probe,
            _ => return None,
        };
        let device = Some(device.to_str()?.to_owned()).filter(|device| device != "-");
        let number = |word: &OsString| word.to_str()?.parse().ok();
        // A dash means none; anything else must be a number.
        let optional = |word: &OsString| if word == "-" { Some(None) } else { number(word).map(Some) };
        let group = optional(group)?.map(u32::try_from).transpose().ok()?;
        let (user_bytes, tenant_bytes) = (optional(user)?, optional(tenant)?);
        let limits = BrokerLimits {
            group,
            user_bytes,
            tenant_bytes,
            launch_ms_max: optional(launch)?,
            launches_max: optional(launches)?,
        };
        let (memory_bytes, spin_us) = (number(memory)?, number(spin)?);
        let device_uuid = uuid.to_str()?.parse().ok()?;
        let socket = socket.into();
        Some((role, Self { program, leading_args: before, socket, device, device_uuid, memory_bytes, spin_us, limits }))
    }

    /// Returns a description of the device. Another process queries the driver, because the fdstore never loads one.
    ///
    /// # Errors
    /// If the device cannot be used.
    pub fn probe(&self) -> io::Result<DeviceInfo> {
        let mut command = Command::new(&self.program);
        let output = command.args(&self.leading_args).args(self.args(Role::Probe)).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match DeviceInfo::parse(text.trim_end()) {
            Some(found) if output.status.success() => Ok(found),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                // The caller prints the prefix itself.
                Err(io::Error::other(said.trim_end().trim_start_matches("error: ").to_owned()))
            }
        }
    }

    /// How long a kernel may run in a worker.
    pub(crate) fn launch_limit(&self) -> Duration {
        self.limits.launch_ms_max.map_or(LAUNCH_LIMIT, Duration::from_millis)
    }

    /// Starts a process with the other end of the socket as its standard input.
    pub(crate) fn spawn(&self, role: Role) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) = socket_pair()?;
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).args(self.args(role)).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // Signals of a terminal reach only the fdstore, which decides.
        command.process_group(0);
        Ok((command.spawn()?, ours))
    }
}

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name, and why it was chosen.
    pub description: String,
    /// Its memory.
    pub total_bytes: u64,
    /// First byte lowest.
    pub uuid: u128,
}

impl DeviceInfo {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let (total_bytes, uuid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { description: words.next()?.to_owned(), total_bytes, uuid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_a_process_are_all_that_it_needs() {
        let (group, user_bytes, tenant_bytes) = (Some(100), Some(4096), Some(512));
        let all = BrokerLimits { group, user_bytes, tenant_bytes, launch_ms_max: Some(250), launches_max: Some(16) };
        for limits in [BrokerLimits::default(), all] {
            let config = Config {
                program: "freehold".into(),
                leading_args: vec!["role".into()],
                socket: "/run/freehold/broker".into(),
                device: Some("soft".to_owned()),
                device_uuid: 7 << 100,
                memory_bytes: 1 << 30,
                spin_us: 50,
                limits,
            };
            let parsed = Config::from_args("freehold".into(), vec!["role".into()], &config.args(Role::Broker));
            assert_eq!(parsed, Some((Role::Broker, config)));
        }
    }
}
