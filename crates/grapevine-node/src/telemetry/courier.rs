//! Brings exports to a collector: the HTTP client of `opentelemetry-otlp`'s exporters, and the whole way for
//! metrics, which those cannot carry.
//!
//! A unary gRPC call is an HTTP/2 request with five bytes before the message and its status in the
//! trailers, so one HTTP client speaks both.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::{Certificate, Identity, Url};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::ExportError;
use crate::bounded;
use crate::client::{self, innermost};
use crate::config::{Export, Protocol};
use crate::tls;

/// Tries of one export.
const TRIES: u32 = 3;

/// Pause before the second try; the third waits twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// Most of an answer that is read: collectors answer with a few bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1_024;

/// gRPC codes after which the same call may succeed: cancelled, deadline exceeded, aborted, out of range,
/// unavailable, data loss. So says the OTLP specification.
const RETRYABLE: [u32; 6] = [1, 4, 10, 11, 14, 15];

/// An export was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// No answer.
    #[error("the collector cannot be reached: {0}")]
    Unreachable(String),
    /// Another status than 200.
    #[error("the collector answered {0}")]
    Status(StatusCode),
    /// A gRPC status other than OK.
    #[error("the collector answered with gRPC status {0}")]
    Grpc(u32),
    /// Its answer is too long or broke off.
    #[error("the collector's answer cannot be read")]
    Unread,
    /// It took too long.
    #[error("the collector did not answer in time")]
    Late,
}

impl SendError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Grpc(code) => RETRYABLE.contains(code),
            Self::Late | Self::Unread => false,
        }
    }
}

/// Speaks to one collector.
pub(super) struct Courier {
    client: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    protocol: Protocol,
    timeout: Duration,
}

impl Courier {
    /// A courier without connections. It ignores proxies of the environment, as all traffic within a cluster
    /// does.
    pub(super) fn new(export: &Export) -> Result<Self, ExportError> {
        let mut builder = match export.protocol {
            Protocol::Grpc => client::builder().http2_prior_knowledge(),
            Protocol::HttpProtobuf => client::builder(),
        };
        if let Some(path) = &export.ca {
            let authorities = tls::authorities(path)?;
            let authorities = Certificate::from_pem_bundle(&authorities).map_err(ExportError::Client)?;
            builder = builder.tls_certs_only(authorities);
        }
        if let Some((certificate, key)) = &export.identity {
            let (certificate, key) = tls::identity(certificate, key)?;
            let both = [certificate, b"\n".to_vec(), key].concat();
            builder = builder.identity(Identity::from_pem(&both).map_err(ExportError::Client)?);
        }
        let mut headers = export.headers.clone();
        let kind = match export.protocol {
            Protocol::HttpProtobuf => "application/x-protobuf",
            Protocol::Grpc => "application/grpc",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        if export.protocol == Protocol::Grpc {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        Ok(Self {
            client: builder.build().map_err(ExportError::Client)?,
            url: Url::parse(&export.endpoint).map_err(|_| ExportError::Endpoint(export.endpoint.clone()))?,
            headers,
            protocol: export.protocol,
            timeout: export.timeout,
        })
    }

    /// Delivers one export message of metrics, with a few tries within the limit of time.
    pub(super) async fn deliver(&self, message: Vec<u8>) -> Result<(), SendError> {
        let body = match self.protocol {
            Protocol::HttpProtobuf => Bytes::from(message),
            Protocol::Grpc => framed(&message),
        };
        let (deadline, mut pause) = (Instant::now() + self.timeout, PAUSE);
        for _ in 1..TRIES {
            match timeout_at(deadline, self.try_once(body.clone())).await.unwrap_or(Err(SendError::Late)) {
                Err(error) if error.may_pass() && Instant::now() + pause < deadline => sleep(pause).await,
                result => return result,
            }
            pause *= 2;
        }
        timeout_at(deadline, self.try_once(body)).await.unwrap_or(Err(SendError::Late))
    }

    async fn try_once(&self, body: Bytes) -> Result<(), SendError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let answer = request.send().await.map_err(|error| SendError::Unreachable(innermost(&error)))?;
        if answer.status() != StatusCode::OK {
            return Err(SendError::Status(answer.status()));
        }
        match self.protocol {
            Protocol::HttpProtobuf => Ok(()),
            Protocol::Grpc => grpc_status(answer.into()).await,
        }
    }
}

impl fmt::Debug for Courier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Courier").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// One try; the exporters of `opentelemetry-otlp` ask again themselves.
#[async_trait]
impl HttpClient for Courier {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let mut headers = head.headers;
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        let request = self.client.request(head.method, head.uri.to_string()).headers(headers).body(body);
        let answered = async {
            let mut answer =
                request.send().await.map_err(|error| SendError::Unreachable(innermost(&error)))?;
            let mut response = Response::builder().status(answer.status());
            // How long to wait before the next try.
            if let (Some(headers), Some(value)) =
                (response.headers_mut(), answer.headers().get(header::RETRY_AFTER))
            {
                headers.insert(header::RETRY_AFTER, value.clone());
            }
            let body = bounded::read(&mut answer, MAX_ANSWER_BYTES).await.map_err(|_| SendError::Unread)?;
            Ok::<_, HttpError>(response.body(body)?)
        };
        timeout(self.timeout, answered).await.map_err(|_| SendError::Late)?
    }
}

/// A message as gRPC frames it: not compressed, its length, itself.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(message);
    frame.freeze()
}

/// What the trailers say; or the head, of an answer without a body.
async fn grpc_status(answer: http::Response<reqwest::Body>) -> Result<(), SendError> {
    let (head, mut body) = answer.into_parts();
    let mut code = code_of(&head.headers);
    let mut read = 0;
    while let (None, Some(frame)) = (code, body.frame().await) {
        let frame = frame.map_err(|error| SendError::Unreachable(innermost(&error)))?;
        match frame.into_trailers() {
            Ok(trailers) => code = code_of(&trailers),
            Err(frame) => read += frame.data_ref().map_or(0, Bytes::len),
        }
        if read > MAX_ANSWER_BYTES {
            break;
        }
    }
    // Without a status it is no gRPC answer: "unknown".
    match code.unwrap_or(2) {
        0 => Ok(()),
        code => Err(SendError::Grpc(code)),
    }
}

fn code_of(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}
