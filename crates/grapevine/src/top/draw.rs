//! The terminal's picture of a fleet.

use std::time::Instant;

use grapevine_node::admin::fleet_view::Fleet;
use grapevine_node::admin::status::Level;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Sparkline, Table, Wrap};

use super::app::{App, Panel};
use super::decisions::decisions;
use super::history::{Shares, curve, last_minute, requests_per_second};
use super::legend;
use super::replicas::{self, replicas};
use super::routers::{self, routers};
use super::style::Look;
use super::{WHERE, words};
use crate::admin::{AskError, NoAnswer};
use crate::figures::{duration, or_unknown, percent};
use crate::verdict;

/// Warnings shown; the rest is counted.
const MAX_WARNINGS: usize = 3;

/// Rows from which on all tables are shown instead of one.
const TALL: u16 = 34;

/// Cells for the name and the figure of a curve.
const CURVE_LABEL: u16 = 20;

const KEYS: &str = "tab panel   arrows row   enter decision   p pause   ? help   q quit";

/// The same where there is no room.
const FEW_KEYS: &str = "tab  arrows  enter  p pause  ? help  q quit";

/// Of an open decision.
const OPENED_KEYS: &str = "arrows decision   page scroll   ? help   q close";

/// Of the help.
const HELP_KEYS: &str = "arrows, page scroll   q close";

const HELP: &str = "\
tab, left, right   the next table
up, down, k, j     a row
page, home, end    many rows; of a text like this, lines
enter              the selected decision's votes
p, space           pause, and go on
?, h               this: keys, and what columns say
q, esc             close, quit
ctrl-c             quit

";

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
    frame.render_widget(Paragraph::new(keys(app, foot.width)).style(app.look.dim()), foot);
    let Some(fleet) = app.fleet.take() else {
        frame.render_widget(waiting(app), body);
        return draw_help(frame, app);
    };
    frame.render_widget(Paragraph::new(warning_lines(&warnings, app.look)), strip);
    frame.render_widget(figures_line(&fleet, app.look), figures);
    draw_curves(frame, &fleet, app.look, rates);
    draw_tables(frame, app, &fleet, body);
    draw_opened(frame, app);
    draw_help(frame, app);
    app.fleet = Some(fleet);
}

fn keys(app: &App, width: u16) -> &'static str {
    match (app.help, &app.opened) {
        (Some(_), _) => HELP_KEYS,
        (None, Some(_)) => OPENED_KEYS,
        (None, None) if KEYS.len() > usize::from(width) => FEW_KEYS,
        (None, None) => KEYS,
    }
}

fn headline(app: &App, now: Instant) -> Line<'static> {
    let look = app.look;
    let mut line = vec![Span::styled("grapevine top", look.strong().patch(look.accent()))];
    let age = app.heard.map(|at| duration(now.saturating_duration_since(at).as_millis() as u64));
    if let Some(why) = &app.lost {
        // Before all else: a narrow window shows the beginning.
        let age = age.map_or_else(String::new, |age| format!("NO NEWS for {age}: "));
        line.push(Span::styled(format!("  {age}{why}"), look.bad()));
        return Line::from(line);
    }
    let router = app.fleet.as_ref().and_then(|fleet| fleet.routers.iter().find(|router| router.itself));
    if let Some(router) = router {
        let mode = if router.mode == "shadow" { ", shadow mode" } else { "" };
        let up = duration((router.uptime_seconds * 1_000.0) as u64);
        line.push(Span::raw(format!("  {}  {}{mode}  up {up}  ", router.name, router.policy)));
    }
    line.push(match (app.paused, age) {
        (true, _) => Span::styled("PAUSED", look.warn()),
        (false, Some(_)) => Span::styled("live", look.good()),
        (false, None) => Span::raw("  asking"),
    });
    Line::from(line)
}

fn waiting(app: &App) -> Paragraph<'static> {
    let text = match app.lost {
        Some(NoAnswer { said: AskError::Silent | AskError::NotOurs(_), .. }) => {
            format!("No router answers; asking on.\n\nIf it is elsewhere: {WHERE}.")
        }
        Some(_) => "No router answers; asking on.".to_owned(),
        None => "Asking the router ...".to_owned(),
    };
    Paragraph::new(text).wrap(Wrap { trim: true }).centered().block(Block::new().padding(Padding::top(2)))
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

fn draw_help(frame: &mut Frame<'_>, app: &mut App) {
    let look = app.look;
    if let Some(scrolled) = &mut app.help {
        draw_over(frame, look, " keys and columns ", &format!("{HELP}{}", legend::text()), scrolled);
    }
}

fn draw_opened(frame: &mut Frame<'_>, app: &mut App) {
    let Some(opened) = &mut app.opened else { return };
    let room = usize::from(frame.area().width.saturating_sub(OVER_WIDTH));
    let text = verdict::text(&opened.decision, room);
    draw_over(frame, app.look, " decision ", &text, &mut opened.scrolled);
}

/// Cells that the frame of a text over the tables takes, and lines.
const OVER_WIDTH: u16 = 4;
const OVER_HEIGHT: u16 = 2;

/// A text over the tables. `scrolled` lines of it are passed over, at most to its end.
fn draw_over(frame: &mut Frame<'_>, look: Look, title: &str, text: &str, scrolled: &mut usize) {
    let lines = text.lines().count();
    let width = text.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + OVER_WIDTH;
    let height = (lines as u16 + OVER_HEIGHT).min(frame.area().height);
    let hidden = lines.saturating_sub(usize::from(height.saturating_sub(OVER_HEIGHT)));
    *scrolled = (*scrolled).min(hidden);
    let below = hidden - *scrolled;
    let more = if below > 0 { format!(" {below} more: page down ") } else { String::new() };
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(height));
    let block = Block::bordered()
        .title(title)
        .title_bottom(more)
        .padding(Padding::horizontal(1))
        .border_style(look.accent());
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(text).scroll((*scrolled as u16, 0)).block(block), area);
}
