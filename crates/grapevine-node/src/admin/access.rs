//! Who may look: with a token, or from this machine where none is set.

use std::net::SocketAddr;

use http::{HeaderMap, header};
use subtle::ConstantTimeEq;

use crate::auth::bearer_of;
use crate::auth::keys::{Hash, hash_of};
use crate::config::Secret;

/// How the answer of a listener begins that shows nothing because it has no token.
pub const CLOSED: &str = "closed off loopback until GRAPEVINE_ADMIN_TOKEN is set\n";

/// What it takes to see metrics and status.
#[derive(Clone)]
pub enum Access {
    /// Nothing: only this machine can connect.
    Open,
    /// A token; this is its hash, so that comparing takes equally long for tokens of any length.
    Token(Hash),
    /// The listener is open to the network and no token is set.
    Closed,
}

impl Access {
    /// The rule for a listener on `addr`.
    pub fn new(token: Option<&Secret>, addr: SocketAddr) -> Self {
        match token {
            Some(token) => Self::Token(hash_of(token.expose())),
            None if addr.ip().is_loopback() => Self::Open,
            None => Self::Closed,
        }
    }

    /// Whether everybody on this machine may look.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// `Ok` for a request that may look; otherwise what its sender must do.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        match self {
            Self::Open => Ok(()),
            Self::Closed => Err(CLOSED),
            Self::Token(expected) => {
                let sent = headers.get(header::AUTHORIZATION).and_then(bearer_of).map(hash_of);
                let fits = sent.is_some_and(|sent| bool::from(sent.ct_eq(expected)));
                if fits { Ok(()) } else { Err("send GRAPEVINE_ADMIN_TOKEN as `Authorization: Bearer`\n") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    #[test]
    fn off_loopback_nothing_is_shown_without_a_token() {
        let (here, wide) = ("127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap());
        assert!(Access::new(None, here).check(&HeaderMap::new()).is_ok());
        assert!(Access::new(None, wide).check(&bearer("x")).is_err());
        let token = Secret::new("correct horse battery".to_owned());
        for addr in [here, wide] {
            let access = Access::new(Some(&token), addr);
            assert!(access.check(&bearer("correct horse battery")).is_ok());
            assert!(access.check(&bearer("correct horse batter")).is_err());
            assert!(access.check(&HeaderMap::new()).is_err());
        }
    }
}
