// The page in states that are hard to bring about: empty, degraded, down, large, lost, signed out.
//   node states.mjs CHROMIUM [FOLDER FOR PICTURES]
import assert from "node:assert/strict";
import { join } from "node:path";
import { fits, hasNoBarriers, isLive, launch, main, open, texts, until } from "./browser.mjs";
import { serve } from "./serve.mjs";

const [executable, pictures] = process.argv.slice(2);
const browser = await launch(executable);

/** Opens a scene, checks it with `look`, and closes it. */
async function scene(name, options, look) {
  const router = await serve(0, name, options);
  const { page, problems } = await open(browser, router.url, options);
  try {
    await look(page, router);
    assert.deepEqual(problems, [], `${name}: problems`);
  } finally {
    await page.close();
    router.close();
  }
}

const picture = (page, name) => pictures && page.screenshot({ path: join(pictures, `${name}.png`) });

async function allWell(page, what) {
  await isLive(page);
  await hasNoBarriers(page, what);
  await fits(page, what);
}

/** Where Tab stops, from the top to the end: what it is, whether it is in sight, and whether it is marked. */
async function tabStops(page) {
  const stops = [];
  for (;;) {
    await page.keyboard.press("Tab");
    // Scrolling follows the focus.
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    const stop = await page.evaluate(() => {
      const at = document.activeElement;
      if (at === null || at === document.body) return null;
      const box = at.getBoundingClientRect();
      const seen = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
      const marked = (element) => getComputedStyle(element).outlineStyle !== "none";
      const ring = marked(at) || (at.tagName === "g" && getComputedStyle(at.querySelector(".block")).strokeWidth === "2px");
      return { text: at.textContent.trim().slice(0, 40), in: at.closest(".decision")?.parentElement.id ?? null, seen, ring };
    });
    if (stop === null) return stops;
    stops.push(stop);
    assert.ok(stops.length < 200, "Tab comes to an end");
  }
}

/** Labels that the graph has at any width: two for each router, and all links' lags but those there is no room for. */
const SHOWN = { empty: 2, down: 5, full: 9, degraded: 12, named: 12 };

/** Labels of the graph: how many, and which of them cover another, a router, or leave the picture. */
function labels(page) {
  return page.evaluate(() => {
    const box = (element) => ({ name: element.textContent || element.parentElement.querySelector("title")?.textContent, ...element.getBoundingClientRect().toJSON() });
    const texts = [...document.querySelectorAll("#graph text")].map(box);
    const discs = [...document.querySelectorAll("#graph .disc")].map(box);
    const picture = document.querySelector("#graph svg").getBoundingClientRect();
    // Two lines of one label are as close as lines are: a pixel of room around letters is nobody's.
    const meet = (a, b) => a.left < b.right - 1.5 && b.left < a.right - 1.5 && a.top < b.bottom - 1.5 && b.top < a.bottom - 1.5;
    const outside = (a) => a.left < picture.left - 1 || a.right > picture.right + 1 || a.top < picture.top - 1 || a.bottom > picture.bottom + 1;
    const pairs = texts.flatMap((a, i) => [...texts.slice(i + 1), ...discs].filter((b) => meet(a, b)).map((b) => `${a.name} covers ${b.name}`));
    return { count: texts.length, covered: [...pairs, ...texts.filter(outside).map((a) => `${a.name} is cut`)] };
  });
}

/** What can be pressed and is smaller than WCAG 2.2 asks for (2.5.8); prefixes are in the table beside them too. */
const smallTargets = (page) =>
  page.evaluate(() =>
    [...document.querySelectorAll("a[href], button, select, input, textarea")]
      .filter((element) => element.checkVisibility({ visibilityProperty: true }) && !element.matches(".skip"))
      .map((element) => ({ text: element.textContent.trim().slice(0, 30) || element.id, ...element.getBoundingClientRect().toJSON() }))
      .filter(({ width, height }) => width < 24 || height < 24)
      .map(({ text, width, height }) => `${text}: ${width} x ${height}`),
  );

/** What a name stands for in each theme. */
const inBothThemes = (name, height) => async () => {
  for (const theme of ["light", "dark"]) {
    await scene(name, { theme, height }, async (page) => {
      await allWell(page, `${name}, ${theme}`);
      await picture(page, `page-${name}-${theme}`);
    });
  }
};

await main({
  full: inBothThemes("full", 1000),
  empty: inBothThemes("empty", 900),
  degraded: inBothThemes("degraded", 1080),
  down: inBothThemes("down", 900),

  async aFewHundredReplicasCostAsMuchAsAFew() {
    await scene("large", { height: 1200 }, async (page) => {
      await allWell(page, "large");
      const rows = (await page.locator("#replicas tbody tr:not(.spacer)").count()) + (await page.locator("#routers tbody tr:not(.spacer)").count());
      assert.ok(rows < 60, `${rows} rows are drawn of 232`);
      assert.equal(await page.locator("#graph circle.disc").count(), 32);
      await page.locator("#replicas .grid-scroll").evaluate((scroll) => scroll.scrollTo(0, 1e6));
      await until(page, () => document.querySelector("#replicas tbody").textContent.includes("10.0.5.110:8000"));
      await page.locator("#replicas-find input").fill("10.0.4.50");
      await until(page, () => document.querySelectorAll("#replicas tbody tr:not(.spacer)").length === 1);
      await picture(page, "page-large-light");
    });
  },

  async narrowWindows() {
    for (const width of [360, 400, 760, 1100]) await scene("degraded", { width }, (page) => allWell(page, `${width} px`));
  },

  async nothingIsTooSmallToHitAndNoLabelCoversAnother() {
    for (const name of ["empty", "down", "full", "degraded", "named", "large"]) {
      for (const width of [360, 800, 1400]) {
        const what = `${name}, ${width} px`;
        await scene(name, { width }, async (page) => {
          await isLive(page);
          await page.locator("#graph svg").waitFor();
          const { count, covered } = await labels(page);
          assert.deepEqual(covered, [], what);
          assert.ok(name === "large" ? count > 0 : count >= SHOWN[name], `${what}: ${count} labels`);
          assert.deepEqual(await smallTargets(page), [], what);
          if (pictures) await page.locator("section", { has: page.locator("#graph") }).screenshot({ path: join(pictures, `routers-${name}-${width}.png`) });
        });
      }
    }
  },

  async decisionsOpenToTheirVotesAndStayPut() {
    await scene("full", {}, async (page) => {
      await isLive(page);
      const shown = () => page.locator(".decision").evaluateAll((rows) => rows.map((row) => row.getAttribute("aria-label")));
      await page.locator(".decision button").nth(2).click();
      await page.locator(".votes").waitFor();
      assert.equal(await page.locator(".votes tbody tr").count(), 6);
      assert.equal(await page.locator(".votes tr.won").count(), 1);
      const before = await shown();
      await until(page, () => !document.querySelector(".fresh").hidden);
      assert.deepEqual(await shown(), before, "the list must not move while it is read");
      await hasNoBarriers(page, "an open decision");
      await page.locator(".fresh").click();
      await until(page, (old) => document.querySelector(".decision").getAttribute("aria-label") !== old, before[0]);
      await page.locator("#decisions-reason").selectOption("spill");
      const reasons = new Set(await texts(page, ".decision .reason"));
      assert.deepEqual([...reasons], ["spill"]);
    });
  },

  async theKeyboardReachesAllOfIt() {
    await scene("full", {}, async (page) => {
      await isLive(page);
      await page.locator("#prefixes g").first().waitFor();
      await page.keyboard.press("Tab");
      assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
      await page.locator("#rates").focus();
      await page.keyboard.press("ArrowLeft");
      assert.match(await page.locator("#rates .unseen").textContent(), /reported \d/);
      await page.keyboard.press("Escape");
      await page.locator('#prefixes g[tabindex="0"]').focus();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await until(page, () => !document.getElementById("prefixes-out").hidden);
      await page.keyboard.press("Escape");
      await until(page, () => document.getElementById("prefixes-out").hidden);
      for (const id of ["rates-table", "prefixes-table"]) {
        await page.locator(`#${id}-toggle`).focus();
        await page.keyboard.press("Enter");
        assert.ok((await page.locator(`#${id} tbody tr`).count()) > 10, `${id} says the same as the drawing`);
      }
      await hasNoBarriers(page, "tables open");
      await page.locator("#replicas th button", { hasText: "In flight" }).press("Enter");
      const sorted = (await texts(page, "#replicas tbody tr:not(.spacer) td:nth-child(3)")).map(Number);
      assert.deepEqual(sorted, [...sorted].sort((a, b) => b - a));
    });
  },

  async tabPassesThroughLongTablesToTheEnd() {
    for (const width of [1440, 360]) {
      await scene("large", { width, height: 740, theme: "dark" }, async (page) => {
        await allWell(page, `large, ${width} px`);
        await page.locator("#prefixes g").first().waitFor();
        const stops = await tabStops(page);
        const links = stops.filter((stop) => /^r\d+$/.test(stop.text)).map((stop) => stop.text);
        assert.deepEqual(links, Array.from({ length: 31 }, (_, i) => `r${i + 2}`), "every router, in order");
        assert.equal(stops.filter((stop) => stop.in === "decisions").length, 1, "one decision of many");
        assert.equal(stops.at(-1).text, "Explain");
        const unseen = stops.filter((stop) => !stop.seen || !stop.ring);
        assert.deepEqual(unseen, [], "each stop is in sight and marked");
      });
    }
  },

  async arrowKeysGoThroughDecisions() {
    await scene("full", {}, async (page) => {
      await isLive(page);
      await page.locator("#decisions").focus();
      await page.keyboard.press("Tab");
      const at = () => page.evaluate(() => [...document.querySelectorAll(".decision > button")].indexOf(document.activeElement));
      const name = () => page.evaluate(() => document.activeElement.parentElement.getAttribute("aria-label"));
      assert.equal(await at(), 0);
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowDown");
      assert.equal(await at(), 2);
      const read = await name();
      await until(page, () => !document.querySelector(".fresh").hidden);
      assert.deepEqual([await at(), await name()], [2, read], "the list waits");
      await page.keyboard.press("Enter");
      await page.locator(".decision .votes").waitFor();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Home");
      assert.equal(await at(), 0);
    });
  },

  async aLostStreamIsSaidAndComesBack() {
    const router = await serve(0, "full");
    const { page } = await open(browser, router.url);
    await isLive(page);
    router.cut();
    await until(page, () => document.body.dataset.live === "lost");
    assert.match(await page.locator("#warnings").textContent(), /No news: .*; what is shown is from \d\d:\d\d:\d\d/);
    assert.equal(await page.locator("#replicas tbody tr:not(.spacer)").count(), 6, "what was known stays");
    await picture(page, "page-lost-light");
    router.mend();
    await isLive(page);
    await until(page, () => document.getElementById("warnings").textContent === "");
    await page.close();
    router.close();
  },

  async pausedItStandsStill() {
    await scene("full", {}, async (page) => {
      await isLive(page);
      await page.locator("#pause").click();
      await until(page, () => document.body.dataset.live === "paused");
      const shown = () => page.evaluate(() => document.querySelector("main").textContent);
      const before = await shown();
      // Two more events of the scene, which sends one a second.
      await page.waitForTimeout(2200);
      assert.equal(await shown(), before);
      await page.locator("#pause").click();
      await until(page, (old) => document.querySelector("main").textContent !== old, before);
    });
  },

  async signingIn() {
    const router = await serve(0, "full", { token: "a token, long enough" });
    const { page } = await open(browser, router.url, { theme: "dark" });
    await page.locator("#sign-in[open]").waitFor();
    await hasNoBarriers(page, "signing in");
    await picture(page, "page-sign-in-dark");
    await page.locator("#sign-in-token").fill("a wrong one");
    await page.keyboard.press("Enter");
    await until(page, () => document.getElementById("sign-in-why").textContent === "That token was not accepted.");
    await page.locator("#sign-in-token").fill("a token, long enough");
    await page.keyboard.press("Enter");
    await isLive(page);
    assert.equal(await page.evaluate(() => localStorage.length), 0, "the token must not outlive the tab");
    await page.reload();
    await isLive(page);
    await page.locator("#sign-out").click();
    await page.locator("#sign-in[open]").waitFor();
    await page.close();
    router.close();
  },

  async theThemeCanBeChosen() {
    await scene("full", { theme: "light" }, async (page) => {
      const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const light = await back();
      await page.locator("#theme").click();
      assert.equal(await back(), light, "light, by choice");
      await page.locator("#theme").click();
      const dark = await back();
      assert.notEqual(dark, light);
      await page.reload();
      assert.equal(await back(), dark, "kept");
    });
  },
});

await browser.close();
process.exit(0);
