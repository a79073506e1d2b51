// The latest decisions. New ones come in at the top; while somebody reads they wait.

import { byId, h, setText } from "./dom.js";
import { clock, short, whole } from "./format.js";
import { colorOf, replicaLabel } from "./palette.js";
import { why } from "./votes.js";

/** Rows kept. */
const MAX_ROWS = 120;

const REASONS = ["affinity", "home", "load", "spill", "guard", "only", "no_key", "shadow", "policy"];

export class Decisions {
  #host = byId("decisions");
  #note = byId("decisions-note");
  #reason = byId("decisions-reason");
  #fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => this.#catchUp() });
  #heads = h("div", { class: "decision-heads", "aria-hidden": "true" }, ...["Time", "Reason", "Replica", "Held there", "Tokens", "From"].map((title) => h("span", null, title)));
  #waiting = [];
  #all = [];
  #rows = new Map();
  #skipped = 0;
  /** The row that Tab reaches; arrow keys go on from there. */
  #stop = null;

  constructor() {
    this.#reason.append(h("option", { value: "" }, "all"), ...REASONS.map((reason) => h("option", { value: reason }, reason.replace("_", " "))));
    this.#reason.addEventListener("change", () => this.#refill());
    this.#host.addEventListener("keydown", (event) => this.#key(event));
    this.#host.addEventListener("scroll", () => this.#host.scrollTop < 4 && this.#settle(), { passive: true });
    this.#refill();
  }

  /** Takes decisions, newest first. */
  update({ decisions, skipped = 0 }, fleet) {
    this.#skipped += skipped;
    const known = (decision) => this.#all.some((other) => sameDecision(other, decision)) || this.#waiting.some((other) => sameDecision(other, decision));
    this.#waiting.unshift(...decisions.filter((decision) => !known(decision)));
    this.#waiting.splice(MAX_ROWS);
    this.#settle();
    setText(this.#note, shareOfReasons(fleet));
  }

  /** Somebody scrolled away from the newest, has a decision open, or goes through them by keys. */
  get #reading() {
    return this.#host.scrollTop >= 4 || this.#host.querySelector('[aria-expanded="true"], .decision > button:focus-visible') !== null;
  }

  get #buttons() {
    return [...this.#host.querySelectorAll(".decision > button")];
  }

  #key(event) {
    const buttons = this.#buttons;
    const at = buttons.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (at < 0 || !buttons[to]) return;
    event.preventDefault();
    this.#stopAt(buttons[to]);
    buttons[to].focus();
  }

  /** One row is a stop for Tab, the others are not: there may be a hundred. */
  #stopAt(button) {
    if (this.#stop === button) return;
    this.#stop?.setAttribute("tabindex", "-1");
    this.#stop = button ?? null;
    this.#stop?.setAttribute("tabindex", "0");
  }

  #settle() {
    if (this.#reading) {
      this.#fresh.hidden = this.#waiting.length === 0;
      const more = this.#waiting.length >= MAX_ROWS ? `${MAX_ROWS}+ new` : `${this.#waiting.length} new`;
      setText(this.#fresh, `↑ ${more}`);
      return;
    }
    this.#fresh.hidden = true;
    this.#take();
  }

  #catchUp() {
    for (const button of this.#host.querySelectorAll('[aria-expanded="true"]')) button.click();
    this.#host.scrollTop = 0;
    this.#settle();
    this.#host.focus({ preventScroll: true });
  }

  #take() {
    const coming = this.#waiting.splice(0);
    if (coming.length === 0) return;
    this.#all.unshift(...coming);
    for (const old of this.#all.splice(MAX_ROWS)) {
      this.#rows.get(keyOf(old))?.remove();
      this.#rows.delete(keyOf(old));
    }
    const rows = coming.filter((decision) => this.#wanted(decision) && this.#all.includes(decision)).map((decision) => this.#row(decision));
    if (rows.length === 0) return;
    this.#host.querySelector(".empty")?.remove();
    this.#fresh.after(...rows);
    this.#stopAt(this.#buttons[0]);
  }

  #wanted(decision) {
    return this.#reason.value === "" || decision.reason === this.#reason.value;
  }

  #refill() {
    this.#rows.clear();
    const rows = this.#all.filter((decision) => this.#wanted(decision)).map((decision) => this.#row(decision));
    this.#host.replaceChildren(this.#heads, this.#fresh, ...rows);
    if (rows.length === 0) {
      const none = this.#all.length === 0 ? "No decision yet" : "None of the latest has this reason";
      this.#host.append(h("div", { class: "empty" }, h("b", null, none), "Each request that is placed appears here, with the votes that placed it."));
    }
    this.#host.scrollTop = 0;
    this.#stopAt(this.#buttons[0]);
  }

  #row(decision) {
    const button = h("button", { type: "button", "aria-expanded": "false", tabindex: "-1" }, ...cells(decision));
    const element = h("article", { class: "decision", "aria-label": spoken(decision) }, button);
    let detail = null;
    button.addEventListener("click", () => {
      this.#stopAt(button);
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", open);
      detail?.remove();
      detail = open ? why(decision) : null;
      if (detail) element.append(detail);
      else this.#settle();
    });
    this.#rows.set(keyOf(decision), element);
    return element;
  }
}

const keyOf = (decision) => `${decision.router}/${decision.seq}`;

const sameDecision = (a, b) => a.seq === b.seq && a.router === b.router;

function cells(decision) {
  const { matched_tokens: matched, best_matched_tokens: best, prompt_tokens: prompt, teacher } = decision;
  const part = (tokens) => (prompt > 0 ? Math.min(1, tokens / prompt) : 0);
  const held = h("span", { class: "held", "aria-hidden": "true" }, h("u"), h("i"));
  held.firstChild.style.transform = `scaleX(${part(best)})`;
  held.lastChild.style.transform = `scaleX(${part(matched)})`;
  held.title = `${whole(matched)} of ${whole(prompt)} tokens believed cached there, ${whole(best)} at most anywhere`;
  return [
    h("span", { class: "when" }, clock(decision.at_ms)),
    h("span", { class: `reason ${decision.reason}` }, decision.reason.replace("_", " ")),
    replicaLabel(decision.replica),
    h("span", { class: `held-box ${colorOf(decision.replica)}` }, held),
    h("span", { class: "tokens" }, h("b", null, short(matched)), ` of ${short(prompt)}`),
    h("span", { class: "by", title: teacher ? `who taught it: ${teacher}` : "nobody taught it" }, teacher ?? ""),
  ];
}

const spoken = (decision) => `${clock(decision.at_ms)}, ${decision.reason}, to ${decision.replica}`;

/** Whose they are, and what decided in the whole fleet since the start. */
function shareOfReasons(fleet) {
  const counts = Object.entries(fleet.totals.decisions).filter(([, count]) => count > 0);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  if (total === 0) return "";
  counts.sort((a, b) => b[1] - a[1]);
  const said = counts.slice(0, 3).map(([reason, count]) => `${Math.round((100 * count) / total)} % ${reason.replace("_", " ")}`);
  return `of ${fleet.asked} · fleet: ${said.join(", ")}`;
}
