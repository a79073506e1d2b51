//! `cargo run --release -p grapevine-sim --example sweep -- OUT.svg NAME=TRACE[,flags]...`: every default
//! of the votes against its neighbours, on several traces, as one SVG and a table.
//!
//! Flags after a trace are those of `grapevine replay`, and hold for all runs on it. What docs/routing.md
//! shows was made with the first 6,000 requests of each trace and caches of 2 % of the working set (20 %
//! for the agents' traces, whose working sets are small).

use std::fmt::Write;

use clap::Parser;
use grapevine_sim::replay::rule::RuleName;
use grapevine_sim::replay::trace::Trace;
use grapevine_sim::replay::{ReplayArgs, world};

/// One default, its neighbours, and what to add to every run.
struct Sweep {
    title: &'static str,
    flag: &'static str,
    values: &'static [&'static str],
    default: &'static str,
    with: &'static [&'static str],
}

const fn sweep(
    title: &'static str,
    flag: &'static str,
    values: &'static [&'static str],
    default: &'static str,
) -> Sweep {
    Sweep { title, flag, values, default, with: &[] }
}

const FOUR: &[&str] = &["--routers", "4"];

const SWEEPS: &[Sweep] = &[
    sweep("prefix weight", "--prefix", &["4", "8", "12", "16", "24"], "12"),
    sweep("inflight weight", "--inflight", &["0", "64", "1024"], "64"),
    sweep("home", "--home", &["0", "0.15", "0.3", "0.6"], "0.15"),
    sweep("spread", "--spread", &["0", "0.15", "0.5", "2"], "0.15"),
    sweep("guard, absolute gap", "--guard-abs", &["1", "4", "8", "1000"], "8"),
    sweep("guard, relative gap", "--guard-rel", &["1", "1.5", "2", "4"], "1.5"),
    sweep("half-life of counts", "--half-life", &["15s", "120s", "600s"], "120s"),
    sweep("grace", "--grace", &["0s", "5s", "30s"], "5s"),
    sweep("capacity believed, times the true one", "--capacity-error", &["0.25", "0.5", "1", "2", "4"], "1"),
    Sweep {
        title: "age of load, 4 routers",
        flag: "--load-delay",
        values: &["50ms", "250ms", "1s", "5s"],
        default: "250ms",
        with: FOUR,
    },
    Sweep {
        title: "age of trees, 4 routers",
        flag: "--tree-delay",
        values: &["50ms", "250ms", "1s", "5s"],
        default: "250ms",
        with: FOUR,
    },
    Sweep {
        title: "home, 4 routers, gossip cut",
        flag: "--home",
        values: &["0", "0.15", "0.3", "0.6"],
        default: "0.15",
        with: &["--routers", "4", "--loss", "1"],
    },
];

#[derive(Parser)]
struct Cli {
    /// Where to draw.
    out: std::path::PathBuf,
    /// Traces: `conv=conv.jsonl.xz,--cache,2%`.
    #[arg(required = true)]
    traces: Vec<String>,
}

#[derive(Parser)]
struct Replay {
    #[command(flatten)]
    args: ReplayArgs,
}

struct Input {
    name: String,
    words: Vec<String>,
    trace: Trace,
}

/// Share of the bound and mean time to first token, per trace and value.
type Points = Vec<Vec<(f64, f64)>>;

fn parse(words: impl Iterator<Item = String>) -> ReplayArgs {
    Replay::parse_from(std::iter::once("replay".to_owned()).chain(words)).args
}

fn input(text: &str) -> Result<Input, Box<dyn std::error::Error>> {
    let (name, rest) = text.split_once('=').ok_or("a trace is NAME=PATH[,flags]")?;
    let words: Vec<String> = rest.split(',').map(str::to_owned).collect();
    let args = parse(words.iter().cloned());
    let trace = Trace::read(&args.trace, &args.read_options())?;
    Ok(Input { name: name.to_owned(), words, trace })
}

fn run(sweep: &Sweep, inputs: &[Input]) -> Points {
    let point = |input: &Input, value: &&str| {
        let more = sweep.with.iter().copied().chain([sweep.flag, *value]).map(str::to_owned);
        let args = parse(input.words.iter().cloned().chain(more));
        let setup = args.setup(&input.trace, RuleName::Affinity);
        let report = world::replay(&input.trace, &setup).report("affinity");
        eprintln!("{} {value} {}: {:.4}", sweep.title, input.name, report.share_of_bound());
        (report.share_of_bound(), report.ttft_mean_s)
    };
    inputs.iter().map(|input| sweep.values.iter().map(|value| point(input, value)).collect()).collect()
}

fn table(sweep: &Sweep, inputs: &[Input], points: &Points) {
    let bold = |value: &str| if value == sweep.default { format!("**{value}**") } else { value.to_owned() };
    println!(
        "\n{}\n\n| | {} |",
        sweep.title,
        sweep.values.iter().map(|v| bold(v)).collect::<Vec<_>>().join(" | ")
    );
    println!("|---|{}", "---|".repeat(sweep.values.len()));
    for (input, line) in inputs.iter().zip(points) {
        let cells: Vec<String> =
            line.iter().map(|(share, ttft)| format!("{:.1} %, {ttft:.3} s", share * 100.0)).collect();
        println!("| {} | {} |", input.name, cells.join(" | "));
    }
}

const COLORS: [&str; 4] = ["#2a78c2", "#c0392b", "#2e8b57", "#b8860b"];
const COLUMNS: usize = 3;
const PANEL: (f64, f64) = (260.0, 210.0);
const CHART: (f64, f64) = (200.0, 62.0);

/// The curve of one trace in one chart, and the line of the default.
fn curve(out: &mut String, (x, y): (f64, f64), values: &[f64], (low, high): (f64, f64), color: &str) {
    let step = CHART.0 / (values.len().max(2) - 1) as f64;
    let at = |v: f64| y + CHART.1 * (1.0 - ((v - low) / (high - low)).clamp(0.0, 1.0));
    let points: Vec<String> =
        values.iter().enumerate().map(|(i, &v)| format!("{:.1},{:.1}", x + step * i as f64, at(v))).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>",
        points.join(" ")
    );
}

fn text(out: &mut String, (x, y): (f64, f64), size: u32, anchor: &str, content: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{content}</text>"
    );
}

fn panel(out: &mut String, (x, y): (f64, f64), sweep: &Sweep, points: &Points) {
    text(out, (x, y), 12, "start", sweep.title);
    let step = CHART.0 / (sweep.values.len() - 1) as f64;
    let default = sweep.values.iter().position(|v| *v == sweep.default).unwrap_or(0);
    let (share, ttft) = ((x, y + 12.0), (x, y + 26.0 + CHART.1));
    for (top, low, high) in [(share.1, "85 %", "100 %"), (ttft.1, "0.5", "2")] {
        let line = x + step * default as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"#f6f7f8\"/>\
             <line x1=\"{line:.1}\" x2=\"{line:.1}\" y1=\"{top}\" y2=\"{}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>",
            CHART.0,
            CHART.1,
            top + CHART.1
        );
        text(out, (x + CHART.0 + 4.0, top + 8.0), 9, "start", high);
        text(out, (x + CHART.0 + 4.0, top + CHART.1), 9, "start", low);
    }
    for (line, color) in points.iter().zip(COLORS) {
        let usual = line.get(default).map_or(1.0, |p| p.1);
        curve(out, share, &line.iter().map(|p| p.0).collect::<Vec<_>>(), (0.85, 1.0), color);
        let relative: Vec<f64> = line.iter().map(|p| (p.1 / usual).log2()).collect();
        curve(out, ttft, &relative, (-1.0, 1.0), color);
    }
    for (i, value) in sweep.values.iter().enumerate() {
        text(out, (x + step * i as f64, ttft.1 + CHART.1 + 12.0), 9, "middle", value);
    }
}

fn svg(inputs: &[Input], all: &[Points]) -> String {
    let rows = SWEEPS.len().div_ceil(COLUMNS);
    let (width, height) = (PANEL.0 * COLUMNS as f64, PANEL.1 * rows as f64 + 40.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(
        &mut out,
        (12.0, 18.0),
        11,
        "start",
        "above: share of what one pooled cache would hit; below: mean time to first token, times that of the default (dashed)",
    );
    for (i, (input, color)) in inputs.iter().zip(COLORS).enumerate() {
        let name = format!("<tspan fill=\"{color}\" font-weight=\"bold\">{}</tspan>", input.name);
        text(&mut out, (12.0 + 120.0 * i as f64, 34.0), 11, "start", &name);
    }
    for (i, (sweep, points)) in SWEEPS.iter().zip(all).enumerate() {
        let at = (12.0 + PANEL.0 * (i % COLUMNS) as f64, 60.0 + PANEL.1 * (i / COLUMNS) as f64);
        panel(&mut out, at, sweep, points);
    }
    out + "</svg>\n"
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cli = Cli::parse();
    let inputs = cli.traces.iter().map(|text| input(text)).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<Points> = SWEEPS.iter().map(|sweep| run(sweep, &inputs)).collect();
    for (sweep, points) in SWEEPS.iter().zip(&all) {
        table(sweep, &inputs, points);
    }
    std::fs::write(&cli.out, svg(&inputs, &all))?;
    Ok(())
}
