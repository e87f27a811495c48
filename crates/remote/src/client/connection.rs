//! Connections to a server: opening them, errors of that, and retries of calls after a lost connection. Does not know
//! sessions.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::codegen::{BoxFuture, Service};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Uri};
use tonic::{Code, Status};

use crate::error::{Executed, RemoteError};
use crate::proto::TotalsRequest;
use crate::rpc::{Method, RpcClient};
use crate::transport::{CHUNK_BYTES_MAX, IDLE_MAX, IdleTimeout, PING_INTERVAL, PONG_TIMEOUT, Token, WINDOW_BYTES};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a lost connection is retried.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

const RETRY_DELAY_MIN: Duration = Duration::from_millis(10);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

/// The most connections of one client, among which large transfers are divided.
const CHANNELS_MAX: usize = 4;

/// Connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    url: String,
    clients: Vec<RpcClient>,
    pub(super) retry_timeout: Duration,
}

impl Connection {
    pub(super) async fn connect(url: &str, token: &Token, ca: Option<&[u8]>) -> Result<Self, RemoteError> {
        let endpoint = endpoint(url, ca)?;
        let mut token_header: MetadataValue<Ascii> = token.header().parse().expect("a token is visible ASCII");
        token_header.set_sensitive(true);
        let channel = endpoint
            .connect_with_connector(Connector)
            .await
            .map_err(|error| connect_error(url, ca.is_some(), &error))?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let channel_count = (processors / 2).clamp(1, CHANNELS_MAX);
        let mut channels = vec![channel];
        channels.extend((1..channel_count).map(|_| endpoint.connect_with_connector_lazy(Connector)));
        let clients = channels.into_iter().map(|channel| RpcClient::new(channel, token_header.clone())).collect();
        let connection = Self { url: url.to_owned(), clients, retry_timeout: RETRY_TIMEOUT };
        match tokio::time::timeout(CONNECT_TIMEOUT, connection.client(0).call(TotalsRequest {})).await {
            Ok(Ok(_)) => Ok(connection),
            Ok(Err(status)) => {
                Err(RemoteError::from_status(&status).unwrap_or_else(|| connect_error(url, ca.is_some(), &status)))
            }
            Err(_) => Err(RemoteError::connection(format!(
                "{url} did not answer for {} s: check the address",
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    pub(super) fn channel_count(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn client(&self, channel: usize) -> RpcClient {
        self.clients[channel].clone()
    }

    /// Repeats a call until it is answered or the timeout is over. The request is the same each time, so it is executed
    /// once.
    pub(super) async fn call<M: Method>(&self, channel: usize, request: &M) -> Result<M::Reply, RemoteError> {
        let reply = self.call_encoded(channel, M::PATH, request.encode_to_vec().into()).await?;
        M::Reply::decode(reply).map_err(|_| not_a_server(&self.url).with_executed(Executed::Unknown))
    }

    async fn call_encoded(&self, channel: usize, path: &'static str, request: Bytes) -> Result<Bytes, RemoteError> {
        let (mut tries, mut waiting) = (0_u32, RetryDelay::new(self.retry_timeout));
        loop {
            let mut client = self.client(channel);
            let reply = client.call_encoded(path, request.clone());
            let status = match tokio::time::timeout_at(waiting.end, reply).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(status)) => status,
                Err(_) => return Err(self.lost_error("no answer")),
            };
            match self.server_error(&status) {
                // If the session has ended, nobody knows whether the first try was executed.
                Some(failure) if failure.is_session_expired && tries > 0 => {
                    return Err(failure.with_executed(Executed::Unknown));
                }
                Some(failure) => return Err(failure),
                None if waiting.wait().await => tries += 1,
                None => return Err(self.lost_error(status.message())),
            }
        }
    }

    /// The error that the server sent, unless the connection was lost before.
    pub(super) fn server_error(&self, status: &Status) -> Option<RemoteError> {
        let said = RemoteError::from_status(status);
        if said.is_none() && status.code() == Code::Unimplemented {
            return Some(not_a_server(&self.url));
        }
        said
    }

    pub(super) fn lost_error(&self, why: &str) -> RemoteError {
        let seconds = self.retry_timeout.as_secs();
        let message =
            format!("the connection to {} was lost and did not come back within {seconds} s: {why}", self.url);
        RemoteError::connection(message).with_executed(Executed::Unknown)
    }
}

/// Opens connections with an idle timeout.
#[derive(Clone, Copy, Debug)]
struct Connector;

impl Service<Uri> for Connector {
    type Response = TokioIo<IdleTimeout<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<Self::Response, io::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
            let stream = TcpStream::connect((strip_brackets(uri.host().unwrap_or_default()), port)).await?;
            stream.set_nodelay(true)?;
            Ok(TokioIo::new(IdleTimeout::new(stream, IDLE_MAX)))
        })
    }
}

/// A host without the brackets of an IPv6 address.
fn strip_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// A time limit for retries, with increasing pauses.
pub(super) struct RetryDelay {
    timeout: Duration,
    pub(super) end: Instant,
    next: Duration,
}

impl RetryDelay {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, end: Instant::now() + timeout, next: RETRY_DELAY_MIN }
    }

    /// Starts again, after some progress.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.timeout);
    }

    /// Waits before the next try. Returns whether there is time for one.
    pub(super) async fn wait(&mut self) -> bool {
        if Instant::now() + self.next >= self.end {
            return false;
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(RETRY_DELAY_MAX);
        true
    }
}

/// Returns the address of a server, and whether it is reached through TLS.
pub(super) fn parse_url(url: &str) -> Result<(Uri, bool), RemoteError> {
    let wrong =
        || RemoteError::invalid_argument(format!("{url:?} is not the address of a server: expected https://HOST:PORT"));
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return Err(wrong()) };
    let has_tls = match scheme {
        "https" => true,
        "http" if is_loopback(host) => false,
        "http" => {
            let message = format!("{url}: without TLS the token is sent in the clear; use https://{host}");
            return Err(RemoteError::invalid_argument(message));
        }
        _ => return Err(wrong()),
    };
    Ok((uri, has_tls))
}

fn endpoint(url: &str, ca: Option<&[u8]>) -> Result<Endpoint, RemoteError> {
    let (uri, has_tls) = parse_url(url)?;
    let mut endpoint = Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PONG_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(4 * WINDOW_BYTES)
        .max_frame_size(CHUNK_BYTES_MAX as u32);
    if has_tls {
        let mut tls = ClientTlsConfig::new();
        tls = match ca {
            Some(ca) => {
                check_authorities(ca)?;
                tls.ca_certificate(Certificate::from_pem(ca))
            }
            None => tls.with_native_roots(),
        };
        endpoint = endpoint.tls_config(tls).map_err(|error| connect_error(url, ca.is_some(), &error))?;
    }
    Ok(endpoint)
}

/// Checks that a PEM file has certificates, and that all of them can be read: TLS would ignore one that cannot.
fn check_authorities(pem: &[u8]) -> Result<(), RemoteError> {
    let wrong = |sentence| Err(RemoteError::invalid_argument(sentence));
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        if !certificate.is_ok_and(|certificate| authorities.add(certificate).is_ok()) {
            return wrong("the --ca file has a damaged certificate: copy it again, or create a new one");
        }
    }
    if authorities.is_empty() { wrong("the --ca file has no certificate: expected PEM") } else { Ok(()) }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || strip_brackets(host).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn not_a_server(url: &str) -> RemoteError {
    RemoteError::connection(format!("the server at {url} is not a Freehold server: check the address"))
}

/// Why a first connection failed. Nothing was executed.
fn connect_error(url: &str, has_ca: bool, error: &(dyn Error + 'static)) -> RemoteError {
    let mut last = error;
    let mut message = None;
    while message.is_none() {
        message = explain(url, has_ca, last);
        match last.source() {
            Some(source) => last = source,
            None => break,
        }
    }
    let message = message.unwrap_or_else(|| match url.starts_with("http:") {
        true => format!("{url} does not answer without TLS ({last}): use https:// if it has a certificate"),
        false => format!("{url} cannot be reached: {last}"),
    });
    RemoteError::connection(message)
}

fn explain(url: &str, has_ca: bool, error: &(dyn Error + 'static)) -> Option<String> {
    if error.downcast_ref::<Status>().is_some_and(|status| status.code() == Code::Unimplemented) {
        return Some(not_a_server(url).message);
    }
    let system = error.downcast_ref::<io::Error>();
    if system.is_some_and(|system| system.kind() == io::ErrorKind::ConnectionRefused) {
        return Some(format!(
            "no server listens at {url}: start `freehold serve --listen ADDRESS` there, or check the address"
        ));
    }
    let inner = system.and_then(|system| system.get_ref()).and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner.or_else(|| error.downcast_ref::<rustls::Error>())? {
        rustls::Error::InvalidCertificate(wrong) => {
            Some(format!("the certificate of {url} {}", explain_certificate(wrong, has_ca)))
        }
        rustls::Error::InvalidMessage(_) => Some(format!("the server at {url} does not speak TLS: use http://")),
        wrong => Some(format!("{url}: {wrong}")),
    }
}

/// Describes what is wrong with a certificate, and what to do about it.
fn explain_certificate(wrong: &CertificateError, has_ca: bool) -> String {
    match wrong {
        // An impostor with the name of a trusted authority lacks its signature.
        CertificateError::UnknownIssuer | CertificateError::BadSignature if has_ca => {
            "is not signed by the authority in the --ca file: give the certificate of its authority, or its own".into()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not signed by a trusted authority: name its authority with --ca FILE".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired: create a new one".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet: check the clocks of both machines".into()
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let names: Vec<&str> = presented.iter().map(|name| presented_name(name)).collect();
            format!("is for {}: use that name, or create one for this name", names.join(", "))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "is not for this name: create one with subjectAltName".into()
        }
        CertificateError::Other(wrong) if wrong.to_string() == "CaUsedAsEndEntity" => {
            "belongs to an authority, not to a server: create one with basicConstraints=CA:FALSE".into()
        }
        // Most of the others have no sentence of their own.
        _ => "is not one that TLS accepts: see what it has with `openssl x509 -text`, or create a new one".into(),
    }
}

/// Returns the name or the address in `DnsName("host")` or `IpAddress(127.0.0.1)`.
fn presented_name(presented: &str) -> &str {
    let within = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    within.unwrap_or(presented).trim_matches('"')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_invalid_address_is_refused_in_a_sentence() {
        for url in ["", "host:7070", "ftp://host:7070", "http://"] {
            let message = endpoint(url, None).unwrap_err().message;
            assert_eq!(message, format!("{url:?} is not the address of a server: expected https://HOST:PORT"));
        }
    }

    #[test]
    fn a_token_travels_without_tls_to_this_machine_alone() {
        for url in ["http://127.0.0.1:7070", "http://[::1]:7070", "http://localhost:7070"] {
            assert!(endpoint(url, None).is_ok(), "{url}");
        }
        let message = endpoint("http://host:7070", None).unwrap_err().message;
        assert_eq!(message, "http://host:7070: without TLS the token is sent in the clear; use https://host");
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let message = endpoint("https://host:7070", Some(b"no certificate")).unwrap_err().message;
        assert_eq!(message, "the --ca file has no certificate: expected PEM");
        let damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in [&damaged[..], &damaged[..30]] {
            let message = endpoint("https://host:7070", Some(pem)).unwrap_err().message;
            assert_eq!(message, "the --ca file has a damaged certificate: copy it again, or create a new one");
        }
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_in_words() {
        let other = CertificateError::Other(rustls::OtherError(Arc::new(io::Error::other("UnsupportedCertVersion"))));
        for wrong in [other, CertificateError::BadEncoding, CertificateError::UnhandledCriticalExtension] {
            let said = explain_certificate(&wrong, false);
            assert!(said.starts_with("is not one that TLS accepts: "), "{said}");
        }
        let said = [false, true].map(|has_ca| explain_certificate(&CertificateError::UnknownIssuer, has_ca));
        assert_eq!(said[0], "is not signed by a trusted authority: name its authority with --ca FILE");
        assert!(said[1].starts_with("is not signed by the authority in the --ca file: "), "{}", said[1]);
        let names = [r#"DnsName("host")"#, "IpAddress(127.0.0.1)", "odd"].map(presented_name);
        assert_eq!(names, ["host", "127.0.0.1", "odd"]);
    }
}
