//! The thread that leaves segments while its tenant does something else: others wait for their memory. It sleeps at the ring
//! when nothing has come for a while, so that a tenant at work is not held up, nor its broker.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::tenant::{Broker, Inner};
use crate::ring::{Doorstep, Sleeper};

/// How long nothing has to come before it sleeps at the ring.
const BUSY: Duration = Duration::from_millis(10);

/// How long it lets work go on that holds a segment up.
const UNMAP: Duration = Duration::from_millis(1);

/// How long it sleeps before it looks whether its tenant is still there.
const LOOK: Duration = Duration::from_millis(500);

/// Starts it. It ends with the last handle, or with the connection.
pub(super) fn start(inner: &Arc<Inner>, ring: Arc<Doorstep>) -> io::Result<()> {
    let tenant = Arc::downgrade(inner);
    thread::Builder::new().name("freehold-leaver".into()).spawn(move || run(&tenant, &ring)).map(drop)
}

fn run(tenant: &Weak<Inner>, ring: &Doorstep) {
    loop {
        let seen = ring.replied();
        let Some(inner) = tenant.upgrade() else { return };
        let broker = Broker { inner };
        let left = broker.leave().and_then(|()| broker.detach_left());
        drop(broker);
        match left {
            Ok(true) => {
                thread::park_timeout(BUSY);
                if ring.replied() == seen {
                    ring.sleep(Sleeper::Leaver, seen, LOOK);
                }
            }
            Ok(false) => thread::park_timeout(UNMAP),
            Err(error) => {
                tracing::debug!(target: "freehold", %error, "segments are left with this process from now on");
                return;
            }
        }
    }
}
