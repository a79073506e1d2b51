use proptest::prelude::*;
use serde_json::{Value as J, json};

use super::*;
use crate::boundary;

mod equal;

fn extract(api: Api, body: &J) -> Prompt {
    Extractor::new(KeySeed(1)).extract(api, &serde_json::to_vec(body).unwrap(), b"")
}

fn chat(messages: &J) -> PrefixKey {
    extract(Api::Chat, &json!({"model": "m", "messages": messages})).key
}

/// Boundaries that two keys share.
fn shared(a: &PrefixKey, b: &PrefixKey) -> usize {
    a.hashes.iter().zip(&b.hashes).take_while(|(a, b)| a == b).count()
}

fn long(word: &str, bytes: usize) -> String {
    word.repeat(bytes / word.len())
}

#[test]
fn prompts_share_exactly_their_common_head() {
    let head = long("preamble ", 4_090);
    let ask = |q: &str| chat(&json!([{"role": "system", "content": head}, {"role": "user", "content": q}]));
    let (a, b) = (ask(&long("one ", 4_000)), ask(&long("two ", 4_000)));
    let bytes = boundary::depth(shared(&a, &b) - 1);
    assert!((3_584..=4_096).contains(&bytes), "{bytes} of about 4,100 shared");
    assert_eq!(a, ask(&long("one ", 4_000)));
}

#[test]
fn one_text_part_equals_the_string() {
    let text = long("hello ", 600);
    let plain = chat(&json!([{"role": "user", "content": text}]));
    assert_eq!(plain, chat(&json!([{"role": "user", "content": [{"type": "text", "text": text}]}])));
    assert_eq!(plain, chat(&json!([{"content": text, "role": "user"}])), "order of fields");
    let split = chat(&json!([{"role": "user", "content": [
        {"type": "text", "text": text}, {"type": "text", "text": "more"}]}]));
    assert_eq!(shared(&plain, &split), plain.hashes.len());
    assert_ne!(plain.bytes, split.bytes);
}

#[test]
fn escapes_and_white_space_do_not_count() {
    let text = format!("{}é\n\"quoted\" 🦀", long("word ", 500));
    let body = json!({"messages": [{"role": "user", "content": text}], "model": "m"});
    let compact = Extractor::new(KeySeed(1)).extract(Api::Chat, &serde_json::to_vec(&body).unwrap(), b"");
    let pretty = serde_json::to_string_pretty(&body).unwrap();
    let ascii = pretty.replace('é', "\\u00e9").replace('🦀', "\\ud83e\\udd80");
    assert_eq!(compact, Extractor::new(KeySeed(1)).extract(Api::Chat, ascii.as_bytes(), b""));
}

#[test]
fn a72_salts_models_and_seeds_never_share_a_path() {
    let messages = json!([{"role": "user", "content": long("same ", 1_000)}]);
    let with = |extra: &[(&str, &str)]| {
        let mut body = json!({"model": "m", "messages": messages});
        for (name, value) in extra {
            body[*name] = json!(value);
        }
        extract(Api::Chat, &body).key
    };
    let all = [
        with(&[]),
        with(&[("model", "m2")]),
        with(&[("cache_salt", "a")]),
        with(&[("cache_salt", "b")]),
        with(&[("extra_key", "a")]),
        with(&[("lora_path", "a")]),
        Extractor::new(KeySeed(2))
            .extract(
                Api::Chat,
                &serde_json::to_vec(&json!({"model": "m", "messages": messages})).unwrap(),
                b"",
            )
            .key,
        Extractor::new(KeySeed(1))
            .extract(
                Api::Chat,
                &serde_json::to_vec(&json!({"model": "m", "messages": messages})).unwrap(),
                b"tenant",
            )
            .key,
    ];
    for (i, a) in all.iter().enumerate() {
        for b in &all[..i] {
            assert_eq!(shared(a, b), 0);
        }
    }
    assert_eq!(with(&[("cache_salt", "a")]), with(&[("cache_salt", "a")]));
}

#[test]
fn a74_every_form_of_a_prompt() {
    let prompt = |p: J| extract(Api::Completions, &json!({"model": "m", "prompt": p})).key;
    let text = long("token ", 300);
    assert_eq!(prompt(json!(text)), prompt(json!([text])));
    let two = prompt(json!([text, "second"]));
    assert_eq!(two.hashes, prompt(json!(text)).hashes);
    assert_eq!(two.bytes, 306);
    let ids: Vec<u32> = (0..200).collect();
    let other: Vec<u32> = (1..201).collect();
    assert_eq!(prompt(json!(ids)).bytes, 800);
    assert_eq!(prompt(json!(ids)), prompt(json!([ids])));
    assert_eq!(shared(&prompt(json!(ids)), &prompt(json!(other))), 0, "ids count, not their number");
    for none in [json!(""), json!([]), json!(null), json!({"a": 1}), json!([[]])] {
        assert_eq!(prompt(none.clone()), PrefixKey::default(), "{none}");
    }
    assert_eq!(extract(Api::Completions, &json!({"model": "m"})).key, PrefixKey::default());
    let generate = |body: J| extract(Api::Generate, &body).key;
    assert_eq!(generate(json!({"text": text})).hashes, generate(json!({"prompt": text})).hashes);
    assert_eq!(generate(json!({"input_ids": ids})).hashes, generate(json!({"token_ids": ids})).hashes);
}

#[test]
fn a75_tools_come_first_and_count() {
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name, "description": long(name, 2_000)}}]);
    let ask = |tools: J, q: &str| {
        extract(
            Api::Chat,
            &json!({"model": "m", "tools": tools, "messages": [{"role": "user", "content": q}]}),
        )
        .key
    };
    let a = ask(tool("a"), "hello");
    assert_eq!(shared(&a, &ask(tool("b"), "hello")), 0);
    assert!(boundary::depth(shared(&a, &ask(tool("a"), &long("other ", 600))) - 1) >= 1_920);
    assert_eq!(ask(json!([]), "q").bytes, ask(json!(null), "q").bytes, "no tools is no tools");
}

#[test]
fn a76_a_billing_nonce_is_not_part_of_the_key() {
    let ask = |cch: &str, blocks: bool| {
        let line = format!("x-anthropic-billing-header: cc_version=2.1; cch={cch};");
        let system = if blocks {
            json!([{"type": "text", "text": line}, {"type": "text", "text": long("You are ", 900), "cache_control": {"type": "ephemeral"}}])
        } else {
            json!(format!("{line}\n{}", long("You are ", 900)))
        };
        extract(
            Api::Messages,
            &json!({"model": "m", "system": system, "messages": [{"role": "user", "content": "hi"}]}),
        )
        .key
    };
    assert_eq!(ask("36ee5", true), ask("99abc", true));
    assert_eq!(ask("36ee5", false), ask("99abc", false));
    assert_eq!(ask("36ee5", true), ask("36ee5", false));
    let user = |cch: &str| {
        chat(
            &json!([{"role": "user", "content": format!("x-anthropic-billing-header: {cch}{}", long("x", 300))}]),
        )
    };
    assert_ne!(user("a"), user("b"), "only in a system block");
}

#[test]
fn a77_images_are_told_apart_and_count_alike() {
    let ask = |url: &str| {
        chat(&json!([{"role": "user", "content": [
            {"type": "text", "text": long("look ", 600)},
            {"type": "image_url", "image_url": {"url": url}},
            {"type": "text", "text": long("what ", 600)}]}]))
    };
    let data = format!("data:image/png;base64,{}", "A".repeat(3_000_000));
    let (a, b) = (ask(&format!("{data}1")), ask(&format!("{data}2")));
    assert_eq!(boundary::depth(shared(&a, &b) - 1), 512, "the text before the image still matches");
    assert_eq!(a, ask(&format!("{data}1")));
    assert_eq!(a.bytes, ask("https://host/cat.png?t=1").bytes, "an image counts as tokens, not as megabytes");
    assert!(a.bytes < 6_000);
}

#[test]
fn anthropic_and_responses_meet_chat() {
    let system = long("be kind ", 400);
    let turn = json!([{"role": "user", "content": "hi"}]);
    let wanted = chat(&json!([{"role": "system", "content": system}, {"role": "user", "content": "hi"}]));
    let messages = extract(Api::Messages, &json!({"model": "m", "system": system, "messages": turn})).key;
    let responses =
        extract(Api::Responses, &json!({"model": "m", "instructions": system, "input": "hi"})).key;
    let items = extract(
        Api::Responses,
        &json!({"model": "m", "instructions": system, "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}),
    )
    .key;
    assert_eq!(wanted, messages);
    assert_eq!(wanted, responses);
    assert_eq!(wanted, items);
    let next =
        extract(Api::Responses, &json!({"model": "m", "previous_response_id": "r1", "input": "hi"})).key;
    assert_eq!(next, PrefixKey::default(), "what came before is not in the body");
}

#[test]
fn cache_marks_that_move_from_turn_to_turn_do_not_count() {
    let block = |mark: bool| {
        let mut b = json!({"type": "text", "text": long("x ", 600)});
        if mark {
            b["cache_control"] = json!({"type": "ephemeral"});
        }
        b
    };
    let tool = |mark: bool| {
        let mut t = json!({"name": "f", "input_schema": {}});
        if mark {
            t["cache_control"] = json!({"type": "ephemeral"});
        }
        t
    };
    let ask = |mark: bool| {
        extract(
            Api::Messages,
            &json!({"model": "m", "tools": [tool(mark)],
            "messages": [{"role": "user", "content": [block(mark)]}]}),
        )
        .key
    };
    assert_eq!(ask(true), ask(false));
}

#[test]
fn model_stream_and_their_odd_forms() {
    let read = |body: &str| {
        let p = Extractor::new(KeySeed(1)).extract(Api::Chat, body.as_bytes(), b"");
        (p.model, p.stream)
    };
    assert_eq!(read(r#"{"model":"a\u00e9","stream":true}"#), (Some("aé".into()), true));
    assert_eq!(read(r#"{"model":null,"stream":"true"}"#), (None, false));
    assert_eq!(read(r#"{"stream":true,"stream":false}"#), (None, false), "the last one counts");
    assert_eq!(read(r#"{"model":[ "a" ]}"#), (None, false), "a name is text");
    assert_eq!(read("not json"), (None, false));
    assert_eq!(read(&format!(r#"{{"model":"{}"}}"#, "x".repeat(1_000))).0.unwrap().len(), MAX_MODEL);
}

#[test]
fn golden_keys_of_scheme_2() {
    let key = chat(&json!([
        {"role": "system", "content": long("abc ", 300)},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]));
    assert_eq!(
        (key.hashes.as_slice(), key.bytes),
        (&GOLDEN[..], 337),
        "a changed key needs a new SCHEME number"
    );
}

const GOLDEN: [u64; 2] = [14868259562106157684, 98689391320111268];

#[test]
fn long_prompts_are_cut_at_the_limit_and_counted_whole() {
    let key = chat(&json!([{"role": "user", "content": long("word ", 5_000_000)}]));
    assert_eq!(key.hashes.len(), boundary::MAX_BOUNDARIES);
    assert!(key.bytes >= 5_000_000);
}

/// Equal bodies in every way that does not matter give equal keys.
fn arb_message() -> impl Strategy<Value = J> {
    let role = prop_oneof![Just("user"), Just("assistant"), Just("system")];
    (role, "\\PC{0,300}").prop_map(|(role, text)| json!({"role": role, "content": text}))
}

proptest! {
    #[test]
    fn a_key_does_not_depend_on_how_json_is_written(messages in prop::collection::vec(arb_message(), 0..6)) {
        let body = json!({"model": "m", "messages": messages});
        let ascii: String = serde_json::to_string_pretty(&body).unwrap().chars().flat_map(|c| {
            let mut units = [0; 2];
            if c.is_ascii() { vec![c.to_string()] } else { c.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect() }
        }).collect();
        let mut x = Extractor::new(KeySeed(9));
        let compact = x.extract(Api::Chat, &serde_json::to_vec(&body).unwrap(), b"");
        prop_assert_eq!(compact, x.extract(Api::Chat, ascii.as_bytes(), b""));
    }

    #[test]
    fn one_more_message_extends_the_key(messages in prop::collection::vec(arb_message(), 1..6)) {
        let all = chat(&json!(messages));
        let fewer = chat(&json!(messages[..messages.len() - 1]));
        prop_assert_eq!(shared(&all, &fewer), fewer.hashes.len());
    }

    #[test]
    fn a79_arbitrary_bodies_never_panic(body in prop::collection::vec(any::<u8>(), 0..400), path in 0usize..5) {
        let api = [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Generate][path];
        Extractor::new(KeySeed(3)).extract(api, &body, b"");
    }
}
