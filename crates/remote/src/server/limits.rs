//! The limits of a server.

use std::time::Duration;

use crate::transport::IDLE_MAX;

/// Limits of the clients of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Connections at once. Further ones wait until one ends.
    pub connections_max: usize,
    /// Connections at once that have not presented the token. The oldest is closed first.
    pub unauthenticated_max: usize,
    /// How long a connection may take to present the token, a request to arrive, and an upload to begin.
    pub handshake_timeout: Duration,
    /// How long no data may move in a connection.
    pub idle_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        let handshake_timeout = Duration::from_secs(10);
        Self { connections_max: 512, unauthenticated_max: 64, handshake_timeout, idle_timeout: IDLE_MAX }
    }
}
