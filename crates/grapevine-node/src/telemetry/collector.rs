//! A collector in the test process: takes whatever signal comes, by HTTP and by gRPC, with TLS or without.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::{Export, Protocol};

/// Longest export of a test: nothing takes that long unless it hangs.
pub(super) const LONG: Duration = Duration::from_secs(60);

/// What came in.
#[derive(Clone, Debug)]
pub(super) struct Post {
    path: String,
    headers: HeaderMap,
    message: Bytes,
}

#[derive(Clone, Default)]
pub(super) struct Seen {
    pub(super) posts: Arc<Mutex<Vec<Post>>>,
    /// gRPC statuses to answer with before all is well.
    pub(super) refusals: Arc<Mutex<VecDeque<u32>>>,
}

pub(super) struct Collector {
    scheme: &'static str,
    address: SocketAddr,
    pub(super) seen: Seen,
}

impl Collector {
    pub(super) async fn start() -> Self {
        Self::at("http", TcpListener::bind("127.0.0.1:0").await.expect("a free port"))
    }

    /// One behind TLS.
    pub(super) async fn behind(tls: TlsAcceptor) -> Self {
        Self::at("https", Behind(TcpListener::bind("127.0.0.1:0").await.expect("a free port"), tls))
    }

    fn at(scheme: &'static str, listener: impl Listener<Addr = SocketAddr>) -> Self {
        let seen = Seen::default();
        let app = Router::new().fallback(take).with_state(seen.clone());
        let address = listener.local_addr().expect("bound");
        tokio::spawn(axum::serve(listener, app).into_future());
        Self { scheme, address, seen }
    }

    pub(super) fn export(&self, protocol: Protocol, http: &str, service: &str) -> Export {
        let path = match protocol {
            Protocol::HttpProtobuf => http.to_owned(),
            Protocol::Grpc => format!("opentelemetry.proto.collector.{service}/Export"),
        };
        let mut export = Export::http(format!("{}://{}/{path}", self.scheme, self.address), LONG);
        export.protocol = protocol;
        export.headers.insert("x-tenant", HeaderValue::from_static("7"));
        export
    }

    /// The one post that came, which must be to the path of its protocol.
    pub(super) fn only(&self, protocol: Protocol, export: &Export) -> Bytes {
        let posts = self.seen.posts.lock().unwrap();
        let [post] = &posts[..] else { panic!("{posts:?}") };
        assert!(export.endpoint.ends_with(&post.path), "{post:?}");
        assert_eq!(post.headers["x-tenant"], "7");
        assert_eq!(post.headers.contains_key("te"), protocol == Protocol::Grpc);
        post.message.clone()
    }
}

/// Shakes hands; whoever cannot is let go.
struct Behind(TcpListener, TlsAcceptor);

impl Listener for Behind {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((stream, addr)) = self.0.accept().await else { continue };
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, addr);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

async fn take(State(seen): State<Seen>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let kind = head.headers["content-type"].to_str().unwrap().to_owned();
    let (path, headers) = (head.uri.path().to_owned(), head.headers);
    if kind == "application/x-protobuf" {
        seen.posts.lock().unwrap().push(Post { path, headers, message: body });
        return StatusCode::OK.into_response();
    }
    assert_eq!((kind.as_str(), head.version), ("application/grpc", http::Version::HTTP_2));
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!((body[0], body.len()), (0, 5 + length), "one message, not compressed");
    let status = seen.refusals.lock().unwrap().pop_front().unwrap_or(0);
    if status == 0 {
        seen.posts.lock().unwrap().push(Post { path, headers, message: body.slice(5..) });
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(status))]);
    // An answer without anything in it, if all is well.
    let answer = if status == 0 { Bytes::from_static(&[0; 5]) } else { Bytes::new() };
    let body = Full::new(answer).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}
