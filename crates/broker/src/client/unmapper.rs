//! The thread that unmaps segments that the broker reclaims, because other tenants wait for the memory while the
//! program is busy. It sleeps on the ring only after a pause, so that it does not slow down a busy tenant or its
//! broker.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::protocol::ring::{Sleeper, Waiter};

/// How long the ring must be idle before the thread sleeps on it.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// How long it waits for work that uses a segment.
const UNMAP_RETRY: Duration = Duration::from_millis(1);

/// How long it sleeps before it checks whether its tenant still exists.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(500);

/// Starts the thread. `unmap` unmaps the segments that it can, and returns whether none is left: the thread ends when
/// it returns `None`, because the last handle is gone, or an error of the connection.
pub(super) fn start<E: Display>(
    ring: Arc<Waiter>,
    unmap: impl FnMut() -> Option<Result<bool, E>> + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name("freehold-unmap".into()).spawn(move || run(&ring, unmap)).map(drop)
}

fn run<E: Display>(ring: &Waiter, mut unmap: impl FnMut() -> Option<Result<bool, E>>) {
    loop {
        let seen = ring.replied();
        let Some(left) = unmap() else { return };
        match left {
            Ok(true) => {
                thread::park_timeout(BUSY_WAIT);
                if ring.replied() == seen {
                    ring.sleep(Sleeper::Unmapper, seen, LIVENESS_INTERVAL);
                }
            }
            Ok(false) => thread::park_timeout(UNMAP_RETRY),
            Err(error) => {
                tracing::debug!(target: "freehold", %error, "segments are no longer unmapped before this process ends");
                return;
            }
        }
    }
}
