//! A broker that a command starts for itself, in its own folder. Both end with the command, even if it is killed.

use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};

use crate::broker::owner;

#[derive(Debug)]
pub(crate) struct EphemeralBroker {
    folder: PathBuf,
    process: Child,
    /// The device, as the broker prints it.
    pub(crate) device: String,
    /// The URL for remote clients, if it listens.
    pub(crate) url: Option<String>,
}

impl EphemeralBroker {
    /// Starts a broker with `memory`, in a thread that must outlive it; `more` adds arguments.
    pub(crate) fn start(memory: &str, device: Option<&str>, more: impl FnOnce(&mut Command)) -> io::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("{}{number}", owner::folder_prefix(process)));
        // Private, so that no other user can write to it.
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", folder.display())))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--memory", memory, "--socket"]).arg(folder.join("broker")).stdout(Stdio::piped());
        // It ends when this process does; a Ctrl-C of the terminal does not reach it.
        command.args(["--own-of", &process.to_string()]).process_group(0);
        if let Some(device) = device {
            command.args(["--device", device]);
        }
        more(&mut command);
        let mut serve = command.spawn()?;
        let output = serve.stdout.take().expect("it is piped");
        let mut own = Self { folder, process: serve, device: String::new(), url: None };
        for (at, line) in BufReader::new(output).lines().map_while(Result::ok).enumerate() {
            if at == 0 {
                own.device = line;
            } else if let Some(url) = line.strip_prefix("remote clients connect to ") {
                own.url = Some(url.replace("127.0.0.1", "localhost"));
            } else if line.starts_with("stop it with ") {
                return Ok(own);
            }
        }
        Err(io::Error::other("the broker did not start; its output above says why"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("broker")
    }

    /// Returns the folder, for other files that the command needs while it runs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for EphemeralBroker {
    fn drop(&mut self) {
        let fdstore = Pid::from_child(&self.process);
        // The fdstore ends its broker. If it was killed, another one has taken its place, which this process does not
        // know. The system removes leftover folders.
        let _ = rustix::process::kill_process(fdstore, Signal::TERM);
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
