//! The thread that unmaps segments which the broker wants back, while the program does something else: other tenants
//! wait for the memory. It sleeps on the ring only after a pause, so that it does not slow down a busy tenant or its
//! broker.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::broker::{Broker, BrokerInner};
use crate::protocol::ring::{Sleeper, Waiter};

/// How long no message must come before it sleeps on the ring.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// How long it waits for work that uses a segment.
const UNMAP_RETRY: Duration = Duration::from_millis(1);

/// How long it sleeps before it checks whether its tenant still exists.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(500);

/// Starts the thread. It ends with the last handle, or with the connection.
pub(super) fn start(inner: &Arc<BrokerInner>, ring: Arc<Waiter>) -> io::Result<()> {
    let tenant = Arc::downgrade(inner);
    thread::Builder::new().name("freehold-unmap".into()).spawn(move || run(&tenant, &ring)).map(drop)
}

fn run(tenant: &Weak<BrokerInner>, ring: &Waiter) {
    loop {
        let seen = ring.replied();
        let Some(inner) = tenant.upgrade() else { return };
        let broker = Broker { inner };
        let left = broker.begin_unmaps().and_then(|()| broker.finish_unmaps());
        drop(broker);
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
