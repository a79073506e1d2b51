// What the page knows: the fleet, its hit rates over time, and rates derived from its counters.

/** Points kept: 10 minutes of 2 s. */
const MAX_POINTS = 300;

/** Window of the shown hit rates: a single step is too noisy to read. */
const SMOOTH_MS = 10_000;

/** "Now" in the summary. */
const MINUTE_MS = 60_000;

/** Window of rates derived from counters. */
const RATE_MS = 12_000;

const ratio = (part, all) => (all > 0 ? part / all : null);

const FIELDS = ["requests", "prompt", "predicted_cached", "random_cached", "reported_prompt", "reported_cached"];

function addPoint(sum, point, sign) {
  for (const field of FIELDS) sum[field] += sign * (point[field] ?? 0);
}

const nothing = () => Object.fromEntries(FIELDS.map((field) => [field, 0]));

const sharesOf = (sum) => ({
  predicted: ratio(sum.predicted_cached, sum.prompt),
  random: ratio(sum.random_cached, sum.prompt),
  reported: ratio(sum.reported_cached, sum.reported_prompt),
});

/** Counters over time, and what they grew by per second. */
class Rates {
  #seen = new Map();

  note(key, atMs, values) {
    const samples = this.#seen.get(key) ?? [];
    const last = samples.at(-1);
    // A counter that fell belongs to another process.
    const fell = last && Object.keys(values).some((name) => values[name] < last.values[name]);
    const kept = fell ? [] : samples.filter((sample) => atMs - sample.atMs <= RATE_MS && sample.atMs < atMs);
    kept.push({ atMs, values });
    this.#seen.set(key, kept);
  }

  of(key, name) {
    const samples = this.#seen.get(key) ?? [];
    const [first, last] = [samples[0], samples.at(-1)];
    if (!first || first === last) return null;
    return ((last.values[name] - first.values[name]) * 1000) / (last.atMs - first.atMs);
  }

  retain(keys) {
    for (const key of this.#seen.keys()) if (!keys.has(key)) this.#seen.delete(key);
  }
}

export class Model {
  fleet = null;
  points = [];
  #rates = new Rates();

  /** Takes a fleet, whose points are all or only the new ones. */
  take(fleet) {
    this.fleet = fleet;
    const last = this.points.at(-1)?.at_ms ?? -Infinity;
    this.points.push(...fleet.points.filter((point) => point.at_ms > last));
    this.points.splice(0, Math.max(0, this.points.length - MAX_POINTS));
    for (const router of fleet.routers) {
      if (!router.reached) continue;
      const { requests_total: requests, gossip } = router;
      this.#rates.note(router.name, fleet.at_ms, { requests, bytes: gossip.bytes_sent });
    }
    this.#rates.retain(new Set(fleet.routers.map((router) => router.name)));
  }

  /** Requests per second of a router. */
  requestRate(router) {
    return router.reached ? this.#rates.of(router.name, "requests") : null;
  }

  /** Gossip bytes per second that a router sends. */
  gossipRate(router) {
    return router.reached ? this.#rates.of(router.name, "bytes") : null;
  }

  /** The last minute: shares, tokens and requests; `null` where there was no traffic. */
  lastMinute() {
    const until = this.points.at(-1)?.at_ms ?? 0;
    const lately = this.points.filter((point) => until - point.at_ms < MINUTE_MS);
    const sum = nothing();
    for (const point of lately) addPoint(sum, point, 1);
    const seconds = (lately.length * (this.fleet?.step_ms ?? 0)) / 1000;
    return {
      ...sharesOf(sum),
      sum,
      seconds,
      requestsPerSecond: ratio(sum.requests, seconds),
      savedPerSecond: ratio(sum.reported_cached, seconds),
    };
  }

  /** Hit rates over time: `{ atMs, predicted, reported, random, requestsPerSecond }`. */
  curve() {
    const step = this.fleet?.step_ms ?? 2000;
    const width = Math.max(1, Math.round(SMOOTH_MS / step));
    const sum = nothing();
    return this.points.map((point, i) => {
      addPoint(sum, point, 1);
      if (i >= width) addPoint(sum, this.points[i - width], -1);
      const seconds = (Math.min(i + 1, width) * step) / 1000;
      return { atMs: point.at_ms, ...sharesOf(sum), requestsPerSecond: sum.requests / seconds };
    });
  }

  /** Whether anything was ever asked of this fleet. */
  get idle() {
    const requests = this.fleet?.totals.requests ?? {};
    return Object.values(requests).every((count) => count === 0);
  }
}
