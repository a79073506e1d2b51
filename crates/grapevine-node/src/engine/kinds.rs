//! What is to be known of each kind of engine.
//!
//! A table, not a trait: kinds differ in names, paths and numbers, never in what is done with them. A new
//! kind is a row here, and its metrics' names are rows in `table`.
//!
//! Sources: the recordings of vLLM 0.32 and llama.cpp b11434, SGLang's `http_server.py`, and the
//! documentation of TGI, TensorRT-LLM and Triton.

use std::time::Duration;

use http::Method;

use super::table::METRICS_PATHS;

/// What an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server.
    LlamaCpp,
    /// Text Generation Inference.
    Tgi,
    /// TensorRT-LLM's own server.
    TensorRt,
    /// Triton with TensorRT-LLM behind it.
    Triton,
    /// Anything that says nothing of itself.
    #[default]
    Plain,
}

/// A kind's row.
struct Profile {
    /// In settings, status and metrics.
    name: &'static str,
    /// Where it says whether it is ready. A path that it does not know is answered with 404, which is a
    /// sign of life too.
    health: &'static str,
    /// What its health takes when it is well, at most.
    health_takes: Duration,
    /// Idle connections are closed after this; `None`: not known to be.
    keep_alive: Option<Duration>,
    /// It answers whatever model is asked for.
    any_name: bool,
    /// Paths that administer it.
    admin: &'static [Rule],
}

/// What a rule covers.
#[derive(Clone, Copy, Debug)]
enum Covers {
    /// This path alone.
    Exact(&'static str),
    /// Every path that begins so.
    Prefix(&'static str),
}

/// To which methods a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Any,
    /// Reading is harmless.
    Writes,
}

type Rule = (On, Covers);

use Covers::{Exact, Prefix};

const SECOND: Duration = Duration::from_secs(1);

/// uvicorn's, which vLLM, SGLang and TensorRT-LLM serve with; llama.cpp's is the same by chance.
const KEEP_ALIVE: Option<Duration> = Some(Duration::from_secs(5));

static VLLM: Profile = Profile {
    name: "vllm",
    health: "/health",
    health_takes: SECOND,
    keep_alive: KEEP_ALIVE,
    any_name: false,
    admin: &[
        (On::Any, Exact("/reset_prefix_cache")),
        (On::Any, Exact("/reset_mm_cache")),
        (On::Any, Exact("/reset_encoder_cache")),
        (On::Any, Exact("/sleep")),
        (On::Any, Exact("/wake_up")),
        (On::Any, Exact("/collective_rpc")),
        (On::Any, Exact("/server_info")),
        (On::Any, Exact("/pause")),
        (On::Any, Exact("/resume")),
        (On::Any, Exact("/scale_elastic_ep")),
        (On::Any, Prefix("/start_profile")),
        (On::Any, Prefix("/stop_profile")),
        (On::Any, Prefix("/fault_tolerance")),
        (On::Any, Prefix("/v1/load_lora_adapter")),
        (On::Any, Prefix("/v1/unload_lora_adapter")),
        (On::Any, Prefix("/abort_request")),
        (On::Any, Prefix("/init_weight")),
        (On::Any, Prefix("/start_weight")),
        (On::Any, Prefix("/start_draft_weight")),
        (On::Any, Prefix("/update_weight")),
        (On::Any, Prefix("/finish_weight")),
        (On::Any, Prefix("/shutdown_weight")),
        (On::Any, Prefix("/weight_")),
        (On::Any, Exact("/release_kv_cache_memory")),
        (On::Any, Exact("/kv_event_sources")),
    ],
};

static SGLANG: Profile = Profile {
    name: "sglang",
    health: "/health",
    // It generates a token, behind whatever prefill runs.
    health_takes: Duration::from_secs(20),
    keep_alive: KEEP_ALIVE,
    any_name: false,
    admin: &[
        (On::Any, Exact("/get_server_info")),
        (On::Any, Exact("/flush_cache")),
        (On::Any, Exact("/release_memory_occupation")),
        (On::Any, Exact("/resume_memory_occupation")),
        (On::Any, Exact("/pause_generation")),
        (On::Any, Exact("/continue_generation")),
        (On::Any, Exact("/set_internal_state")),
        (On::Any, Exact("/get_internal_state")),
        (On::Any, Exact("/slow_down")),
        (On::Any, Exact("/freeze_gc")),
        (On::Any, Exact("/configure_logging")),
        (On::Any, Exact("/get_weights_by_name")),
        (On::Any, Prefix("/destroy_weights_")),
        (On::Any, Prefix("/send_weights_")),
        (On::Any, Prefix("/dumper")),
        (On::Any, Prefix("/load_lora_adapter")),
        (On::Any, Prefix("/unload_lora_adapter")),
        (On::Any, Prefix("/hicache")),
        (On::Any, Prefix("/clear_hicache")),
        (On::Any, Prefix("/start_expert_distribution")),
        (On::Any, Prefix("/stop_expert_distribution")),
        (On::Any, Prefix("/dump_expert_distribution")),
        (On::Any, Exact("/shutdown")),
    ],
};

static LLAMA_CPP: Profile = Profile {
    name: "llama.cpp",
    health: "/health",
    health_takes: SECOND,
    keep_alive: KEEP_ALIVE,
    any_name: true,
    admin: &[
        (On::Writes, Exact("/props")),
        // Reading them shows what others ask for.
        (On::Any, Prefix("/slots")),
        (On::Writes, Exact("/lora-adapters")),
        (On::Writes, Exact("/models")),
        (On::Any, Exact("/models/load")),
        (On::Any, Exact("/models/unload")),
        (On::Any, Exact("/tools")),
        (On::Any, Exact("/cors-proxy")),
    ],
};

static TGI: Profile = Profile {
    name: "tgi",
    health: "/health",
    // It may run a generation too.
    health_takes: Duration::from_secs(20),
    keep_alive: None,
    any_name: true,
    admin: &[],
};

static TENSOR_RT: Profile = Profile {
    name: "tensorrt-llm",
    health: "/health",
    health_takes: SECOND,
    keep_alive: KEEP_ALIVE,
    any_name: false,
    admin: &[
        (On::Any, Exact("/release_memory")),
        (On::Any, Exact("/resume_memory")),
        (On::Any, Exact("/steady_clock_offset")),
        // Each is shown once, with the token ids of whoever's prompt it was.
        (On::Any, Exact("/kv_cache_events")),
    ],
};

static TRITON: Profile = Profile {
    name: "triton",
    health: "/v2/health/ready",
    health_takes: SECOND,
    keep_alive: None,
    any_name: true,
    admin: &[(On::Any, Prefix("/v2/repository")), (On::Writes, Exact("/v2/logging"))],
};

static PLAIN: Profile = Profile {
    name: "plain",
    health: "/health",
    health_takes: SECOND,
    keep_alive: None,
    any_name: false,
    // Ollama's, which changes what models there are.
    admin: &[
        (On::Any, Exact("/api/pull")),
        (On::Any, Exact("/api/push")),
        (On::Any, Exact("/api/create")),
        (On::Any, Exact("/api/copy")),
        (On::Any, Exact("/api/delete")),
        (On::Any, Prefix("/api/blobs")),
    ],
};

static PROFILES: [&Profile; 7] = [&VLLM, &SGLANG, &LLAMA_CPP, &TGI, &TENSOR_RT, &TRITON, &PLAIN];

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Vllm, Self::Sglang, Self::LlamaCpp, Self::Tgi, Self::TensorRt, Self::Triton, Self::Plain];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn profile(self) -> &'static Profile {
        match self {
            Self::Vllm => &VLLM,
            Self::Sglang => &SGLANG,
            Self::LlamaCpp => &LLAMA_CPP,
            Self::Tgi => &TGI,
            Self::TensorRt => &TENSOR_RT,
            Self::Triton => &TRITON,
            Self::Plain => &PLAIN,
        }
    }

    /// The name in settings, status and metrics.
    pub fn name(self) -> &'static str {
        self.profile().name
    }

    /// Where it says whether it is ready.
    pub fn health_path(self) -> &'static str {
        self.profile().health
    }

    /// The limit of a health probe: what operators set, but not less than a well one takes.
    pub fn health_limit(self, set: Duration) -> Duration {
        set.max(self.profile().health_takes)
    }

    /// Idle connections are closed by it after this.
    pub fn keep_alive(self) -> Option<Duration> {
        self.profile().keep_alive
    }

    /// Whether it answers whatever model is asked for, listed or not.
    pub fn answers_any_name(self) -> bool {
        self.profile().any_name
    }
}

/// Whether a canonical path administers an engine of any kind (the kind behind a URL may change), or shows the
/// metrics of whichever one it reaches: operators' business, and through a router the counters of another engine
/// each time.
pub fn administers(method: &Method, path: &str) -> bool {
    let writes = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let covers = |(on, covers): &Rule| {
        let applies = writes || *on == On::Any;
        applies
            && match covers {
                Exact(denied) => path == *denied,
                Prefix(denied) => path.starts_with(denied),
            }
    };
    METRICS_PATHS.contains(&path) || PROFILES.iter().any(|profile| profile.admin.iter().any(covers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_row_and_a_name_of_its_own() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            assert!(kind.health_path().starts_with('/'));
        }
        assert_eq!(Kind::named("ollama2"), None);
    }

    #[test]
    fn a_probe_of_one_that_generates_has_time_for_it() {
        assert_eq!(Kind::Vllm.health_limit(Duration::from_secs(5)), Duration::from_secs(5));
        assert_eq!(Kind::Sglang.health_limit(Duration::from_secs(5)), Duration::from_secs(20));
        assert_eq!(Kind::Sglang.health_limit(Duration::from_secs(60)), Duration::from_secs(60));
    }

    #[test]
    fn rules_of_all_kinds_hold_for_all() {
        assert!(administers(&Method::GET, "/flush_cache") && administers(&Method::POST, "/sleep"));
        assert!(administers(&Method::POST, "/props") && !administers(&Method::GET, "/props"));
        assert!(administers(&Method::POST, "/v2/repository/models/m/unload"));
        assert!(!administers(&Method::POST, "/v2/models/m/generate"));
    }

    #[test]
    fn whoever_changes_weights_memory_or_models_administers() {
        for path in [
            "/init_weight_transfer_engine",
            "/start_weight_update",
            "/start_draft_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/shutdown_weight_transfer_engine",
            "/weight_checker",
            "/release_kv_cache_memory",
            "/init_weights_update_group",
            "/release_memory",
            "/resume_memory",
            "/api/delete",
            "/api/blobs/sha256:1",
        ] {
            assert!(administers(&Method::POST, path), "{path}");
        }
    }

    #[test]
    fn what_others_ask_for_is_not_shown() {
        for path in ["/slots", "/slots/0", "/kv_cache_events", "/kv_event_sources"] {
            assert!(administers(&Method::GET, path), "{path}");
        }
        for path in ["/api/chat", "/api/tags", "/is_paused", "/load"] {
            assert!(!administers(&Method::GET, path), "{path}");
        }
    }
}
