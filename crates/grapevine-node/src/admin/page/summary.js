// The few figures that say whether all is well.

import { byId, h, setClass, setText } from "./dom.js";
import { percent, perSecond, plural, short, whole } from "./format.js";

/** Outcomes for which the router or an engine is to blame. */
const FAILED = ["engine_error", "stream_failed", "engine_cut", "engine_idle", "unanswered", "drained"];

export class Summary {
  #figures = new Map();

  constructor() {
    const names = [
      ["hits", "Hit rate, last minute"],
      ["saved", "Prefill saved"],
      ["rate", "Requests"],
      ["inflight", "In flight"],
      ["failed", "Failed"],
      ["fleet", "Replicas up"],
    ];
    byId("summary").append(...names.map(([id, title]) => this.#figure(id, title)));
  }

  #figure(id, title) {
    const parts = { value: h("span"), unit: h("small"), note: h("dd", { class: "note" }) };
    parts.box = h("dl", { class: "figure", id: `figure-${id}` }, h("dt", null, title), h("dd", null, parts.value, " ", parts.unit), parts.note);
    this.#figures.set(id, parts);
    return parts.box;
  }

  #set(id, value, unit, note, kind = "") {
    const parts = this.#figures.get(id);
    setText(parts.value, value);
    setText(parts.unit, unit);
    setText(parts.note, note);
    setClass(parts.box, `figure ${kind}`);
  }

  update(model) {
    const { totals, replicas } = model.fleet;
    const now = model.lastMinute();
    this.#set("hits", percent(now.reported), "", totals.shadow ? shadowOf(totals.shadow) : gainOf(now));
    this.#set("saved", short(now.savedPerSecond), "tokens/s", `${short(totals.tokens.reported_cached)} since the start`);
    const requests = Object.values(totals.requests).reduce((sum, count) => sum + count, 0);
    this.#set("rate", perSecond(now.requestsPerSecond), "per second", `${whole(requests)} since the start`);
    const waiting = totals.waiting > 0 ? `${plural(totals.waiting, "request")} wait for a place` : "nobody waits for a place";
    this.#set("inflight", whole(totals.inflight), plural(totals.inflight, "request").replace(/^\S+ /, ""), waiting);
    const failed = FAILED.reduce((sum, outcome) => sum + (totals.requests[outcome] ?? 0), 0);
    const refused = totals.requests.refused ?? 0;
    this.#set("failed", whole(failed), requests > 0 ? percent(failed / requests) : "", `${whole(refused)} refused by routers`, failed > 0 && failed / requests > 0.01 ? "bad" : "");
    const up = replicas.filter((replica) => replica.health === "up").length;
    const lost = replicas.reduce((sum, replica) => sum + replica.lost_caches, 0);
    this.#set("fleet", whole(up), `of ${whole(replicas.length)}`, lost > 0 ? `caches lost: ${whole(lost)}` : "no cache was lost", up < replicas.length || up === 0 ? "bad" : "");
  }
}

function gainOf(now) {
  if (now.reported === null) return now.predicted === null ? "no traffic in the last minute" : `predicted ${percent(now.predicted)}; engines report nothing`;
  const random = now.random === null ? "" : `, random would get ${percent(now.random)}`;
  return `predicted ${percent(now.predicted)}${random}`;
}

/** In shadow mode: what affinity would have made of the same requests. */
function shadowOf({ prompt_tokens: prompt, done_tokens: done, affinity_tokens: affinity }) {
  if (prompt === 0) return "shadow mode: no request yet";
  return `predicted ${percent(done / prompt)}, affinity would get ${percent(affinity / prompt)}`;
}
