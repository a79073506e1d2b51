// The fleet of routers: a graph of who hears whom, and its figures as a table.

import { byId, h, s, setText } from "./dom.js";
import { DASH, bytes, duration, perSecond, plural, roundPercent } from "./format.js";
import { Grid, nodeCell, textCell } from "./grid.js";

/** A peer's news this old is worth a look: deltas reach every peer in under a second when all is well. */
const SLOW_MS = 2_000;

/** Up to that many routers each link carries its lag. */
const LABELLED = 4;

/** From that many on links are drawn thin. */
const CROWDED = 9;

/** Rows in sight. */
const VISIBLE = 5;

/** Of the drawing, px; the style sheet says the same. */
const HEIGHT = 200;

const stateOf = (router) => {
  if (!router.live) return ["gone", "bad"];
  if (!router.reached) return ["no answer", "warn"];
  if (router.phase === "serving") return ["serving", ""];
  return [router.phase, "warn"];
};

function state(router) {
  const [word, kind] = stateOf(router);
  return h("span", { class: `state ${kind}` }, word);
}

/** A link to the router's own page, where it has an address a browser can follow. */
function name(router) {
  const label = router.self ? `${router.name} (this)` : router.name;
  const safe = /^https?:\/\//.test(router.admin_url ?? "");
  return safe && !router.self ? h("a", { href: router.admin_url, rel: "noreferrer" }, label) : h("span", null, label);
}

const hitRate = ({ lookups, hits, reached }) => (reached && lookups > 0 ? hits / lookups : null);

/** Columns read figures that `update` derives into each row. */
const COLUMNS = [
  { id: "name", title: "Router", value: (row) => row.name, cell: nodeCell((row) => `${row.name}|${row.admin_url}|${row.self}`, name) },
  { id: "state", title: "State", width: "92px", value: (row) => stateOf(row)[0], cell: nodeCell((row) => stateOf(row)[0], state) },
  { id: "rate", title: "Req/s", width: "62px", numeric: true, value: (row) => row.rate, cell: textCell((row) => perSecond(row.rate)) },
  { id: "hits", title: "Hits", width: "66px", numeric: true, tip: "requests placed where a part of their prompt is believed cached", value: hitRate, cell: textCell((row) => roundPercent(hitRate(row))) },
  { id: "lag", title: "Lag", width: "68px", numeric: true, tip: "worst delay with which others hear it", value: (row) => row.lagMs, cell: textCell((row) => duration(row.lagMs)) },
  { id: "bytes", title: "Gossip/s", width: "76px", numeric: true, tip: "bytes of gossip that it sends", value: (row) => row.gossipRate, cell: textCell((row) => bytes(row.gossipRate)) },
  { id: "agree", title: "Level", width: "66px", numeric: true, tip: "share of pairs of peer and origin that are level, as it sees them", value: (row) => agreement(row), cell: textCell((row) => roundPercent(agreement(row)), (row) => (row.reached ? `${row.gossip.level_pairs} of ${row.gossip.pairs} pairs` : "")) },
];

const agreement = (router) => (router.reached && router.gossip.pairs > 0 ? router.gossip.agreement : null);

export class Routers {
  #grid = null;
  #host = byId("graph");
  #note = byId("routers-note");
  #width = 0;
  #latest = null;
  #drawn = "";

  constructor() {
    new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry.contentRect.width);
      this.#draw();
    }).observe(this.#host);
  }

  update(model) {
    const rows = model.fleet.routers.map((router) => derive(router, model));
    this.#latest = { rows, links: undirected(model.fleet.links) };
    setText(this.#note, note(rows));
    this.#grid ??= new Grid(byId("routers"), {
      label: "Routers of the fleet",
      columns: COLUMNS,
      order: { id: "name", down: false },
      visible: VISIBLE,
      minWidth: 520,
      rowClass: (row) => (row.live ? "" : "down"),
    });
    this.#grid.setRows(rows);
    this.#draw();
  }

  #draw() {
    if (!this.#latest || this.#width === 0) return;
    const { rows, links } = this.#latest;
    // Links of 32 routers are 496 lines: they are painted again only when they look different.
    const looks = JSON.stringify([this.#width, rows.map((row) => lookOf(row, rows.length)), links.map((link) => [link.ends, linkClass(link), rows.length <= LABELLED && link.lagMs])]);
    if (looks === this.#drawn) return;
    this.#drawn = looks;
    this.#host.classList.toggle("crowded", rows.length >= CROWDED);
    const places = layout(rows, this.#width);
    const label = `${note(rows)}. The table below has the figures of each.`;
    const drawing = s("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${this.#width} ${HEIGHT}` });
    for (const link of links) drawing.append(...edge(link, places));
    if (rows.length <= LABELLED) for (const link of links) drawing.append(...lag(link, places, rows.length));
    for (const row of rows) drawing.append(node(row, places.get(row.name), rows.length));
    if (rows.length === 1) drawing.append(alone(this.#width));
    this.#host.replaceChildren(drawing);
  }
}

function derive(router, model) {
  const heard = model.fleet.links.filter((link) => link.to === router.name && link.live);
  return {
    ...router,
    rate: model.requestRate(router),
    gossipRate: model.gossipRate(router),
    lagMs: heard.length > 0 ? Math.max(...heard.map((link) => link.lag_ms)) : null,
  };
}

/** Two views of one link, the worse of which is drawn. */
function undirected(links) {
  const pairs = new Map();
  for (const link of links) {
    const key = [link.from, link.to].sort().join("\n");
    const other = pairs.get(key);
    pairs.set(key, {
      ends: [link.from, link.to],
      live: link.live && (other?.live ?? true),
      lagMs: Math.max(link.lag_ms, other?.lagMs ?? 0),
    });
  }
  return [...pairs.values()];
}

/** Routers on an ellipse; two lie side by side. */
function layout(rows, width) {
  const [cx, cy] = [width / 2, HEIGHT / 2];
  const few = rows.length <= 8;
  const rx = rows.length === 1 ? 0 : Math.min(width / 2 - (few ? 96 : 28), few ? 170 : 400);
  const ry = rows.length < 3 ? 0 : HEIGHT / 2 - (few ? 54 : 20);
  const turn = rows.length === 2 ? Math.PI : -Math.PI / 2;
  const place = (row, i) => {
    const angle = turn + (2 * Math.PI * i) / rows.length;
    return [row.name, { x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle), cos: Math.cos(angle), sin: Math.sin(angle) }];
  };
  return centred(rows.map(place));
}

/** An odd number of routers leaves more room below than above. */
function centred(placed) {
  const heights = placed.map(([, { y }]) => y);
  const shift = HEIGHT / 2 - (Math.min(...heights) + Math.max(...heights)) / 2;
  return new Map(placed.map(([name, at]) => [name, { ...at, y: at.y + shift }]));
}

function edge(link, places) {
  const [a, b] = link.ends.map((end) => places.get(end));
  if (!a || !b) return [];
  return [s("line", { class: linkClass(link), x1: a.x, y1: a.y, x2: b.x, y2: b.y })];
}

const linkClass = ({ live, lagMs }) => (live ? (lagMs >= SLOW_MS ? "link slow" : "link") : "link gone");

/** All that a node is drawn from. */
const lookOf = (row, count) => [row.name, row.self, stateOf(row), row.lagMs >= SLOW_MS, ...(count <= 8 ? [perSecond(row.rate), agreement(row)] : [])];

/** A link's lag on it, off the middle where links cross there. */
function lag({ ends, live, lagMs }, places, count) {
  const [a, b] = ends.map((end) => places.get(end));
  if (!a || !b) return [];
  const at = count > 3 ? 0.36 : 0.5;
  const place = { x: a.x + (b.x - a.x) * at, y: a.y + (b.y - a.y) * at + 4 };
  return [s("text", { class: "lag", ...place, "text-anchor": "middle" }, live ? duration(lagMs) : "lost")];
}

function node(row, place, count) {
  const { x, y } = place;
  const [, kind] = stateOf(row);
  const few = count <= 8;
  const radius = few ? 14 : count <= 16 ? 9 : 6;
  const group = s("g", { class: `${row.self ? "self" : ""} ${kind === "bad" ? "gone" : kind}` });
  group.append(s("title", null, `${row.name}: ${stateOf(row)[0]}`), s("circle", { class: "disc", cx: x, cy: y, r: radius }));
  const level = agreement(row);
  if (level !== null && few) group.append(ring(x, y, radius + 4, level));
  if (few) group.append(...label(place, radius, row.name, row.reached ? `${perSecond(row.rate)} req/s` : stateOf(row)[0]));
  else if (kind !== "" || row.lagMs >= SLOW_MS) group.append(...label(place, radius - 4, row.name));
  return group;
}

/** A node's name, away from the middle, where the links are. */
function label({ x, y, cos, sin }, radius, name, more) {
  const above = Math.abs(cos) < 0.3;
  const lines = [name, more].filter(Boolean);
  const side = cos >= 0 ? 1 : -1;
  const top = sin < 0 ? y - radius - 10 - 13 * (lines.length - 1) : y + radius + 18;
  const at = above
    ? { x, y: top, "text-anchor": "middle" }
    : { x: x + side * (radius + 10), y: y + (lines.length > 1 ? -1 : 4), "text-anchor": side > 0 ? "start" : "end" };
  return lines.map((text, i) => s("text", { ...at, y: at.y + 13 * i, class: i > 0 ? "label-2" : null }, text));
}

/** How much of the fleet's news this router and its peers share, as an arc around it. */
function ring(x, y, radius, share) {
  const around = 2 * Math.PI * radius;
  return s("circle", { class: "agree", cx: x, cy: y, r: radius, transform: `rotate(-90 ${x} ${y})`, "stroke-dasharray": `${share * around} ${around}` });
}

const alone = (width) =>
  s("text", { class: "label-2", x: width / 2, y: HEIGHT - 16, "text-anchor": "middle" }, "one router; start more with this one as a gossip seed and they share what they know");


function note(rows) {
  const live = rows.filter((row) => row.live).length;
  const lag = Math.max(...rows.map((row) => row.lagMs ?? -1));
  const sent = rows.reduce((sum, row) => sum + (row.gossipRate ?? 0), 0);
  const head = live === rows.length ? plural(live, "router") : `${live} of ${rows.length} routers live`;
  return lag < 0 ? head : `${head} · lag up to ${duration(lag)} · ${rows.some((row) => row.gossipRate !== null) ? bytes(sent) : DASH}/s of gossip`;
}
