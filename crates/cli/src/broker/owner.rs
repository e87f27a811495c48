//! The process that a broker belongs to, and ends with: `serve --own-of`.

use std::io;
use std::path::Path;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Returns the common prefix of the folders of a process's brokers.
pub(crate) fn folder_prefix(process: u32) -> String {
    format!("freehold-own-{process}-")
}

/// Called in the started process: requests a signal for when `process` has ended. Fails if it has ended already.
pub(crate) fn die_with(process: u32, signal: Signal) -> io::Result<()> {
    set_parent_process_death_signal(Some(signal))?;
    match getppid().is_some_and(|parent| parent.as_raw_nonzero().get().unsigned_abs() == process) {
        true => Ok(()),
        false => Err(io::Error::other("the parent process has exited")),
    }
}

/// Called in the broker when it has ended: removes the folder, in case the process was killed.
pub(super) fn remove_folder(process: u32, socket: &Path) {
    let of_it = |folder: &&Path| {
        folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&folder_prefix(process)))
    };
    if let Some(folder) = socket.parent().filter(of_it) {
        // The system removes leftover folders.
        let _ = std::fs::remove_dir_all(folder);
    }
}
