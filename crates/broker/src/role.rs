//! The processes of a broker, and how one starts another: the same program again, with the role that it is to play.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use freehold::open;
use freehold_driver::cuda::device;

use crate::{daemon, fdstore, scrubber, worker};

/// Which process this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Holds descriptors. No driver, ever.
    FdStore,
    /// Serves tenants.
    Broker,
    /// Overwrites memory that goes from one tenant to another.
    Scrubber,
    /// Runs kernels for tenants.
    Worker,
    /// Says what the device is, and ends.
    Probe,
}

/// Who may use a broker, and how much of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrokerLimits {
    /// The group whose users are served too. Without one, only the broker's own user is.
    pub group: Option<u32>,
    /// What one user may have, over all of its processes. Without a number, all there is.
    pub user_bytes: Option<u64>,
    /// What one process may have.
    pub tenant_bytes: Option<u64>,
    /// How long a kernel may run at a worker, in milliseconds. Without a number, 10 seconds.
    pub launch_ms_max: Option<u64>,
    /// How many launches of one process may not have come to their end at its worker. Without a number, 512.
    pub launches_max: Option<u64>,
}

/// What all processes of a broker have to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The program that is started again, and what it is told before the words of its role.
    pub program: PathBuf,
    pub leading_args: Vec<OsString>,
    /// Where tenants find the broker.
    pub socket: PathBuf,
    /// The device, as for `freehold::open`.
    pub device: Option<String>,
    /// Its UUID as [`probe`](Self::probe) told it, its first byte the lowest. 0 where nobody asked.
    pub device_uuid: u128,
    /// The most memory of the device.
    pub memory_bytes: u64,
    /// How long the broker looks for the next request before it sleeps.
    pub spin_us: u64,
    pub limits: BrokerLimits,
}

impl Config {
    /// The words that tell a process which role it plays, and all it has to know.
    fn args(&self, role: Role) -> Vec<OsString> {
        let role = match role {
            Role::FdStore => "keeper",
            Role::Broker => "broker",
            Role::Scrubber => "cleaner",
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

    /// What the words of a role say, of a process that was started so. Nothing where they are none.
    pub fn from_args(program: PathBuf, before: Vec<OsString>, words: &[OsString]) -> Option<(Role, Self)> {
        let [role, device, uuid, memory, spin, group, user, tenant, launch, launches, socket] = words else {
            return None;
        };
        let role = match role.to_str()? {
            "keeper" => Role::FdStore,
            "broker" => Role::Broker,
            "cleaner" => Role::Scrubber,
            "worker" => Role::Worker,
            "probe" => Role::Probe,
            _ => return None,
        };
        let device = Some(device.to_str()?.to_owned()).filter(|device| device != "-");
        let number = |word: &OsString| word.to_str()?.parse().ok();
        // A dash is none, and anything else that is no number is no word of ours.
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

    /// What the device is. Another process asks it: the one that keeps descriptors never has to do
    /// with a driver.
    ///
    /// # Errors
    /// Why it cannot be used, in a sentence.
    pub fn probe(&self) -> io::Result<DeviceInfo> {
        let mut command = Command::new(&self.program);
        let output = command.args(&self.leading_args).args(self.args(Role::Probe)).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        match DeviceInfo::parse(text.trim_end()) {
            Some(found) if output.status.success() => Ok(found),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                // Whoever tells it says so itself.
                Err(io::Error::other(said.trim_end().trim_start_matches("error: ").to_owned()))
            }
        }
    }

    /// Starts a process, which has the other end of the socket for its standard input.
    pub(crate) fn spawn(&self, role: Role) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) = socket_pair()?;
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).args(self.args(role)).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // What a terminal says to one process is not said to all: the fdstore decides.
        command.process_group(0);
        Ok((command.spawn()?, ours))
    }
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// In words, and why it was chosen.
    pub description: String,
    pub total_bytes: u64,
    /// Its first byte the lowest.
    pub uuid: u128,
}

impl DeviceInfo {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let (total_bytes, uuid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { description: words.next()?.to_owned(), total_bytes, uuid })
    }
}

/// Plays a role until it is over. Standard input is the socket to whoever started the process.
///
/// # Errors
/// Those of the role.
pub fn run_role(role: Role, config: Config) -> io::Result<()> {
    let control_socket = io::stdin().as_fd().try_clone_to_owned()?;
    match role {
        Role::FdStore => fdstore::run(&config, Some(control_socket), || {}),
        Role::Broker => daemon::run(config, control_socket),
        Role::Scrubber => scrubber::run(config.device.as_deref(), control_socket),
        Role::Worker => worker::run(&config, control_socket),
        Role::Probe => probe(config.device.as_deref()),
    }
}

/// Writes what the device is, and how much memory it has, to standard output.
fn probe(device: Option<&str>) -> io::Result<()> {
    // SAFETY: the driver is asked about the device alone.
    let opened = unsafe { open::open(device) }.map_err(io::Error::other)?;
    let total = device::total_bytes(&opened.api, opened.device).map_err(io::Error::other)?;
    let uuid = device::uuid(&opened.api, opened.device).map_err(io::Error::other)?;
    println!("{total} {} {}", u128::from_le_bytes(uuid.bytes), opened.why);
    Ok(())
}

/// Two ends of a socket of whole messages.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_part_say_all_that_it_has_to_know() {
        let (group, user_bytes, tenant_bytes) = (Some(100), Some(4096), Some(512));
        let all = BrokerLimits { group, user_bytes, tenant_bytes, launch_ms_max: Some(250), launches_max: Some(16) };
        for limits in [BrokerLimits::default(), all] {
            let config = Config {
                program: "freehold".into(),
                leading_args: vec!["part".into()],
                socket: "/run/freehold/broker".into(),
                device: Some("soft".to_owned()),
                device_uuid: 7 << 100,
                memory_bytes: 1 << 30,
                spin_us: 50,
                limits,
            };
            let parsed = Config::from_args("freehold".into(), vec!["part".into()], &config.args(Role::Broker));
            assert_eq!(parsed, Some((Role::Broker, config)));
        }
    }
}
