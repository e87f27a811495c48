//! Plain gRPC over loopback, on one connection with the default settings of the library, to compare a server with. No
//! session, no checksum, no device, no TLS.

use std::io;
use std::net::TcpListener;
use std::pin::Pin;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

#[allow(clippy::all, clippy::unwrap_used, missing_debug_implementations, unreachable_pub, reason = "it is generated")]
mod proto {
    include!("generated/freehold.plain.rs");
}

use proto::plain_client::PlainClient;
use proto::plain_server::PlainServer;
use proto::{Count, Piece};

const CHUNK_BYTES: usize = 1 << 20;

/// A server in threads of this process, and a connection to it.
#[derive(Debug)]
pub struct GrpcBaseline {
    runtime: Runtime,
    client: PlainClient<Channel>,
    bytes: Bytes,
}

impl GrpcBaseline {
    /// Starts a server for these bytes.
    ///
    /// # Errors
    /// No port is free, or the server does not answer.
    pub fn start(bytes: Vec<u8>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (listener, bytes) = (TcpListener::bind("127.0.0.1:0")?, Bytes::from(bytes));
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let client = runtime.block_on(async {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
            let server = PlainServer::new(BaselineService { bytes: bytes.clone() });
            tokio::spawn(Server::builder().add_service(server).serve_with_incoming(incoming));
            let endpoint = Endpoint::from_shared(url).map_err(io::Error::other)?.tcp_nodelay(true);
            PlainClient::connect(endpoint).await.map_err(io::Error::other)
        })?;
        Ok(Self { runtime, client, bytes })
    }

    /// Uploads all bytes.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn upload(&self) -> io::Result<()> {
        let mut client = self.client.clone();
        let chunks = chunks(self.bytes.clone(), self.bytes.len());
        self.runtime.block_on(client.up(chunks)).map(drop).map_err(io::Error::other)
    }

    /// Downloads all bytes.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn download(&self, to: &mut [u8]) -> io::Result<()> {
        let mut client = self.client.clone();
        self.runtime.block_on(async {
            let wish = Count { bytes: to.len() as u64 };
            let mut chunks = client.down(wish).await.map_err(io::Error::other)?.into_inner();
            let mut at = 0;
            while let Some(Piece { data }) = chunks.message().await.map_err(io::Error::other)? {
                to[at..][..data.len()].copy_from_slice(&data);
                at += data.len();
            }
            Ok(())
        })
    }
}

fn chunks(bytes: Bytes, count: usize) -> impl Stream<Item = Piece> + Send + 'static {
    let starts = (0..count).step_by(CHUNK_BYTES);
    tokio_stream::iter(starts.map(move |at| Piece { data: bytes.slice(at..count.min(at + CHUNK_BYTES)) }))
}

struct BaselineService {
    bytes: Bytes,
}

#[tonic::async_trait]
impl proto::plain_server::Plain for BaselineService {
    async fn up(&self, request: Request<Streaming<Piece>>) -> Result<Response<Count>, Status> {
        let (mut chunks, mut room, mut bytes) = (request.into_inner(), vec![0; CHUNK_BYTES], 0);
        while let Some(Piece { data }) = chunks.message().await? {
            let fits = data.len().min(room.len());
            room[..fits].copy_from_slice(&data[..fits]);
            bytes += data.len() as u64;
        }
        Ok(Response::new(Count { bytes }))
    }

    type DownStream = Pin<Box<dyn Stream<Item = Result<Piece, Status>> + Send>>;

    async fn down(&self, request: Request<Count>) -> Result<Response<Self::DownStream>, Status> {
        let count = (request.into_inner().bytes as usize).min(self.bytes.len());
        Ok(Response::new(Box::pin(chunks(self.bytes.clone(), count).map(Ok))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_come_down() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
        let plain = GrpcBaseline::start(bytes.clone()).unwrap();
        plain.upload().unwrap();
        let mut to = vec![0; bytes.len()];
        plain.download(&mut to).unwrap();
        assert!(to == bytes);
    }
}
