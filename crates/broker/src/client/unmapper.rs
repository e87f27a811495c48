//! The thread that leaves segments while its tenant does something else: others wait for their memory. It sleeps at the ring
//! when nothing has come for a while, so that a tenant at work is not held up, nor its broker.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::broker::{Broker, BrokerInner};
use crate::ring::{Sleeper, Waiter};

/// How long nothing has to come before it sleeps at the ring.
const BUSY_WAIT: Duration = Duration::from_millis(10);

/// How long it lets work go on that holds a segment up.
const UNMAP_RETRY: Duration = Duration::from_millis(1);

/// How long it sleeps before it looks whether its tenant is still there.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(500);

/// Starts it. It ends with the last handle, or with the connection.
pub(super) fn start(inner: &Arc<BrokerInner>, ring: Arc<Waiter>) -> io::Result<()> {
    let tenant = Arc::downgrade(inner);
    thread::Builder::new().name("freehold-leaver".into()).spawn(move || run(&tenant, &ring)).map(drop)
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
                tracing::debug!(target: "freehold", %error, "segments are left with this process from now on");
                return;
            }
        }
    }
}
