//! Pairs of requests of every kind. Each pair has a cache salt of its own, so that nothing but its first
//! request can be found in the cache.

use grapevine_tree::Api;
use serde_json::{Value, json};

/// How the prediction must be to the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// The same.
    Equal,
    /// Not more: this engine's template leaves out what others print.
    AtMost,
}

pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) first: Request,
    pub(crate) second: Request,
    pub(crate) expect: Expect,
}

pub(crate) struct Request {
    pub(crate) path: &'static str,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn api(&self) -> Api {
        Api::of_path(self.path)
    }
}

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const GENERATE: &str = "/inference/v1/generate";

const WORDS: [&str; 24] = [
    "return", "value", "module", "import", "system", "the", "of", "and", "path", "string", "for", "with",
    "object", "name", "class", "default", "file", "None", "this", "call", "method", "list", "if", "error",
];

/// Text of about `bytes`, which only the same `seed` gives again.
fn text(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = String::new();
    while out.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        out.push(' ');
    }
    out
}

/// Token ids like those of a text.
fn ids(seed: u64, count: u32) -> Vec<u32> {
    (0..count).map(|i| 300 + (seed as u32 * 7_919 + i * i % 1_013 + i * 31) % 1_500).collect()
}

fn turn(role: &str, content: impl Into<Value>) -> Value {
    json!({"role": role, "content": content.into()})
}

fn parts(texts: &[&str]) -> Value {
    texts.iter().map(|text| json!({"type": "text", "text": text})).collect()
}

fn tool(name: &str, seed: u64) -> Value {
    let schema = json!({"type": "object", "properties": {"query": {"type": "string", "description": text(seed, 300)}}});
    json!({"type": "function", "function": {"name": name, "description": text(seed + 1, 900), "parameters": schema}})
}

/// The same in Anthropic's form.
fn anthropic_tool(name: &str, seed: u64) -> Value {
    let function = tool(name, seed)["function"].clone();
    json!({"name": name, "description": function["description"], "input_schema": function["parameters"]})
}

fn call(id: &str, name: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": name, "arguments": "{\"query\": \"x\"}"}}]})
}

/// Collects pairs; numbers their salts.
#[derive(Default)]
struct Book {
    pairs: Vec<Pair>,
}

impl Book {
    fn add(&mut self, name: &'static str, first: (&'static str, Value), second: (&'static str, Value)) {
        let salt = format!("pair-{}-{}", self.pairs.len(), std::process::id());
        let request = |(path, mut body): (&'static str, Value)| {
            let limit = if path == RESPONSES { "max_output_tokens" } else { "max_tokens" };
            // Harmless where it is unknown; the least that every API takes.
            if path == GENERATE {
                body["sampling_params"] = json!({"max_tokens": 1});
            } else {
                body[limit] = json!(if path == RESPONSES { 16 } else { 1 });
            }
            body["model"] = json!("m");
            let own = body.get("cache_salt").and_then(Value::as_str).unwrap_or_default();
            body["cache_salt"] = json!(format!("{salt}{own}"));
            Request { path, body: body.to_string() }
        };
        let (first, second) = (request(first), request(second));
        self.pairs.push(Pair { name, first, second, expect: Expect::Equal });
    }

    /// Two requests to the same path.
    fn both(&mut self, name: &'static str, path: &'static str, first: Value, second: Value) {
        self.add(name, (path, first), (path, second));
    }

    /// The last pair's key may promise less than this engine keeps.
    fn at_most(&mut self) {
        self.pairs.last_mut().unwrap().expect = Expect::AtMost;
    }

    /// Rewrites the last pair's second request.
    fn respell(&mut self, spell: impl Fn(&str) -> String) {
        let second = &mut self.pairs.last_mut().unwrap().second;
        second.body = spell(&second.body);
    }
}

/// All of them.
pub(crate) fn pairs() -> Vec<Pair> {
    let mut book = Book::default();
    chats(&mut book);
    spellings(&mut book);
    tools(&mut book);
    namespaces(&mut book);
    completions(&mut book);
    messages(&mut book);
    responses(&mut book);
    across(&mut book);
    book.pairs
}

fn chats(book: &mut Book) {
    let (system, user, other) = (text(1, 2_000), text(2, 2_000), text(3, 2_000));
    let ask = |messages: Value| json!({"messages": messages});
    let two = |a: &str, b: &str| ask(json!([turn("system", a), turn("user", b)]));
    book.both("chat: same system, another question", CHAT, two(&system, &user), two(&system, &other));
    book.both("chat: the same again", CHAT, two(&system, &user), two(&system, &user));
    book.both("chat: nothing in common", CHAT, two(&user, &system), two(&other, &system));
    let history = json!([turn("system", text(4, 900)), turn("user", text(5, 900))]);
    let mut next = history.clone();
    next.as_array_mut().unwrap().extend([turn("assistant", text(6, 600)), turn("user", text(7, 600))]);
    book.both("chat: next turn", CHAT, ask(history), ask(next));
    let long = text(8, 10_000);
    book.both("chat: long system, another question", CHAT, two(&long, &user), two(&long, &other));
    let longer = text(9, 24_000);
    book.both("chat: 24 KB system, another question", CHAT, two(&longer, &user), two(&longer, &other));
    let changed = format!("{}{}", &long[..5_000], &other);
    book.both("chat: system changed half-way", CHAT, two(&long, &user), two(&changed, &user));
    let one = |role: &str| ask(json!([turn("system", &*system), turn(role, &*user)]));
    book.both("chat: another role after the system", CHAT, one("user"), one("assistant"));
}

fn spellings(book: &mut Book) {
    let (a, b, c) = (text(11, 1_500), text(12, 1_500), text(13, 1_500));
    let ask = |content: Value| json!({"messages": [turn("user", content)]});
    book.both("chat: text, then the same as a part", CHAT, ask(json!(a)), ask(parts(&[&a])));
    book.both("chat: two parts, then one text", CHAT, ask(parts(&[&a, &b])), ask(json!(format!("{a}{b}"))));
    book.both("chat: last part another", CHAT, ask(parts(&[&a, &b])), ask(parts(&[&a, &c])));
    book.both("chat: escapes", CHAT, ask(json!(a)), ask(json!(a)));
    book.respell(|body| body.replace("the ", "t\\u0068e ").replace("\"content\"", "\"cont\\u0065nt\""));
    book.both("chat: white space", CHAT, ask(json!(a)), ask(json!(a)));
    book.respell(|body| serde_json::to_string_pretty(&serde_json::from_str::<Value>(body).unwrap()).unwrap());
    let echoed =
        json!({"role": "assistant", "content": b, "refusal": null, "annotations": [], "audio": null});
    let history = |answer: Value| json!({"messages": [turn("user", &*a), answer, turn("user", &*c)]});
    book.both("chat: fields that nobody prints", CHAT, history(turn("assistant", &*b)), history(echoed));
}

fn tools(book: &mut Book) {
    let ask = |tools: Value, system: &str, user: &str| json!({"tools": tools, "messages": [turn("system", system), turn("user", user)]});
    let (system, user, other) = (text(21, 1_200), text(22, 1_200), text(23, 1_200));
    let set = |seed| json!([tool("search", seed), tool("read", seed + 10)]);
    book.both(
        "tools: same, another question",
        CHAT,
        ask(set(1), &system, &user),
        ask(set(1), &system, &other),
    );
    book.both("tools: same, another system", CHAT, ask(set(1), &system, &user), ask(set(1), &other, &user));
    book.both(
        "tools: others, the rest the same",
        CHAT,
        ask(set(1), &system, &user),
        ask(set(2), &system, &user),
    );
    let (one, two) = (json!([tool("search", 1)]), json!([tool("search", 1), tool("read", 9)]));
    book.both("tools: one more", CHAT, ask(one, &system, &user), ask(two, &system, &user));
    let run = |id: &str, result: &str| {
        let answer = json!({"role": "tool", "tool_call_id": id, "content": result});
        json!({"tools": set(3), "messages": [turn("user", &*user), call(id, "search"), answer]})
    };
    book.both("tools: call and another result", CHAT, run("call_1", &system), run("call_1", &other));
    book.both("tools: other ids of calls", CHAT, run("call_1", &system), run("call_2", &system));
    let other_call = json!({"tools": set(3), "messages": [turn("user", &*user), call("call_1", "read"),
        {"role": "tool", "tool_call_id": "call_1", "content": system}]});
    book.both("tools: another call", CHAT, run("call_1", &system), other_call);
}

fn namespaces(book: &mut Book) {
    let messages = json!([turn("user", text(31, 2_000))]);
    let with = |name: &str, value: Value| {
        let mut body = json!({"messages": messages});
        body[name] = value;
        body
    };
    let salted = |salt: &str| with("cache_salt", json!(salt));
    book.both("salts: the same", CHAT, salted("a"), salted("a"));
    book.both("salts: different", CHAT, salted("a"), salted("b"));
    let key = |key: &str| with("prompt_cache_key", json!(key));
    book.both("prompt_cache_key: different", CHAT, key("a"), key("b"));
    let thinking = |on: bool| with("chat_template_kwargs", json!({"enable_thinking": on}));
    book.both("enable_thinking: different", CHAT, thinking(true), thinking(false));
    let effort = |effort: &str| with("reasoning_effort", json!(effort));
    book.both("reasoning_effort: different", CHAT, effort("low"), effort("high"));
    book.at_most();
}

fn completions(book: &mut Book) {
    let (a, b, c) = (text(41, 2_500), text(42, 1_500), text(43, 1_500));
    let ask = |prompt: Value| json!({"prompt": prompt});
    let joined = |x: &str, y: &str| json!(format!("{x}{y}"));
    book.both("completions: same head", COMPLETIONS, ask(joined(&a, &b)), ask(joined(&a, &c)));
    book.both(
        "completions: one text in a list",
        COMPLETIONS,
        ask(joined(&a, &b)),
        ask(json!([joined(&a, &b)])),
    );
    let (head, tail, other) = (ids(1, 600), ids(2, 300), ids(3, 300));
    let list = |x: &[u32], y: &[u32]| json!([x, y].concat());
    book.both("completions: token ids", COMPLETIONS, ask(list(&head, &tail)), ask(list(&head, &other)));
    let nested = json!([list(&head, &other)]);
    book.both("completions: ids in a list of lists", COMPLETIONS, ask(list(&head, &tail)), ask(nested));
    let generate = |ids: Value| json!({"token_ids": ids});
    book.both("generate: token ids", GENERATE, generate(list(&head, &tail)), generate(list(&head, &other)));
    let across = (GENERATE, generate(list(&head, &other)));
    book.add("completions, then generate", (COMPLETIONS, ask(list(&head, &tail))), across);
}

fn messages(book: &mut Book) {
    let (system, user, other) = (text(51, 1_500), text(52, 1_500), text(53, 1_500));
    let ask = |system: Value, user: &str| json!({"system": system, "messages": [turn("user", user)]});
    book.both("messages: same system", MESSAGES, ask(json!(system), &user), ask(json!(system), &other));
    let half = system.len() / 2;
    let blocks = parts(&[&system[..half], &system[half..]]);
    book.both("messages: system in blocks", MESSAGES, ask(json!(system), &user), ask(blocks, &user));
    let billed = |nonce: &str| {
        let line = format!("x-anthropic-billing-header: cc_version=2.1; cch={nonce};");
        ask(parts(&[&line, &system]), &user)
    };
    book.both("messages: another billing line", MESSAGES, billed("aaaaa"), billed("bbbbb"));
    let marked = json!([{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]);
    book.both("messages: a cache mark", MESSAGES, ask(json!(system), &user), ask(marked, &user));
    let run = |id: &str, result: &str| {
        json!({"tools": [anthropic_tool("search", 5)], "messages": [
            turn("user", &*user),
            {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "search", "input": {"query": "x"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}]})
    };
    book.both("messages: tool use, another result", MESSAGES, run("t1", &system), run("t1", &other));
    book.both("messages: other ids of tool use", MESSAGES, run("t1", &system), run("t2", &system));
}

fn responses(book: &mut Book) {
    let (instructions, user, other) = (text(61, 1_500), text(62, 1_500), text(63, 1_500));
    let ask = |input: Value| json!({"instructions": instructions, "input": input, "store": false});
    book.both("responses: same instructions", RESPONSES, ask(json!(user)), ask(json!(other)));
    let item =
        json!([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": user}]}]);
    book.both("responses: text, then items", RESPONSES, ask(json!(user)), ask(item));
    let run = |result: &str| {
        ask(json!([
            turn("user", &*user),
            {"type": "function_call", "call_id": "c1", "name": "search", "arguments": "{\"query\": \"x\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": result}]))
    };
    book.both("responses: call, another output", RESPONSES, run(&instructions), run(&other));
}

fn across(book: &mut Book) {
    let (system, user) = (text(71, 1_500), text(72, 1_500));
    let chat = json!({"messages": [turn("system", &*system), turn("user", &*user)]});
    let messages = json!({"system": system, "messages": [turn("user", &*user)]});
    let responses = json!({"instructions": system, "input": user, "store": false});
    book.add("chat, then messages", (CHAT, chat.clone()), (MESSAGES, messages));
    book.add("chat, then responses", (CHAT, chat), (RESPONSES, responses));
    let turns = json!([turn("user", &*user)]);
    let ours = json!({"tools": [tool("search", 7)], "messages": turns});
    let theirs = json!({"tools": [anthropic_tool("search", 7)], "messages": turns});
    book.add("chat with tools, then messages", (CHAT, ours), (MESSAGES, theirs));
}
