// The official JavaScript clients against a router: what they get must be what the engine said.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

const base = process.argv[2];
const TEXT = "put >= userKINGive} he";
const STREAMED = "put >= userKINGive";
const messages = [{ role: "user", content: "Say hello." }];
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "any", maxRetries: 0 });
const tiny = createOpenAICompatible({ name: "router", baseURL: `${base}/v1`, apiKey: "any" }).chatModel("tiny");

const checks = {
  async wholeAnswer() {
    const answer = await client.chat.completions.create({ model: "tiny", messages });
    assert.equal(answer.choices[0].message.content, TEXT);
  },
  async streamedAnswer() {
    let text = "";
    for await (const event of await client.chat.completions.create({ model: "tiny", messages, stream: true })) {
      text += event.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, STREAMED);
  },
  async errorsKeepTheirClass() {
    const nope = client.chat.completions.create({ model: "nope", messages });
    await assert.rejects(nope, (error) => error instanceof OpenAI.NotFoundError && error.status === 404);
  },
  async cancelled() {
    const abort = new AbortController();
    const ask = { model: "tiny", user: "endless", messages, stream: true };
    const stream = await client.chat.completions.create(ask, { signal: abort.signal });
    let seen = 0;
    for await (const _ of stream) if (++seen === 3) abort.abort();
    assert.ok(seen >= 3);
  },
  async aiGenerates() {
    const { text } = await generateText({ model: tiny, prompt: "Say hello.", maxRetries: 0 });
    assert.equal(text, TEXT);
  },
  async aiStreams() {
    let text = "";
    for await (const piece of streamText({ model: tiny, prompt: "Say hello.", maxRetries: 0 }).textStream) text += piece;
    assert.equal(text, STREAMED);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`node: ${name}`);
}
