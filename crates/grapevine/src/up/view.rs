//! The live view: a terminal drawn over and over, or lines.

use std::io;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::plain::{line, percent};
use super::sample::{Sample, SideSample};

/// How often the keyboard is looked at.
const KEY_POLL: Duration = Duration::from_millis(100);

/// Colours of the sides, readable on dark and on light.
const COLORS: [Color; 2] = [Color::Green, Color::Yellow];

/// Where the view goes.
pub(super) enum Live {
    /// A terminal in its own screen.
    Terminal {
        /// What is drawn on.
        terminal: DefaultTerminal,
        /// `q` or Ctrl-C, which a raw terminal gives as a key.
        quit: mpsc::Receiver<()>,
    },
    /// A line now and then.
    Lines {
        /// Time between two.
        every: Duration,
        /// When the next is due.
        due: Instant,
    },
}

impl Live {
    /// Takes over the terminal.
    pub(super) fn terminal() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (tell, quit) = mpsc::channel(1);
        std::thread::spawn(move || watch_keys(&tell));
        Ok(Self::Terminal { terminal, quit })
    }

    /// Prints lines.
    pub(super) fn lines(every: Duration) -> Self {
        Self::Lines { every, due: Instant::now() + every }
    }

    /// Completes when the person at the keyboard has seen enough.
    pub(super) async fn quit(&mut self) {
        match self {
            Self::Terminal { quit, .. } => {
                if quit.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
            }
            Self::Lines { .. } => std::future::pending().await,
        }
    }

    /// Shows a sample.
    pub(super) fn show(&mut self, sample: &Sample, left: Duration) -> io::Result<()> {
        match self {
            Self::Terminal { terminal, .. } => {
                terminal.draw(|frame| draw(frame, sample, left))?;
            }
            Self::Lines { every, due } if Instant::now() >= *due => {
                *due += *every;
                println!("{}", line(sample));
            }
            Self::Lines { .. } => {}
        }
        Ok(())
    }

    /// Gives the terminal back.
    pub(super) fn close(self) {
        if matches!(self, Self::Terminal { .. }) {
            ratatui::restore();
        }
    }
}

fn watch_keys(tell: &mpsc::Sender<()>) {
    while !tell.is_closed() {
        if !event::poll(KEY_POLL).unwrap_or(false) {
            continue;
        }
        let Ok(Event::Key(key)) = event::read() else { continue };
        let interrupted = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
            // Already told: then that is enough.
            let _ = tell.try_send(());
        }
    }
}

fn draw(frame: &mut Frame<'_>, sample: &Sample, left: Duration) {
    let [head, curves, routers, replicas, foot] = Layout::vertical([
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Min(5),
        Constraint::Min(6),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(comparison(sample), head);
    draw_curves(frame, sample, curves);
    if let Some(side) = sample.sides.first() {
        frame.render_widget(routers_table(side), routers);
        frame.render_widget(replicas_table(side), replicas);
    }
    let hint = format!(" {} s left, q ends", left.as_secs());
    frame.render_widget(Paragraph::new(hint).style(Style::new().add_modifier(Modifier::DIM)), foot);
}

fn comparison(sample: &Sample) -> Table<'_> {
    let row = |name: &'static str, cell: &dyn Fn(&SideSample) -> String| {
        let cells = sample.sides.iter().zip(COLORS.iter().cycle());
        let cells = cells.map(|(side, color)| Cell::from(Span::styled(cell(side), Style::new().fg(*color))));
        Row::new(std::iter::once(Cell::from(name)).chain(cells))
    };
    let rows = [
        row("", &|s| s.label.clone()).style(Style::new().add_modifier(Modifier::BOLD)),
        row("token hit rate, last 5 s", &|s| percent(s.hit_now))
            .style(Style::new().add_modifier(Modifier::BOLD)),
        row("token hit rate", &|s| percent(s.hit_total)),
        row("requests per second", &|s| format!("{:.0}", s.per_second)),
        row("mean latency", &|s| format!("{} ms", s.mean_latency.as_millis())),
    ];
    let widths = [Constraint::Length(28), Constraint::Length(20), Constraint::Length(20)];
    Table::new(rows, widths).block(Block::bordered().title(" grapevine up "))
}

fn draw_curves(frame: &mut Frame<'_>, sample: &Sample, area: Rect) {
    let halves = Layout::horizontal([Constraint::Ratio(1, 2); 2]).split(area);
    for ((side, area), color) in sample.sides.iter().zip(halves.iter()).zip(COLORS) {
        let width = usize::from(area.width.saturating_sub(2));
        let points = side.curve.iter().rev().take(width).rev().map(|rate| (rate * 100.0) as u64);
        let title = format!(" hit rate: {} ", side.label);
        let curve = Sparkline::default()
            .data(points.collect::<Vec<_>>())
            .max(100)
            .style(Style::new().fg(color))
            .block(Block::bordered().title(title));
        frame.render_widget(curve, *area);
    }
}

fn routers_table(side: &SideSample) -> Table<'_> {
    let rows = side.routers.iter().map(|r| {
        let state = if r.up { "up" } else { "no answer" };
        Row::new([
            r.name.clone(),
            state.to_owned(),
            r.requests.to_string(),
            r.inflight.to_string(),
            format!("{} of {}", r.hits, r.lookups),
            r.live_peers.to_string(),
            r.nodes.to_string(),
            format!("{:.0} B", r.gossip_bytes as f64 / r.requests.max(1) as f64),
        ])
    });
    let (predicted, reported) = side.prediction();
    let title = Line::from(format!(
        " routers - cached share predicted {}, reported {} ",
        percent(predicted),
        percent(reported)
    ));
    let head = ["router", "state", "requests", "inflight", "hits", "peers", "nodes", "gossip/request"];
    Table::new(rows, [Constraint::Fill(1); 8]).header(header(head)).block(Block::bordered().title(title))
}

fn replicas_table(side: &SideSample) -> Table<'_> {
    let total = side.replicas.iter().map(|r| r.picks).sum::<u64>().max(1);
    let rows = side.replicas.iter().map(move |r| {
        let share = r.picks as f64 / total as f64;
        let bar = "#".repeat((share * 40.0).round() as usize);
        Row::new([
            r.name.clone(),
            r.health.clone(),
            r.inflight.to_string(),
            r.queued_tokens.to_string(),
            r.hit_rate.map_or_else(|| "-".to_owned(), percent),
            format!("{} {bar}", percent(share)),
        ])
    });
    let head = ["replica", "health", "inflight", "queued tokens", "hit rate", "share of requests"];
    let widths = [
        Constraint::Length(22),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(14),
        Constraint::Length(10),
        Constraint::Min(20),
    ];
    Table::new(rows, widths).header(header(head)).block(Block::bordered().title(" replicas "))
}

fn header<const N: usize>(names: [&'static str; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::DIM))
}
