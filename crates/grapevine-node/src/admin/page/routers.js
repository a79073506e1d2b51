// The fleet of routers: a graph of who hears whom, and its figures as a table.

import { byId, h, s, setAttr, setText } from "./dom.js";
import { DASH, bytes, duration, perSecond, plural, roundPercent } from "./format.js";
import { Grid, nodeCell, textCell } from "./grid.js";

/** A peer's news this old is worth a look: deltas reach every peer in under a second when all is well. */
const SLOW_MS = 2_000;

/** Up to that many routers each link carries its lag. */
const LABELLED = 4;

/** Up to that many routers each has its name and a figure. */
const FEW = 8;

/** From that many on links are drawn thin. */
const CROWDED = 9;

/** Rows in sight. */
const VISIBLE = 5;

/** Of the drawing, px: higher where it is narrow. */
const heightAt = (width) => (isNarrow(width) ? 280 : 200);

/** There names stand above and below their nodes: beside them is no room. */
const isNarrow = (width) => width < 420;

/** Cut names keep so many letters at least. */
const SHORTEST = 3;

/** Where a link's lag may stand on it, as a share of its length, the best first. */
const LAG_AT = [0.5, 0.36, 0.64, 0.28, 0.72];

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
  return safe && !router.self ? h("a", { href: router.admin_url, rel: "noreferrer", title: router.name }, label) : h("span", { title: router.name }, label);
}

const hitRate = ({ lookups, hits, reached }) => (reached && lookups > 0 ? hits / lookups : null);

/** Columns read figures that `update` derives into each row. */
const COLUMNS = [
  { id: "name", title: "Router", value: (row) => row.name, cell: nodeCell((row) => `${row.name}|${row.admin_url}|${row.self}`, name) },
  { id: "state", title: "State", width: "92px", value: (row) => stateOf(row)[0], cell: nodeCell((row) => stateOf(row)[0], state) },
  { id: "rate", title: "Req/s", width: "62px", numeric: true, value: (row) => row.rate, cell: textCell((row) => perSecond(row.rate)) },
  { id: "hits", title: "Hits", width: "66px", numeric: true, tip: "of requests placed whose prefix was looked up, the share that went where a part of it is believed cached", value: hitRate, cell: textCell((row) => roundPercent(hitRate(row))) },
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
    const height = heightAt(this.#width);
    const label = `${note(rows)}. The table below has the figures of each.`;
    const drawing = s("svg", { role: "img", "aria-label": label, viewBox: `0 0 ${this.#width} ${height}`, height });
    for (const link of links) drawing.append(...edge(link, places));
    for (const row of rows) drawing.append(node(row, places.get(row.name), rows.length));
    if (rows.length === 1) drawing.append(...alone(this.#width, height));
    this.#host.replaceChildren(drawing);
    letter(drawing, rows, links, places, { width: this.#width, height });
  }
}

/** Writes what fits: texts are measured where they stand, and what would cover another or a node stays away. */
function letter(drawing, rows, links, places, size) {
  const taken = rows.map((row) => boxOf(places.get(row.name), radiusOf(rows.length) + (rows.length <= FEW ? 5 : 1)));
  for (const row of rows) taken.push(...nameNode(drawing, row, places.get(row.name), rows.length, size, taken));
  if (rows.length > LABELLED) return;
  for (const link of links) taken.push(...lag(drawing, link, places, rows.length, size, taken));
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
  const height = heightAt(width);
  const [cx, cy] = [width / 2, height / 2];
  const few = rows.length <= FEW;
  const beside = few ? (isNarrow(width) ? 48 : 96) : 28;
  const rx = rows.length === 1 ? 0 : Math.min(width / 2 - beside, few ? 170 : 400);
  const ry = rows.length < 3 ? 0 : height / 2 - (few ? 54 : 26);
  const turn = rows.length === 2 ? Math.PI : -Math.PI / 2;
  const place = (row, i) => {
    const angle = turn + (2 * Math.PI * i) / rows.length;
    return [row.name, { x: cx + rx * Math.cos(angle), y: cy + ry * Math.sin(angle), cos: Math.cos(angle), sin: Math.sin(angle) }];
  };
  return centred(rows.map(place), height);
}

/** An odd number of routers leaves more room below than above. */
function centred(placed, height) {
  const heights = placed.map(([, { y }]) => y);
  const shift = height / 2 - (Math.min(...heights) + Math.max(...heights)) / 2;
  return new Map(placed.map(([name, at]) => [name, { ...at, y: at.y + shift }]));
}

function edge(link, places) {
  const [a, b] = link.ends.map((end) => places.get(end));
  if (!a || !b) return [];
  return [s("line", { class: linkClass(link), x1: a.x, y1: a.y, x2: b.x, y2: b.y })];
}

const linkClass = ({ live, lagMs }) => (live ? (lagMs >= SLOW_MS ? "link slow" : "link") : "link gone");

/** All that a node is drawn from. */
const lookOf = (row, count) => [row.name, row.self, stateOf(row), row.lagMs >= SLOW_MS, ...(count <= FEW ? [perSecond(row.rate), agreement(row)] : [])];

const radiusOf = (count) => (count <= FEW ? 14 : count <= 16 ? 9 : 6);

function node(row, { x, y }, count) {
  const [word, kind] = stateOf(row);
  const radius = radiusOf(count);
  const group = s("g", { class: `${row.self ? "self" : ""} ${kind === "bad" ? "gone" : kind}` });
  group.append(s("title", null, `${row.name}: ${word}`), s("circle", { class: "disc", cx: x, cy: y, r: radius }));
  const level = agreement(row);
  if (level !== null && count <= FEW) group.append(ring(x, y, radius + 4, level));
  return group;
}

const boxOf = ({ x, y }, radius) => ({ x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius });

const meet = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

/** The box of `text` in `drawing`, if it is within the picture and covers nothing that is taken. */
function fitted(drawing, text, size, taken) {
  if (!text.isConnected) drawing.append(text);
  const { x, y, width, height } = text.getBBox();
  const box = { x, y, width, height };
  const within = x >= 0 && y >= 0 && x + width <= size.width && y + height <= size.height;
  return within && !taken.some((other) => meet(box, other)) ? box : null;
}

/** A link's lag on it, where there is room. */
function lag(drawing, { ends, live, lagMs }, places, count, size, taken) {
  const [a, b] = ends.map((end) => places.get(end));
  if (!a || !b) return [];
  const text = s("text", { class: "lag", "text-anchor": "middle" }, live ? duration(lagMs) : "lost");
  // Links cross in the middle of four.
  for (const at of LAG_AT.slice(count > 3 ? 1 : 0)) {
    setAttr(text, "x", a.x + (b.x - a.x) * at);
    setAttr(text, "y", a.y + (b.y - a.y) * at + 4);
    const box = fitted(drawing, text, size, taken);
    if (box) return [box];
  }
  text.remove();
  return [];
}

/** A node's name and a figure; in a crowd the names of nodes that are not well. */
function nameNode(drawing, row, place, count, size, taken) {
  const [word, kind] = stateOf(row);
  const few = count <= FEW;
  if (!few && kind === "" && !(row.lagMs >= SLOW_MS)) return [];
  const more = !few ? null : row.reached ? `${perSecond(row.rate)} req/s` : word;
  const lines = [row.name, more].filter(Boolean);
  const at = beside(place, radiusOf(count) - (few ? 0 : 4), lines.length, isNarrow(size.width));
  const boxes = [];
  lines.forEach((line, i) => {
    const text = s("text", { ...at, y: at.y + 13 * i, class: i > 0 ? "label-2" : null });
    const box = cut(drawing, text, line, i > 0 ? line.length : SHORTEST, size, taken);
    if (box) boxes.push(box);
  });
  return boxes;
}

/** As much of the end of `line` as there is room for, which tells names apart; nothing where that is too little. */
function cut(drawing, text, line, shortest, size, taken) {
  for (let letters = line.length; letters >= Math.min(shortest, line.length); letters -= 1) {
    setText(text, letters === line.length ? line : `…${line.slice(-letters)}`);
    const box = fitted(drawing, text, size, taken);
    if (box) return box;
  }
  text.remove();
  return null;
}

/** Where a node's texts stand: away from the middle, where the links are. */
function beside({ x, y, cos, sin }, radius, lines, narrow) {
  if (narrow || Math.abs(cos) < 0.3) {
    const top = sin < -0.3 ? y - radius - 10 - 13 * (lines - 1) : y + radius + 18;
    return { x, y: top, "text-anchor": "middle" };
  }
  const side = cos >= 0 ? 1 : -1;
  return { x: x + side * (radius + 10), y: y + (lines > 1 ? -1 : 4), "text-anchor": side > 0 ? "start" : "end" };
}

/** How much of the fleet's news this router and its peers share, as an arc around it. */
function ring(x, y, radius, share) {
  const around = 2 * Math.PI * radius;
  return s("circle", { class: "agree", cx: x, cy: y, r: radius, transform: `rotate(-90 ${x} ${y})`, "stroke-dasharray": `${share * around} ${around}` });
}

/** In two lines: one is too long for a phone. */
const alone = (width, height) =>
  ["one router; start more with this one as a gossip seed", "and they share what they know"].map((line, i) =>
    s("text", { class: "label-2", x: width / 2, y: height - 24 + 14 * i, "text-anchor": "middle" }, line),
  );

function note(rows) {
  const live = rows.filter((row) => row.live).length;
  const lag = Math.max(...rows.map((row) => row.lagMs ?? -1));
  const sent = rows.reduce((sum, row) => sum + (row.gossipRate ?? 0), 0);
  const head = live === rows.length ? plural(live, "router") : `${live} of ${rows.length} routers live`;
  return lag < 0 ? head : `${head} · lag up to ${duration(lag)} · ${rows.some((row) => row.gossipRate !== null) ? bytes(sent) : DASH}/s of gossip`;
}
