//! How a request ended.

use http::StatusCode;

use crate::error::{Origin, RouterError};

/// How a request ended, for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered in full.
    Ok,
    /// The engine refused the request: 4xx.
    ClientError,
    /// The engine failed: 5xx.
    EngineError,
    /// The engine said within the stream that it failed.
    StreamFailed,
    /// The engine died within its answer.
    EngineCut,
    /// The engine fell silent within its answer.
    EngineIdle,
    /// No engine answered.
    Unanswered,
    /// The client went away first.
    ClientClosed,
    /// The router refused the request.
    Refused,
    /// The router's drain ended first.
    Drained,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::ClientError,
        Self::EngineError,
        Self::StreamFailed,
        Self::EngineCut,
        Self::EngineIdle,
        Self::Unanswered,
        Self::ClientClosed,
        Self::Refused,
        Self::Drained,
    ];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientError => "client_error",
            Self::EngineError => "engine_error",
            Self::StreamFailed => "stream_failed",
            Self::EngineCut => "engine_cut",
            Self::EngineIdle => "engine_idle",
            Self::Unanswered => "unanswered",
            Self::ClientClosed => "client_closed",
            Self::Refused => "refused",
            Self::Drained => "drained",
        }
    }

    /// Of an answer that was relayed in full.
    pub fn of_status(status: StatusCode) -> Self {
        if status.is_server_error() {
            Self::EngineError
        } else if status.is_client_error() {
            Self::ClientError
        } else {
            Self::Ok
        }
    }

    /// Of an answer of the router itself.
    pub fn of_error(error: RouterError) -> Self {
        match (error, error.facts().origin) {
            (RouterError::BodyBroken, _) => Self::ClientClosed,
            (RouterError::ShuttingDown, _) => Self::Drained,
            (_, Origin::Engine) => Self::Unanswered,
            (_, Origin::Client | Origin::Router) => Self::Refused,
        }
    }
}
