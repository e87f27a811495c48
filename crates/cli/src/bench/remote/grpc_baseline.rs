//! Plain gRPC over loopback, on one connection with the default settings of the library, to compare a server with. No
//! session, no checksum, no device, no TLS.
//!
//! A message is one field of bytes, or one number: types that `prost` encodes without generated code.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{BoxFuture, BoxStream, Context, Poll, Service, http};
use tonic::server::{ClientStreamingService, ServerStreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const CHUNK_BYTES: usize = 1 << 20;

const UPLOAD: &str = "/baseline/upload";
const DOWNLOAD: &str = "/baseline/download";

/// A server in threads of this process, and a connection to it.
#[derive(Debug)]
pub(super) struct GrpcBaseline {
    runtime: Runtime,
    channel: Channel,
    bytes: Bytes,
}

impl GrpcBaseline {
    /// Starts a server for these bytes.
    pub(super) fn start(bytes: Vec<u8>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let (listener, bytes) = (TcpListener::bind("127.0.0.1:0")?, Bytes::from(bytes));
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let channel = runtime.block_on(async {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
            let server = BaselineService { bytes: bytes.clone() };
            tokio::spawn(Server::builder().serve_with_incoming(server, incoming));
            let endpoint = Endpoint::from_shared(url).map_err(io::Error::other)?.tcp_nodelay(true);
            endpoint.connect().await.map_err(io::Error::other)
        })?;
        Ok(Self { runtime, channel, bytes })
    }

    /// Uploads all bytes.
    pub(super) fn upload(&self) -> io::Result<()> {
        let chunks = chunks(self.bytes.clone(), self.bytes.len());
        self.runtime.block_on(async {
            let mut grpc = self.connection().await?;
            let (path, codec) = (PathAndQuery::from_static(UPLOAD), ProstCodec::<Bytes, u64>::default());
            let received = grpc.client_streaming(Request::new(chunks), path, codec).await.map_err(io::Error::other)?;
            assert_eq!(received.into_inner(), self.bytes.len() as u64, "the server received every byte");
            Ok(())
        })
    }

    /// Downloads all bytes.
    pub(super) fn download(&self, to: &mut [u8]) -> io::Result<()> {
        self.runtime.block_on(async {
            let mut grpc = self.connection().await?;
            let (path, codec) = (PathAndQuery::from_static(DOWNLOAD), ProstCodec::<u64, Bytes>::default());
            let reply = grpc.server_streaming(Request::new(to.len() as u64), path, codec).await;
            let (mut chunks, mut at) = (reply.map_err(io::Error::other)?.into_inner(), 0);
            while let Some(data) = chunks.message().await.map_err(io::Error::other)? {
                to[at..][..data.len()].copy_from_slice(&data);
                at += data.len();
            }
            Ok(())
        })
    }

    async fn connection(&self) -> io::Result<tonic::client::Grpc<Channel>> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(io::Error::other)?;
        Ok(grpc)
    }
}

fn chunks(bytes: Bytes, count: usize) -> impl Stream<Item = Bytes> + Send + 'static {
    let starts = (0..count).step_by(CHUNK_BYTES);
    tokio_stream::iter(starts.map(move |at| bytes.slice(at..count.min(at + CHUNK_BYTES))))
}

#[derive(Clone)]
struct BaselineService {
    bytes: Bytes,
}

impl Service<http::Request<Body>> for BaselineService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                UPLOAD => tonic::server::Grpc::new(ProstCodec::default()).client_streaming(service, request).await,
                DOWNLOAD => tonic::server::Grpc::new(ProstCodec::default()).server_streaming(service, request).await,
                path => Status::unimplemented(path).into_http(),
            })
        })
    }
}

impl ClientStreamingService<Bytes> for BaselineService {
    type Response = u64;
    type Future = BoxFuture<Response<u64>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(async move {
            let (mut chunks, mut room, mut bytes) = (request.into_inner(), vec![0; CHUNK_BYTES], 0);
            while let Some(data) = chunks.message().await? {
                let fits = data.len().min(room.len());
                room[..fits].copy_from_slice(&data[..fits]);
                bytes += data.len() as u64;
            }
            Ok(Response::new(bytes))
        })
    }
}

impl ServerStreamingService<u64> for BaselineService {
    type Response = Bytes;
    type ResponseStream = BoxStream<Bytes>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<u64>) -> Self::Future {
        let count = (request.into_inner() as usize).min(self.bytes.len());
        let chunks: BoxStream<Bytes> = Box::pin(chunks(self.bytes.clone(), count).map(Ok));
        Box::pin(async { Ok(Response::new(chunks)) })
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
