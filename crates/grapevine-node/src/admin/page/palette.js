// One colour and one number for each replica, the same everywhere on the page. The colours are told
// apart with any kind of colour vision; beyond them the number does it.

import { h, s } from "./dom.js";

/** Colours `c0` to `c7` of the style sheet. */
const COLORS = 8;

const numbers = new Map();

/** Tells the palette which replicas there are. One that was seen keeps its number. */
export function know(names) {
  for (const name of names) if (!numbers.has(name)) numbers.set(name, numbers.size + 1);
}

export const numberOf = (name) => numbers.get(name) ?? null;

export const colorOf = (name) => (numbers.has(name) ? `c${(numbers.get(name) - 1) % COLORS}` : "cx");

/** The badge that stands for a replica. */
export const badge = (name) =>
  h("span", { class: `badge ${colorOf(name)}`, "aria-hidden": "true" }, String(numberOf(name) ?? "?"));

/** Badge and name. */
export const replicaLabel = (name) =>
  h("span", { class: "replica", title: name }, badge(name), h("span", null, name));

/** A strip of who holds how much, for SVG. */
export function shares(replicas, x, y, width, height) {
  const total = replicas.reduce((sum, replica) => sum + replica.count, 0) || 1;
  let at = x;
  return replicas.map((replica) => {
    const part = (width * replica.count) / total;
    const strip = s("rect", { class: `solid ${colorOf(replica.name)}`, x: at, y, width: part, height });
    at += part;
    return strip;
  });
}
