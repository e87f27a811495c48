//! `freehold run`: executes a program with the software driver and the CUDA runtime over it first in the library path. Exit
//! status, signals and terminal are the program's own.

mod library_dir;
pub(crate) mod ptxas;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{self, Path, PathBuf};
use std::process::{Command, ExitCode};

use freehold::open::{self, OpenError, Target};
use freehold_softcuda::config::{Config, ConfigError};

use crate::output::size;
pub(crate) use library_dir::{LibraryDirError, libraries};

const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Libraries that the dynamic linker loads first: the CUDA runtimes, which replace those that are linked statically, and the
/// audit library, which does so.
const LOADED_FIRST: &[(&str, &[&str])] =
    &[(PRELOAD, &["libcudart.so.13", "libcudart.so.12"]), ("LD_AUDIT", &["libfreehold_audit.so"])];
const PRELOAD: &str = "LD_PRELOAD";

/// The library that leads calls of the driver to the runtime, which is loaded too if there is a limit.
const LIMITING: &str = "libfreehold_limit.so";

/// How `cudaFree` of the runtime behaves.
const CUDA_FREE: &str = "FREEHOLD_CUDAFREE";

/// The limit on the memory of each device, in bytes, for the runtime and the audit library.
const LIMIT: &str = "FREEHOLD_LIMIT";
const LIMIT_BYTES_MIN: u64 = 64 << 20;
const PAGE_BYTES: u64 = 2 << 20;

/// Makes the runtime report what is not freed.
const LEAK_CHECK: &str = "FREEHOLD_LEAK_CHECK";

/// The file to which the runtime writes a timeline.
const RECORD: &str = "FREEHOLD_RECORD";

/// The memory of each software device.
const SOFT_MEMORY: &str = "FREEHOLD_SOFT_MEMORY";

/// Where Triton looks for the assembler, of one GPU generation or another.
const PTXAS_PATHS: &[&str] = &["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"];

/// Where CuPy and PyTorch keep compiled kernels, and our folders for them: those of a GPU are machine code.
const KERNEL_CACHES: &[(&str, &str)] = &[("CUPY_CACHE_DIR", "cupy"), ("PYTORCH_KERNEL_CACHE_PATH", "torch")];

/// Settings of the dynamic linker.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// With an audit library, glibc lays out the static TLS block before it loads the program's libraries. Those that need
/// static TLS, such as this runtime and `libfreehold.so`, share what this reserves beyond; its default holds one of them.
const STATIC_TLS: &str = "glibc.rtld.optional_static_tls";

const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Device: soft, cuda or cuda:N [default: FREEHOLD_DEVICE, else the NVIDIA GPUs, else the software device]
    #[arg(long)]
    device: Option<String>,
    /// On a GPU, let cudaFree wait for all work of the device, as NVIDIA's runtime does
    #[arg(long, conflicts_with = "print_libcuda")]
    strict: bool,
    /// Limit the memory of each device, for this program: 8GiB, 1.5GiB, 512MiB or bytes, at least 64MiB, in steps of 2 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_limit, conflicts_with = "print_libcuda")]
    limit: Option<u64>,
    /// Report on stderr what the program has not freed when it exits, and each wrong free as it occurs, each with the functions
    /// and source lines that led to it
    #[arg(long, conflicts_with = "print_libcuda")]
    leak_check: bool,
    /// Write a timeline of allocations, frees, launches and copies, for `freehold replay` and ui.perfetto.dev
    #[arg(long, value_name = "FILE", conflicts_with = "print_libcuda")]
    record: Option<PathBuf>,
    /// Print the folder that has the software driver as libcuda.so and libcuda.so.1, for `cc -L`, and run nothing
    #[arg(long, conflicts_with_all = ["device", "words"])]
    print_libcuda: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "print_libcuda", trailing_var_arg = true)]
    words: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("unknown device {0:?}: expected soft, cuda or cuda:N")]
    UnknownDevice(String),
    #[error(transparent)]
    Device(OpenError),
    #[error(transparent)]
    Place(#[from] LibraryDirError),
    #[error(transparent)]
    Setting(#[from] ConfigError),
    #[error(
        "soft:{0} cannot be given to a program, which sees all software devices: use soft, and choose device {0} in the program"
    )]
    OneOfSeveral(i32),
    #[error("{LIMIT}: {0}")]
    Limit(String),
    #[error("failed to write {}: {source}", .path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("failed to print the folder: {0}")]
    Print(io::Error),
    #[error("failed to run {}: {}", .program.display(), exec_error_text(.program, .source))]
    Program { program: OsString, source: io::Error },
}

impl RunError {
    /// As in shells: 127 if the program does not exist, 126 if it cannot be executed. 2 for other errors.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Program { source, .. } if source.kind() == ErrorKind::NotFound => 127,
            Self::Program { .. } => 126,
            Self::UnknownDevice(_) | Self::Device(_) | Self::OneOfSeveral(_) | Self::Limit(_) => 2,
            Self::Place(_) | Self::Setting(_) | Self::Record { .. } => 2,
            Self::Print(_) => 1,
        }
    }
}

impl From<OpenError> for RunError {
    /// Names the devices that a program can be given, which are not all that the library opens.
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::UnknownDevice(selector) => Self::UnknownDevice(selector),
            OpenError::BeyondSoft { ordinal, .. } => Self::OneOfSeveral(ordinal),
            error => Self::Device(error),
        }
    }
}

/// Returns why a program was not executed.
fn exec_error_text(program: &OsStr, source: &io::Error) -> String {
    if source.kind() == ErrorKind::PermissionDenied && Path::new(program).is_dir() {
        return "it is a folder, not a program".to_owned();
    }
    let is_executable = |found: Metadata| found.permissions().mode() & 0o111 != 0;
    if source.kind() == ErrorKind::PermissionDenied && !fs::metadata(program).is_ok_and(is_executable) {
        return format!("permission denied: it is not executable; run `chmod +x {}`", Path::new(program).display());
    }
    if source.kind() != ErrorKind::NotFound {
        let text = source.to_string();
        return text.split(" (os error ").next().unwrap_or(&text).to_owned();
    }
    let is_path = program.as_bytes().contains(&b'/');
    let is_there = match is_path {
        true => Path::new(program).exists(),
        false => env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).exists()),
    };
    let text = match (is_there, is_path) {
        (true, _) => "its interpreter or dynamic linker does not exist",
        (false, true) => "No such file or directory: check the path",
        (false, false) => "it is not in PATH; a program in this folder needs ./",
    };
    text.to_owned()
}

/// Returns if the program could not be started, or after printing the folder of the library.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let outcome = if arguments.print_libcuda { print_libcuda() } else { Err(exec(arguments)) };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::from(error.status())
}

fn print_libcuda() -> Result<(), RunError> {
    let folder = libraries()?;
    let mut out = io::stdout().lock();
    out.write_all(folder.as_os_str().as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(RunError::Print)
}

fn exec(arguments: &Arguments) -> RunError {
    let mut command = command(&arguments.words);
    match environment(arguments) {
        Ok(variables) => command.envs(variables),
        Err(error) => return error,
    };
    not_started(&command)(command.exec())
}

/// Returns the command of a program and its arguments.
pub(crate) fn command(words: &[OsString]) -> Command {
    let (program, rest) = words.split_first().expect("clap requires a program");
    let mut command = Command::new(program);
    command.args(rest);
    command
}

/// Returns what makes an error of why a command was not started.
pub(crate) fn not_started(command: &Command) -> impl FnOnce(io::Error) -> RunError + use<> {
    let program = command.get_program().to_owned();
    |source| RunError::Program { program, source }
}

/// Returns the environment variables that select the device, and put the libraries for it in front of others.
fn environment(arguments: &Arguments) -> Result<Vec<(&'static str, OsString)>, RunError> {
    let mut variables = match open::target(arguments.device.as_deref())? {
        Target::Soft { ordinal } => {
            let variables = soft_environment(ordinal, arguments.limit)?;
            let memory_bytes = Config::from_env()?.memory_bytes;
            warnings(arguments, memory_bytes).iter().for_each(|warning| eprintln!("warning: {warning}"));
            variables
        }
        Target::Cuda { ordinal } => {
            let mut variables = gpu_environment(ordinal)?;
            if arguments.limit.is_some() {
                variables.push(preloaded_limit(&library_dir::gpu_libraries()?));
            }
            if arguments.strict {
                variables.push((CUDA_FREE, "synchronous".into()));
            } else if env::var_os(CUDA_FREE).is_none() {
                variables.push((CUDA_FREE, "deferred".into()));
            }
            variables
        }
    };
    variables.extend(limit(arguments)?.map(|bytes| (LIMIT, bytes.to_string().into())));
    if arguments.leak_check {
        variables.push((LEAK_CHECK, "1".into()));
    }
    if let Some(path) = &arguments.record {
        variables.push((RECORD, recording(path)?));
    }
    Ok(variables)
}

/// Says which options change nothing on the software device.
fn warnings(arguments: &Arguments, memory_bytes: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if arguments.strict {
        warnings.push("--strict changes nothing on the software device, whose cudaFree waits in any case".to_owned());
    }
    if let Some(limit) = arguments.limit.filter(|limit| *limit > memory_bytes) {
        let (limit, memory) = (size::format(limit), size::format(memory_bytes));
        warnings.push(format!(
            "--limit {limit} changes nothing: the software device has {memory}, which {SOFT_MEMORY} sets"
        ));
    }
    warnings
}

/// Returns the environment variables of a program on the GPUs, or on one of them.
fn gpu_environment(ordinal: Option<i32>) -> Result<Vec<(&'static str, OsString)>, RunError> {
    let mut variables = preloaded(&library_dir::gpu_libraries()?);
    variables.extend(ordinal.map(device_variables).unwrap_or_default());
    Ok(variables)
}

/// Returns the same for a program whose calls are checked: `cudaFree` is the driver's, as it is without Freehold.
pub(crate) fn checked_gpu_environment(ordinal: Option<i32>) -> Result<Vec<(&'static str, OsString)>, RunError> {
    let mut variables = gpu_environment(ordinal)?;
    variables.push((CUDA_FREE, "driver".into()));
    Ok(variables)
}

/// Returns the environment variables of a program on the software device, with a limit on its memory.
pub(crate) fn soft_environment(
    ordinal: Option<i32>,
    limit: Option<u64>,
) -> Result<Vec<(&'static str, OsString)>, RunError> {
    if let Some(ordinal @ 1..) = ordinal {
        return Err(RunError::OneOfSeveral(ordinal));
    }
    // The program would only get an error code.
    let memory_bytes = Config::from_env()?.memory_bytes;
    let folder = libraries()?;
    let mut variables = software_device(&folder);
    if let Some(bytes) = limit {
        variables.push(preloaded_limit(&folder));
        variables.push((SOFT_MEMORY, bytes.min(memory_bytes).to_string().into()));
    }
    Ok(variables)
}

/// Lets pools of the program find the functions with which they announce their blocks: those of the driver.
pub(crate) fn preload_driver(variables: &mut [(&'static str, OsString)]) -> Result<(), RunError> {
    let folder = libraries()?;
    let preloads = variables.iter_mut().filter(|(name, _)| *name == PRELOAD);
    preloads.for_each(|(_, value)| *value = prepend_path(&paths(&folder, &["libcuda.so.1"]), Some(value)));
    Ok(())
}

/// Empties the file of a recording, and returns its full path: the program may change its folder.
fn recording(path: &Path) -> Result<OsString, RunError> {
    let refused = |source| RunError::Record { path: path.to_owned(), source };
    File::create(path).map_err(refused)?;
    Ok(path::absolute(path).map_err(refused)?.into_os_string())
}

/// Returns the limit of the option, else of the variable: a wrong one would leave the program without a limit.
fn limit(arguments: &Arguments) -> Result<Option<u64>, RunError> {
    let variable = env::var_os(LIMIT).filter(|value| !value.is_empty() && arguments.limit.is_none());
    let Some(value) = variable else { return Ok(arguments.limit) };
    parse_limit(&value.to_string_lossy()).map(Some).map_err(RunError::Limit)
}

/// Returns a limit in bytes, rounded down to whole pages. A device is not smaller than the smallest software device.
fn parse_limit(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    if bytes < LIMIT_BYTES_MIN {
        return Err(format!("expected at least 64MiB, found {text:?}"));
    }
    Ok(bytes / PAGE_BYTES * PAGE_BYTES)
}

/// Returns the environment variables with which the dynamic linker finds the software driver in a folder, and nothing is
/// loaded first.
pub(crate) fn driver_variables(folder: &Path) -> Vec<(&'static str, OsString)> {
    let path = prepend_path(folder.as_os_str(), env::var_os(LIBRARY_PATH).as_deref());
    vec![(LIBRARY_PATH, path), (open::VARIABLE, "soft".into())]
}

/// Returns the environment variables that make one GPU the only visible one.
pub(crate) fn device_variables(ordinal: i32) -> Vec<(&'static str, OsString)> {
    vec![(VISIBLE_DEVICES, visible_devices(ordinal, env::var(VISIBLE_DEVICES).ok().as_deref()))]
}

/// Returns the environment variables of a program on the software device, with the libraries and tools of a folder.
fn software_device(folder: &Path) -> Vec<(&'static str, OsString)> {
    let mut variables = preloaded(folder);
    // Explicit, so that Freehold within the program does not take this library for NVIDIA's.
    variables.push((open::VARIABLE, "soft".into()));
    let bin = folder.join("bin");
    variables.push(("PATH", prepend_path(bin.as_os_str(), env::var_os("PATH").as_deref())));
    let ptxas = bin.join(ptxas::NAME).into_os_string();
    variables.extend(PTXAS_PATHS.iter().map(|name| (*name, ptxas.clone())));
    let caches = KERNEL_CACHES.iter().filter(|(name, _)| env::var_os(name).is_none());
    variables.extend(caches.map(|(name, own)| (*name, folder.join(own).into_os_string())));
    variables
}

/// Returns the environment variables that make the dynamic linker prefer the libraries of a folder.
fn preloaded(folder: &Path) -> Vec<(&'static str, OsString)> {
    let mut variables = Vec::new();
    let mut put_first = |name, path: &OsStr| variables.push((name, prepend_path(path, env::var_os(name).as_deref())));
    put_first(LIBRARY_PATH, folder.as_os_str());
    for (name, libraries) in LOADED_FIRST {
        put_first(name, &paths(folder, libraries));
    }
    variables.push((TUNABLES, with_static_tls(env::var_os(TUNABLES))));
    variables
}

/// Adds the size of the static TLS block to the tunables, unless they state one.
fn with_static_tls(tunables: Option<OsString>) -> OsString {
    let own = format!("{STATIC_TLS}=16384");
    match tunables.filter(|tunables| !tunables.is_empty()) {
        None => own.into(),
        Some(others) if others.to_string_lossy().contains(STATIC_TLS) => others,
        Some(mut others) => {
            others.push(":");
            others.push(own);
            others
        }
    }
}

/// Returns the list of preloaded libraries, with the one for a limit.
fn preloaded_limit(folder: &Path) -> (&'static str, OsString) {
    let libraries = [LOADED_FIRST[0].1, &[LIMITING]].concat();
    (PRELOAD, prepend_path(&paths(folder, &libraries), env::var_os(PRELOAD).as_deref()))
}

/// Returns a list of paths with others in front. An empty entry would mean the current folder. A list that a `freehold run`
/// around this one has made stays as it is.
fn prepend_path(ours: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut path = ours.to_owned();
    let Some(others) = others.filter(|others| !others.is_empty()) else { return path };
    let rest = others.as_bytes().strip_prefix(ours.as_bytes());
    if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b":")) {
        return others.to_owned();
    }
    path.push(":");
    path.push(others);
    path
}

/// Returns the list of libraries in a folder. The dynamic linker takes a space for the end of a path in `LD_PRELOAD`: then only
/// the names are listed, which it looks up in `LD_LIBRARY_PATH`.
fn paths(folder: &Path, libraries: &[&str]) -> OsString {
    let has_space = folder.as_os_str().as_bytes().contains(&b' ');
    let paths = libraries.iter().map(|name| if has_space { PathBuf::from(name) } else { folder.join(name) });
    paths.map(PathBuf::into_os_string).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// Returns the device with this ordinal among those already visible.
fn visible_devices(ordinal: i32, already: Option<&str>) -> OsString {
    let chosen = usize::try_from(ordinal).ok().and_then(|index| already?.split(',').nth(index));
    chosen.map_or_else(|| ordinal.to_string(), |device| device.trim().to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_folder_goes_first_and_alone_adds_no_empty_one() {
        let ours = OsStr::new("/ours");
        assert_eq!(prepend_path(ours, None), "/ours");
        assert_eq!(prepend_path(ours, Some(OsStr::new(""))), "/ours");
        assert_eq!(prepend_path(ours, Some(OsStr::new("/a:/b"))), "/ours:/a:/b");
        assert_eq!(prepend_path(ours, Some(OsStr::new("/ours:/a"))), "/ours:/a");
        assert_eq!(prepend_path(ours, Some(OsStr::new("/ours2"))), "/ours:/ours2");
    }

    #[test]
    fn libraries_in_a_folder_with_a_space_are_listed_by_name() {
        assert_eq!(paths(Path::new("/ours"), &["a.so", "b.so"]), "/ours/a.so:/ours/b.so");
        assert_eq!(paths(Path::new("/our own"), &["a.so", "b.so"]), "a.so:b.so");
    }

    #[test]
    fn static_tls_is_reserved_unless_the_tunables_say_how_much() {
        let reserved = |tunables: &str| with_static_tls(Some(tunables.into()));
        assert_eq!(with_static_tls(None), "glibc.rtld.optional_static_tls=16384");
        assert_eq!(reserved(""), "glibc.rtld.optional_static_tls=16384");
        assert_eq!(reserved("glibc.malloc.perturb=1"), "glibc.malloc.perturb=1:glibc.rtld.optional_static_tls=16384");
        assert_eq!(reserved("glibc.rtld.optional_static_tls=99"), "glibc.rtld.optional_static_tls=99");
    }

    #[test]
    fn an_ordinal_counts_the_devices_that_are_visible() {
        assert_eq!(visible_devices(1, None), "1");
        assert_eq!(visible_devices(1, Some("4, 6")), "6");
    }
}
