//! Hit rate and time to first token over policies, as one SVG.

use std::fmt::Write;

use super::report::Report;

const LABEL: f64 = 110.0;
const BAR: f64 = 260.0;
const ROW: f64 = 26.0;
const TOP: f64 = 56.0;
const GAP: f64 = 90.0;

/// Two bars a policy: what share of the bound it reaches, and how long first tokens take.
pub fn svg(title: &str, reports: &[Report]) -> String {
    let height = TOP + ROW * reports.len() as f64 + 16.0;
    let width = LABEL + 2.0 * BAR + GAP + 70.0;
    let slowest = reports.iter().map(|r| r.ttft_mean_s).fold(1e-9, f64::max);
    let bound = reports.iter().map(|r| r.bound).fold(0.0, f64::max);
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    let right = LABEL + BAR + GAP;
    text(&mut out, 8.0, 20.0, "start", &format!("<tspan font-weight=\"bold\">{}</tspan>", escape(title)));
    text(&mut out, LABEL, 42.0, "start", "token hit rate (line: one pooled cache)");
    text(&mut out, right, 42.0, "start", "mean time to first token, s");
    for (i, report) in reports.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let fill = if report.policy == "affinity" { "#2a78c2" } else { "#a9b4c0" };
        text(&mut out, LABEL - 8.0, y + 15.0, "end", &escape(&report.policy));
        bar(&mut out, LABEL, y, report.hit_rate, fill, &format!("{:.3}", report.hit_rate));
        bar(&mut out, right, y, report.ttft_mean_s / slowest, fill, &format!("{:.2}", report.ttft_mean_s));
    }
    let (x, bottom) = (LABEL + bound * BAR, height - 12.0);
    let _ = writeln!(
        out,
        "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#c0392b\"/>\n</svg>",
        TOP - 6.0
    );
    out
}

fn bar(out: &mut String, x: f64, y: f64, share: f64, fill: &str, label: &str) {
    let length = (share * BAR).max(0.5);
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"20\" fill=\"{fill}\"/>");
    text(out, x + length + 5.0, y + 15.0, "start", label);
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
