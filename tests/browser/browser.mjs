// A headless Chromium, and pages in it that remember what went wrong.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const launch = (executablePath) =>
  // Without its sandbox, which needs rights that containers do not give; the pages are our own.
  chromium.launch({ executablePath, args: ["--no-sandbox"] });

/** A page at `url`; `problems` are console errors, exceptions and breaches of its policy. */
export async function open(browser, url, { width = 1440, height = 1000, theme = "light" } = {}) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce" });
  const problems = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(error.stack));
  await page.goto(`${url}/`);
  return { page, problems };
}

/** Waits until `condition` holds in the page. */
export const until = (page, condition, argument) => page.waitForFunction(condition, argument, { timeout: 30_000 });

export const isLive = (page) => until(page, () => document.body.dataset.live === "live" && document.querySelector(".figure dd span").textContent !== "");

/** What axe finds wrong for people with keyboards and screen readers. */
export async function barriers(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target.join(" ")}: ${node.failureSummary}`));
}

export async function hasNoBarriers(page, what) {
  const found = await barriers(page);
  assert.deepEqual(found, [], `${what}:\n${found.join("\n")}`);
}

/** Nothing is wider than the window. */
export async function fits(page, what) {
  const [inner, outer] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(inner <= outer, `${what}: ${inner} px in a window of ${outer} px`);
}

export const texts = (page, selector) => page.locator(selector).allTextContents();

export async function main(checks) {
  for (const [name, check] of Object.entries(checks)) {
    await check();
    console.log(`page: ${name}`);
  }
}
