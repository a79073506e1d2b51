// Puts the page together: one stream in, each panel told what it shows.

import { Decisions } from "./decisions.js";
import { byId, h, setText } from "./dom.js";
import { wireExplain } from "./explain.js";
import { clock, duration } from "./format.js";
import { Icicle } from "./icicle.js";
import { Model } from "./model.js";
import { know } from "./palette.js";
import { Rates } from "./rates.js";
import { Replicas } from "./replicas.js";
import { Routers } from "./routers.js";
import { signIn } from "./sign-in.js";
import { Stream, getJson, token } from "./stream.js";
import { Summary } from "./summary.js";
import { Warnings } from "./warnings.js";

/** The tree is a picture, not a gauge: it may be a few seconds old. */
const TREE_EVERY_MS = 5_000;

/** Prefixes asked for; narrower ones would not be seen. */
const TREE_NODES = 256;

/** Events of decisions kept while paused; more could not be shown. */
const MAX_COMING = 20;

const model = new Model();
const panels = { summary: new Summary(), rates: new Rates(), replicas: new Replicas(), routers: new Routers() };
const icicle = new Icicle();
const decisions = new Decisions();
const warnings = new Warnings();

let paused = false;
let lost = null;
let drawing = false;
let coming = [];

/** Draws once per frame at most, and not at all while paused. */
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    warnings.update(model.fleet, lost);
    if (paused || !model.fleet) return;
    who();
    for (const panel of Object.values(panels)) panel.update(model);
    for (const event of coming.splice(0)) decisions.update(event, model.fleet);
  });
}

function who() {
  const { fleet } = model;
  const self = fleet.routers.find((router) => router.self) ?? fleet.routers[0];
  if (!self) return;
  const mode = self.mode === "shadow" ? `${self.policy}, shadow mode` : self.policy;
  const said = [h("span", null, "seen from ", h("b", null, self.name)), h("span", null, mode), h("span", null, `up ${duration(self.uptime_seconds * 1000)}`), h("span", null, `version ${self.version}`)];
  const key = said.map((part) => part.textContent).join("|");
  if (byId("who").dataset.key === key) return;
  byId("who").dataset.key = key;
  byId("who").replaceChildren(...said);
  document.title = `grapevine · ${self.name}`;
}

function onEvent(name, value) {
  if (name === "fleet") {
    model.take(value);
    document.body.dataset.heard = "";
    know(value.replicas.map((replica) => replica.name));
  } else if (name === "decisions") {
    coming.push(value);
    coming.splice(0, Math.max(0, coming.length - MAX_COMING));
  } else if (name === "bye") {
    return onState("lost", { reason: "the router is going away" });
  }
  redraw();
}

function onState(state, { reason } = {}) {
  const shown = state === "live" && paused ? "paused" : state;
  document.body.dataset.live = shown;
  byId("live").dataset.state = shown;
  const words = { live: "live", paused: "paused", lost: "reconnecting", connecting: "connecting" };
  setText(byId("live"), words[shown] ?? shown);
  lost = state === "lost" ? lostWarning(reason) : null;
  redraw();
}

function lostWarning(reason) {
  const seen = model.fleet ? `what is shown is from ${clock(model.fleet.at_ms)}` : "nothing was received yet";
  return { code: "stream", level: "error", router: null, subject: null, since_ms: null, text: `no news: ${reason}; ${seen}` };
}

async function onSignIn(message) {
  await signIn(message);
  byId("sign-out").hidden = token.get() === null;
}

async function keepTreeFresh() {
  for (;;) {
    if (!paused && !document.hidden && !lost) {
      // Lost streams are said elsewhere; the next round asks again.
      const tree = await getJson(`api/v1/tree?limit=${TREE_NODES}`).catch(() => null);
      if (tree) icicle.update(tree);
    }
    await new Promise((resolve) => setTimeout(resolve, TREE_EVERY_MS));
  }
}

function wireControls(stream) {
  byId("pause").addEventListener("click", () => {
    paused = !paused;
    byId("pause").setAttribute("aria-pressed", paused);
    onState(lost ? "lost" : "live", { reason: "the router does not answer" });
  });
  byId("sign-out").addEventListener("click", () => {
    token.clear();
    location.reload();
  });
  byId("sign-out").hidden = token.get() === null;
  addEventListener("online", () => stream.hurry());
  document.addEventListener("visibilitychange", () => document.hidden || stream.hurry());
}

const stream = new Stream({ onEvent, onState, onSignIn });
wireExplain(onSignIn);
wireControls(stream);
stream.run();
// After the first events, so that only one of them asks for a token.
const whenLive = setInterval(() => {
  if (!model.fleet) return;
  clearInterval(whenLive);
  keepTreeFresh();
}, 100);
