//! What an engine's failure means: was anything accepted, is the process gone?

use std::error::Error;
use std::io;

use http::StatusCode;
use rustix::io::Errno;

/// Most bytes of an engine's error body that are looked at.
pub const PEEK_BYTES: usize = 4_096;

/// Phrases by which an engine says that it accepted nothing and another instance may.
const BUSY: [&str; 2] = ["different instance", "currently busy"];

/// Phrase by which llama.cpp says that it is not up yet.
const LOADING: &str = "Loading model";

/// Phrase by which a vLLM that is shutting down refuses, at once and with a 500.
const LEAVING: &str = "after shutdown";

/// An answer by which the engine says that it did not take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its queue is full.
    Busy,
    /// It is not up yet.
    Loading,
    /// It is going away.
    Leaving,
}

/// Whether an answer with `status` may be a refusal, so that its body is worth reading first.
pub fn may_refuse(status: StatusCode) -> bool {
    matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::INTERNAL_SERVER_ERROR)
}

/// Reads a refusal out of an error body.
pub fn refusal(status: StatusCode, body: &[u8]) -> Option<Refusal> {
    let says = |phrase: &str| memchr::memmem::find(body, phrase.as_bytes()).is_some();
    match status {
        StatusCode::SERVICE_UNAVAILABLE if BUSY.into_iter().any(says) => Some(Refusal::Busy),
        StatusCode::SERVICE_UNAVAILABLE if says(LOADING) => Some(Refusal::Loading),
        StatusCode::INTERNAL_SERVER_ERROR if says(LEAVING) => Some(Refusal::Leaving),
        _ => None,
    }
}

/// Whether nobody listens there: the process is gone, and its cache with it.
pub fn refused(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether it was this router that had no socket for the connection: no descriptor, memory or port left.
/// That says nothing of the replica.
pub fn no_sockets(error: &reqwest::Error) -> bool {
    causes(error).any(is_exhaustion)
}

fn is_exhaustion(error: &io::Error) -> bool {
    const WANTS: [Errno; 4] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| WANTS.contains(&errno))
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &io::Error> {
    let chain = std::iter::successors(error.source(), |cause| (*cause).source());
    chain.filter_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_engine_says_of_itself_is_a_refusal() {
        let busy = br#"{"error":{"message":"The engine is currently busy and cannot accept new requests."}}"#;
        assert_eq!(refusal(StatusCode::SERVICE_UNAVAILABLE, busy), Some(Refusal::Busy));
        assert_eq!(refusal(StatusCode::INTERNAL_SERVER_ERROR, busy), None);
        let leaving = br#"{"error":{"message":"cannot schedule new futures after shutdown"}}"#;
        assert_eq!(refusal(StatusCode::INTERNAL_SERVER_ERROR, leaving), Some(Refusal::Leaving));
        assert_eq!(refusal(StatusCode::SERVICE_UNAVAILABLE, b"Loading model"), Some(Refusal::Loading));
        assert_eq!(refusal(StatusCode::SERVICE_UNAVAILABLE, b"no"), None);
    }

    #[test]
    fn a35_want_of_descriptors_is_told_from_an_unreachable_replica() {
        let errno = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(is_exhaustion(&errno(Errno::MFILE)) && is_exhaustion(&errno(Errno::ADDRNOTAVAIL)));
        assert!(
            !is_exhaustion(&errno(Errno::CONNREFUSED)) && !is_exhaustion(&io::ErrorKind::TimedOut.into())
        );
    }
}
