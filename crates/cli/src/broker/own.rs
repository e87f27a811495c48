//! A broker that a command starts for itself, in a folder of its own; both go with it.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Own {
    folder: PathBuf,
    serve: Child,
    /// The device, as the broker tells it.
    pub(crate) device: String,
    /// Where clients elsewhere find it, if it listens.
    pub(crate) url: Option<String>,
}

impl Own {
    /// Starts it with so much memory; `more` says what else it is told.
    pub(crate) fn start(memory: &str, device: Option<&str>, more: impl FnOnce(&mut Command)) -> io::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("freehold-own-{process}-{number}"));
        std::fs::create_dir_all(&folder)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--memory", memory, "--socket"]).arg(folder.join("broker")).stdout(Stdio::piped());
        if let Some(device) = device {
            command.args(["--device", device]);
        }
        more(&mut command);
        let mut serve = command.spawn()?;
        let output = serve.stdout.take().expect("it is piped");
        let mut own = Self { folder, serve, device: String::new(), url: None };
        for (at, line) in BufReader::new(output).lines().map_while(Result::ok).enumerate() {
            if at == 0 {
                own.device = line;
            } else if let Some(url) = line.strip_prefix("clients elsewhere find it at ") {
                own.url = Some(url.replace("127.0.0.1", "localhost"));
            } else if line.starts_with("stop it with ") {
                return Ok(own);
            }
        }
        Err(io::Error::other("it did not start: what it says above is why"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("broker")
    }

    /// For what else the command needs while it runs.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let keeper = rustix::process::Pid::from_child(&self.serve);
        // The keeper ends its broker. Where it is gone, so is that; and a folder that stays is the system's to clear.
        let _ = rustix::process::kill_process(keeper, rustix::process::Signal::TERM);
        let _ = self.serve.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
