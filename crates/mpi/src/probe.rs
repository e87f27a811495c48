//! Whether the library takes device memory, found out by giving it some, in processes that may die of it. The answer is remembered.
//!
//! What a library says of itself is no answer: one that was built without CUDA passes device memory well over transports that
//! know of it, and dies of it over its own (fact 1.8).

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::raw::library_name;

/// How long processes of a probe have.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a probe prints when all went well.
pub(crate) const TAKEN: &str = "taken";

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub(crate) takes_messages: bool,
    pub(crate) takes_reductions: bool,
    pub(crate) why: String,
}

impl Finding {
    /// Of a rank that leaves it to another.
    pub(crate) const NONE_NEEDED: Self = Self { takes_messages: true, takes_reductions: true, why: String::new() };

    fn refused(why: String) -> Self {
        Self { takes_messages: false, takes_reductions: false, why }
    }
}

/// What is known of the library over the transports that the environment names, with this device; probed if nothing is.
pub(crate) fn find(device: &str) -> Finding {
    let key = format!("{}; {device}; {}", library_name(), transports().join(" "));
    if let Some(known) = remembered().remove(&key) {
        return known;
    }
    let Some(program) = program() else {
        let why =
            "no program freehold-mpi lies beside this one or in PATH, to try it with; FREEHOLD_MPI=direct forces it";
        return Finding::refused(why.to_owned());
    };
    let finding = probe(&program);
    remember(key, &finding);
    finding
}

fn probe(program: &Path) -> Finding {
    let library = library_name();
    let (who, answer) = match tried(program, "messages", Ranks::Two) {
        // No launcher, or one that does not start: a process alone sends to itself.
        Trial::NotStarted => ("a process that sent device memory to itself", tried(program, "messages", Ranks::One)),
        answer => ("two processes that passed device memory on", answer),
    };
    match answer {
        Trial::Taken => {}
        Trial::NotStarted => return Finding::refused(format!("{} cannot be started to try it", program.display())),
        Trial::Died(how) => return Finding::refused(format!("{who} through {library} died of it: {how}")),
        Trial::Late => {
            return Finding::refused(format!("{who} through {library} were not done after {} s", PATIENCE.as_secs()));
        }
    }
    let reductions = match tried(program, "reductions", Ranks::Two) {
        Trial::NotStarted => tried(program, "reductions", Ranks::One),
        answer => answer,
    };
    let takes_reductions = matches!(reductions, Trial::Taken);
    let but = if takes_reductions { "" } else { "; collective calls did not take it" };
    Finding { takes_messages: true, takes_reductions, why: format!("{who} through {library} went well{but}") }
}

enum Ranks {
    One,
    Two,
}

enum Trial {
    Taken,
    Died(String),
    Late,
    NotStarted,
}

fn tried(program: &Path, what: &str, ranks: Ranks) -> Trial {
    let mut command = match ranks {
        Ranks::One => Command::new(program),
        Ranks::Two => match launcher() {
            None => return Trial::NotStarted,
            Some((launcher, words)) => {
                let mut command = Command::new(launcher);
                command.args(words).arg(program);
                command
            }
        },
    };
    command.arg("probe").arg(what).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    for (name, _) in env::vars_os() {
        if is_of_this_run(&name) {
            command.env_remove(name);
        }
    }
    // Whoever runs this as root has allowed it once.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let Ok(mut child) = command.spawn() else { return Trial::NotStarted };
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                end(&mut child);
                return Trial::Late;
            }
            Err(error) => return Trial::Died(error.to_string()),
        }
    };
    let mut said = String::new();
    let read = child.stdout.take().map(|mut output| output.read_to_string(&mut said));
    match (status.success(), read, said.contains(TAKEN), said.contains(BEGUN)) {
        (true, Some(Ok(_)), true, _) => Trial::Taken,
        // The launcher refused, for its own reasons.
        (_, _, _, false) => Trial::NotStarted,
        _ => Trial::Died(status.to_string()),
    }
}

/// What a probe prints when MPI has begun, and it is about to give it device memory.
pub(crate) const BEGUN: &str = "begun";

/// Ends a launcher, which ends its ranks when it is asked to.
fn end(child: &mut Child) {
    // One that has ended meanwhile is as well.
    let asked = kill_process(Pid::from_child(child), Signal::TERM);
    let began = Instant::now();
    while asked.is_ok() && began.elapsed() < Duration::from_secs(3) {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    // The same holds here.
    let _ = child.kill();
    let _ = child.wait();
}

/// What starts two ranks of this library's.
fn launcher() -> Option<(PathBuf, &'static [&'static str])> {
    let (names, words): (&[&str], &[&str]) = if library_name().starts_with("Open MPI") {
        (&["mpirun.openmpi", "mpirun"], &["--oversubscribe", "--bind-to", "none", "-n", "2"])
    } else {
        (&["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], &["-n", "2"])
    };
    let found = names.iter().find_map(|name| in_path(name))?;
    Some((found, words))
}

/// The binary of this crate.
fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| {
        let folder = own.parent()?.to_owned();
        // Tests lie one folder deeper.
        let folders = [Some(folder.clone()), folder.parent().map(Path::to_owned)];
        folders.into_iter().flatten().map(|folder| folder.join("freehold-mpi")).find(|path| path.is_file())
    });
    beside.or_else(|| in_path("freehold-mpi"))
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// What the environment says of transports, by name.
fn transports() -> Vec<String> {
    let mut chosen: Vec<_> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_of_transports(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    chosen.sort_unstable();
    chosen
}

fn is_of_transports(name: &str) -> bool {
    let open = ["pml", "btl", "mtl", "osc", "coll", "opal_cuda", "smsc"];
    let chosen = name.strip_prefix("OMPI_MCA_").is_some_and(|name| open.iter().any(|part| name.starts_with(part)));
    chosen || name.starts_with("UCX_") || name.starts_with("MPICH_") || name.starts_with("MPIR_CVAR_")
}

/// Whether a variable tells a process which rank of which run it is: a probe is none of this run's.
fn is_of_this_run(name: &OsString) -> bool {
    let Some(name) = name.to_str() else { return false };
    let of_runs = ["OMPI_", "PMIX_", "PMI_", "PRTE_", "ORTE_", "HYDI_", "HYDRA_", "MPI_LOCAL", "MPIEXEC_"];
    let stays = is_of_transports(name) || name.starts_with("OMPI_ALLOW_RUN_AS_ROOT");
    !stays && of_runs.iter().any(|prefix| name.starts_with(prefix))
}

fn file() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(folder.join("freehold").join("mpi-probe.json"))
}

/// What was found before. Nothing, where it cannot be read: it is found again.
fn remembered() -> BTreeMap<String, Finding> {
    let text = file().and_then(|path| fs::read(path).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Remembers a finding, for the next time; without a place for it, that probes again.
fn remember(key: String, finding: &Finding) {
    let Some(path) = file() else { return };
    let mut all = remembered();
    all.insert(key, finding.clone());
    let Ok(text) = serde_json::to_vec_pretty(&all) else { return };
    let new = path.with_extension(format!("{}", std::process::id()));
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&new, text));
    if written.and_then(|()| fs::rename(&new, &path)).is_err() {
        // Nobody reads it then.
        let _ = fs::remove_file(&new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_keeps_the_transports_and_forgets_the_run() {
        for name in ["OMPI_MCA_pml", "OMPI_MCA_btl", "UCX_TLS", "OMPI_ALLOW_RUN_AS_ROOT", "PATH", "FREEHOLD_DEVICE"] {
            assert!(!is_of_this_run(&name.into()), "{name}");
        }
        for name in ["OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "PMI_RANK", "OMPI_MCA_orte_hnp_uri"] {
            assert!(is_of_this_run(&name.into()), "{name}");
        }
    }
}
