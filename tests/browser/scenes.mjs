// Fleets as the admin API describes them, drawn from a seed: for looking at the page in states that are hard
// to bring about, and for sizes that do not fit a test machine.

/** Small, fast, and the same everywhere. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const STEP_MS = 2000;

const hex = (rng) => Math.floor(rng() * 2 ** 32).toString(16).padStart(8, "0");

const SCENES = {
  full: { routers: 3, replicas: 6 },
  empty: { routers: 1, replicas: 2, idle: true },
  degraded: { routers: 4, replicas: 6, broken: true },
  named: { routers: 4, replicas: 4, broken: true, prefix: "grapevine-router-7f9c4d-abc" },
  down: { routers: 2, replicas: 3, down: true },
  large: { routers: 32, replicas: 200 },
};

export const names = Object.keys(SCENES);

export class Scene {
  constructor(name, seed = 7) {
    Object.assign(this, { idle: false, broken: false, down: false, prefix: "r" }, SCENES[name]);
    this.rng = random(seed);
    this.seq = 40_000;
    this.lean = Array.from({ length: this.replicas }, () => 0.75 + this.rng() * 0.5);
    this.startedAt = 1_790_000_000_000;
    this.tick = 0;
    this.treeOnce = this.makeTree();
  }

  now() {
    return this.startedAt + this.tick * STEP_MS;
  }

  replicaName(i) {
    return `10.0.${4 + Math.floor(i / 100)}.${11 + (i % 100)}:8000`;
  }

  routerName(i) {
    return `${this.prefix}${i + 1}`;
  }

  /** Cache warming up over the first minute, then about 90 %; a dip when a cache was lost. */
  hit(i) {
    const warm = 0.9 * (1 - Math.exp(-(i + 4) / 9)) + (this.rng() - 0.5) * 0.02;
    const lost = this.broken && i > 250 ? 0.34 * Math.exp(-(i - 250) / 22) : 0;
    return Math.max(0.02, warm - lost);
  }

  point(i) {
    const at_ms = this.startedAt + (i - 299) * STEP_MS;
    if (this.idle || (this.down && i > 280)) return { at_ms, requests: 0, prompt: 0, predicted_cached: 0, random_cached: 0, reported_prompt: 0, reported_cached: 0 };
    const requests = Math.round(90 * this.routers ** 0.5 * (0.9 + this.rng() * 0.2));
    const prompt = requests * 2100;
    const hit = this.hit(i);
    const predicted = Math.round(prompt * Math.min(0.97, hit + 0.012 + (this.broken && i > 250 ? 0.2 * Math.exp(-(i - 250) / 9) : 0)));
    const chance = 0.29 * (1 - Math.exp(-(i + 2) / 12)) + (this.rng() - 0.5) * 0.02;
    return { at_ms, requests, prompt, predicted_cached: predicted, random_cached: Math.round(prompt * Math.max(0, chance)), reported_prompt: prompt, reported_cached: Math.round(prompt * hit) };
  }

  points() {
    if (this.idle) return Array.from({ length: 8 }, (_, i) => this.point(292 + i));
    this.memory ??= Array.from({ length: 300 }, (_, i) => this.point(i));
    return this.memory;
  }

  tokens(prompt, hit) {
    const zero = this.idle ? 0 : 1;
    return {
      prompt: zero * prompt,
      predicted_cached: zero * Math.round(prompt * (hit + 0.01)),
      reported_prompt: zero * prompt,
      reported_cached: zero * Math.round(prompt * hit),
      random_cached: zero * Math.round(prompt * 0.28),
    };
  }

  router(i) {
    const reached = !(this.broken && i === 3);
    const requests = this.idle || !reached ? 0 : 20_000 + i * 137 + this.tick * (60 + i);
    return {
      name: this.routerName(i), self: i === 0, reached, error: reached ? null : "unreachable", live: reached,
      phase: this.broken && i === 2 ? "draining" : "serving", version: "0.1.0", policy: "affinity", mode: "route",
      admin_url: `http://10.0.1.${i + 1}:9090`, listen: `10.0.1.${i + 1}:8080`, uptime_seconds: 4 * 3600 + 754,
      inflight: this.idle ? 0 : Math.round(this.rng() * 9), waiting: 0, requests_total: requests, failed_total: 0,
      lookups: requests, hits: Math.round(requests * 0.93), tokens: this.tokens(requests * 2100, 0.9),
      tree: { nodes: this.idle ? 0 : 18_400 + i * 3, boundaries: 91_000, bytes: 7_400_000, evicted: 0 },
      gossip: {
        running: true, sealed: true, bytes_sent: this.tick * (2400 + i * 90), bytes_received: this.tick * 2300, agreement: this.routers > 1 ? 0.985 : 1,
        level_pairs: (this.routers - 1) ** 2 - (this.routers > 3 ? 1 : 0), pairs: (this.routers - 1) ** 2, rejected_total: 0, strained: false,
      },
      requests_per_second: null, bytes_per_second: null,
    };
  }

  links() {
    const links = [];
    for (let a = 0; a < this.routers; a += 1) {
      for (let b = 0; b < this.routers; b += 1) {
        if (a === b || (this.broken && a === 3)) continue;
        const gone = this.broken && b === 3;
        const slow = (this.broken && b === 2 && a === 1) || (this.routers > 20 && b === 17 && a < 4);
        links.push({ from: this.routerName(a), to: this.routerName(b), live: !gone, lag_ms: slow ? 3400 : Math.round(20 + this.rng() * 140), heard_ms_ago: gone ? 94_000 : 180, missed: 0, entries: 900, taught_tokens: 0, taught_share: null });
      }
    }
    return links;
  }

  replica(i) {
    const bad = this.down || (this.broken && i === 4);
    const suspect = this.broken && i === 1;
    const share = (this.lean[i] + (this.rng() - 0.5) * 0.1) / this.lean.reduce((a, b) => a + b, 0);
    const busy = this.idle || bad ? 0 : 1;
    const unsaid = this.replicas > 20 && i % 9 === 5;
    return {
      name: this.replicaName(i), url: `http://${this.replicaName(i)}`, id: hex(this.rng), health: bad ? "unreachable" : suspect ? "suspect" : "up",
      drain: false, inflight: busy * Math.round(2 + this.rng() * 8 * this.lean[i]), queued_tokens: busy * Math.round(this.rng() * 5200 * this.lean[i] ** 3),
      picks: busy * 9000, share: this.idle || this.down ? null : bad ? 0 : share, tokens: this.tokens(9000 * 2100, 0.86 + this.rng() * 0.07),
      credit_error_tokens: this.idle ? null : Math.round((this.rng() - 0.45) * 90 + (suspect ? 620 : 0)),
      capacity_tokens: unsaid ? null : 276_000, capacity_source: unsaid ? "default" : "engine", lost_caches: suspect ? 1 : 0, epoch: suspect ? 2 : 1,
      engine: unsaid
        ? { kind: "plain", age_ms: null, waiting: null, running: null, kv_use: null, cache_tokens: null }
        : { kind: i % 3 === 2 ? "sglang" : "vllm", age_ms: 900, waiting: 0, running: busy * 4, kv_use: this.idle ? 0 : bad ? null : Math.min(0.97, 0.38 + this.lean[i] * 0.3 + this.rng() * 0.05), cache_tokens: 184_000 },
    };
  }

  warnings() {
    const warn = (code, level, router, subject, ago, text) => ({ code, level, router, subject, since_ms: ago === null ? null : this.now() - ago, text });
    if (this.idle) return [warn("no_secret", "info", "r1", null, null, "gossip has no secret, so it stays on loopback: set GRAPEVINE_CLUSTER_SECRET_FILE on every router to form a fleet")];
    if (this.down) return [1, 2].map((i) => warn("all_replicas_down", "error", `r${i}`, null, 41_000, "no replica answers: requests are refused until one does; look at the engines first"));
    if (this.broken) {
      return [
        warn("replica_down", "error", "r1", this.replicaName(4), 240_000, `replica ${this.replicaName(4)} is unreachable: its share goes to the others; look at the engine`),
        warn("peer_lost", "warn", "r1", "r4", 94_000, "router r4 has not been heard of: what it knew stays and ages; look whether it runs"),
        warn("peer_lost", "warn", "r2", "r4", 93_000, "router r4 has not been heard of: what it knew stays and ages; look whether it runs"),
        warn("cache_lost", "warn", "r1", this.replicaName(1), 101_000, `replica ${this.replicaName(1)} lost its cache: its credit was dropped and is being learnt again`),
        warn("guard_firing", "info", "r2", this.replicaName(0), 12_000, `the imbalance guard holds back ${this.replicaName(0)}: one prefix is hotter than one replica can serve`),
      ];
    }
    return this.routers > 20 ? [warn("capacity_unknown", "info", "r1", null, null, "22 replicas do not state the size of their cache: a default is assumed until answers teach it")] : [];
  }

  fleet(first) {
    const points = this.points();
    if (!first) {
      const next = { ...this.point(290), at_ms: points.at(-1).at_ms + STEP_MS };
      points.push(next);
      points.shift();
    }
    this.tick += 1;
    const routers = Array.from({ length: this.routers }, (_, i) => this.router(i));
    const requests = routers.reduce((sum, router) => sum + router.requests_total, 0);
    const failed = this.broken ? 212 : this.down ? 900 : 0;
    const part = (share) => Math.round(requests * share);
    return {
      at_ms: points.at(-1).at_ms, asked: "r1", step_ms: STEP_MS, routers, links: this.links(),
      replicas: Array.from({ length: this.replicas }, (_, i) => this.replica(i)),
      totals: {
        inflight: routers.reduce((sum, router) => sum + router.inflight, 0), waiting: 0,
        requests: { ok: requests, client_error: 0, engine_error: failed, client_closed: this.idle ? 0 : 41, refused: 0 },
        decisions: { affinity: part(0.84), home: part(0.09), load: part(0.03), spill: part(0.035), guard: part(0.005), only: 0, no_key: 0, policy: 0 },
        lookups: requests, hits: part(0.93), tokens: this.tokens(requests * 2100, 0.896), shadow: null,
      },
      warnings: this.warnings(), points: first ? points : points.slice(-1),
    };
  }

  decision() {
    const draw = this.rng();
    const reason = draw < 0.8 ? "affinity" : draw < 0.9 ? "home" : draw < 0.97 ? "spill" : "guard";
    const prompt = Math.round(400 + this.rng() ** 2 * 7800);
    const best = reason === "home" ? 0 : Math.round(prompt * (0.55 + this.rng() * 0.43));
    const shown = Math.min(16, this.replicas);
    const winner = Math.floor(this.rng() * this.replicas);
    const matched = reason === "spill" || reason === "guard" ? Math.round(best * this.rng() * 0.5) : best;
    const candidates = Array.from({ length: shown }, (_, rank) => this.candidate(rank, (winner + rank) % this.replicas, prompt, rank === 0 ? matched : rank === 1 && matched < best ? best : 0));
    candidates.sort((a, b) => a.total - b.total);
    for (const candidate of candidates) candidate.won = candidate.replica === this.replicaName(winner);
    this.seq += 1;
    return {
      seq: this.seq, at_ms: this.now() + Math.round(this.rng() * 500), router: `r${1 + (this.seq % Math.min(3, this.routers))}`, path: "/v1/chat/completions", api: "chat",
      model: "llama-3.3-70b", reason, replica: this.replicaName(winner), prompt_tokens: prompt, matched_tokens: matched, best_matched_tokens: best,
      teacher: matched === 0 ? null : this.rng() < 0.4 || this.routers === 1 ? "own" : `r${2 + Math.floor(this.rng() * Math.min(2, this.routers - 1))}`,
      guarded: reason === "guard" ? this.replicaName((winner + 1) % this.replicas) : null, tied: 1, decision_us: 9 + Math.round(this.rng() * 14),
      outcome: "ok", reported_cached_tokens: Math.max(0, matched - Math.round(this.rng() * 20)), candidates_total: this.replicas, candidates,
      lookup: "answered", attempt: 1, request_id: null, trace_id: null,
    };
  }

  candidate(rank, i, prompt, matched) {
    const spread = rank === 0 ? 0 : Math.round(this.rng() * 400);
    const votes = { prefix: (prompt - matched) * 12, queue: Math.round(this.rng() * 1800), inflight: 64 * Math.round(this.rng() * 9), kv: 0, home: rank === 0 && matched === 0 ? -Math.round(prompt * 1.8) : 0, spread };
    const total = Object.values(votes).reduce((a, b) => a + b, 0);
    return { replica: this.replicaName(i), matched_tokens: matched, total, votes, inflight: votes.inflight / 64, queued_tokens: votes.queue, standing: "up", won: false };
  }

  decisions(count) {
    const list = this.idle || this.down ? [] : Array.from({ length: count }, () => this.decision());
    return { decisions: list.sort((a, b) => b.at_ms - a.at_ms || b.seq - a.seq), skipped: 0 };
  }

  makeTree() {
    const nodes = [];
    if (this.idle) return { nodes_total: 0, boundaries_total: 0, tokens_shown: 0, nodes };
    const holders = () => {
      const first = Math.floor(this.rng() * this.replicas);
      const more = this.rng() < 0.3 ? [{ name: this.replicaName((first + 1) % this.replicas), count: 1 + Math.round(this.rng() * 9) }] : [];
      return [{ name: this.replicaName(first), count: 4 + Math.round(this.rng() * 60) }, ...more];
    };
    const grow = (parent, depth, tokens, level) => {
      const at = nodes.length;
      const own = Math.max(16, Math.round(tokens * (level === 0 ? 0.35 : 0.1 + this.rng() * 0.25)));
      nodes.push({ hash: hex(this.rng), parent, depth_bytes: (depth + own) * 4, depth_tokens: depth + own, tokens: own, weight_tokens: own, count: 9, replicas: holders() });
      const children = level > 5 || nodes.length > 230 ? 0 : Math.floor(this.rng() * (level === 0 ? 7 : 4)) + (level < 2 ? 2 : 0);
      for (let i = 0; i < children; i += 1) nodes[at].weight_tokens += grow(at, depth + own, (tokens - own) * (0.25 + this.rng() * 0.9), level + 1);
      return nodes[at].weight_tokens;
    };
    for (const tokens of [5200, 3800, 2900, 1800, 900]) grow(null, 0, tokens, 0);
    return { nodes_total: 18_422, boundaries_total: 91_031, tokens_shown: 60_000, nodes };
  }

  tree() {
    return this.treeOnce;
  }
}
