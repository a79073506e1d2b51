// What the router says: plain requests, and its stream of events. EventSource cannot send a token, so
// the stream is read with fetch.

/** The server writes at least a comment every 10 s. */
const SILENT_MS = 25_000;

/** Waits between attempts; the last is repeated. */
const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000];

const TOKEN = "grapevine-admin-token";

/** The admin token, for this tab only. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

/** The router wants a (better) token; the message says what to do. */
export class SignInNeeded extends Error {}

async function ask(path, init = {}) {
  const headers = { ...init.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  const answer = await fetch(path, { ...init, headers, cache: "no-store" });
  if (answer.status === 401) throw new SignInNeeded((await answer.text()).trim());
  return answer;
}

/** `GET` of JSON. */
export async function getJson(path) {
  const answer = await ask(path);
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

/** `POST` of a body that is only asked about; what is refused says why. */
export async function explain(path, body) {
  const answer = await ask(`api/v1/explain?path=${encodeURIComponent(path)}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(messageOf(text) || `the router answered ${answer.status}`);
  return JSON.parse(text);
}

function messageOf(text) {
  try {
    const error = JSON.parse(text).error;
    return typeof error === "string" ? error : error?.message;
  } catch {
    return text.trim();
  }
}

/** Splits a stream of text into events. */
export class EventParser {
  #rest = "";

  /** Events that `text` completes: `{ name, data }`. */
  push(text) {
    const blocks = (this.#rest + text).split(/\r?\n\r?\n/);
    this.#rest = blocks.pop();
    return blocks.map(parseBlock).filter((event) => event.data !== "");
  }
}

function parseBlock(block) {
  let name = "message";
  const data = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return { name, data: data.join("\n") };
}

/** Follows the events for ever, through loss and silence. */
export class Stream {
  #handlers;
  #attempt = 0;
  #abort = null;
  #wake = null;

  /** `onEvent(name, value)`, `onState("live" | "lost", detail)`, `onSignIn(message)`. */
  constructor(handlers) {
    this.#handlers = handlers;
  }

  async run() {
    for (;;) {
      try {
        await this.#follow();
        this.#handlers.onState("lost", { reason: "the router closed the stream" });
      } catch (error) {
        if (error instanceof SignInNeeded) {
          await this.#handlers.onSignIn(error.message);
          this.#attempt = 0;
          continue;
        }
        this.#handlers.onState("lost", { reason: "the router does not answer" });
      }
      await this.#pause();
    }
  }

  /** Tries at once instead of after the pause. */
  hurry() {
    this.#wake?.();
  }

  async #follow() {
    this.#abort = new AbortController();
    const silence = new Watchdog(SILENT_MS, () => this.#abort.abort());
    try {
      const answer = await ask("api/v1/events", {
        headers: { accept: "text/event-stream" },
        signal: this.#abort.signal,
      });
      if (!answer.ok) throw new Error(`events answered ${answer.status}`);
      const parser = new EventParser();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        silence.feed();
        for (const event of parser.push(value)) this.#take(event);
      }
    } finally {
      silence.stop();
    }
  }

  #take({ name, data }) {
    this.#attempt = 0;
    this.#handlers.onState("live", {});
    this.#handlers.onEvent(name, JSON.parse(data));
  }

  #pause() {
    const wait = RETRY_MS[Math.min(this.#attempt, RETRY_MS.length - 1)];
    this.#attempt += 1;
    // Pages that lost one router must not all come back in the same moment.
    const jittered = wait * (0.75 + Math.random() / 2);
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, jittered);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

class Watchdog {
  #timer;

  constructor(ms, bark) {
    this.feed = () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(bark, ms);
    };
    this.feed();
  }

  stop() {
    clearTimeout(this.#timer);
  }
}
