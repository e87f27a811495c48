//! The end of a worker.

use rustix::process::{Signal, getpid, kill_process};

/// Kills this process: any other exit could block in a failed driver or behind a kernel that hangs.
pub(super) fn kill_self() -> ! {
    loop {
        // A process may always kill itself.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}
