//! A client without the library: single messages, valid or not.

use freehold_remote::RpcClient;
use freehold_remote::proto::upload_message::Part;
use freehold_remote::proto::{self, Call, Chunk, UploadBegin, UploadEnd, UploadMessage, Uploaded};
use tokio::runtime::Runtime;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use crate::harness::{Harness, TOKEN, until};

/// The longest idle timeout that a server grants.
const LIFE_MS: u64 = 600_000;

/// A session, and its connection.
pub(crate) struct Raw {
    pub(crate) runtime: Runtime,
    pub(crate) client: RpcClient,
    pub(crate) session: Vec<u8>,
}

impl Raw {
    /// A session that outlives any test without a call.
    pub(crate) fn open(harness: &Harness, id: u8) -> Self {
        Self::brief(harness, id, LIFE_MS, 1 << 20)
    }

    /// Like [`open`](Self::open), with a timeout and a window for unread data.
    pub(crate) fn brief(harness: &Harness, id: u8, life_ms: u64, window_bytes: u32) -> Self {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(harness.ca()));
        let endpoint = Endpoint::from_shared(harness.url()).unwrap().tls_config(tls).unwrap();
        let endpoint = endpoint.initial_stream_window_size(window_bytes).initial_connection_window_size(window_bytes);
        Self::at(endpoint, id, life_ms)
    }

    /// A session at a server without TLS.
    pub(crate) fn at_port(port: u16, id: u8) -> Self {
        Self::at(Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap(), id, LIFE_MS)
    }

    fn at(endpoint: Endpoint, id: u8, life_ms: u64) -> Self {
        // A server with a short handshake timeout closes a connection of a slow machine. The next attempt may be faster.
        until("a connection presents its token in time", || Self::try_at(&endpoint, id, life_ms))
    }

    /// `None` if the server closes the connection before it has seen the token.
    fn try_at(endpoint: &Endpoint, id: u8, life_ms: u64) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let channel = runtime.block_on(endpoint.connect()).ok()?;
        let token = format!("Bearer {TOKEN}").parse().unwrap();
        let mut raw = Self { runtime, client: RpcClient::new(channel, token), session: vec![id; 16] };
        let request = proto::OpenRequest { session: raw.session.clone(), life_ms, resume: false };
        match raw.runtime.block_on(raw.client.call(request)) {
            Ok(_) => Some(raw),
            Err(status) if is_connection_lost(&status) => None,
            Err(status) => panic!("{status}"),
        }
    }

    pub(crate) fn call(&self, number: u64) -> Option<Call> {
        Some(Call { session: self.session.clone(), number, answered_below: 0 })
    }

    pub(crate) fn alloc(&mut self, number: u64, bytes: u64) -> Result<u64, Status> {
        let request = proto::AllocRequest { call: self.call(number), bytes };
        Ok(self.runtime.block_on(self.client.call(request))?.block)
    }

    pub(crate) fn totals(&mut self) -> proto::Stats {
        self.runtime.block_on(self.client.call(proto::TotalsRequest {})).unwrap()
    }

    /// Puts a module. Returns its number.
    pub(crate) fn put(&mut self, number: u64, text: &str) -> u64 {
        let put =
            proto::PutModuleRequest { call: self.call(number), name: "test/kernels".to_owned(), text: text.to_owned() };
        self.runtime.block_on(self.client.call(put)).unwrap().module
    }

    /// Launches a kernel with one thread.
    pub(crate) fn launch(
        &mut self,
        number: u64,
        module: u64,
        kernel: &str,
        arguments: Vec<proto::Argument>,
    ) -> Result<u64, Status> {
        let (call, kernel) = (self.call(number), kernel.to_owned());
        let request = proto::LaunchRequest { call, module, kernel, arguments, ..proto::LaunchRequest::default() };
        Ok(self.runtime.block_on(self.client.call(request))?.launch)
    }

    pub(crate) fn wait(&self, launch: u64, timeout_ms: u64) -> impl Future<Output = Result<(), Status>> + use<> {
        let mut client = self.client.clone();
        let request = proto::WaitRequest { session: self.session.clone(), launch, timeout_ms };
        async move { client.call(request).await.map(drop) }
    }

    pub(crate) fn upload(&mut self, parts: Vec<Part>) -> Result<Uploaded, Status> {
        let messages = parts.into_iter().map(|part| UploadMessage { part: Some(part) });
        let messages: Vec<_> = messages.collect();
        let answer = self.runtime.block_on(self.client.upload(tokio_stream::iter(messages)))?;
        Ok(answer)
    }

    pub(crate) fn begin(&self, number: u64, block: u64, bytes: u64, from: u64) -> Part {
        Part::Begin(UploadBegin { call: self.call(number), block, offset: 0, bytes, from })
    }

    pub(crate) fn resume(&mut self, number: u64) -> Uploaded {
        let request = proto::ResumeRequest { session: self.session.clone(), number };
        self.runtime.block_on(self.client.call(request)).unwrap()
    }
}

/// Whether a call failed because its connection was closed.
pub(crate) fn is_connection_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
}

pub(crate) fn chunk(at: u64, data: &[u8]) -> Part {
    Part::Chunk(Chunk { at, data: data.to_vec().into(), crc32c: crc32c::crc32c(data) })
}

pub(crate) fn end(data: &[u8]) -> Part {
    Part::End(UploadEnd { crc32c: crc32c::crc32c(data) })
}
