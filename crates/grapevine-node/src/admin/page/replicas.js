// The engine replicas: load, cache and share of each, as rows of bars.

import { byId, h, setText } from "./dom.js";
import { DASH, duration, percent, plural, roundPercent, short, signed, whole } from "./format.js";
import { Grid, divergingCell, meterCell, nodeCell, textCell } from "./grid.js";
import { colorOf, numberOf, replicaLabel } from "./palette.js";

/** Beyond that many a filter helps more than looking. */
const FILTER_FROM = 13;

/** Rows in sight. */
const VISIBLE = 12;

/** From here a KV cache delays what it is given. */
const HOT_KV = 0.9;

const HEALTH = {
  up: ["up", ""],
  suspect: ["suspect", "warn"],
  unreachable: ["unreachable", "bad"],
  not_ready: ["not ready", "bad"],
};

/** What bars are drawn against. */
const scale = { inflight: 1, queued: 1, error: 1, fair: 1 };

const hitRate = ({ tokens }) => (tokens.reported_prompt > 0 ? tokens.reported_cached / tokens.reported_prompt : null);

const healthOf = (row) => (row.drain && row.health === "up" ? ["draining", "warn"] : (HEALTH[row.health] ?? [row.health, "unknown"]));

function health(row) {
  const [word, kind] = healthOf(row);
  return h("span", { class: `state ${kind}` }, word);
}

const inflight = {
  share: (row) => row.inflight / scale.inflight,
  text: (row) => whole(row.inflight),
  title: (row) => `${plural(row.inflight, "request")} of this fleet; the engine runs ${whole(row.engine.running)}, ${whole(row.engine.waiting)} wait`,
};

const queue = {
  share: (row) => row.queued_tokens / scale.queued,
  text: (row) => short(row.queued_tokens),
  title: (row) => `${whole(row.queued_tokens)} prompt tokens sent there and not yet answered by a first token`,
};

const kv = {
  share: (row) => row.engine.kv_use,
  text: (row) => roundPercent(row.engine.kv_use),
  hot: (row) => row.engine.kv_use >= HOT_KV,
  title: (row) =>
    row.engine.age_ms === null ? "this engine does not say" : `as ${row.engine.kind} said ${duration(row.engine.age_ms)} ago; ${cacheTitle(row)}`,
};

const share = {
  share: (row) => row.share / Math.max(scale.fair * 2, 1e-9),
  mark: () => 0.5,
  color: (row) => colorOf(row.name),
  text: (row) => percent(row.share),
  title: () => `requests of the last minute; the line is an equal share, ${percent(scale.fair)}`,
};

const error = {
  share: (row) => row.credit_error_tokens / scale.error,
  text: (row) => signed(row.credit_error_tokens),
  title: () => "tokens predicted to be cached less those that the engine reported, mean of the last answers",
};

/** What its engine says of its cache, what is believed of it, and whether it was lost. */
const cacheTitle = (row) => {
  const said = row.engine.cache_tokens === null ? "its engine does not say how much its cache holds" : `its engine says that its cache holds ${whole(row.engine.cache_tokens)} tokens`;
  const lost = row.lost_caches > 0 ? `; lost ${plural(row.lost_caches, "time")}` : "";
  return `${said}; ${believed(row)}${lost}`;
};

const believed = (row) => {
  if (row.capacity_tokens === null) return "a default size is assumed";
  const why = row.capacity_source === "engine" ? "half as much again as it says, until answers show less" : "as answers show";
  return `${whole(row.capacity_tokens)} are believed, ${why}`;
};

const COLUMNS = [
  { id: "name", title: "Replica", value: (row) => numberOf(row.name), cell: nodeCell((row) => row.name, (row) => replicaLabel(row.name)) },
  { id: "health", title: "Health", width: "102px", value: (row) => healthOf(row)[0], cell: nodeCell((row) => healthOf(row)[0], health) },
  { id: "inflight", title: "In flight", width: "92px", numeric: true, value: (row) => row.inflight, cell: meterCell(inflight) },
  { id: "queue", title: "Queue, tok", width: "96px", numeric: true, value: (row) => row.queued_tokens, cell: meterCell(queue) },
  { id: "kv", title: "KV in use", width: "96px", numeric: true, value: (row) => row.engine.kv_use, cell: meterCell(kv) },
  { id: "share", title: "Share", width: "112px", numeric: true, value: (row) => row.share, cell: meterCell(share) },
  { id: "hits", title: "Hit rate", width: "66px", numeric: true, tip: "prompt tokens that this engine reported as cached, since the start", value: hitRate, cell: textCell((row) => percent(hitRate(row))) },
  { id: "cache", title: "Cache", width: "66px", numeric: true, wide: true, tip: "tokens that its cache holds, as its engine says", value: (row) => row.engine.cache_tokens, cell: textCell((row) => short(row.engine.cache_tokens), cacheTitle) },
  { id: "believed", title: "Believed", width: "76px", numeric: true, wide: true, tip: "tokens that its cache is believed to hold", value: (row) => row.capacity_tokens, cell: textCell((row) => short(row.capacity_tokens), cacheTitle) },
  { id: "error", title: "Error, tok", width: "104px", numeric: true, tip: "predicted less reported", value: (row) => row.credit_error_tokens, cell: divergingCell(error) },
];

export class Replicas {
  #host = byId("replicas");
  #note = byId("replicas-note");
  #find = byId("replicas-find");
  #grid = null;
  #empty = null;
  #rows = [];

  constructor() {
    this.#find.querySelector("input").addEventListener("input", () => this.#draw());
  }

  update({ fleet }) {
    this.#rows = fleet.replicas;
    setText(this.#note, note(fleet.replicas));
    this.#find.hidden = fleet.replicas.length < FILTER_FROM;
    if (fleet.replicas.length === 0) return this.#nobody();
    this.#empty?.remove();
    this.#empty = null;
    this.#grid ??= new Grid(this.#host, {
      label: "Engine replicas",
      columns: COLUMNS,
      order: { id: "name", down: false },
      visible: VISIBLE,
      minWidth: 820,
      rowClass: (row) => (healthOf(row)[1] === "bad" ? "down" : ""),
    });
    this.#draw();
  }

  #draw() {
    const most = (value) => Math.max(1, ...this.#rows.map((row) => Math.abs(value(row) ?? 0)));
    scale.inflight = most((row) => row.inflight);
    scale.queued = most((row) => row.queued_tokens);
    scale.error = Math.max(64, most((row) => row.credit_error_tokens));
    scale.fair = 1 / Math.max(1, this.#rows.length);
    const wanted = this.#find.hidden ? "" : this.#find.querySelector("input").value.trim().toLowerCase();
    const fits = (row) => `${numberOf(row.name)} ${row.name} ${healthOf(row)[0]} ${row.engine.kind}`.toLowerCase().includes(wanted);
    this.#grid?.setRows(wanted ? this.#rows.filter(fits) : this.#rows);
  }

  #nobody() {
    this.#host.replaceChildren();
    this.#grid = null;
    this.#empty = h("div", { class: "empty" }, h("b", null, "No engine replicas"), "Name them with GRAPEVINE_REPLICAS, or wait for discovery to find one.");
    this.#host.append(this.#empty);
  }
}

function note(rows) {
  if (rows.length === 0) return "";
  const up = rows.filter((row) => row.health === "up").length;
  const kinds = [...new Set(rows.map((row) => row.engine.kind))].filter(Boolean).join(", ");
  const used = rows.map((row) => row.engine.kv_use).filter((use) => use !== null);
  const mean = used.length === 0 ? null : used.reduce((sum, use) => sum + use, 0) / used.length;
  return `${up} of ${rows.length} up · ${kinds || DASH}${mean === null ? "" : ` · ${roundPercent(mean)} of KV in use`}`;
}
