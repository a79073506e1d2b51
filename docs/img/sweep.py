#!/usr/bin/env python3
"""Draws the sweeps of docs/routing.md: `sweep.py GRAPEVINE CONV SESSIONS OUT_DIR`.

Runs `GRAPEVINE replay` once per point (two at a time) and writes one SVG per sweep. Same seed, same pictures.
"""
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

BINARY, TRACES, OUT = sys.argv[1].split(), {"conv": sys.argv[2], "sessions": sys.argv[3]}, sys.argv[4]
COLOURS = ["#2a78c2", "#c0392b", "#27924e", "#8e5ab5", "#7f8c8d"]
CUT = "--routers 8 --loss 1"


def replay(point):
    trace, flags = point
    run = subprocess.run([*BINARY, "replay", TRACES[trace], "--json", *flags.split()], capture_output=True, check=True)
    return json.loads(run.stdout)


def series(trace, name, flag, values, rest=""):
    return {"trace": trace, "name": name, "points": [(v, f"{flag} {v} {rest}") for v in values]}


WEIGHTS = [2, 4, 6, 8, 10, 12, 16, 24, 32]
SHARES = [0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1]
HEALTHY = [("", "5 %"), ("--cache 2%", "2 %")]
BOTH = list(TRACES)
SWEEPS = {
    "prefix-weight": ("weight of an uncached token", "linear", [
        series(t, f"{t}, caches {n}", "--prefix", WEIGHTS, x) for t in BOTH for x, n in HEALTHY]),
    "home": ("home, spread as large; cut: 8 routers that hear nothing", "linear", [
        {"trace": t, "name": f"{t}{n}", "points": [(v, f"--home {v} --spread {v} {x}") for v in SHARES]}
        for t in BOTH for x, n in [("", ""), (CUT, ", cut")]]),
    "spread": ("spread at the default home; cut: 8 routers that hear nothing", "linear", [
        series(t, f"{t}{n}", "--spread", SHARES, x) for t in BOTH for x, n in [("", ""), (CUT, ", cut")]]),
    "capacity": ("cache size believed, times the true one (caches 2 %)", "log", [
        series(t, t, "--capacity-error", [0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8], "--cache 2%") for t in BOTH]),
    "cache": ("cache of each of 8 replicas, % of the working set", "log", [
        {"trace": t, "name": f"{t}, {p}", "points": [(v, f"--cache {v}% --policy {p}") for v in [0.5, 1, 1.5, 2, 3, 5, 10]]}
        for t in ["conv"] for p in ["affinity", "llm-d", "sglang", "bounded-hash"]]),
    "replicas": ("replicas (caches 5 % each)", "log", [
        series(t, f"{t}, {p}", "--replicas", [2, 4, 8, 16, 32], f"--policy {p}") for t in BOTH for p in ["affinity", "llm-d"]]),
    "staleness": ("age of everything 4 routers hear of each other, s", "log", [
        {"trace": t, "name": t, "points": [(v, f"--routers 4 --tree-delay {v}s --load-delay {v}s") for v in [0.1, 0.25, 0.5, 1, 2, 5, 10]]}
        for t in BOTH]),
}
for trace in BOTH:
    SWEEPS[f"routers-{trace}"] = (f"routers ({trace}, 8 replicas, caches 5 %)", "log", [
        series(trace, "affinity", "--routers", [1, 2, 4, 8]),
        series(trace, "affinity, cut", "--routers", [1, 2, 4, 8], "--loss 1"),
        series(trace, "llm-d", "--routers", [1, 2, 4, 8], "--policy llm-d"),
        series(trace, "sglang", "--routers", [1, 2, 4, 8], "--policy sglang"),
        series(trace, "bounded-hash", "--routers", [1, 2, 4, 8], "--policy bounded-hash")])


def scale(values, log, low, high):
    import math
    f = (lambda v: math.log(max(v, 1e-9))) if log else float
    a, b = f(min(values)), f(max(values))
    return lambda v: low + (f(v) - a) / ((b - a) or 1) * (high - low)


def panel(out, left, title, xs, log, lines, top_at_least):
    """One chart: x positions are the swept values, y from the smallest to the largest value seen."""
    bottom, top, right = 210, 44, left + 300
    values = [y for _, ys in lines for y in ys]
    low, high = min(values), max(max(values), top_at_least)
    pad = (high - low or 1) * 0.08
    y_of = lambda y: bottom - (y - low + pad) / (high - low + 2 * pad) * (bottom - top)
    x_of = scale(xs, log, left + 8, right - 8)
    out.append(f'<text x="{left}" y="34">{title}</text>')
    out.append(f'<rect x="{left}" y="{top}" width="300" height="{bottom - top}" fill="none" stroke="#ccc"/>')
    for i in range(4):
        y = low + (high - low) * i / 3
        out.append(f'<line x1="{left}" x2="{right}" y1="{y_of(y):.1f}" y2="{y_of(y):.1f}" stroke="#eee"/>')
        out.append(f'<text x="{left - 5}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
    for x in xs:
        out.append(f'<text x="{x_of(x):.1f}" y="224" text-anchor="middle" font-size="10">{x:g}</text>')
    for colour, (_, ys) in zip(COLOURS, lines):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in zip(xs, ys))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        out.extend(f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.2" fill="{colour}"/>' for x, y in zip(xs, ys))


def draw(name, label, log, lines):
    xs = [x for x, _ in lines[0]["points"]]
    height = 252 + 16 * ((len(lines) + 2) // 3)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 {height}" width="740" height="{height}" '
           'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>']
    out.append(f'<text x="10" y="16" font-weight="bold">{label}</text>')
    hits = [(s["name"], [100 * r["share_of_bound"] for r in s["reports"]]) for s in lines]
    ttft = [(s["name"], [r["ttft_mean_s"] for r in s["reports"]]) for s in lines]
    panel(out, 50, "hits, % of one pooled cache", xs, log == "log", hits, 100)
    panel(out, 425, "mean time to first token, s", xs, log == "log", ttft, 0)
    for i, (colour, s) in enumerate(zip(COLOURS, lines)):
        x, y = 50 + 230 * (i % 3), 244 + 16 * (i // 3)
        out.append(f'<rect x="{x}" y="{y - 8}" width="12" height="4" fill="{colour}"/><text x="{x + 18}" y="{y - 2}">{s["name"]}</text>')
    out.append("</svg>\n")
    with open(f"{OUT}/{name}.svg", "w") as file:
        file.write("\n".join(out))


def main():
    only = sys.argv[5:] or list(SWEEPS)
    with ThreadPoolExecutor(2) as pool:
        for name in only:
            label, log, lines = SWEEPS[name]
            points = [(s["trace"], flags) for s in lines for _, flags in s["points"]]
            reports = iter(pool.map(replay, points))
            for s in lines:
                s["reports"] = [next(reports) for _ in s["points"]]
                for (value, _), r in zip(s["points"], s["reports"]):
                    print(f'{name:15} {s["name"]:24} {value:>6} {100 * r["share_of_bound"]:7.2f} % {r["ttft_mean_s"]:8.3f} s '
                          f'work {r["work_imbalance"]:.3f} {r["gossip_bytes_per_request"]:.1f} B')
            draw(name, label, log, lines)


main()
