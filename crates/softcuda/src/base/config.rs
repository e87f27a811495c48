//! Settings of the software device, read from the environment: memory size, number of devices, compute capability, schedule.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// The order in which the work of streams runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// Each stream has its own thread.
    Threads,
    /// Work runs in the call that submits it, as far as it can.
    Eager,
    /// A generator with this seed decides at each call which stream advances and how far.
    Seed(u64),
    /// Work runs when the program has to wait, that of one stream before that of another, as a generator decides.
    Switches {
        /// Of the generator.
        seed: u64,
        /// How often a stream falls behind the others although it could go on.
        switches: u32,
    },
}

/// The compute capabilities that a device can have, as 90 for 9.0.
const CAPABILITIES: &[u32] = &[75, 80, 86, 87, 89, 90, 100, 103, 120, 121];

/// Returns the compute capability of the devices of this process, as 90 for 9.0. The setting is read once; if it is wrong,
/// no device is opened.
pub(crate) fn compute_capability() -> u32 {
    static CAPABILITY: OnceLock<u32> = OnceLock::new();
    let read = || Config::from_env().map_or(Config::default().compute_capability, |config| config.compute_capability);
    *CAPABILITY.get_or_init(read)
}

/// The settings of the software device.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Memory of each device in bytes, a multiple of 2 MiB.
    pub memory_bytes: u64,
    /// Number of devices, at least one.
    pub devices: usize,
    /// Compute capability of each device, as 90 for 9.0.
    pub compute_capability: u32,
    /// When work of streams runs.
    pub schedule: Schedule,
    /// Time after which a running kernel is stopped. `None` sets no limit.
    pub kernel_timeout: Option<Duration>,
    /// Whether the host can access device memory at its device address.
    pub is_coherent: bool,
    /// Whether accesses of kernels are checked to the byte. Otherwise they may go anywhere in the pages of a block, as on
    /// hardware.
    pub are_bounds_exact: bool,
    /// Name of the machine that the devices are in. Processes of one user share the devices of machines with the same
    /// name.
    pub machine: String,
    /// The devices that the process sees, as `CUDA_VISIBLE_DEVICES` lists them. `None` shows all of them.
    pub visible: Option<String>,
}

/// Set in a process that selects its devices in another way.
static SHOWS_ALL: AtomicBool = AtomicBool::new(false);

/// Makes the driver of this process ignore `CUDA_VISIBLE_DEVICES`. Has no effect after `cuInit`.
pub fn show_all_devices() {
    SHOWS_ALL.store(true, Ordering::Relaxed);
}

/// Where error messages are written, in addition to the driver's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// The standard output.
    Stdout,
    /// The standard error.
    Stderr,
    /// A file.
    Path(PathBuf),
}

impl LogFile {
    /// Returns the destination that `CUDA_LOG_FILE` names, with the same rules as NVIDIA's driver.
    pub fn from_env() -> Option<Self> {
        let value = env::var_os("CUDA_LOG_FILE").filter(|value| !value.is_empty())?;
        Some(match value.to_str() {
            Some("stdout") => Self::Stdout,
            Some("stderr") => Self::Stderr,
            _ => Self::Path(value.into()),
        })
    }
}

/// A setting that cannot be read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The variable of the environment.
    pub variable: &'static str,
    /// What it says.
    pub value: String,
    /// What it may say.
    pub expected: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is '{}', but should be {}", self.variable, self.value, self.expected)
    }
}

impl std::error::Error for ConfigError {}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_bytes: 8 * GIB,
            devices: 1,
            compute_capability: 90,
            schedule: Schedule::Threads,
            kernel_timeout: None,
            is_coherent: false,
            are_bounds_exact: true,
            machine: "machine".to_owned(),
            visible: None,
        }
    }
}

impl Config {
    /// Reads the settings from `FREEHOLD_SOFT_MEMORY`, `FREEHOLD_SOFT_DEVICES`, `FREEHOLD_SOFT_CC`,
    /// `FREEHOLD_SOFT_SCHEDULE`, `FREEHOLD_SOFT_KERNEL_SECONDS`, `FREEHOLD_SOFT_COHERENT`, `FREEHOLD_SOFT_CHECKS`,
    /// `FREEHOLD_SOFT_MACHINE` and `CUDA_VISIBLE_DEVICES`.
    ///
    /// # Errors
    /// A variable is set to a value other than its documented forms.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(value) = variable("FREEHOLD_SOFT_MEMORY") {
            config.memory_bytes = parse_bytes(&value).ok_or(ConfigError {
                variable: "FREEHOLD_SOFT_MEMORY",
                value,
                expected: "a size from 64MiB to 1024GiB, such as 512MiB or 8GiB",
            })?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_DEVICES") {
            config.devices = value.parse().ok().filter(|count| (1..=16).contains(count)).ok_or(ConfigError {
                variable: "FREEHOLD_SOFT_DEVICES",
                value,
                expected: "a number of devices from 1 to 16",
            })?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_CC") {
            config.compute_capability = parse_capability(&value).ok_or(ConfigError {
                variable: "FREEHOLD_SOFT_CC",
                value,
                expected: "a compute capability: 7.5, 8.0, 8.6, 8.7, 8.9, 9.0, 10.0, 10.3, 12.0 or 12.1",
            })?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_SCHEDULE") {
            config.schedule = parse_schedule(&value).ok_or(ConfigError {
                variable: "FREEHOLD_SOFT_SCHEDULE",
                value,
                expected: "threads, eager, seed:N or seed:N,switches:K with numbers N and K",
            })?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_KERNEL_SECONDS") {
            config.kernel_timeout = Some(parse_seconds(&value).ok_or(ConfigError {
                variable: "FREEHOLD_SOFT_KERNEL_SECONDS",
                value,
                expected: "a positive number of seconds, such as 10 or 0.5",
            })?);
        }
        if let Some(value) = variable("FREEHOLD_SOFT_COHERENT") {
            config.is_coherent = parse_switch("FREEHOLD_SOFT_COHERENT", value)?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_CHECKS") {
            config.are_bounds_exact = parse_switch("FREEHOLD_SOFT_CHECKS", value)?;
        }
        if let Some(value) = variable("FREEHOLD_SOFT_MACHINE") {
            if !is_valid_name(&value) {
                let expected = "a name of up to 128 letters, digits, dots, dashes and underscores";
                return Err(ConfigError { variable: "FREEHOLD_SOFT_MACHINE", value, expected });
            }
            config.machine = value;
        }
        config.visible = variable("CUDA_VISIBLE_DEVICES").filter(|_| !SHOWS_ALL.load(Ordering::Relaxed));
        Ok(config)
    }
}

fn parse_switch(variable: &'static str, value: String) -> Result<bool, ConfigError> {
    match value.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(ConfigError { variable, value, expected: "0 or 1" }),
    }
}

fn is_valid_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=128).contains(&text.len()) && text.chars().all(is_plain) && !text.starts_with('.')
}

fn parse_seconds(text: &str) -> Option<Duration> {
    let limit = Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()?;
    (!limit.is_zero()).then_some(limit)
}

/// Parses a size with an optional binary unit and rounds it down to whole pages of 2 MiB.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => GIB,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(scale)?;
    (64 << 20..=1024 * GIB).contains(&bytes).then_some(bytes & !((2 << 20) - 1))
}

/// Parses a compute capability with or without its dot.
pub(crate) fn parse_capability(text: &str) -> Option<u32> {
    let text = text.trim();
    let number = match text.split_once('.') {
        Some((major, minor)) if minor.len() == 1 => format!("{major}{minor}").parse().ok()?,
        Some(_) => return None,
        None => text.parse().ok()?,
    };
    CAPABILITIES.contains(&number).then_some(number)
}

fn parse_schedule(text: &str) -> Option<Schedule> {
    match text.trim() {
        "threads" => Some(Schedule::Threads),
        "eager" => Some(Schedule::Eager),
        other => {
            let seed = other.strip_prefix("seed:")?;
            let Some((seed, switches)) = seed.split_once(",switches:") else {
                return Some(Schedule::Seed(seed.parse().ok()?));
            };
            Some(Schedule::Switches { seed: seed.parse().ok()?, switches: switches.parse().ok()? })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Config, ConfigError> {
        Config::read(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn without_variables_there_is_one_device_of_8_gib_with_threads() {
        let config = Config::read(|_| None).unwrap();
        let (schedule, machine) = (Schedule::Threads, "machine".to_owned());
        let (memory_bytes, devices, compute_capability) = (8_589_934_592, 1, 90);
        let (kernel_timeout, is_coherent, are_bounds_exact, visible) = (None, false, true, None);
        let expected = Config {
            memory_bytes,
            devices,
            compute_capability,
            schedule,
            kernel_timeout,
            is_coherent,
            are_bounds_exact,
            machine,
            visible,
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn sizes_take_units_of_1024() {
        assert_eq!(with("FREEHOLD_SOFT_MEMORY", "512MiB").unwrap().memory_bytes, 536_870_912);
        assert_eq!(with("FREEHOLD_SOFT_MEMORY", "2G").unwrap().memory_bytes, 2_147_483_648);
        assert_eq!(with("FREEHOLD_SOFT_MEMORY", "67108865").unwrap().memory_bytes, 67_108_864);
    }

    #[test]
    fn a_wrong_size_is_named_with_what_would_be_right() {
        for wrong in ["", "lots", "8GB", "-1", "1MiB", "99999999999999999999", "18446744073709551615GiB"] {
            let error = with("FREEHOLD_SOFT_MEMORY", wrong).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "FREEHOLD_SOFT_MEMORY is '{wrong}', but should be a size from 64MiB to 1024GiB, such as 512MiB or 8GiB"
                )
            );
        }
    }

    #[test]
    fn a_compute_capability_has_a_dot_or_none() {
        let capability = |text| with("FREEHOLD_SOFT_CC", text).map(|config| config.compute_capability);
        assert_eq!((capability("12.0"), capability("120"), capability("7.5")), (Ok(120), Ok(120), Ok(75)));
        for wrong in ["", "hopper", "9", "9.00", "1.20", "3.5", "13.0", "-9.0"] {
            let told = capability(wrong).expect_err("it is not a capability").to_string();
            let expected = "a compute capability: 7.5, 8.0, 8.6, 8.7, 8.9, 9.0, 10.0, 10.3, 12.0 or 12.1";
            assert_eq!(told, format!("FREEHOLD_SOFT_CC is '{wrong}', but should be {expected}"));
        }
    }

    #[test]
    fn schedules_are_threads_eager_and_seeds() {
        assert_eq!(with("FREEHOLD_SOFT_SCHEDULE", "eager").unwrap().schedule, Schedule::Eager);
        assert_eq!(with("FREEHOLD_SOFT_SCHEDULE", "seed:17").unwrap().schedule, Schedule::Seed(17));
        let limited = with("FREEHOLD_SOFT_SCHEDULE", "seed:17,switches:2").unwrap().schedule;
        assert_eq!(limited, Schedule::Switches { seed: 17, switches: 2 });
        for wrong in ["seed:", "seed:1,switches:", "seed:,switches:1", "seed:1,switches:-1", "switches:1"] {
            assert!(with("FREEHOLD_SOFT_SCHEDULE", wrong).is_err(), "{wrong}");
        }
        assert!(with("FREEHOLD_SOFT_SCHEDULE", "random").is_err());
    }

    #[test]
    fn the_seconds_of_a_kernel_are_positive_and_may_have_a_fraction() {
        let limit = |text| with("FREEHOLD_SOFT_KERNEL_SECONDS", text).map(|config| config.kernel_timeout);
        assert_eq!(limit("10"), Ok(Some(Duration::from_secs(10))));
        assert_eq!(limit("0.5"), Ok(Some(Duration::from_millis(500))));
        for wrong in ["", "0", "-1", "nan", "inf", "1s", "1e300"] {
            let error = limit(wrong).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "FREEHOLD_SOFT_KERNEL_SECONDS is '{wrong}', but should be a positive number of seconds, such as 10 or 0.5"
                )
            );
        }
    }

    #[test]
    fn coherence_and_checks_are_0_or_1() {
        let is_coherent = |text| with("FREEHOLD_SOFT_COHERENT", text).map(|config| config.is_coherent);
        assert_eq!((is_coherent("1"), is_coherent("0")), (Ok(true), Ok(false)));
        let are_exact = |text| with("FREEHOLD_SOFT_CHECKS", text).map(|config| config.are_bounds_exact);
        assert_eq!((are_exact("1"), are_exact("0")), (Ok(true), Ok(false)));
        assert!(are_exact("off").is_err());
        for wrong in ["", "2", "yes"] {
            let error = is_coherent(wrong).unwrap_err();
            assert_eq!(error.to_string(), format!("FREEHOLD_SOFT_COHERENT is '{wrong}', but should be 0 or 1"));
        }
    }

    #[test]
    fn a_machine_has_a_plain_name() {
        assert_eq!(with("FREEHOLD_SOFT_MACHINE", "lab-1.2_x").unwrap().machine, "lab-1.2_x");
        for wrong in ["", "a/b", "..", ".hidden", "with space"] {
            assert!(with("FREEHOLD_SOFT_MACHINE", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_counts_end_at_16() {
        assert_eq!(with("FREEHOLD_SOFT_DEVICES", "16").unwrap().devices, 16);
        assert!(with("FREEHOLD_SOFT_DEVICES", "0").is_err());
        assert!(with("FREEHOLD_SOFT_DEVICES", "17").is_err());
    }
}
