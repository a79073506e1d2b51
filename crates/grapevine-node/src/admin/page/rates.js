// Hit rates over time: what was predicted, what engines reported, what random placement would get.

import { byId, h, plainTable, s, setAttr, toggles } from "./dom.js";
import { clock, percent, perSecond } from "./format.js";

const HEIGHT = 244;
const PAD = { left: 44, right: 134, top: 12, bottom: 26 };

/** Lines, the most important last, so that it is on top. */
const LINES = [
  { id: "random", title: "random" },
  { id: "predicted", title: "predicted" },
  { id: "reported", title: "reported" },
];

/** Time shown at least; new fleets fill it from the right. */
const MIN_SPAN_MS = 120_000;

/** Least distance of two labels. */
const LABEL_GAP = 16;

/** Points of the curve for one row of the table. */
const TABLE_STEP = 5;

export class Rates {
  #host = byId("rates");
  #table = byId("rates-table");
  #tip = h("div", { class: "tip", hidden: true });
  #spoken = h("p", { class: "unseen", "aria-live": "polite" });
  #svg = s("svg", { "aria-hidden": "true" });
  #cross = s("line", { class: "cross", visibility: "hidden" });
  #curve = [];
  #width = 0;
  #at = null;
  #idle = true;

  constructor() {
    setAttr(this.#host, "tabindex", "0");
    setAttr(this.#host, "role", "group");
    this.#host.append(this.#svg, this.#tip, this.#spoken);
    this.#host.addEventListener("pointermove", (event) => this.#point(this.#nearest(event)));
    this.#host.addEventListener("pointerleave", () => this.#point(null));
    this.#host.addEventListener("blur", () => this.#point(null));
    this.#host.addEventListener("keydown", (event) => this.#key(event));
    toggles(byId("rates-table-toggle"), this.#table, () => this.#fillTable());
    new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry.contentRect.width);
      this.#draw();
    }).observe(this.#host);
  }

  update(model) {
    this.#curve = model.curve();
    this.#idle = model.idle;
    const now = model.lastMinute();
    const said = LINES.map((line) => `${line.title} ${percent(now[line.id])}`).reverse().join(", ");
    setAttr(this.#host, "aria-label", `Token hit rate of the last minute: ${said}. Arrow keys read points.`);
    this.#draw();
    this.#fillTable();
  }

  get #span() {
    const last = this.#curve.at(-1)?.atMs ?? Date.now();
    const first = this.#curve[0]?.atMs ?? last;
    return { from: Math.min(first, last - MIN_SPAN_MS), to: last };
  }

  #x(atMs) {
    const { from, to } = this.#span;
    return PAD.left + ((atMs - from) / (to - from)) * (this.#width - PAD.left - PAD.right);
  }

  #y(share) {
    return PAD.top + (1 - share) * (HEIGHT - PAD.top - PAD.bottom);
  }

  #draw() {
    if (this.#width === 0) return;
    setAttr(this.#svg, "viewBox", `0 0 ${this.#width} ${HEIGHT}`);
    const parts = [...this.#scale(), ...this.#clockTicks()];
    if (this.#idle || this.#curve.length < 2) parts.push(this.#nothing());
    else parts.push(this.#gain(), ...LINES.map((line) => this.#line(line)), ...this.#tags(), this.#cross);
    this.#svg.replaceChildren(...parts);
    if (this.#at !== null) this.#point(Math.min(this.#at, this.#curve.length - 1));
  }

  #scale() {
    const right = this.#width - PAD.right;
    return [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
      s("line", { class: share === 0 ? "grid-line base" : "grid-line", x1: PAD.left, x2: right, y1: this.#y(share), y2: this.#y(share) }),
      s("text", { x: PAD.left - 8, y: this.#y(share) + 4, "text-anchor": "end" }, `${share * 100} %`),
    ]);
  }

  #clockTicks() {
    const { from, to } = this.#span;
    const minutes = (to - from) / 60_000;
    const step = (minutes > 6 ? 2 : minutes > 3 ? 1 : 0.5) * 60_000;
    const ticks = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      ticks.push(s("text", { x: this.#x(at), y: HEIGHT - 8, "text-anchor": "middle" }, clock(at, step < 60_000)));
    }
    return ticks;
  }

  #line({ id }) {
    return s("path", { class: `line ${id}`, d: this.#path((point) => point[id]) });
  }

  /** Moves where the value was unknown, lines where it is known. */
  #path(value) {
    let pen = "M";
    let d = "";
    for (const point of this.#curve) {
      const share = value(point);
      if (share === null) {
        pen = "M";
        continue;
      }
      d += `${pen}${this.#x(point.atMs).toFixed(1)} ${this.#y(Math.min(1, share)).toFixed(1)}`;
      pen = "L";
    }
    return d;
  }

  /** What affinity gains: between random and reported, in pieces where both are known. */
  #gain() {
    let d = "";
    let piece = [];
    const close = () => {
      if (piece.length > 1) {
        const edge = (id) => (point) => `${this.#x(point.atMs).toFixed(1)} ${this.#y(point[id]).toFixed(1)}`;
        d += `M${piece.map(edge("reported")).join("L")}L${[...piece].reverse().map(edge("random")).join("L")}Z`;
      }
      piece = [];
    };
    for (const point of this.#curve) {
      if (point.reported === null || point.random === null) close();
      else piece.push(point);
    }
    close();
    return s("path", { class: "gain", d });
  }

  /** The lines' names and values at their right ends, apart from each other. */
  #tags() {
    const place = (line) => {
      const known = this.#curve.findLast((point) => point[line.id] !== null);
      return known ? { ...line, value: this.#curve.at(-1)[line.id], y: this.#y(known[line.id]) + 4 } : null;
    };
    const tags = LINES.map(place).filter((tag) => tag !== null);
    tags.sort((a, b) => a.y - b.y);
    for (let i = 1; i < tags.length; i += 1) tags[i].y = Math.max(tags[i].y, tags[i - 1].y + LABEL_GAP);
    const tooLow = Math.max(0, (tags.at(-1)?.y ?? 0) - (HEIGHT - PAD.bottom));
    const x = this.#width - PAD.right + 8;
    return tags.map((tag) => s("text", { class: `tag ${tag.id}`, x, y: tag.y - tooLow }, `${percent(tag.value)} ${tag.title}`));
  }

  #nothing() {
    const x = (PAD.left + this.#width - PAD.right) / 2;
    const text = this.#idle ? "no request yet: the curves begin with the first" : "the first points come in a moment";
    return s("text", { class: "hint", x, y: HEIGHT / 2 - 3, "text-anchor": "middle" }, text);
  }

  #nearest(event) {
    if (this.#curve.length < 2) return null;
    const x = event.clientX - this.#host.getBoundingClientRect().left;
    const distance = (point) => Math.abs(this.#x(point.atMs) - x);
    return this.#curve.reduce((best, point, i) => (distance(point) < distance(this.#curve[best]) ? i : best), 0);
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -15, PageDown: 15, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") return this.#point(null);
    if (step === undefined || this.#curve.length < 2) return;
    event.preventDefault();
    const from = this.#at ?? this.#curve.length - 1;
    this.#point(Math.max(0, Math.min(this.#curve.length - 1, from + step)));
    const point = this.#curve[this.#at];
    this.#spoken.textContent = `${clock(point.atMs)}: reported ${percent(point.reported)}, predicted ${percent(point.predicted)}, random ${percent(point.random)}`;
  }

  #point(index) {
    this.#at = this.#idle ? null : index;
    const point = this.#curve[this.#at];
    this.#tip.hidden = !point;
    setAttr(this.#cross, "visibility", point ? "visible" : "hidden");
    if (!point) return;
    const x = this.#x(point.atMs);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: PAD.top, y2: HEIGHT - PAD.bottom })) setAttr(this.#cross, name, value);
    this.#tip.replaceChildren(...tipOf(point));
    const left = x + 14 + 170 > this.#width ? x - 14 - this.#tip.offsetWidth : x + 14;
    this.#tip.style.transform = `translateX(${Math.round(left)}px)`;
  }

  #fillTable() {
    if (this.#table.hidden) return;
    const rows = this.#curve
      .filter((_, i) => (this.#curve.length - 1 - i) % TABLE_STEP === 0)
      .reverse()
      .map((point) => [clock(point.atMs), percent(point.reported), percent(point.predicted), percent(point.random), perSecond(point.requestsPerSecond)]);
    const heads = ["Time", "Reported", "Predicted", "Random", "Requests/s"];
    this.#table.replaceChildren(plainTable("Token hit rate over time", heads, rows));
  }
}

function tipOf(point) {
  const pair = (name, value) => [h("dt", null, name), h("dd", null, value)];
  const shares = [...LINES].reverse().flatMap((line) => pair(line.title, percent(point[line.id])));
  return [h("b", null, clock(point.atMs)), h("dl", null, ...shares, ...pair("requests/s", perSecond(point.requestsPerSecond)))];
}
