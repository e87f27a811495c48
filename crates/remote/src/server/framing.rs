//! Limits that apply before a request is decoded: the length of its message, the time to receive it, and the number of
//! modules that are received at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use freehold_broker::MODULE_BYTES_MAX;
use http_body::{Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Bytes, Service, http};
use tonic::server::NamedService;

use super::dispatch::Calls;
use super::listener::ConnectionInfo;
use super::permits::ModulePermit;
use super::service::FreeholdService;
use crate::error::RemoteError;
use crate::proto::PutModuleRequest;
use crate::rpc::{Method, UPLOAD};
use crate::transport::CHUNK_BYTES_MAX;

/// Modules that are received and compiled at once, in all sessions. Each takes up to 16 MiB, several times.
const MODULES_MAX: usize = 4;

/// How long the text of a module may take to arrive.
const MODULE_TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes of a message besides its data: numbers and the session id.
const MESSAGE_OVERHEAD_BYTES: usize = 4096;

const PUT_MODULE: &str = PutModuleRequest::PATH;

#[derive(Clone)]
pub(super) struct FramingService {
    /// Each with its own limit of message length.
    calls: Calls,
    modules: Calls,
    module_permits: Arc<Semaphore>,
    handshake_timeout: Duration,
}

impl FramingService {
    pub(super) fn new(calls: FreeholdService, handshake_timeout: Duration) -> Self {
        let calls = Arc::new(calls);
        let server = |bytes| Calls::new(calls.clone(), bytes + MESSAGE_OVERHEAD_BYTES);
        let (calls, modules) = (server(CHUNK_BYTES_MAX), server(MODULE_BYTES_MAX));
        Self { calls, modules, module_permits: Arc::new(Semaphore::new(MODULES_MAX)), handshake_timeout }
    }
}

impl NamedService for FramingService {
    const NAME: &'static str = Calls::NAME;
}

impl Service<http::Request<Body>> for FramingService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path() {
            PUT_MODULE => {
                let (modules, permits, handshake_timeout) =
                    (self.modules.clone(), self.module_permits.clone(), self.handshake_timeout);
                Box::pin(receive_module(modules, permits, handshake_timeout, request))
            }
            // The upload checks the time of its parts itself.
            UPLOAD => self.calls.call(request),
            _ => {
                let limit = Instant::now() + self.handshake_timeout;
                self.calls.call(request.map(|body| TimedBody::body(body, self.handshake_timeout, limit)))
            }
        }
    }
}

/// Receives a module when there is a permit: until then the HTTP/2 window holds it back.
async fn receive_module(
    mut modules: Calls,
    permits: Arc<Semaphore>,
    handshake_timeout: Duration,
    mut request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    let info: ConnectionInfo = request.extensions().get().cloned().expect("every connection has a ConnectionInfo");
    let own = info.module_permit.acquire_owned().await.expect("the semaphore is never closed");
    let place = permits.acquire_owned().await.expect("the semaphore is never closed");
    request.extensions_mut().insert(ModulePermit::new(own, place));
    let limit = Instant::now() + MODULE_TIMEOUT;
    modules.call(request.map(|body| TimedBody::body(body, handshake_timeout, limit))).await
}

/// A body that must arrive in time.
struct TimedBody {
    body: Body,
    idle_timeout: Duration,
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
}

impl TimedBody {
    /// Wraps a body with a longest pause and a deadline for all of it.
    fn body(body: Body, pause: Duration, limit: Instant) -> Body {
        let end = Box::pin(tokio::time::sleep_until(limit.min(Instant::now() + pause)));
        Body::new(Self { body, idle_timeout: pause, deadline: limit, timer: end })
    }
}

impl http_body::Body for TimedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.timer.as_mut().poll(context));
            let message = "the request did not arrive in time: send it without pauses";
            return Poll::Ready(Some(Err(RemoteError::caller(Code::DeadlineExceeded, message).into())));
        };
        let next = self.deadline.min(Instant::now() + self.idle_timeout);
        self.timer.as_mut().reset(next);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
