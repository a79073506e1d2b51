//! What means the same has the same key, however it is written; what does not, has not.

use super::*;

#[test]
fn how_long_a_text_is_does_not_depend_on_its_escapes() {
    let body = |data: &str| {
        format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"x","data":"{data}"}}]}}]}}"#)
    };
    let key = |data: &str| Extractor::new(KeySeed(1)).extract(Api::Chat, body(data).as_bytes(), b"").key;
    for length in [900, 5_000] {
        assert_eq!(key(&"A".repeat(length)), key(&"\\u0041".repeat(length)), "{length} bytes");
    }
}

#[test]
fn what_is_no_text_counts_as_none_however_it_is_written() {
    let key = |role: &str| {
        let body = format!(r#"{{"messages":[{{"role":{role},"content":"{}"}}]}}"#, long("text ", 300));
        Extractor::new(KeySeed(1)).extract(Api::Chat, body.as_bytes(), b"").key
    };
    assert_eq!(key(r#"{"a":1}"#), key(r#"{ "a" : 1 }"#));
}

/// Writes JSON as some client might: members in another order, other white space, escapes where
/// none are needed. The order inside schemas and arguments stays: templates print it.
struct Scribe {
    state: u64,
}

impl Scribe {
    fn below(&mut self, n: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % n
    }

    fn space(&mut self, out: &mut String) {
        (0..self.below(3)).for_each(|_| out.push([' ', '\n', '\t', '\r'][self.below(4)]));
    }

    fn string(&mut self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            let mut units = [0; 2];
            match c {
                _ if self.below(6) == 0 => {
                    c.encode_utf16(&mut units).iter().for_each(|u| out.push_str(&format!("\\u{u:04X}")));
                }
                '"' | '\\' => out.extend(['\\', c]),
                '/' if self.below(2) == 0 => out.push_str("\\/"),
                '\n' => out.push_str("\\n"),
                c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
                c => out.push(c),
            }
        }
        out.push('"');
    }

    fn write(&mut self, value: &J, keep_order: bool, out: &mut String) {
        self.space(out);
        match value {
            J::Object(map) => {
                let mut members: Vec<_> = map.iter().collect();
                if !keep_order {
                    (1..members.len()).for_each(|i| members.swap(i, self.below(i + 1)));
                }
                out.push('{');
                for (i, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.space(out);
                    self.string(name, out);
                    self.space(out);
                    out.push(':');
                    let printed =
                        ["parameters", "input_schema", "arguments", "input"].contains(&name.as_str());
                    self.write(value, keep_order || (printed && value.is_object()), out);
                }
                out.push('}');
            }
            J::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    self.write(item, keep_order, out);
                }
                out.push(']');
            }
            J::String(text) => self.string(text, out),
            other => out.push_str(&other.to_string()),
        }
        self.space(out);
    }
}

fn arb_part() -> impl Strategy<Value = J> {
    prop_oneof![
        "\\PC{0,200}".prop_map(|text| json!({"type": "text", "text": text})),
        "[a-z/]{1,20}"
            .prop_map(|url| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}})),
        "[a-z]{1,20}"
            .prop_map(|data| json!({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})),
        "[a-z]{1,9}".prop_map(
            |name| json!({"type": "tool_use", "id": "t1", "name": name, "input": {"b": 1, "a": "x"}})
        ),
        "[a-z]{1,99}".prop_map(|text| json!({"type": "tool_result", "tool_use_id": "t1", "content": text})),
    ]
}

fn arb_turn() -> impl Strategy<Value = J> {
    let role = prop_oneof![Just("user"), Just("assistant"), Just("system"), Just("tool")];
    let content = prop_oneof![
        "\\PC{0,200}".prop_map(J::from),
        prop::collection::vec(arb_part(), 0..4).prop_map(J::from)
    ];
    (role, content, any::<bool>()).prop_map(|(role, content, calls)| {
        let mut turn = json!({"role": role, "content": content, "name": "n"});
        if calls {
            turn["tool_calls"] =
                json!([{"type": "function", "id": "c", "function": {"arguments": "{\"x\":1}", "name": "f"}}]);
        }
        turn
    })
}

fn arb_tool() -> impl Strategy<Value = J> {
    let schema = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "null"}}});
    ("[a-z]{1,9}", "\\PC{0,99}", any::<bool>()).prop_map(move |(name, description, nested)| {
        if nested {
            json!({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
        } else {
            json!({"name": name, "description": description, "input_schema": schema})
        }
    })
}

fn arb_request() -> impl Strategy<Value = (Api, J)> {
    let turns = prop::collection::vec(arb_turn(), 0..5);
    let tools = prop::collection::vec(arb_tool(), 0..3);
    let api = prop_oneof![Just(Api::Chat), Just(Api::Messages), Just(Api::Responses)];
    (api, turns, tools, "\\PC{0,99}").prop_map(|(api, turns, tools, system)| {
        let list = if api == Api::Responses { "input" } else { "messages" };
        let mut body = json!({"model": "m/x", "tools": tools, "cache_salt": "s", "temperature": 0.5});
        body[list] = json!(turns);
        body["system"] = json!(system);
        body["lora"] = json!([{"id": 0, "scale": 1.5}]);
        (api, body)
    })
}

proptest! {
    #[test]
    fn a_key_does_not_depend_on_how_a_request_is_written((api, body) in arb_request(), state: u64) {
        let (mut scribe, mut written) = (Scribe { state }, String::new());
        scribe.write(&body, false, &mut written);
        let read: J = serde_json::from_str(&written).unwrap();
        prop_assert_eq!(&read, &body, "the scribe writes what it was given");
        let mut x = Extractor::new(KeySeed(9));
        prop_assert_eq!(x.extract(api, written.as_bytes(), b""), x.extract(api, &serde_json::to_vec(&body).unwrap(), b""));
    }
}

fn key(api: Api, body: &J) -> PrefixKey {
    extract(api, body).key
}

#[test]
fn text_in_parts_equals_text_in_one() {
    let (one, two) = (long("one ", 400), long("two ", 400));
    let whole = json!(format!("{one}{two}"));
    let parts = json!([{"type": "text", "text": one}, {"type": "text", "text": two}]);
    let ask = |content: &J| chat(&json!([{"role": "user", "content": content}]));
    assert_eq!(ask(&whole), ask(&parts));
    let system = |system: &J| key(Api::Messages, &json!({"model": "m", "system": system, "messages": []}));
    assert_eq!(system(&whole), system(&parts));
}

#[test]
fn tools_are_the_same_in_every_apis_form() {
    let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
    let text = long("searches ", 600);
    let turn = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"model": "m", "messages": turn, "tools": [
        {"type": "function", "function": {"name": "f", "description": text, "parameters": schema, "strict": true}}]});
    let messages = json!({"model": "m", "messages": turn, "tools": [
        {"name": "f", "description": text, "input_schema": schema, "cache_control": {"type": "ephemeral"}}]});
    let responses = json!({"model": "m", "input": turn, "tools": [
        {"type": "function", "name": "f", "description": text, "parameters": schema}]});
    assert_eq!(key(Api::Chat, &chat), key(Api::Messages, &messages));
    assert_eq!(key(Api::Chat, &chat), key(Api::Responses, &responses));
    let other = json!({"model": "m", "messages": turn, "tools": [{"type": "web_search", "name": "f", "description": text, "input_schema": schema}]});
    assert_ne!(key(Api::Messages, &messages), key(Api::Messages, &other), "a type of its own counts");
}

#[test]
fn tool_traffic_is_the_same_in_every_apis_form() {
    let result = long("result ", 600);
    let chat = json!({"model": "m", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
        {"role": "user", "content": "and"}]});
    let anthropic = |id: &str| {
        json!({"model": "m", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]},
        {"role": "user", "content": "and"}]})
    };
    let responses = json!({"model": "m", "input": [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "id": "fc_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": result},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and"}]}]});
    assert_eq!(key(Api::Messages, &anthropic("a")), key(Api::Messages, &anthropic("b")), "ids do not count");
    // Only the few bytes of the role before a call differ, and the spelling of empty arguments.
    for (api, body) in [(Api::Messages, anthropic("a")), (Api::Responses, responses)] {
        let bytes = key(api, &body).bytes.abs_diff(key(Api::Chat, &chat).bytes);
        assert!(bytes <= 32, "{bytes}");
    }
    let changed = |text: &str| {
        json!({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": text}]}]}]})
    };
    assert_eq!(
        shared(
            &key(Api::Messages, &changed(&long("x", 300))),
            &key(Api::Messages, &changed(&long("y", 300)))
        ),
        0
    );
}

#[test]
fn fields_that_no_template_prints_do_not_count() {
    let plain = json!([{"role": "assistant", "content": long("text ", 400)}]);
    let echoed = json!([{"role": "assistant", "content": long("text ", 400), "refusal": null, "annotations": [],
        "audio": null, "id": "msg_1", "function_call": null, "tool_calls": null}]);
    assert_eq!(chat(&plain), chat(&echoed));
    let thinking = json!([{"role": "assistant", "content": long("text ", 400), "reasoning_content": "hm"}]);
    assert_ne!(chat(&plain), chat(&thinking), "reasoning is printed");
    let nothing = json!({"model": "m", "system": "", "messages": plain});
    assert_eq!(key(Api::Messages, &nothing), chat(&plain), "an empty system message is none");
}

#[test]
fn a72_adapters_and_efforts_keep_caches_apart_in_every_form() {
    let with = |name: &str, value: J| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": long("same ", 600)}]});
        body[name] = value;
        key(Api::Chat, &body)
    };
    let all = [
        with("temperature", json!(1)),
        with("lora", json!([{"id": 0, "scale": 1.0}])),
        with("lora", json!([{"id": 1, "scale": 1.0}])),
        with("lora_path", json!("a")),
        with("adapter_id", json!("a")),
        with("reasoning_effort", json!("high")),
        with("documents", json!([{"title": "t", "text": "d"}])),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[..i].iter().all(|b| shared(a, b) == 0), "{i}");
    }
    assert_eq!(with("adapter_id", json!("a")), with("parameters", json!({"adapter_id": "a", "n": 1})));
    let high = with("reasoning_effort", json!("high"));
    assert_eq!(high, with("reasoning", json!({"effort": "high", "summary": "auto"})));
    assert_eq!(high, with("chat_template_kwargs", json!({"reasoning_effort": "high"})));
    assert_eq!(all[0], with("chat_template_kwargs", json!({"enable_thinking": false})), "printed at the end");
    assert_eq!(all[0], with("prompt_cache_key", json!("k")), "for routers, not for engines");
}

#[test]
fn raw_prompts_of_every_engine() {
    let text = long("token ", 600);
    let of = |body: J| key(Api::Generate, &body);
    let plain = of(json!({"prompt": text}));
    for body in
        [json!({"text": text}), json!({"inputs": text}), json!({"text_input": text}), json!({"text": [text]})]
    {
        assert_eq!(of(body.clone()), plain, "{body}");
    }
    assert_eq!(key(Api::Completions, &json!({"input_prefix": text, "input_suffix": "end"})), plain, "infill");
    assert_eq!(key(Api::Chat, &json!({"prompt": text})), plain, "what SageMaker sends");
    let ids: Vec<u32> = (0..300).collect();
    let of_ids = of(json!({"input_ids": ids}));
    assert_eq!(of(json!({"token_ids": ids})), of_ids);
    assert_eq!(of(json!({"input_ids": [ids, [1, 2]]})).hashes, of_ids.hashes);
    let image = |data: &str| of(json!({"text": text, "image_data": data}));
    assert_eq!(shared(&image("a"), &image("b")), 0);
    assert_eq!(image("a"), image("a"));
    assert!(image("a").bytes > plain.bytes + 4_000);
}

#[test]
fn a_batch_is_keyed_by_its_first_conversation() {
    let turn = |text: &str| json!([{"role": "user", "content": long(text, 400)}]);
    let batch = chat(&json!([turn("one "), turn("two ")]));
    assert_eq!(batch.hashes, chat(&turn("one ")).hashes);
    assert_eq!(batch.bytes, 2 * chat(&turn("one ")).bytes);
}

#[test]
fn paths_and_what_has_no_key() {
    for (path, api) in [
        ("/v1/chat/completions/", Api::Chat),
        ("/v1/chat/completions/batch", Api::Chat),
        ("/cohere/v2/chat", Api::Chat),
        ("/invocations", Api::Chat),
        ("/infill", Api::Completions),
        ("/generate_stream", Api::Generate),
        ("/inference/v1/generate", Api::Generate),
        ("/v2/models/llama/versions/1/generate_stream", Api::Generate),
    ] {
        assert_eq!(Api::of_path(path), api, "{path}");
    }
    // Load-only: nothing they prefill is worth finding again, or nothing is prefilled.
    for path in [
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
        "/tokenize",
        "/v1/messages/count_tokens",
        "/pooling",
        "/v1/responses/resp_1",
        "/classify",
        "/v1/models",
    ] {
        assert_eq!(Api::of_path(path), Api::Other, "{path}");
        assert_eq!(
            key(Api::of_path(path), &json!({"model": "m", "prompt": long("x", 500)})),
            PrefixKey::default()
        );
    }
}

#[test]
fn media_is_known_to_be_there() {
    let media =
        |content: J| extract(Api::Chat, &json!({"messages": [{"role": "user", "content": content}]})).media;
    assert!(!media(json!("text")) && !media(json!([{"type": "text", "text": "t"}])));
    assert!(media(json!([{"type": "image_url", "image_url": {"url": "u"}}])));
    assert!(media(json!([{"type": "input_audio", "input_audio": {"data": "d"}}])));
    let url = |text: &str| {
        format!(r#"{{"messages":[{{"content":[{{"type":"image_url","image_url":"{text}"}}]}}]}}"#)
    };
    let of = |text: &str| Extractor::new(KeySeed(1)).extract(Api::Chat, url(text).as_bytes(), b"").key;
    assert_eq!(of("data:a/b"), of("data:a\\/b"), "an escaped slash is a slash");
}
