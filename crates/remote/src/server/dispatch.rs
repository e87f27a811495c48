//! Decodes each request, and routes it to the function of its call.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{ClientStreamingService, Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use super::service::FreeholdService;
use crate::proto;
use crate::rpc::{DOWNLOAD, ErasedCodec, Messages, Method, Outgoing, SERVICE, UPLOAD, decode, methods};

/// The calls of a service, with a limit for the length of requests.
#[derive(Clone)]
pub(super) struct Calls {
    service: Arc<FreeholdService>,
    request_bytes_max: usize,
}

impl Calls {
    pub(super) fn new(service: Arc<FreeholdService>, request_bytes_max: usize) -> Self {
        Self { service, request_bytes_max }
    }
}

impl NamedService for Calls {
    const NAME: &'static str = SERVICE;
}

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.service.clone();
        let mut grpc = Grpc::new(ErasedCodec).max_decoding_message_size(self.request_bytes_max);
        match request.uri().path() {
            UPLOAD => Box::pin(async move { Ok(grpc.client_streaming(Upload(service), request).await) }),
            DOWNLOAD => Box::pin(async move { Ok(grpc.server_streaming(Download(service), request).await) }),
            path => match unary(path) {
                Some(function) => Box::pin(async move { Ok(grpc.unary(Unary { service, function }, request).await) }),
                None => Box::pin(std::future::ready(Ok(Status::unimplemented("").into_http()))),
            },
        }
    }
}

type Function = fn(Arc<FreeholdService>, Request<Bytes>) -> BoxFuture<Response<Outgoing>, Status>;

/// Returns the function of a call with one request and one reply.
fn unary(path: &str) -> Option<Function> {
    macro_rules! functions {
        ($($function:ident $name:literal $request:ident $reply:ident,)*) => {
            match path {
                $(<proto::$request as Method>::PATH => |service, request| {
                    Box::pin(async move { encode(service.$function(typed(request)?).await?) })
                },)*
                _ => return None,
            }
        };
    }
    Some(methods!(functions))
}

fn typed<M: Message + Default>(request: Request<Bytes>) -> Result<Request<M>, Status> {
    let (metadata, extensions, message) = request.into_parts();
    Ok(Request::from_parts(metadata, extensions, decode(message)?))
}

fn encode<M: Message + 'static>(reply: M) -> Result<Response<Outgoing>, Status> {
    Ok(Response::new(Box::new(reply)))
}

struct Unary {
    service: Arc<FreeholdService>,
    function: Function,
}

impl UnaryService<Bytes> for Unary {
    type Response = Outgoing;
    type Future = BoxFuture<Response<Outgoing>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        (self.function)(self.service.clone(), request)
    }
}

struct Upload(Arc<FreeholdService>);

impl ClientStreamingService<Bytes> for Upload {
    type Response = Outgoing;
    type Future = BoxFuture<Response<Outgoing>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { encode(service.upload(Messages::new(request.into_inner())).await?) })
    }
}

struct Download(Arc<FreeholdService>);

impl ServerStreamingService<Bytes> for Download {
    type Response = Outgoing;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Outgoing, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move {
            let chunks = service.download(decode(request.into_inner())?).await?;
            let chunks = chunks.map(|chunk| chunk.map(|chunk| Box::new(chunk) as Outgoing));
            Ok(Response::new(Box::pin(chunks) as Self::ResponseStream))
        })
    }
}
