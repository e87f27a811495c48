//! The processor time of the commands that a step or a case runs: a loaded machine changes it less than the time on the clock.
//!
//! A thread has a meter, which counts what its commands used. The kernel tells it when a child is waited for, together with
//! what the child's own children used, if the child has waited for them.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts processor time, for one thread or several.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    micros: Arc<AtomicU64>,
}

thread_local! {
    static METER: RefCell<Meter> = RefCell::default();
}

impl Meter {
    /// The meter of this thread.
    pub(crate) fn current() -> Self {
        METER.with_borrow(Self::clone)
    }

    /// Makes it the meter of this thread while `work` runs.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = METER.replace(self.clone());
        let result = work();
        METER.set(before);
        result
    }

    pub(crate) fn used(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    fn add(&self, used: Duration) {
        self.micros.fetch_add(used.as_micros() as u64, Ordering::Relaxed);
    }
}

/// Waits for a child, and counts what it used with the meter of this thread. The child must not have been waited for.
pub(crate) fn wait(child: Child) -> io::Result<ExitStatus> {
    let process = child.id().cast_signed();
    // Otherwise a child that reads its input would wait for this program.
    drop(child);
    let (mut status, mut usage) = (0, MaybeUninit::uninit());
    loop {
        // SAFETY: both pointers are to values of this function, which `wait4` may write.
        if unsafe { libc::wait4(process, &raw mut status, 0, usage.as_mut_ptr()) } == process {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: `wait4` has returned the child, so it has written what the child used.
    let usage: libc::rusage = unsafe { usage.assume_init() };
    Meter::current().add(duration(usage.ru_utime) + duration(usage.ru_stime));
    Ok(ExitStatus::from_raw(status))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_micros(time.tv_usec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_a_child_and_its_children_used_is_counted_by_the_meter_of_the_thread() {
        let meter = Meter::default();
        let busy = "busy() { i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; }; (busy; exit 0); exit 3";
        let status = meter.during(|| wait(Command::new("sh").args(["-c", busy]).spawn().expect("sh starts")));
        assert_eq!(status.expect("sh is a child").code(), Some(3));
        assert!(meter.used() > Duration::ZERO);
        assert_eq!(Meter::current().used(), Duration::ZERO);
    }
}
