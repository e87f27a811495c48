//! Probes whether the MPI library accepts device memory, by passing it some in child processes that may crash. Results
//! are cached.
//!
//! A library's report about itself is not enough: a library built without CUDA passes device memory correctly over
//! transports that support it, and crashes over its own.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use freehold::Device;
use freehold::open::list::{self, Listed};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::raw::library_name;

/// How long the processes of a probe may run.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Printed by a probe's process once MPI is initialized, before it passes device memory; and printed when all transfers
/// worked.
pub(crate) const STARTED: &str = "begun";
pub(crate) const ACCEPTED: &str = "taken";

/// How many bytes of the processes' error output a reason quotes.
const REASON_BYTES_MAX: usize = 300;

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProbeResult {
    pub(crate) takes_messages: bool,
    pub(crate) takes_reductions: bool,
    pub(crate) why: String,
}

impl ProbeResult {
    /// For a rank that leaves the probe to another.
    pub(crate) const UNNEEDED: Self = Self { takes_messages: true, takes_reductions: true, why: String::new() };

    fn refused(why: String) -> Self {
        Self { takes_messages: false, takes_reductions: false, why }
    }
}

/// A probe: whether the library accepts device memory in messages and in collective calls, the reason, and every
/// attempt.
#[doc(hidden)]
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    pub takes_messages: bool,
    pub takes_reductions: bool,
    pub why: String,
    pub attempts: Vec<Attempt>,
    /// Variables that the processes did not inherit, because they describe this run.
    pub withheld: Vec<String>,
}

/// One run of a probe's processes.
#[doc(hidden)]
#[derive(Clone, Debug, Serialize)]
pub struct Attempt {
    /// The command line.
    pub command: String,
    pub took_ms: u128,
    pub ending: AttemptOutcome,
    pub printed: String,
    pub complained: String,
}

/// How an attempt ended.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum AttemptOutcome {
    Taken,
    /// Crashed with device memory in use by the library.
    Died(String),
    Late,
    /// Ended before it passed any device memory; says nothing about the library.
    NotBegun(String),
}

/// Returns the cached result for this library, these transports and this device, or probes.
pub(crate) fn find_or_probe(device: &Device) -> Result<ProbeResult> {
    if let Some(found) = read_cache().remove(&key(device)?) {
        return Ok(found);
    }
    let Probe { takes_messages, takes_reductions, why, .. } = run_probe(device)?;
    Ok(ProbeResult { takes_messages, takes_reductions, why })
}

/// Probes without looking at the cache, and caches the result.
pub(crate) fn run_probe(device: &Device) -> Result<Probe> {
    let mut attempts = Vec::new();
    let finding = match program() {
        None => {
            let why = "freehold-mpi, which probes, is neither beside this program nor in PATH; FREEHOLD_MPI=direct skips the probe";
            ProbeResult::refused(why.to_owned())
        }
        Some(program) => probe(&program, selector_of(device)?.as_deref(), &mut attempts),
    };
    // An attempt that did not start may start next time.
    if attempts.iter().any(|attempt| !matches!(attempt.ending, AttemptOutcome::NotBegun(_))) {
        write_cache(key(device)?, &finding);
    }
    let ProbeResult { takes_messages, takes_reductions, why } = finding;
    let withheld = env::vars_os().map(|(name, _)| name).filter(is_launch_variable);
    let withheld = withheld.map(|name| name.to_string_lossy().into_owned()).collect();
    Ok(Probe { takes_messages, takes_reductions, why, attempts, withheld })
}

/// Returns the selector of this device for another process. Devices with the same name are interchangeable, except that
/// an OpenCL device may have the name of a CUDA device, and libraries do not accept its memory.
fn selector_of(device: &Device) -> Result<Option<String>> {
    let name = device.name()?;
    let (listed, _) = list::devices();
    let is_it = |listed: &Listed| listed.name == name && listed.device.starts_with("opencl") != is_cuda(device);
    Ok(listed.into_iter().find(is_it).map(|listed| listed.device))
}

fn is_cuda(device: &Device) -> bool {
    device.backend().is_cuda()
}

fn probe(program: &Path, selector: Option<&str>, attempts: &mut Vec<Attempt>) -> ProbeResult {
    let library = library_name();
    let mut tried = |what| {
        let pair = attempt(program, (what, selector), Ranks::Two);
        let answer = match pair.ending.clone() {
            // Without a working launcher, a single process sends to itself.
            AttemptOutcome::NotBegun(why) => {
                let alone = attempt(program, (what, selector), Ranks::One);
                let ending = match alone.ending.clone() {
                    AttemptOutcome::NotBegun(also) => {
                        AttemptOutcome::NotBegun(format!("two processes: {why}; one process: {also}"))
                    }
                    ending => ending,
                };
                attempts.extend([pair, alone]);
                return ("sending device memory from a process to itself", ending);
            }
            ending => ending,
        };
        attempts.push(pair);
        ("sending device memory between two processes", answer)
    };
    let (who, answer) = tried("messages");
    match answer {
        AttemptOutcome::Taken => {}
        AttemptOutcome::NotBegun(why) => {
            return ProbeResult::refused(format!("the probe did not start; see `freehold mpi probe`: {why}"));
        }
        AttemptOutcome::Died(how) => return ProbeResult::refused(format!("{who} with {library} crashed: {how}")),
        AttemptOutcome::Late => {
            return ProbeResult::refused(format!("{who} with {library} timed out after {} s", PROBE_TIMEOUT.as_secs()));
        }
    }
    let takes_reductions = tried("reductions").1 == AttemptOutcome::Taken;
    let but = if takes_reductions { "" } else { "; collective calls on it failed" };
    ProbeResult { takes_messages: true, takes_reductions, why: format!("{who} with {library} worked{but}") }
}

#[derive(Clone, Copy)]
enum Ranks {
    One,
    Two,
}

/// Runs the processes of one attempt.
fn attempt(program: &Path, (what, selector): (&str, Option<&str>), ranks: Ranks) -> Attempt {
    let began = Instant::now();
    let mut command = match ranks {
        Ranks::One => Command::new(program),
        Ranks::Two => {
            let (names, words) = launchers();
            let Some(launcher) = launcher(names) else {
                let why = format!("{} is not in PATH", names.join(" or "));
                let (command, said) = (names.join(" or "), String::new());
                let ending = AttemptOutcome::NotBegun(why);
                return Attempt { command, took_ms: 0, ending, printed: said.clone(), complained: said };
            };
            let mut command = Command::new(&launcher);
            // Called by its path, Open MPI's launcher puts its own libraries before those in LD_LIBRARY_PATH.
            command.arg0(launcher.file_name().unwrap_or_default()).args(words).arg(program);
            command
        }
    };
    command.arg("try").arg(what).stdin(Stdio::null());
    // The environment may select another device.
    command.args(selector.into_iter().flat_map(|selector| ["--device", selector]));
    env::vars_os().map(|(name, _)| name).filter(is_launch_variable).for_each(|name| {
        command.env_remove(name);
    });
    // A user who runs this as root has already allowed it.
    for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
        command.env(variable, "1").env(format!("{variable}_CONFIRM"), "1");
    }
    // Without ssh the launcher does not start, although both processes run on this machine.
    if env::var_os(LAUNCH_AGENT).is_none() {
        command.env(LAUNCH_AGENT, "sh");
    }
    let typed = std::iter::once(command.get_program()).chain(command.get_args());
    let typed = typed.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let (ending, [printed, complained]) = match outcome(&mut command) {
        Ok(outcome) => outcome,
        Err(error) => (AttemptOutcome::NotBegun(format!("failed to start {typed}: {error}")), Default::default()),
    };
    Attempt { command: typed, took_ms: began.elapsed().as_millis(), ending, printed, complained }
}

/// Runs a command until it ends. Returns the outcome, its output and its error output.
fn outcome(command: &mut Command) -> io::Result<(AttemptOutcome, [String; 2])> {
    // Files, because a full pipe would block processes that print much.
    let said = [memory_file()?, memory_file()?];
    let mut child = command.stdout(said[0].try_clone()?).stderr(said[1].try_clone()?).spawn()?;
    let began = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if began.elapsed() < PROBE_TIMEOUT => thread::sleep(Duration::from_millis(5)),
            None => {
                kill(&mut child)?;
                break None;
            }
        }
    };
    let [printed, complained] = said.map(|file| text(&file));
    let (printed, complained) = (printed?, complained?);
    let reason = |status: ExitStatus| match last_line(&complained) {
        said if said.is_empty() => status.to_string(),
        said => format!("{status}: {said}"),
    };
    let ending = match status {
        None => AttemptOutcome::Late,
        Some(status) if status.success() && printed.contains(ACCEPTED) => AttemptOutcome::Taken,
        Some(status) if printed.contains(STARTED) => AttemptOutcome::Died(reason(status)),
        Some(status) => AttemptOutcome::NotBegun(reason(status)),
    };
    Ok((ending, [printed, complained]))
}

/// Creates an anonymous file.
fn memory_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("freehold-mpi-probe", rustix::fs::MemfdFlags::CLOEXEC)?))
}

/// Reads a whole file, without moving its writers' offset.
fn text(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the end of the error output as one line, without separator lines.
fn last_line(complained: &str) -> String {
    let lines = complained.lines().filter(|line| line.chars().any(char::is_alphanumeric));
    let words: Vec<_> = lines.flat_map(str::split_whitespace).collect();
    let mut length = 0;
    let kept = words.iter().rev().take_while(|word| {
        length += word.len() + 1;
        length <= REASON_BYTES_MAX
    });
    words[words.len() - kept.count()..].join(" ")
}

/// Ends a launcher, which ends its ranks when it gets SIGTERM.
fn kill(child: &mut Child) -> io::Result<()> {
    // The launcher may have ended already.
    let asked = kill_process(Pid::from_child(child), Signal::TERM);
    let began = Instant::now();
    while asked.is_ok() && began.elapsed() < Duration::from_secs(3) {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait().map(drop)
}

/// The command that Open MPI's launcher uses to start processes on other machines.
const LAUNCH_AGENT: &str = "OMPI_MCA_plm_rsh_agent";

/// Returns the names of this library's launcher, and its arguments for two ranks.
fn launchers() -> (&'static [&'static str], &'static [&'static str]) {
    if library_name().starts_with("Open MPI") {
        (&["mpirun.openmpi", "mpirun"], &["--oversubscribe", "--bind-to", "none", "-n", "2"])
    } else {
        (&["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], &["-n", "2"])
    }
}

/// Finds the launcher: beside the one that started this process, or in PATH.
fn launcher(names: &[&str]) -> Option<PathBuf> {
    let beside = names.iter().find_map(|name| {
        let path = folder_of_launcher()?.join(name);
        path.is_file().then_some(path)
    });
    beside.or_else(|| names.iter().find_map(|name| in_path(name)))
}

/// Returns the folder of the launcher that started this process, if there is one and it is visible.
fn folder_of_launcher() -> Option<PathBuf> {
    let mut process = "self".to_owned();
    loop {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        process = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().to_owned();
        let program = fs::read_link(format!("/proc/{process}/exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        let launchers = ["mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "hydra"];
        if launchers.iter().any(|launcher| name.starts_with(launcher)) {
            return Some(program.parent()?.to_owned());
        }
    }
}

/// Finds the program freehold-mpi.
fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| {
        let folder = own.parent()?.to_owned();
        // Test programs are one folder deeper.
        let folders = [Some(folder.clone()), folder.parent().map(Path::to_owned)];
        folders.into_iter().flatten().map(|folder| folder.join("freehold-mpi")).find(|path| path.is_file())
    });
    beside.or_else(|| in_path("freehold-mpi"))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the cache key: library, device and transports.
fn key(device: &Device) -> Result<String> {
    let kind = if is_cuda(device) { "" } else { "; OpenCL" };
    Ok(format!("{}; {}{kind}; {}", library_name(), device.name()?, transports().join(" ")))
}

/// Returns the environment variables that select transports.
fn transports() -> Vec<String> {
    let mut chosen: Vec<_> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_transport_variable(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    chosen.sort_unstable();
    chosen
}

/// Includes LD_LIBRARY_PATH, which may select the transport's library.
fn is_transport_variable(name: &str) -> bool {
    let open = ["pml", "btl", "mtl", "osc", "coll", "opal_cuda", "smsc"];
    let chosen = name.strip_prefix("OMPI_MCA_").is_some_and(|name| open.iter().any(|part| name.starts_with(part)));
    let others = ["UCX_", "MPICH_", "MPIR_CVAR_"];
    chosen || name == "LD_LIBRARY_PATH" || others.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a variable tells a process its rank and run. A probe does not belong to this run, so it does not
/// inherit them. It inherits the user's settings of the library and its launcher.
fn is_launch_variable(name: &OsString) -> bool {
    let Some(name) = name.to_str() else { return false };
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let of_runs = ["OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "HYDI_", "MPI_LOCAL"];
    let of_users =
        ["OMPI_MCA_", "OMPI_ALLOW_", "PMIX_MCA_", "PMIX_INSTALL_", "PRTE_MCA_", "PRTE_ALLOW_", "PRTE_PREFIX"];
    // Settings that launchers pass to their ranks under the prefix of users' settings.
    let said = ["ess", "orte_", "prte_", "pmix", "initial_wdir", "mpi_oversubscribe", "shmem_RUNTIME"];
    let setting = name.strip_prefix("OMPI_MCA_").or_else(|| name.strip_prefix("PRTE_MCA_"));
    let is_said = setting.is_some_and(|setting| said.iter().any(|part| setting.starts_with(part)));
    begins(&of_runs) && (!begins(&of_users) || is_said && name != "OMPI_MCA_orte_tmpdir_base")
}

/// Returns the file in the folder that `freehold run` uses too.
fn cache_file() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    let user = rustix::process::geteuid().as_raw();
    Some(folder.join(format!("freehold-{user}")).join("mpi-probe.json"))
}

/// Reads the cached results. An unreadable cache counts as empty.
fn read_cache() -> BTreeMap<String, ProbeResult> {
    let text = cache_file().and_then(|path| fs::read(path).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Caches a result. If that fails, the next run probes again.
fn write_cache(key: String, finding: &ProbeResult) {
    let Some(path) = cache_file() else { return };
    let mut all = read_cache();
    all.insert(key, finding.clone());
    let Ok(text) = serde_json::to_vec_pretty(&all) else { return };
    let new = path.with_extension(format!("{}", std::process::id()));
    // `freehold run` keeps its libraries in the same folder, and refuses one that others can write to.
    let mut folders = DirBuilder::new();
    folders.recursive(true).mode(0o700);
    let created = path.parent().map_or(Ok(()), |folder| folders.create(folder));
    let written = created.and_then(|()| fs::write(&new, text));
    if written.and_then(|()| fs::rename(&new, &path)).is_err() {
        // An incomplete file is never read.
        let _ = fs::remove_file(&new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_keeps_the_transports_and_forgets_the_run() {
        let kept = [
            "OMPI_MCA_pml",
            "OMPI_MCA_btl",
            "OMPI_MCA_plm_rsh_agent",
            "OMPI_MCA_mca_base_component_path",
            "OMPI_MCA_orte_tmpdir_base",
            "OMPI_ALLOW_RUN_AS_ROOT",
            "OPAL_PREFIX",
            "PMIX_INSTALL_PREFIX",
            "PMIX_MCA_gds",
            "UCX_TLS",
            "HYDRA_LAUNCHER",
            "PATH",
            "FREEHOLD_DEVICE",
        ];
        for name in kept {
            assert!(!is_launch_variable(&name.into()), "{name}");
        }
        let forgotten = [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_MCA_ess",
            "OMPI_MCA_orte_hnp_uri",
            "OMPI_MCA_pmix",
            "PMIX_NAMESPACE",
            "PMIX_SERVER_URI2",
            "PMI_RANK",
            "HYDI_CONTROL_FD",
            "MPI_LOCALRANKID",
        ];
        for name in forgotten {
            assert!(is_launch_variable(&name.into()), "{name}");
        }
    }

    #[test]
    fn a_reason_is_the_last_line_of_stderr() {
        assert_eq!(last_line("-----\n no ssh\n\tis there\n-----\n"), "no ssh is there");
        assert_eq!(last_line("--\n"), "");
        let long = format!("first {}last\n", "word ".repeat(100));
        assert!(!last_line(&long).contains("first") && last_line(&long).ends_with(" word last"));
    }

    #[test]
    fn a_process_that_ends_before_it_started_reports_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes begging | head -c 200000 >&2; echo refused >&2; exit 3"]);
        let (ending, said) = outcome(&mut command).expect("sh starts");
        let AttemptOutcome::NotBegun(why) = ending else { panic!("{ending:?}") };
        assert!(why.starts_with("exit status: 3: ") && why.ends_with(" begging refused"), "{why}");
        assert_eq!(said[1].len(), 200_008);
        let mut command = Command::new("sh");
        let (ending, _) = outcome(command.args(["-c", "echo begun; kill -SEGV $$"])).expect("sh starts");
        assert_eq!(ending, AttemptOutcome::Died("signal: 11 (SIGSEGV)".to_owned()));
        assert!(outcome(&mut Command::new("/nowhere")).is_err());
    }
}
