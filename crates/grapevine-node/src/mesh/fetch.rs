//! Fetches what a peer's admin port answers.

use std::time::Duration;

use grapevine_mesh::{EXCHANGE_PATH, FetchError};

use crate::bounded::{self, ReadError};
use crate::client;

/// Limit to connect. A peer that is there answers within a round trip.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Limit for the whole answer. The mesh gives up earlier; this ends what it left behind.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Unused connections are closed after this: a few ticks.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for peers' admin ports. It goes where a peer said and nowhere else: no proxy, no redirects.
#[derive(Clone, Debug)]
pub struct Fetcher(reqwest::Client);

impl Fetcher {
    /// A client without connections.
    pub fn new() -> Result<Self, reqwest::Error> {
        let client = client::builder()
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TOTAL_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .http1_only()
            .build()?;
        Ok(Self(client))
    }

    /// Posts `body` to the peer whose admin port answers at `url`. No more than `limit` bytes of its
    /// answer are ever held.
    pub(super) async fn fetch(&self, url: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
        let url = format!("{}{EXCHANGE_PATH}", url.trim_end_matches('/'));
        let mut answer = self.0.post(url).body(body).send().await.map_err(|error| unreachable(&error))?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(FetchError::Refused(answer.status().as_u16()));
        }
        match bounded::read(&mut answer, limit).await {
            Ok(body) => Ok(body.into()),
            Err(ReadError::TooLong) => Err(FetchError::TooLong),
            Err(ReadError::Broken(error)) => Err(unreachable(&error)),
        }
    }
}

fn unreachable(error: &reqwest::Error) -> FetchError {
    FetchError::Unreachable(client::innermost(error))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one request with these bytes and closes.
    async fn serve(answer: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer).await;
        });
        url
    }

    async fn fetch(answer: &'static [u8], limit: usize) -> Result<Vec<u8>, FetchError> {
        let url = serve(answer).await;
        Fetcher::new().unwrap().fetch(&url, b"question".to_vec(), limit).await
    }

    #[tokio::test]
    async fn an_answer_is_taken_up_to_its_limit() {
        const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        assert_eq!(fetch(ANSWER, 5).await, Ok(b"hello".to_vec()));
        assert_eq!(fetch(ANSWER, 4).await, Err(FetchError::TooLong));
        const ENDLESS: &[u8] =
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nhello\r\n";
        assert_eq!(fetch(ENDLESS, 9).await, Err(FetchError::TooLong));
    }

    #[tokio::test]
    async fn refusals_redirects_and_nonsense_are_errors() {
        const BUSY: &[u8] = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(fetch(BUSY, 9).await, Err(FetchError::Refused(503)));
        const MOVED: &[u8] =
            b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(fetch(MOVED, 9).await, Err(FetchError::Refused(307)), "not followed");
        for cut in [&b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"[..], b"SSH-2.0-x\r\n", b""] {
            assert!(matches!(fetch(cut, 99).await, Err(FetchError::Unreachable(_))));
        }
        let fetcher = Fetcher::new().unwrap();
        for url in ["http://127.0.0.1:1", "not a url", "ftp://127.0.0.1", ""] {
            let error = fetcher.fetch(url, Vec::new(), 9).await.unwrap_err();
            assert!(matches!(error, FetchError::Unreachable(_)), "{url}");
        }
    }
}
