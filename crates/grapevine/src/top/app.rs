//! What is shown, and what keys do to it. Drawing is elsewhere, and so is asking.

use std::time::Instant;

use grapevine_node::admin::decisions::DecisionView;
use grapevine_node::admin::fleet_view::Fleet;
use ratatui::crossterm::event::KeyCode;
use ratatui::widgets::TableState;

use super::history::Rates;
use super::source::Update;
use super::style::Look;
use crate::admin::NoAnswer;

/// Rows that a page key moves.
const PAGE: usize = 10;

/// A table that can be looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Panel {
    Replicas,
    Routers,
    Decisions,
}

impl Panel {
    pub(super) const ALL: [Self; 3] = [Self::Replicas, Self::Routers, Self::Decisions];

    fn next(self, step: usize) -> Self {
        let at = Self::ALL.iter().position(|panel| *panel == self).unwrap_or(0);
        Self::ALL.iter().cycle().nth(at + step).copied().unwrap_or(self)
    }
}

/// A decision in full, over the tables.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    /// A copy: the list goes on beneath it.
    pub(super) decision: Box<DecisionView>,
    /// Lines that were scrolled past.
    pub(super) scrolled: usize,
}

/// All that is shown.
pub(super) struct App {
    pub(super) look: Look,
    pub(super) fleet: Option<Fleet>,
    pub(super) decisions: Vec<DecisionView>,
    pub(super) rates: Rates,
    /// Who said so.
    pub(super) from: String,
    /// When.
    pub(super) heard: Option<Instant>,
    /// Why nobody says more.
    pub(super) lost: Option<NoAnswer>,
    pub(super) paused: bool,
    pub(super) panel: Panel,
    pub(super) opened: Option<Opened>,
    /// What keys do and columns say is shown, over everything; so many lines of it were scrolled past.
    pub(super) help: Option<usize>,
    pub(super) tables: [TableState; 3],
}

impl App {
    pub(super) fn new(look: Look) -> Self {
        Self {
            look,
            fleet: None,
            decisions: Vec::new(),
            rates: Rates::default(),
            from: String::new(),
            heard: None,
            lost: None,
            paused: false,
            panel: Panel::Replicas,
            opened: None,
            help: None,
            tables: Default::default(),
        }
    }

    /// Takes what a router said, or that none did.
    pub(super) fn take(&mut self, answer: Result<Update, NoAnswer>, now: Instant) {
        match answer {
            Ok(update) => {
                self.lost = None;
                self.rates.note(&update.fleet);
                if self.paused {
                    return;
                }
                self.heard = Some(now);
                self.from = update.from;
                self.keep_selected(&update.decisions);
                self.decisions = update.decisions;
                self.fleet = Some(update.fleet);
            }
            Err(lost) => self.lost = Some(lost),
        }
    }

    /// The selected decision stays selected while new ones come in above it.
    fn keep_selected(&mut self, coming: &[DecisionView]) {
        let state = self.state(Panel::Decisions);
        let Some(selected) = state.selected() else { return };
        let Some(seq) = self.decisions.get(selected).and_then(|decision| decision.seq) else { return };
        let at = coming.iter().position(|decision| decision.seq == Some(seq));
        self.state(Panel::Decisions).select(at.or((!coming.is_empty()).then(|| coming.len() - 1)));
    }

    /// The state of a panel's table.
    pub(super) fn state(&mut self, panel: Panel) -> &mut TableState {
        let [replicas, routers, decisions] = &mut self.tables;
        match panel {
            Panel::Replicas => replicas,
            Panel::Routers => routers,
            Panel::Decisions => decisions,
        }
    }

    fn rows(&self, panel: Panel) -> usize {
        let fleet = self.fleet.as_ref();
        match panel {
            Panel::Replicas => fleet.map_or(0, |fleet| fleet.replicas.len()),
            Panel::Routers => fleet.map_or(0, |fleet| fleet.routers.len()),
            Panel::Decisions => self.decisions.len(),
        }
    }

    /// Does what a key asks for. True when that is to end.
    pub(super) fn key(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return !self.close(),
            KeyCode::Char('?' | 'h') => self.help = self.help.xor(Some(0)),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            _ if self.help.is_some() => self.key_help(key),
            _ if self.opened.is_some() => self.key_opened(key),
            _ => self.key_tables(key),
        }
        false
    }

    /// Closes what is on top. False when nothing is.
    fn close(&mut self) -> bool {
        self.help.take().is_some() || self.opened.take().is_some()
    }

    fn key_tables(&mut self, key: KeyCode) {
        match key {
            KeyCode::Tab | KeyCode::Right => self.panel = self.panel.next(1),
            KeyCode::BackTab | KeyCode::Left => self.panel = self.panel.next(2),
            KeyCode::Enter => self.open(),
            _ => {
                self.move_row(key);
            }
        }
    }

    /// Up and down, over an open decision as well. False when the key moves nothing.
    fn move_row(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Down | KeyCode::Char('j') => self.step(|at, _| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown => self.step(|at, _| at + PAGE),
            KeyCode::PageUp => self.step(|at, _| at.saturating_sub(PAGE)),
            KeyCode::Home => self.step(|_, _| 0),
            KeyCode::End => self.step(|_, last| last),
            _ => return false,
        }
        true
    }

    /// Scrolls the help; any other key closes it. Drawing ends it at the last line.
    fn key_help(&mut self, key: KeyCode) {
        self.help = self.help.and_then(|line| match key {
            KeyCode::Down | KeyCode::Char('j') => Some(line + 1),
            KeyCode::Up | KeyCode::Char('k') => Some(line.saturating_sub(1)),
            KeyCode::PageDown => Some(line + PAGE),
            KeyCode::PageUp => Some(line.saturating_sub(PAGE)),
            KeyCode::Home => Some(0),
            KeyCode::End => Some(usize::MAX),
            _ => None,
        });
    }

    fn key_opened(&mut self, key: KeyCode) {
        match key {
            // Drawing ends it at the last line.
            KeyCode::PageDown => self.scroll(|line| line + PAGE),
            KeyCode::PageUp => self.scroll(|line| line.saturating_sub(PAGE)),
            KeyCode::Enter => self.opened = None,
            _ if self.move_row(key) => self.open(),
            _ => {}
        }
    }

    fn scroll(&mut self, to: impl Fn(usize) -> usize) {
        if let Some(opened) = &mut self.opened {
            opened.scrolled = to(opened.scrolled);
        }
    }

    /// Moves the selection; the first key only shows it.
    fn step(&mut self, to: impl Fn(usize, usize) -> usize) {
        let panel = self.panel;
        let Some(last) = self.rows(panel).checked_sub(1) else { return };
        let state = self.state(panel);
        let at = state.selected().map_or(0, |at| to(at, last).min(last));
        state.select(Some(at));
    }

    fn open(&mut self) {
        if self.panel == Panel::Decisions {
            let at = self.state(Panel::Decisions).selected().unwrap_or(0);
            let decision = self.decisions.get(at).cloned();
            self.opened = decision.map(|decision| Opened { decision: Box::new(decision), scrolled: 0 });
        }
    }
}
