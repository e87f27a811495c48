//! A client of single calls, without sessions or retries.

use std::marker::PhantomData;
use std::pin::Pin;

use bytes::Bytes;
use freehold_broker::MODULE_BYTES_MAX;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::codec::{Encoded, ErasedCodec, Outgoing, decode};
use super::methods::{DOWNLOAD, Method, UPLOAD};
use crate::proto::{DownloadChunk, DownloadRequest, UploadMessage, Uploaded};

/// Sends single calls to a server, with its token. [`Remote`](crate::Remote) is the client for programs: it keeps a
/// session, numbers its calls and repeats them after a lost connection.
#[derive(Clone, Debug)]
pub struct RpcClient {
    grpc: Grpc<Channel>,
    token: MetadataValue<Ascii>,
}

impl RpcClient {
    /// `token` is the value of the header `authorization`.
    pub fn new(channel: Channel, token: MetadataValue<Ascii>) -> Self {
        // The longest message has the signatures of a module's kernels, which are shorter than its text.
        let grpc = Grpc::new(channel).max_decoding_message_size(MODULE_BYTES_MAX);
        Self { grpc, token }
    }

    /// Calls a method and returns its reply.
    ///
    /// # Errors
    /// The status that the server replied with, or that of a lost connection.
    pub async fn call<M: Method>(&mut self, request: M) -> Result<M::Reply, Status> {
        decode(self.call_encoded(M::PATH, request.encode_to_vec().into()).await?)
    }

    pub(crate) async fn call_encoded(&mut self, path: &'static str, request: Bytes) -> Result<Bytes, Status> {
        let request: Outgoing = Box::new(Encoded(request));
        let request = self.prepare(request).await?;
        Ok(self.grpc.unary(request, PathAndQuery::from_static(path), ErasedCodec).await?.into_inner())
    }

    /// Sends the messages of an upload. Returns how much of it the server has.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub async fn upload(
        &mut self,
        messages: impl Stream<Item = UploadMessage> + Send + 'static,
    ) -> Result<Uploaded, Status> {
        let messages: Pin<Box<dyn Stream<Item = Outgoing> + Send>> =
            Box::pin(messages.map(|message| Box::new(message) as Outgoing));
        let request = self.prepare(messages).await?;
        let reply = self.grpc.client_streaming(request, PathAndQuery::from_static(UPLOAD), ErasedCodec).await?;
        decode(reply.into_inner())
    }

    /// Starts a download. Returns its chunks.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    pub async fn download(&mut self, request: DownloadRequest) -> Result<Messages<DownloadChunk>, Status> {
        let request: Outgoing = Box::new(request);
        let request = self.prepare(request).await?;
        let reply = self.grpc.server_streaming(request, PathAndQuery::from_static(DOWNLOAD), ErasedCodec).await?;
        Ok(Messages::new(reply.into_inner()))
    }

    /// Waits until the connection takes a request, and adds the token to it.
    async fn prepare<T>(&mut self, message: T) -> Result<Request<T>, Status> {
        self.grpc.ready().await.map_err(|error| Status::unknown(format!("the connection is not ready: {error}")))?;
        let mut request = Request::new(message);
        request.metadata_mut().insert("authorization", self.token.clone());
        Ok(request)
    }
}

/// The messages of a stream.
#[derive(Debug)]
pub struct Messages<M> {
    stream: Streaming<Bytes>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Messages<M> {
    pub(crate) fn new(stream: Streaming<Bytes>) -> Self {
        Self { stream, message: PhantomData }
    }

    /// Returns the next message, or `None` at the end.
    ///
    /// # Errors
    /// The status that ended the stream, or that of a malformed message.
    pub async fn message(&mut self) -> Result<Option<M>, Status> {
        self.stream.message().await?.map(decode).transpose()
    }
}
