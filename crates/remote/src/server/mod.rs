//! The server: a process that serves a broker over gRPC. This module owns the listener, TLS and authentication;
//! `service` executes the calls.

mod block;
mod completed_set;
mod dispatch;
mod download;
mod framing;
mod idempotency;
mod launches;
mod limits;
mod listener;
mod named_table;
mod permits;
mod pinned_pool;
mod routes;
mod service;
mod session;
mod upload;

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use freehold::Device;
use freehold_broker::Link;
use rustix::process::{Resource, getrlimit, setrlimit};
use tonic::transport::{Server, ServerTlsConfig};

use self::framing::FramingService;
pub use self::limits::ServerLimits;
use self::routes::Routes;
use self::service::{FreeholdService, broker_stats};
use self::session::Sessions;
use crate::proto::DESCRIPTORS;
use crate::sync::lock;
use crate::transport::{CHUNK_BYTES_MAX, PING_INTERVAL, PONG_TIMEOUT, Token, WINDOW_BYTES};

/// How often the server checks the broker, and looks for expired sessions.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Calls that one connection may have in flight.
const STREAMS_MAX: u32 = 256;

/// The longest headers of a request, in bytes.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// The longest message of the health and reflection services, in bytes.
const QUERY_BYTES_MAX: usize = 1024;

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity(tonic::transport::Identity);

impl Identity {
    /// Checks a certificate and its key, both as PEM.
    ///
    /// # Errors
    /// If they are not valid, or do not belong together.
    pub fn new(certificate: Vec<u8>, key: Vec<u8>) -> io::Result<Self> {
        let identity = Self(tonic::transport::Identity::from_pem(certificate, key));
        match Server::builder().tls_config(identity.config()) {
            Ok(_) => Ok(identity),
            Err(_) => Err(io::Error::other("not a certificate with its key: expected both as PEM")),
        }
    }

    fn config(&self) -> ServerTlsConfig {
        ServerTlsConfig::new().identity(self.0.clone())
    }
}

/// Does not print the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Identity")
    }
}

/// The parts of a server.
#[derive(Debug)]
pub struct RemoteServer {
    /// The listener that clients connect to.
    pub listener: TcpListener,
    /// `None` disables TLS, for clients on the same machine.
    pub identity: Option<Identity>,
    /// The token that clients must present.
    pub token: Token,
    /// The broker's socket.
    pub socket: PathBuf,
    /// The broker's device.
    pub device: Device,
    /// The limits for clients.
    pub limits: ServerLimits,
}

impl RemoteServer {
    /// Serves until the broker has closed the connection.
    ///
    /// # Errors
    /// If no broker answers, certificate and key are not valid, or a system call fails.
    pub fn serve(self) -> io::Result<()> {
        // Connections and sessions need more descriptors than many systems allow by default.
        let mut descriptors = getrlimit(Resource::Nofile);
        descriptors.current = descriptors.maximum;
        setrlimit(Resource::Nofile, descriptors)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let link = Arc::new(Mutex::new(Link::connect(&self.socket).map_err(io::Error::other)?));
        let served = runtime.block_on(self.run(link));
        // Running calls end with the process, and the broker takes back what they had.
        runtime.shutdown_background();
        served
    }

    async fn run(self, link: Arc<Mutex<Link>>) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let mut server = Server::builder()
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(4 * WINDOW_BYTES)
            .max_frame_size(CHUNK_BYTES_MAX as u32)
            .max_concurrent_streams(STREAMS_MAX)
            .http2_max_header_list_size(HEADERS_BYTES_MAX)
            .http2_keepalive_interval(Some(PING_INTERVAL))
            .http2_keepalive_timeout(Some(PONG_TIMEOUT));
        if let Some(identity) = self.identity {
            server = server.tls_config(identity.config()).map_err(io::Error::other)?;
        }
        let sessions = Arc::new(Sessions::new(self.device, self.socket));
        let calls = FramingService::new(
            FreeholdService::new(sessions.clone(), link.clone(), self.limits.handshake_timeout),
            self.limits.handshake_timeout,
        );
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<FramingService>().await;
        let health_service = health_service.max_decoding_message_size(QUERY_BYTES_MAX);
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let newer = reflection().build_v1().map_err(io::Error::other)?;
        let older = reflection().build_v1alpha().map_err(io::Error::other)?;
        let (newer, older) =
            (newer.max_decoding_message_size(QUERY_BYTES_MAX), older.max_decoding_message_size(QUERY_BYTES_MAX));
        let routes = Routes::new(self.token)
            .with_public(health_service)
            .with(newer)
            // Many tools only use the older version.
            .with(older)
            .with(calls);
        let served = server.serve_with_incoming(routes, listener::incoming(listener, self.limits));
        tokio::select! {
            served = served => served.map_err(io::Error::other),
            () = watch_broker(sessions, link) => Ok(()),
        }
    }
}

/// Closes expired sessions, until the broker has closed the connection.
async fn watch_broker(sessions: Arc<Sessions>, link: Arc<Mutex<Link>>) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    loop {
        ticks.tick().await;
        let (sessions, link) = (sessions.clone(), link.clone());
        let look = tokio::task::spawn_blocking(move || {
            sessions.close_idle();
            broker_stats(&mut lock(&link))
        });
        match look.await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(target: "freehold", %error, "the server exits: the broker does not answer");
                return;
            }
            Err(error) => {
                tracing::error!(target: "freehold", %error, "the server exits");
                return;
            }
        }
    }
}
