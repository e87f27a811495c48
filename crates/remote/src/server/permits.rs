//! Permits for having a module in memory.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// The right to have a module in memory. It belongs to the call, not to its connection.
#[derive(Clone)]
pub(super) struct ModulePermit {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl ModulePermit {
    /// A permit of the connection, and one of the server.
    pub(super) fn new(of_connection: OwnedSemaphorePermit, of_server: OwnedSemaphorePermit) -> Self {
        Self { _permits: Arc::new([of_connection, of_server]) }
    }
}
