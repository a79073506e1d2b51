//! The terminal's picture of a fleet.

use std::time::Instant;

use grapevine_node::admin::fleet_view::Fleet;
use grapevine_node::admin::status::Level;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Sparkline, Table, Wrap};

use super::app::{App, Over, Panel};
use super::decisions::decisions;
use super::history::{Shares, curve, last_minute, requests_per_second};
use super::replicas::{self, replicas};
use super::routers::{self, routers};
use super::style::Look;
use super::words;
use crate::figures::{duration, or_unknown, percent};
use crate::verdict;

/// Warnings shown; the rest is counted.
const MAX_WARNINGS: usize = 3;

/// Rows from which on all tables are shown instead of one.
const TALL: u16 = 34;

/// Cells for the name and the figure of a curve.
const CURVE_LABEL: u16 = 20;

const KEYS: &str = "tab panel   arrows row   enter decision   p pause   ? help   q quit";

const HELP: &str = "\
tab, left, right   the next table
up, down, page     a row
enter              the selected decision's votes
p, space           pause, and go on
?                  this
q, esc             close, quit";

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    let warnings = app.fleet.as_ref().map_or_else(Vec::new, |fleet| words::warnings(&fleet.warnings));
    let rows = warnings.len().min(MAX_WARNINGS + 1);
    let curves = if frame.area().height >= TALL { 6 } else { 3 };
    let [head, strip, figures, rates, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows as u16),
        Constraint::Length(1),
        Constraint::Length(curves),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(app, now), head);
    frame.render_widget(Paragraph::new(KEYS).style(app.look.dim()), foot);
    let Some(fleet) = app.fleet.take() else {
        return frame.render_widget(waiting(app), body);
    };
    frame.render_widget(Paragraph::new(warning_lines(&warnings, app.look)), strip);
    frame.render_widget(figures_line(&fleet, app.look), figures);
    draw_curves(frame, &fleet, app.look, rates);
    draw_tables(frame, app, &fleet, body);
    draw_over(frame, app);
    app.fleet = Some(fleet);
}

fn headline(app: &App, now: Instant) -> Line<'static> {
    let look = app.look;
    let mut line = vec![Span::styled("grapevine top", look.strong().patch(look.accent()))];
    let router = app.fleet.as_ref().and_then(|fleet| fleet.routers.iter().find(|router| router.itself));
    if let Some(router) = router {
        let mode = if router.mode == "shadow" { ", shadow mode" } else { "" };
        let up = duration((router.uptime_seconds * 1_000.0) as u64);
        line.push(Span::raw(format!("  {}  {}{mode}  up {up}  ", router.name, router.policy)));
    }
    let age = app.heard.map(|at| duration(now.saturating_duration_since(at).as_millis() as u64));
    line.push(match (&app.lost, app.paused, age) {
        (Some(why), _, Some(age)) => Span::styled(format!("  NO NEWS for {age}: {why}"), look.bad()),
        (Some(why), _, None) => Span::styled(format!("  {why}"), look.bad()),
        (None, true, _) => Span::styled("PAUSED", look.warn()),
        (None, false, Some(_)) => Span::styled("live", look.good()),
        (None, false, None) => Span::raw("  asking"),
    });
    Line::from(line)
}

fn waiting(app: &App) -> Paragraph<'static> {
    let text = if app.lost.is_some() { "No router answers; asking on." } else { "Asking the router ..." };
    Paragraph::new(text).centered().block(Block::new().padding(Padding::top(2)))
}

fn warning_lines(warnings: &[(Level, String)], look: Look) -> Vec<Line<'static>> {
    let line = |(level, text): &(Level, String)| Line::styled(text.clone(), look.level(*level));
    let mut lines: Vec<Line<'static>> = warnings.iter().take(MAX_WARNINGS).map(line).collect();
    if warnings.len() > MAX_WARNINGS {
        lines.push(Line::styled(format!("  and {} more", warnings.len() - MAX_WARNINGS), look.dim()));
    }
    lines
}

fn figures_line(fleet: &Fleet, look: Look) -> Line<'static> {
    let rate = requests_per_second(last_minute(&fleet.points), fleet.step_ms);
    let failed: u64 = fleet.routers.iter().map(|router| router.failed_total).sum();
    let requests: u64 = fleet.routers.iter().map(|router| router.requests_total).sum();
    let mut line = vec![
        Span::styled(format!("{} req/s", or_unknown(rate, |rate| format!("{rate:.1}"))), look.strong()),
        Span::raw(format!("   {} in flight   {} waiting   ", fleet.totals.inflight, fleet.totals.waiting)),
        Span::styled(format!("{failed} failed"), if failed > 0 { look.warn() } else { Style::new() }),
        Span::raw(format!(" of {requests}")),
    ];
    if let Some(shadow) = fleet.totals.shadow {
        line.push(Span::styled(format!("   {}", words::shadow(&shadow)), look.accent()));
    }
    Line::from(line)
}

type Curve = (&'static str, fn(&Shares) -> Option<f64>, fn(Look) -> Style);

const CURVES: [Curve; 3] = [
    ("reported", |shares| shares.reported, Look::accent),
    ("predicted", |shares| shares.predicted, Look::predicted),
    ("random", |shares| shares.random, Look::dim),
];

fn draw_curves(frame: &mut Frame<'_>, fleet: &Fleet, look: Look, area: Rect) {
    let points = curve(&fleet.points);
    let now = Shares::of(last_minute(&fleet.points));
    let lines = Layout::vertical([Constraint::Fill(1); 3]).split(area);
    for ((name, share, style), area) in CURVES.iter().zip(lines.iter()) {
        let [label, plot] =
            Layout::horizontal([Constraint::Length(CURVE_LABEL), Constraint::Fill(1)]).areas(*area);
        let text = format!("{name:<10}{:>8}", or_unknown(share(&now), percent));
        frame.render_widget(Paragraph::new(text).style(style(look)), label);
        // The last points are the ones to see.
        let skip = points.len().saturating_sub(usize::from(plot.width));
        let data = points.iter().skip(skip).map(|at| share(at).map(|share| (share * 1_000.0) as u64));
        let line = Sparkline::default().data(data.collect::<Vec<_>>()).max(1_000).style(style(look));
        frame.render_widget(line.absent_value_symbol(" "), plot);
    }
}

fn draw_tables(frame: &mut Frame<'_>, app: &mut App, fleet: &Fleet, area: Rect) {
    if frame.area().height < TALL {
        let panel = app.panel;
        return draw_table(frame, app, fleet, panel, area);
    }
    // Two lines of frame and one of heads.
    let wanted = |rows: usize| Constraint::Length((rows + 3).min(usize::from(area.height / 3)) as u16);
    let areas =
        Layout::vertical([wanted(fleet.replicas.len()), wanted(fleet.routers.len()), Constraint::Fill(1)])
            .split(area);
    for (panel, area) in Panel::ALL.into_iter().zip(areas.iter()) {
        draw_table(frame, app, fleet, panel, *area);
    }
}

fn draw_table(frame: &mut Frame<'_>, app: &mut App, fleet: &Fleet, panel: Panel, area: Rect) {
    let width = area.width.saturating_sub(2);
    let (title, table): (String, Table<'static>) = match panel {
        Panel::Replicas => (replicas::title(fleet), replicas(fleet, app.look, width)),
        Panel::Routers => (routers::title(fleet), routers(fleet, &app.rates, app.look, width)),
        Panel::Decisions => {
            let title = format!(" decisions of {} ", fleet.asked);
            (title, decisions(&app.decisions, fleet.at_ms, app.look, width))
        }
    };
    let chosen = panel == app.panel;
    let block = Block::bordered()
        .title(Line::styled(title, if chosen { app.look.strong() } else { Style::new() }))
        .border_style(if chosen { app.look.accent() } else { app.look.dim() });
    frame.render_stateful_widget(table.block(block), area, app.state(panel));
}

fn draw_over(frame: &mut Frame<'_>, app: &App) {
    let (title, text) = match &app.over {
        None => return,
        Some(Over::Help) => (" keys ", HELP.to_owned()),
        Some(Over::Decision(decision)) => (" decision ", verdict::text(decision)),
    };
    let height = text.lines().count() as u16 + 2;
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 4;
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
    let block =
        Block::bordered().title(title).padding(Padding::horizontal(1)).border_style(app.look.accent());
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), area);
}
