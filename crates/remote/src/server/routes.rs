//! Routes a request to its service by its path, after checking the token.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::listener::ConnectionInfo;
use crate::error::RemoteError;
use crate::transport::Token;

type ResponseFuture = BoxFuture<http::Response<Body>, Infallible>;

/// The services of a server.
#[derive(Clone)]
pub(super) struct Routes {
    token: Arc<Token>,
    routes: Vec<Route>,
}

#[derive(Clone)]
struct Route {
    service_name: &'static str,
    needs_token: bool,
    call: Arc<dyn Fn(http::Request<Body>) -> ResponseFuture + Send + Sync>,
}

impl Routes {
    pub(super) fn new(token: Token) -> Self {
        Self { token: Arc::new(token), routes: Vec::new() }
    }

    /// Adds a service for clients with the token.
    pub(super) fn with<S>(self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = ResponseFuture>,
        S: NamedService + Clone + Send + Sync + 'static,
    {
        self.add(service, true)
    }

    /// Adds a service for all clients.
    pub(super) fn with_public<S>(self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = ResponseFuture>,
        S: NamedService + Clone + Send + Sync + 'static,
    {
        self.add(service, false)
    }

    fn add<S>(mut self, service: S, needs_token: bool) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = ResponseFuture>,
        S: NamedService + Clone + Send + Sync + 'static,
    {
        let call = Arc::new(move |request| service.clone().call(request));
        self.routes.push(Route { service_name: S::NAME, needs_token, call });
        self
    }

    /// Accepts a request with the token.
    fn authenticate(&self, request: &http::Request<Body>) -> Result<(), Status> {
        let shown = request.headers().get("authorization");
        if shown.is_some_and(|shown| self.token.matches_header(shown.as_bytes())) {
            request
                .extensions()
                .get::<ConnectionInfo>()
                .expect("every connection has a ConnectionInfo")
                .mark_authenticated();
            return Ok(());
        }
        let message = match shown {
            None => "no token was presented: use --token-file FILE, or set FREEHOLD_TOKEN",
            Some(_) => "wrong token: use the one that `freehold serve` was started with",
        };
        Err(RemoteError::caller(Code::Unauthenticated, message).into())
    }
}

impl Service<http::Request<Body>> for Routes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> ResponseFuture {
        let named = request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/'));
        let route = named.and_then(|(name, _)| self.routes.iter().find(|route| route.service_name == name));
        let checked = match route {
            None => Err(Status::unimplemented("")),
            Some(route) if route.needs_token => self.authenticate(&request).map(|()| route),
            Some(route) => Ok(route),
        };
        match checked {
            Ok(route) => (route.call)(request),
            Err(status) => Box::pin(std::future::ready(Ok(status.into_http()))),
        }
    }
}
