// What somebody should know or do, the worst first.

import { byId, h, s } from "./dom.js";
import { duration, plural } from "./format.js";

/** Shown without asking. */
const SHOWN = 3;

const RANK = { error: 0, warn: 1, info: 2 };

/** Level by shape: octagon, triangle, circle. */
const SHAPES = {
  error: "M5 1.5h6L14.5 5v6L11 14.5H5L1.5 11V5zM8 4.5v4.2M8 11v.6",
  warn: "M8 1.8 15 14H1zM8 6v4M8 11.6v.6",
  info: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM8 7v4.5M8 4.4V5",
};

export class Warnings {
  #host = byId("warnings");
  #all = false;
  #shown = "";

  update(fleet, lost) {
    const warnings = [...(lost ? [lost] : []), ...(fleet?.warnings ?? [])];
    warnings.sort((a, b) => (RANK[a.level] ?? 1) - (RANK[b.level] ?? 1));
    const groups = grouped(warnings, fleet?.at_ms);
    // Redrawn only when it says something else: a screen reader would read it again.
    const says = JSON.stringify([groups, this.#all]);
    if (says === this.#shown) return;
    this.#shown = says;
    this.#draw(groups);
  }

  #draw(groups) {
    const visible = this.#all ? groups : groups.slice(0, SHOWN);
    this.#host.replaceChildren(...visible.map(strip));
    if (groups.length <= SHOWN) return;
    const text = this.#all ? "Show fewer" : `${groups.length - SHOWN} more`;
    const toggle = () => {
      this.#all = !this.#all;
      this.#shown = "";
      this.#draw(groups);
      this.#host.querySelector(".more")?.focus();
    };
    this.#host.append(h("button", { type: "button", class: "more", "aria-expanded": String(this.#all), onclick: toggle }, text));
  }
}

/** The same from several routers is one line that names them. */
function grouped(warnings, now) {
  const groups = new Map();
  for (const { code, level, router, subject, since_ms: since, text } of warnings) {
    const key = `${code}\n${subject}\n${text}`;
    const group = groups.get(key) ?? { level, text, routers: [], since: null };
    if (router && !group.routers.includes(router)) group.routers.push(router);
    if (since !== null && since !== undefined) group.since = Math.min(group.since ?? since, since);
    groups.set(key, group);
  }
  return [...groups.values()].map((group) => ({ ...group, since: group.since === null ? "" : sinceText(now - group.since) }));
}

/** In whole minutes, so that it does not change with every event. */
const sinceText = (ms) => (ms < 60_000 ? "just now" : `for ${duration(Math.floor(ms / 60_000) * 60_000)}`);

function strip({ level, text, routers, since }) {
  const icon = s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: SHAPES[level] ?? SHAPES.warn }));
  const kind = h("span", { class: "unseen" }, `${level}: `);
  const by = routers.length > 3 ? plural(routers.length, "router") : routers.join(", ");
  const said = text.charAt(0).toUpperCase() + text.slice(1);
  return h("div", { class: `warning ${level}` }, icon, h("p", null, kind, said), h("p", { class: "when" }, [by, since].filter(Boolean).join(" · ")));
}
