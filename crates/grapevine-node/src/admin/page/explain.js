// The explain box: a request body goes to the router, which answers with the decision it would make.

import { byId, h } from "./dom.js";
import { SignInNeeded, explain } from "./stream.js";
import { why } from "./votes.js";

export function wireExplain(onSignIn) {
  const body = byId("explain-body");
  const answer = byId("explain-answer");
  const button = byId("explain").querySelector("button");
  answer.append(idle());

  const show = (...children) => answer.replaceChildren(...children);

  const ask = async () => {
    const problem = mistakeIn(body.value);
    if (problem) return show(h("p", { class: "failed" }, problem));
    button.disabled = true;
    try {
      show(why(await explain(byId("explain-path").value, body.value)));
    } catch (error) {
      if (error instanceof SignInNeeded) await onSignIn(error.message);
      else show(h("p", { class: "failed" }, `Not explained: ${error.message}`));
    } finally {
      button.disabled = false;
    }
  };

  byId("explain").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  body.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
}

const idle = () =>
  h("div", { class: "empty" }, h("b", null, "Nothing asked yet"), "Paste what a client would send. The answer names every candidate with its votes; the lowest sum wins.");

function mistakeIn(text) {
  if (text.trim() === "") return "Paste a request body first.";
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `That is no JSON: ${error.message}`;
  }
}
