// Asks for the admin token. It stays in this tab's session storage and goes nowhere but to this router.

import { byId } from "./dom.js";
import { token } from "./stream.js";

let asking = null;

/** Resolves when there is a token to try. Asked twice, it asks once. */
export function signIn(message) {
  asking ??= ask(message).finally(() => {
    asking = null;
  });
  return asking;
}

function ask(message) {
  const dialog = byId("sign-in");
  const input = byId("sign-in-token");
  const wrong = token.get() !== null;
  token.clear();
  byId("sign-in-why").textContent = wrong ? "That token was not accepted." : whyOf(message);
  input.value = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    // Without a token there is nothing to show: closing asks again.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener(
      "submit",
      () => {
        token.set(input.value);
        resolve();
      },
      { once: true },
    );
  });
}

function whyOf(message) {
  return message.startsWith("closed") ? `It is ${message}.` : "It is the value of GRAPEVINE_ADMIN_TOKEN on this router.";
}
