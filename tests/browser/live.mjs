// The page of a real router: what it shows must be what its API says.
//   node live.mjs CHROMIUM ADMIN_URL
import assert from "node:assert/strict";
import { hasNoBarriers, isLive, launch, main, open, texts, until } from "./browser.mjs";

const [executable, admin] = process.argv.slice(2);
const browser = await launch(executable);
const { page, problems } = await open(browser, admin);
const api = async (path, init) => (await fetch(`${admin}/api/v1/${path}`, init)).json();
const whole = (n) => n.toLocaleString("en-US");
const column = (table, n) => texts(page, `#${table} tbody tr:not(.spacer) td:nth-child(${n})`);

await isLive(page);
const fleet = await api("fleet");
const status = await api("status");

await main({
  async totals() {
    const requests = Object.values(fleet.totals.requests).reduce((sum, n) => sum + n, 0);
    assert.ok(requests > 0, "there was traffic");
    const said = `${whole(requests)} since the start`;
    await until(page, (text) => document.querySelector("#figure-rate .note").textContent === text, said);
    assert.match(await page.locator("#who").textContent(), new RegExp(`${status.router.id}.*${status.router.policy}.*${status.router.version}`));
  },

  async replicas() {
    const names = await texts(page, "#replicas .replica span:last-child");
    assert.deepEqual(names.sort(), status.replicas.map((replica) => replica.name).sort());
    assert.deepEqual(new Set(await column("replicas", 2)), new Set(status.replicas.map((replica) => replica.health)));
    const hit = ({ tokens }) => `${((100 * tokens.reported_cached) / tokens.reported_prompt).toFixed(1)} %`;
    const shown = fleet.replicas.map((replica) => (replica.tokens.reported_prompt > 0 ? hit(replica) : "–"));
    assert.deepEqual((await column("replicas", 7)).sort(), shown.sort());
  },

  async routers() {
    const names = (await column("routers", 1)).map((text) => text.replace(" (this)", ""));
    assert.deepEqual(names.sort(), [status.router.id, ...status.peers.map((peer) => peer.name)].sort());
    assert.deepEqual(new Set(await column("routers", 2)), new Set(["serving"]));
    assert.equal(await page.locator("#graph line.link").count(), 1);
  },

  async hitRates() {
    const sum = (field) => fleet.points.reduce((total, point) => total + point[field], 0);
    assert.equal(sum("reported_cached"), fleet.totals.tokens.reported_cached, "all traffic was within the last ten minutes");
    const shares = await page.locator("#rates").getAttribute("aria-label");
    const share = `${((100 * sum("reported_cached")) / sum("reported_prompt")).toFixed(1)} %`;
    assert.ok(shares.includes(`reported ${share}`), `${shares} does not say ${share}`);
  },

  async prefixes() {
    const tree = await api("tree?limit=256");
    await page.locator("#prefixes g").first().waitFor();
    await page.locator("#prefixes-table-toggle").click();
    const hashes = await texts(page, "#prefixes-table tbody td:first-child");
    assert.deepEqual(hashes.sort(), tree.nodes.map((node) => node.hash).sort());
  },

  async decisions() {
    const { decisions } = await api("decisions?limit=50");
    await until(page, (count) => document.querySelectorAll(".decision").length >= count, decisions.length);
    const reasons = await texts(page, ".decision .reason");
    assert.deepEqual(reasons.slice(0, decisions.length), decisions.map((decision) => decision.reason.replace("_", " ")));
    await page.locator(".decision button").first().click();
    const candidates = await texts(page, ".decision .votes tbody td:first-child");
    assert.equal(candidates.length, decisions[0].candidates.length);
    assert.ok(candidates.some((text) => text.includes(decisions[0].replica) && text.includes("(chosen)")));
  },

  async explain() {
    const before = (await api("status")).decisions;
    const body = JSON.stringify({ model: "mock-model", messages: [{ role: "user", content: "Where would this go?" }] });
    await page.locator("#explain-body").fill(body);
    await page.locator("#explain button").click();
    await page.locator("#explain-answer .votes").waitFor();
    const answer = await api("explain?path=/v1/chat/completions", { method: "POST", headers: { "content-type": "application/json" }, body });
    assert.match(await page.locator("#explain-answer").textContent(), new RegExp(`0 of ${whole(answer.prompt_tokens)} tokens`));
    assert.deepEqual((await api("status")).decisions, before, "asking decides nothing");
    await page.locator("#explain-body").fill("{");
    await page.locator("#explain button").click();
    assert.match(await page.locator("#explain-answer .failed").textContent(), /no JSON/);
  },

  async nothingWentWrong() {
    await hasNoBarriers(page, "a real router's page");
    assert.deepEqual(problems, []);
  },
});

await browser.close();
process.exit(0);
