// A decision in full: what decided, and every candidate's votes.

import { h } from "./dom.js";
import { plural, short, signed, whole } from "./format.js";
import { replicaLabel } from "./palette.js";

const REASONS = {
  affinity: "holds the longest useful prefix",
  home: "nobody holds anything useful; it is this prefix's home",
  load: "nobody holds anything useful; it has the least to do",
  spill: "another replica holds more of the prompt, but what waits there outvoted that",
  guard: "the favourite is far busier than the others, so the imbalance guard took its affinity away",
  only: "it was the only candidate",
  no_key: "the prompt has no key, or the tree did not answer in time: placed by load alone",
  shadow: "shadow mode: placed by load alone",
  policy: "a baseline policy is configured; it does not look at prefixes",
};

/** What each vote stands for, in tokens of cost. */
const VOTES = {
  prefix: "tokens to prefill, weighted",
  queue: "prefill tokens that wait there",
  inflight: "requests in flight there",
  kv: "pressure on the KV cache",
  home: "discount for a cold prompt's home",
  spread: "surcharge for more than its share of cold tokens",
};

/** The whole of it. */
export function why(decision) {
  const { replica, reason } = decision;
  const verdict = h("p", { class: "verdict" }, h("b", null, replica), `: ${REASONS[reason] ?? reason}.`);
  return h("div", { class: "why" }, verdict, h("p", null, facts(decision).join(" · ")), votes(decision));
}

function facts(decision) {
  const { matched_tokens: matched, best_matched_tokens: best, prompt_tokens: prompt } = decision;
  const said = [`${whole(matched)} of ${whole(prompt)} tokens believed cached there`];
  if (best > matched) said.push(`the most anywhere is ${whole(best)}`);
  if (decision.teacher) said.push(decision.teacher === "own" ? "learnt here" : `learnt from ${decision.teacher}`);
  if (decision.guarded) said.push(`the guard held back ${decision.guarded}`);
  if (decision.tied > 1) said.push(`${decision.tied} shared the lowest sum, one drawn at random`);
  if (decision.lookup === "late") said.push("the tree answered too late");
  if (decision.attempt > 1) said.push(`attempt ${decision.attempt}`);
  if (decision.decision_us !== null && decision.decision_us !== undefined) said.push(`decided in ${whole(decision.decision_us)} µs`);
  if (decision.outcome) said.push(`ended ${decision.outcome.replaceAll("_", " ")}`);
  if (decision.reported_cached_tokens !== null && decision.reported_cached_tokens !== undefined) said.push(`the engine found ${whole(decision.reported_cached_tokens)} cached`);
  if (decision.affinity_replica && decision.affinity_replica !== decision.replica) said.push(`affinity would send it to ${decision.affinity_replica}`);
  if (decision.key) said.push(`key ${decision.key.hash8 ?? "none"}, ${plural(decision.key.boundaries, "boundary", "boundaries")}, ${whole(decision.key.bytes)} bytes`);
  if (decision.model) said.push(`model ${decision.model}`);
  if (decision.trace_id) said.push(`trace ${decision.trace_id}`);
  return said;
}

function votes({ candidates, candidates_total: total }) {
  const names = [...new Set(candidates.flatMap((candidate) => Object.keys(candidate.votes)))];
  // Votes that nobody cast would only take room.
  const cast = names.filter((name) => candidates.some((candidate) => candidate.votes[name] !== 0));
  const heads = [
    h("th", { scope: "col" }, "Candidate"),
    h("th", { scope: "col", title: "tokens of this prompt that it is believed to hold" }, "holds"),
    ...cast.map((name) => h("th", { scope: "col", title: VOTES[name] }, name)),
    h("th", { scope: "col", title: "the lowest wins" }, "sum"),
  ];
  const table = h("table", { class: "votes" }, h("caption", { class: "unseen" }, "Votes in tokens of cost, the lowest sum wins"), h("thead", null, h("tr", null, ...heads)), h("tbody", null, ...candidates.map((candidate) => row(candidate, cast))));
  const more = total > candidates.length ? h("p", null, `and ${whole(total - candidates.length)} more with higher sums`) : null;
  return h("div", { class: "votes-scroll", role: "region", tabindex: "0", "aria-label": "Votes of the candidates" }, table, more);
}

function row(candidate, cast) {
  const vote = (name) => {
    const value = candidate.votes[name] ?? 0;
    return h("td", { class: value === 0 ? "none" : null }, value === 0 ? "0" : signed(value));
  };
  const name = h("td", null, replicaLabel(candidate.replica), candidate.won ? h("span", { class: "unseen" }, " (chosen)") : null);
  return h("tr", { class: candidate.won ? "won" : null }, name, h("td", null, whole(candidate.matched_tokens)), ...cast.map(vote), h("td", { class: "sum" }, short(candidate.total)));
}
