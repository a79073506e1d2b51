// The heaviest prefixes as an icicle: each block is a run of the tree, as wide as the tokens in and
// below it, coloured by the replica that holds it most. Hashes and depths, never text.

import { byId, h, plainTable, s, setAttr, setClass, toggles } from "./dom.js";
import { plural, short, whole } from "./format.js";
import { badge, colorOf, numberOf, shares } from "./palette.js";

const ROW = 26;

/** Height of the strip that shows who shares a block. */
const STRIP = 3;

/** Levels drawn; deeper ones come by zooming. */
const LEVELS = 7;

/** Narrower blocks are noise, px. */
const LEAST_WIDTH = 3;

/** Widths from which the depth, and the hash, fit. */
const FITS_HASH = 74;
const FITS_DEPTH = 138;

export class Icicle {
  #host = byId("prefixes");
  #table = byId("prefixes-table");
  #out = byId("prefixes-out");
  #note = byId("prefixes-note");
  #svg = s("svg", { role: "group" });
  #detail = h("p", { class: "detail" });
  #tree = { nodes: [] };
  #children = new Map();
  #width = 0;
  #zoom = [];
  #focus = null;
  #blocks = [];

  constructor() {
    this.#host.append(this.#svg, this.#detail);
    this.#out.addEventListener("click", () => this.#zoomTo([]));
    this.#svg.addEventListener("keydown", (event) => this.#key(event));
    toggles(byId("prefixes-table-toggle"), this.#table, () => this.#fillTable());
    new ResizeObserver(([entry]) => {
      this.#width = Math.round(entry.contentRect.width);
      this.#draw();
    }).observe(this.#host);
  }

  update(tree) {
    this.#tree = tree;
    this.#children = new Map();
    tree.nodes.forEach((node, i) => {
      const siblings = this.#children.get(node.parent) ?? [];
      siblings.push(i);
      this.#children.set(node.parent, siblings);
    });
    for (const siblings of this.#children.values()) siblings.sort((a, b) => this.#weight(b) - this.#weight(a));
    this.#note.textContent =
      tree.nodes.length === 0 ? "" : `${whole(tree.nodes.length)} of ${whole(tree.nodes_total)} nodes here · width is tokens, colour the replica that was sent them most`;
    this.#draw();
    this.#fillTable();
  }

  #weight(i) {
    return this.#tree.nodes[i].weight_tokens;
  }

  /** Zoomed into a node that is gone: to the next one above that is still there. */
  #root() {
    const known = new Map(this.#tree.nodes.map((node, i) => [node.hash, i]));
    while (this.#zoom.length > 0 && !known.has(this.#zoom.at(-1))) this.#zoom.pop();
    return this.#zoom.length > 0 ? known.get(this.#zoom.at(-1)) : null;
  }

  #draw() {
    if (this.#width === 0) return;
    const had = document.activeElement?.closest?.("#prefixes g[tabindex]") !== null;
    const root = this.#root();
    this.#out.hidden = root === null;
    const tops = root === null ? (this.#children.get(null) ?? []) : [root];
    this.#blocks = [];
    this.#place(tops, 0, this.#width, 0);
    const levels = 1 + Math.max(-1, ...this.#blocks.map((block) => block.level));
    this.#svg.hidden = this.#blocks.length === 0;
    setAttr(this.#svg, "viewBox", `0 0 ${this.#width} ${Math.max(1, levels) * ROW}`);
    setAttr(this.#svg, "height", levels * ROW);
    setAttr(this.#svg, "aria-label", `Icicle of ${plural(this.#blocks.length, "prefix", "prefixes")}. Arrow keys move, Enter goes in, Escape goes out.`);
    if (!this.#blocks.some((block) => block.node.hash === this.#focus)) this.#focus = this.#blocks[0]?.node.hash ?? null;
    this.#svg.replaceChildren(...this.#blocks.map((block) => this.#block(block)));
    if (had) this.#svg.querySelector('g[tabindex="0"]')?.focus();
    this.#describe(this.#blocks.find((block) => block.node.hash === this.#focus)?.node);
  }

  /** Puts siblings side by side, and their children below them. */
  #place(siblings, left, width, level, parent = null) {
    if (level >= LEVELS) return;
    const total = level === 0 ? siblings.reduce((sum, i) => sum + this.#weight(i), 0) : this.#weight(parent);
    let x = left;
    for (const i of siblings) {
      const wide = total > 0 ? (width * this.#weight(i)) / total : 0;
      if (wide >= LEAST_WIDTH) {
        this.#blocks.push({ node: this.#tree.nodes[i], index: i, x, width: wide, level });
        this.#place(this.#children.get(i) ?? [], x, wide, level + 1, i);
      }
      x += wide;
    }
  }

  #block(block) {
    const { node, x, width, level } = block;
    const y = level * ROW;
    const holder = node.replicas[0]?.name;
    const on = node.hash === this.#focus;
    const inner = Math.max(1, width - 1);
    const group = s("g", {
      class: `${colorOf(holder)}${on ? " on" : ""}`,
      tabindex: on ? "0" : "-1",
      role: "button",
      "aria-label": spoken(node, width),
      onclick: () => this.#enter(block),
      onpointerenter: () => this.#describe(node),
      onfocus: () => this.#select(block),
    });
    group.append(s("rect", { class: "block", x, y, width: inner, height: ROW - 1 }));
    group.append(...shares(node.replicas, x, y + ROW - 1 - STRIP, inner, STRIP));
    if (width >= FITS_HASH) group.append(s("text", { x: x + 6, y: y + 15 }, label(node, width)));
    return group;
  }

  #select(block) {
    this.#focus = block.node.hash;
    for (const group of this.#svg.children) {
      const on = group.getAttribute("tabindex") === "0";
      const wanted = this.#blocks[[...this.#svg.children].indexOf(group)] === block;
      if (on !== wanted) {
        setAttr(group, "tabindex", wanted ? "0" : "-1");
        setClass(group, group.getAttribute("class").replace(" on", "") + (wanted ? " on" : ""));
      }
    }
    this.#describe(block.node);
  }

  #enter(block) {
    this.#focus = block.node.hash;
    const zoomed = this.#zoom.at(-1) === block.node.hash;
    this.#zoomTo(zoomed ? this.#zoom.slice(0, -1) : [...this.#zoom, block.node.hash]);
  }

  #zoomTo(path) {
    this.#zoom = path;
    this.#draw();
  }

  #key(event) {
    const at = this.#blocks.findIndex((block) => block.node.hash === this.#focus);
    if (at < 0) return;
    const here = this.#blocks[at];
    const level = (l) => this.#blocks.filter((block) => block.level === l);
    const beside = (step) => level(here.level)[level(here.level).indexOf(here) + step];
    const moves = {
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
      ArrowDown: () => this.#blocks.find((block) => block.node.parent === here.index && block.level > here.level),
      ArrowUp: () => this.#blocks.find((block) => block.index === here.node.parent),
    };
    if (event.key === "Enter" || event.key === " ") this.#enter(here);
    else if (event.key === "Escape") this.#zoomTo(this.#zoom.slice(0, -1));
    else if (moves[event.key]) this.#svg.children[this.#blocks.indexOf(moves[event.key]())]?.focus();
    else return;
    event.preventDefault();
  }

  #describe(node) {
    if (!node) {
      const empty = h("span", { class: "empty" }, h("b", null, "The tree is empty"), "It grows with the first prompts, and with what other routers tell.");
      return this.#detail.replaceChildren(empty);
    }
    const holders = node.replicas.map((replica) => h("span", { class: "replica" }, badge(replica.name), h("span", null, `${replica.name} × ${short(replica.count)}`)));
    this.#detail.replaceChildren(
      h("b", { class: "mono" }, node.hash),
      h("span", null, `to a depth of ${whole(node.depth_tokens)} tokens`),
      h("span", null, `${whole(node.weight_tokens)} tokens in and below it`),
      ...holders,
    );
  }

  #fillTable() {
    if (this.#table.hidden) return;
    const holders = (node) => node.replicas.map((replica) => `${replica.name} × ${short(replica.count)}`).join(", ");
    const rows = this.#tree.nodes.map((node) => [node.hash, whole(node.depth_tokens), whole(node.tokens), whole(node.weight_tokens), holders(node)]);
    this.#table.replaceChildren(plainTable("Heaviest prefixes", ["Hash", "Depth, tokens", "Own tokens", "With those below", "Held by, picks"], rows));
  }
}

const label = (node, width) => {
  const number = numberOf(node.replicas[0]?.name) ?? "–";
  return width >= FITS_DEPTH ? `${number}  ${node.hash}  ${short(node.depth_tokens)}` : node.hash;
};

/** It begins with what is seen. */
const spoken = (node, width) => {
  const holders = node.replicas.map((replica) => replica.name).join(", ") || "nobody";
  return `${width >= FITS_HASH ? label(node, width) : node.hash}: prefix to a depth of ${node.depth_tokens} tokens, ${node.weight_tokens} tokens in and below it, held by ${holders}`;
};
