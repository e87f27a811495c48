//! What is read of a request before it is a call: how long its message may be, how long it may take to come, and how many modules
//! are taken in at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use freehold_broker::MODULE_BYTES_MAX;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Bytes, Service, http};
use tonic::server::NamedService;

use super::calls::Calls;
use super::door::Badge;
use crate::CHUNK_BYTES_MAX;
use crate::failure::Failure;
use crate::proto::freehold_server::FreeholdServer;

/// Modules that are taken in and compiled at once, over all sessions. Each takes up to 16 MiB, a few times.
const MODULES_MAX: usize = 4;

/// How long the text of a module may take to come.
const MODULE_TIME: Duration = Duration::from_secs(300);

/// What is around a message: its numbers, and its session.
const MARGIN_BYTES: usize = 4096;

const PUT_MODULE: &str = "/freehold.v1.Freehold/PutModule";
const UPLOAD: &str = "/freehold.v1.Freehold/Upload";

#[derive(Clone)]
pub(super) struct Intake {
    /// With the longest messages that each may have.
    calls: FreeholdServer<Calls>,
    modules: FreeholdServer<Calls>,
    places: Arc<Semaphore>,
    greeting: Duration,
}

/// The right to have a module in memory. It goes with the call, and not with its connection.
#[derive(Clone)]
pub(super) struct Place {
    _permits: Arc<[OwnedSemaphorePermit; 2]>,
}

impl Intake {
    pub(super) fn new(calls: Calls, greeting: Duration) -> Self {
        let calls = Arc::new(calls);
        let server = |bytes| FreeholdServer::from_arc(calls.clone()).max_decoding_message_size(bytes + MARGIN_BYTES);
        let (calls, modules) = (server(CHUNK_BYTES_MAX), server(MODULE_BYTES_MAX));
        Self { calls, modules, places: Arc::new(Semaphore::new(MODULES_MAX)), greeting }
    }
}

impl NamedService for Intake {
    const NAME: &'static str = <FreeholdServer<Calls> as NamedService>::NAME;
}

impl Service<http::Request<Body>> for Intake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match request.uri().path() {
            PUT_MODULE => {
                let (modules, places, greeting) = (self.modules.clone(), self.places.clone(), self.greeting);
                Box::pin(take_module(modules, places, greeting, request))
            }
            // How long its parts may take is its own matter.
            UPLOAD => self.calls.call(request),
            _ => {
                let limit = Instant::now() + self.greeting;
                self.calls.call(request.map(|body| Timed::body(body, self.greeting, limit)))
            }
        }
    }
}

/// Has a module read when there is a place for it: until then HTTP/2's window holds it back.
async fn take_module(
    mut modules: FreeholdServer<Calls>,
    places: Arc<Semaphore>,
    greeting: Duration,
    mut request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible> {
    let badge: Badge = request.extensions().get().cloned().expect("every connection has one");
    let own = badge.module.acquire_owned().await.expect("nobody closes it");
    let place = places.acquire_owned().await.expect("nobody closes it");
    request.extensions_mut().insert(Place { _permits: Arc::new([own, place]) });
    let limit = Instant::now() + MODULE_TIME;
    modules.call(request.map(|body| Timed::body(body, greeting, limit))).await
}

/// A body that has to come in time.
struct Timed {
    body: Body,
    pause: Duration,
    limit: Instant,
    end: Pin<Box<Sleep>>,
}

impl Timed {
    /// With no longer pause than this, and by then as a whole.
    fn body(body: Body, pause: Duration, limit: Instant) -> Body {
        let end = Box::pin(tokio::time::sleep_until(limit.min(Instant::now() + pause)));
        Body::new(Self { body, pause, limit, end })
    }
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.end.as_mut().poll(context));
            let sentence = "the request did not come in time: send it whole, at once";
            return Poll::Ready(Some(Err(Failure::caller(Code::DeadlineExceeded, sentence).into())));
        };
        let next = self.limit.min(Instant::now() + self.pause);
        self.end.as_mut().reset(next);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
