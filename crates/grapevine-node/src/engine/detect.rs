//! What an engine is, where its metrics do not tell: by pages that only one kind has.
//!
//! Also how much its cache holds, where a page says that and metrics do not.

use serde_json::Value;

use super::kinds::Kind;

/// A page by which a kind gives itself away.
pub(super) struct Tell {
    pub(super) kind: Kind,
    pub(super) path: &'static str,
    /// A JSON pointer to what only this kind has there.
    mark: &'static str,
    /// What must be there; `None`: anything.
    value: Option<&'static str>,
    /// JSON pointers to numbers whose product is the size of the cache in tokens.
    cache: &'static [&'static str],
}

const fn owner(kind: Kind, value: &'static str) -> Tell {
    Tell { kind, path: "/v1/models", mark: "/data/0/owned_by", value: Some(value), cache: &[] }
}

/// In the order in which they are asked for; what is said earlier counts. `/version` is last since others
/// than vLLM have one too.
pub(super) const TELLS: &[Tell] = &[
    owner(Kind::Vllm, "vllm"),
    owner(Kind::Sglang, "sglang"),
    owner(Kind::LlamaCpp, "llamacpp"),
    owner(Kind::TensorRt, "tensorrt_llm"),
    // The context of every slot is a cache of its own.
    Tell {
        kind: Kind::LlamaCpp,
        path: "/props",
        mark: "/default_generation_settings/n_ctx",
        value: None,
        cache: &["/total_slots", "/default_generation_settings/n_ctx"],
    },
    Tell {
        kind: Kind::Sglang,
        path: "/server_info",
        mark: "/max_total_num_tokens",
        value: None,
        cache: &["/max_total_num_tokens"],
    },
    Tell {
        kind: Kind::Tgi,
        path: "/info",
        mark: "/max_total_tokens",
        value: None,
        cache: &["/max_batch_total_tokens"],
    },
    Tell { kind: Kind::Triton, path: "/v2", mark: "/name", value: Some("triton"), cache: &[] },
    Tell { kind: Kind::Vllm, path: "/version", mark: "/version", value: None, cache: &[] },
];

impl Tell {
    /// Whether `page` is of this kind.
    pub(super) fn fits(&self, page: &Value) -> bool {
        page.pointer(self.mark).is_some_and(|found| self.value.is_none_or(|value| found == value))
    }

    /// Whether it says how much the cache holds.
    pub(super) fn says_cache(&self) -> bool {
        !self.cache.is_empty()
    }

    /// How much the cache holds, in tokens.
    pub(super) fn cache_tokens(&self, page: &Value) -> Option<u64> {
        let numbers = self.cache.iter().map(|pointer| page.pointer(pointer)?.as_u64());
        let product = numbers.reduce(|product, number| product?.checked_mul(number?))??;
        (product > 0).then_some(product)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The first kind that `page`, found at `path`, gives away; and its cache.
    fn told(path: &str, page: &Value) -> Option<(Kind, Option<u64>)> {
        let tell = TELLS.iter().find(|tell| tell.path == path && tell.fits(page))?;
        Some((tell.kind, tell.cache_tokens(page)))
    }

    #[test]
    fn every_kind_gives_itself_away() {
        let owned = |by: &str| json!({ "object": "list", "data": [{ "id": "m", "owned_by": by }] });
        assert_eq!(told("/v1/models", &owned("vllm")), Some((Kind::Vllm, None)));
        assert_eq!(told("/v1/models", &owned("sglang")), Some((Kind::Sglang, None)));
        assert_eq!(told("/v1/models", &owned("llamacpp")), Some((Kind::LlamaCpp, None)));
        assert_eq!(told("/v1/models", &owned("tensorrt_llm")), Some((Kind::TensorRt, None)));
        assert_eq!(told("/v1/models", &owned("somebody")), None);
        let props = json!({ "total_slots": 4, "default_generation_settings": { "n_ctx": 4096 } });
        assert_eq!(told("/props", &props), Some((Kind::LlamaCpp, Some(16_384))));
        let info = json!({ "status": "ready", "max_total_num_tokens": 120_000, "version": "0.5.23" });
        assert_eq!(told("/server_info", &info), Some((Kind::Sglang, Some(120_000))));
        let info = json!({ "model_id": "m", "max_total_tokens": 4096, "max_batch_total_tokens": 65_536 });
        assert_eq!(told("/info", &info), Some((Kind::Tgi, Some(65_536))));
        assert_eq!(told("/v2", &json!({ "name": "triton", "version": "2" })), Some((Kind::Triton, None)));
        assert_eq!(told("/version", &json!({ "version": "0.32.0" })), Some((Kind::Vllm, None)));
    }

    #[test]
    fn nonsense_gives_nobody_away() {
        for page in [json!(null), json!([]), json!("vllm"), json!({ "data": "x" })] {
            assert!(TELLS.iter().all(|tell| !tell.fits(&page)), "{page}");
        }
        let huge = json!({ "total_slots": u64::MAX, "default_generation_settings": { "n_ctx": 2 } });
        assert_eq!(told("/props", &huge), Some((Kind::LlamaCpp, None)));
        let none = json!({ "total_slots": 0, "default_generation_settings": { "n_ctx": 2 } });
        assert_eq!(told("/props", &none), Some((Kind::LlamaCpp, None)));
    }
}
