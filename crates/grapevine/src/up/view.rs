//! The live view: a terminal drawn over and over, or lines.

use std::io;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use tokio::time::Instant;

use super::plain::line;
use super::sample::{Sample, SideSample};
use crate::figures::percent;
use crate::screen::{Input, Screen};
use crate::top::history::Rates;
use crate::top::style::Look;
use crate::top::{replicas, routers};

/// How the sides look, readable on dark and on light.
const SIDES: [fn(Look) -> Style; 2] = [Look::good, Look::warn];

/// Where the view goes.
pub(super) enum Live {
    /// A terminal in its own screen.
    Terminal(Box<Screen>, Rates, Look),
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
        Ok(Self::Terminal(Box::new(Screen::open()?), Rates::default(), Look::from_env()))
    }

    /// Prints lines.
    pub(super) fn lines(every: Duration) -> Self {
        Self::Lines { every, due: Instant::now() + every }
    }

    /// Completes when the person at the keyboard has seen enough.
    pub(super) async fn quit(&mut self) {
        let Self::Terminal(screen, ..) = self else { return std::future::pending().await };
        loop {
            if matches!(
                screen.input().await,
                Input::Interrupted | Input::Key(KeyCode::Char('q') | KeyCode::Esc)
            ) {
                return;
            }
        }
    }

    /// Shows a sample.
    pub(super) fn show(&mut self, sample: &Sample, left: Duration) -> io::Result<()> {
        match self {
            Self::Terminal(screen, rates, look) => {
                if let Some(side) = sample.sides.first() {
                    rates.note(&side.fleet);
                }
                screen.draw(|frame| draw(frame, sample, rates, left, *look))?;
            }
            Self::Lines { every, due } if Instant::now() >= *due => {
                *due += *every;
                println!("{}", line(sample));
            }
            Self::Lines { .. } => {}
        }
        Ok(())
    }
}

fn draw(frame: &mut Frame<'_>, sample: &Sample, rates: &Rates, left: Duration, look: Look) {
    let [head, curves, middle, low, foot] = Layout::vertical([
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Min(5),
        Constraint::Min(6),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(comparison(sample, look), head);
    draw_curves(frame, sample, look, curves);
    if let Some(SideSample { fleet, page, top, .. }) = sample.sides.first() {
        let width = middle.width.saturating_sub(2);
        let block = |title| Block::bordered().title(title);
        let table = routers::routers(fleet, rates, look, width).block(block(routers::title(fleet)));
        frame.render_widget(table, middle);
        let table = replicas::replicas(fleet, look, width).block(block(replicas::title(fleet)));
        frame.render_widget(table, low);
        let hint = format!(" {} s left, q ends; in a browser: {page}; in a terminal: {top}", left.as_secs());
        frame.render_widget(Paragraph::new(hint).style(look.dim()), foot);
    }
}

fn comparison(sample: &Sample, look: Look) -> Table<'_> {
    let row = |name: &'static str, cell: &dyn Fn(&SideSample) -> String| {
        let cells = sample.sides.iter().zip(SIDES.iter().cycle());
        let cells = cells.map(|(side, style)| Cell::from(Span::styled(cell(side), style(look))));
        Row::new(std::iter::once(Cell::from(name)).chain(cells))
    };
    let rows = [
        row("", &|s| s.label.clone()).style(look.strong()),
        row("token hit rate, last 5 s", &|s| percent(s.hit_now)).style(look.strong()),
        row("token hit rate", &|s| percent(s.hit_total)),
        row("requests per second", &|s| format!("{:.0}", s.per_second)),
        row("mean latency", &|s| format!("{} ms", s.mean_latency.as_millis())),
    ];
    let widths = [Constraint::Length(28), Constraint::Length(20), Constraint::Length(20)];
    Table::new(rows, widths).block(Block::bordered().title(" grapevine up "))
}

fn draw_curves(frame: &mut Frame<'_>, sample: &Sample, look: Look, area: Rect) {
    let halves = Layout::horizontal([Constraint::Ratio(1, 2); 2]).split(area);
    for ((side, area), style) in sample.sides.iter().zip(halves.iter()).zip(SIDES) {
        let width = usize::from(area.width.saturating_sub(2));
        let points = side.curve.iter().rev().take(width).rev().map(|rate| (rate * 100.0) as u64);
        let title = format!(" hit rate: {} ", side.label);
        let curve = Sparkline::default()
            .data(points.collect::<Vec<_>>())
            .max(100)
            .style(style(look))
            .block(Block::bordered().title(title));
        frame.render_widget(curve, *area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::style::Color;

    use super::*;

    fn drawn(look: Look) -> TestBackend {
        let side = |label: &str| SideSample {
            label: label.to_owned(),
            curve: vec![0.2, 0.9],
            top: "grapevine top 127.0.0.1:1".to_owned(),
            ..SideSample::default()
        };
        let sample = Sample::of(&[side("random, 1 router"), side("affinity")]);
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).unwrap();
        let left = Duration::from_secs(9);
        terminal.draw(|frame| draw(frame, &sample, &Rates::default(), left, look)).unwrap();
        terminal.backend().clone()
    }

    #[test]
    fn without_colours_there_are_none_and_all_is_there() {
        let screen = drawn(Look::plain());
        assert!(
            screen.buffer().content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
        );
        let text = screen.to_string();
        for said in ["affinity", "random, 1 router", "9 s left, q ends", "grapevine top 127.0.0.1:1"] {
            assert!(text.contains(said), "no {said} in\n{text}");
        }
    }
}
