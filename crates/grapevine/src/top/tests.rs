//! The picture, drawn on a terminal of memory.

use std::time::{Duration, Instant};

use grapevine_node::admin::decisions::DecisionView;
use grapevine_node::admin::fleet_view::{Fleet, FleetReplica, FleetRouter, Link};
use grapevine_node::admin::status::{Level, Point, TokenStatus, Warning};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use super::app::{App, Panel};
use super::draw::draw;
use super::source::Update;
use super::style::Look;
use super::{TopArgs, once};
use crate::admin::{AskError, NoAnswer};

fn fleet() -> Fleet {
    let router = |name: &str, itself, reached| FleetRouter {
        name: name.to_owned(),
        itself,
        reached,
        live: reached,
        phase: "serving".to_owned(),
        policy: "affinity".to_owned(),
        mode: "route".to_owned(),
        requests_total: 500,
        lookups: 100,
        hits: 93,
        ..FleetRouter::default()
    };
    let replica = |i: u32| FleetReplica {
        name: format!("10.0.0.{i}:8000"),
        health: if i == 3 { "unreachable" } else { "up" }.to_owned(),
        inflight: i,
        share: Some(0.25),
        ..FleetReplica::default()
    };
    let point = |i: u64| Point {
        at_ms: 2_000 * i,
        requests: 10,
        tokens: TokenStatus {
            prompt: 1_000,
            predicted_cached: 910,
            random_cached: 280,
            reported_prompt: 1_000,
            reported_cached: 900,
        },
    };
    Fleet {
        at_ms: 120_000,
        asked: "r1".to_owned(),
        step_ms: 2_000,
        routers: vec![router("r1", true, true), router("r2", false, true), router("r3", false, false)],
        links: vec![Link { from: "r2".into(), to: "r1".into(), live: true, lag_ms: 84, ..Link::default() }],
        replicas: (1..=4).map(replica).collect(),
        points: (1..=60).map(point).collect(),
        warnings: vec![Warning {
            code: "peer_lost".to_owned(),
            level: Level::Warn,
            router: "r1".to_owned(),
            subject: Some("r3".to_owned()),
            since_ms: None,
            text: "router r3 has not been heard of".to_owned(),
        }],
        ..Fleet::default()
    }
}

fn decisions(newest: u64) -> Vec<DecisionView> {
    let decision = |seq: u64| {
        let json = format!(
            r#"{{"seq":{seq},"at_ms":110000,"router":"r1","path":null,"request_id":null,"trace_id":null,
            "model":"m","attempt":1,"lookup":"answered","reason":"affinity","replica":"10.0.0.1:8000",
            "prompt_tokens":400,"matched_tokens":300,"best_matched_tokens":300,"teacher":"r2","guarded":null,
            "tied":1,"decision_us":14,"outcome":"ok","reported_cached_tokens":296,"candidates_total":0,
            "candidates":[]}}"#
        );
        serde_json::from_str(&json).unwrap()
    };
    (1..=newest).rev().map(decision).collect()
}

fn update() -> Update {
    Update { from: "http://a".to_owned(), fleet: fleet(), decisions: decisions(3) }
}

fn app() -> App {
    let mut app = App::new(Look::plain());
    app.take(Ok(update()), Instant::now());
    app
}

fn picture(app: &mut App, width: u16, height: u16, now: Instant) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, now)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_tall_terminal_shows_all_of_it() {
    let shown = picture(&mut app(), 130, 40, Instant::now());
    for said in [
        "live",
        "reported    90.0 %",
        "predicted   91.0 %",
        "random      28.0 %",
        "5.0 req/s",
        "warn  r1: router r3 has not been heard of",
        "replicas: 3 of 4 up",
        "unreachable",
        "routers: 2 of 3 live, lag up to 84 ms",
        "decisions of r1",
        "affinity",
    ] {
        assert!(shown.contains(said), "no {said} in\n{shown}");
    }
}

#[test]
fn a_small_terminal_shows_one_table_at_a_time() {
    let mut app = app();
    let shown = picture(&mut app, 60, 20, Instant::now());
    assert!(shown.contains("replicas:") && !shown.contains("routers:"), "{shown}");
    assert!(!shown.contains("queued tok"), "no room for that column:\n{shown}");
    app.key(KeyCode::Tab);
    assert!(picture(&mut app, 60, 20, Instant::now()).contains("routers:"));
    app.key(KeyCode::Right);
    assert!(picture(&mut app, 60, 20, Instant::now()).contains("decisions of"));
    app.key(KeyCode::BackTab);
    assert_eq!(app.panel, Panel::Routers);
}

/// Any size may come while a window is dragged.
#[test]
fn no_size_is_too_small() {
    let mut app = app();
    for key in [KeyCode::Char('?'), KeyCode::Esc, KeyCode::Tab, KeyCode::Tab, KeyCode::Enter] {
        app.key(key);
        for (width, height) in [(1, 1), (5, 3), (20, 8), (400, 2), (3, 100)] {
            picture(&mut app, width, height, Instant::now());
        }
    }
}

#[test]
fn a_lost_router_is_said_and_forgotten_when_it_is_back() {
    let mut app = app();
    let lost = || Err(NoAnswer { from: "http://a".to_owned(), said: AskError::Silent });
    let later = Instant::now() + Duration::from_secs(7);
    app.take(lost(), later);
    let shown = picture(&mut app, 130, 40, later);
    assert!(shown.contains("NO NEWS for 7.0 s: http://a does not answer"), "{shown}");
    assert!(shown.contains("10.0.0.1:8000"), "what was known stays");
    assert!(picture(&mut app, 60, 15, later).contains("NO NEWS for 7.0 s: http://a does not answer"));
    app.take(Ok(update()), later);
    assert!(picture(&mut app, 130, 40, later).contains("live"));
}

#[test]
fn before_the_first_answer_it_says_so() {
    let mut app = App::new(Look::plain());
    assert!(picture(&mut app, 80, 24, Instant::now()).contains("Asking the router"));
    app.take(Err(NoAnswer { from: "http://a".to_owned(), said: AskError::Silent }), Instant::now());
    let shown = picture(&mut app, 200, 24, Instant::now());
    assert!(shown.contains("grapevine top HOST:PORT") && shown.contains("grapevine up"), "{shown}");
    app.take(Err(NoAnswer { from: "http://a".to_owned(), said: AskError::Token }), Instant::now());
    assert!(picture(&mut app, 120, 24, Instant::now()).contains("GRAPEVINE_ADMIN_TOKEN"));
}

#[test]
fn a_selected_decision_stays_selected_and_opens() {
    let mut app = app();
    app.panel = Panel::Decisions;
    app.key(KeyCode::Down);
    app.key(KeyCode::Down);
    assert_eq!(app.state(Panel::Decisions).selected(), Some(1));
    app.take(Ok(Update { decisions: decisions(9), ..update() }), Instant::now());
    assert_eq!(app.state(Panel::Decisions).selected(), Some(7), "number 2, below seven newer ones");
    app.key(KeyCode::Enter);
    assert!(picture(&mut app, 130, 40, Instant::now()).contains("holds the longest useful prefix"));
    assert!(!app.key(KeyCode::Char('q')), "closes what is open first");
    assert!(app.key(KeyCode::Char('q')));
}

#[test]
fn the_keys_are_told_over_an_open_decision_too() {
    let mut app = app();
    app.panel = Panel::Decisions;
    app.key(KeyCode::Enter);
    app.key(KeyCode::Char('?'));
    assert!(picture(&mut app, 130, 40, Instant::now()).contains("pause, and go on"));
    assert!(!app.key(KeyCode::Esc));
    let shown = picture(&mut app, 130, 40, Instant::now());
    assert!(!shown.contains("pause, and go on") && shown.contains("longest useful prefix"), "{shown}");
    assert!(!app.key(KeyCode::Esc) && app.opened.is_none());
}

#[test]
fn the_keys_are_told_before_the_first_answer() {
    let mut app = App::new(Look::plain());
    app.key(KeyCode::Char('h'));
    assert!(picture(&mut app, 60, 15, Instant::now()).contains("pause, and go on"));
    assert!(!app.key(KeyCode::Char('q')) && app.key(KeyCode::Char('q')));
}

#[test]
fn the_help_tells_of_columns_and_is_scrolled_to_its_end() {
    let mut app = app();
    app.key(KeyCode::Char('?'));
    let top = picture(&mut app, 80, 24, Instant::now());
    assert!(top.contains("pause, and go on") && top.contains("more: page down"), "{top}");
    assert!(!top.contains("BELIEVED, believed"), "{top}");
    app.key(KeyCode::End);
    let end = picture(&mut app, 80, 24, Instant::now());
    assert!(end.contains("BELIEVED, believed") && end.contains("unknown, not zero"), "{end}");
    app.key(KeyCode::Up);
    assert!(picture(&mut app, 80, 24, Instant::now()).contains("1 more: page down"));
    app.key(KeyCode::Tab);
    assert!(!picture(&mut app, 80, 24, Instant::now()).contains("BELIEVED"), "any other key closes it");
}

#[test]
fn an_open_decision_that_does_not_fit_is_scrolled() {
    let mut app = app();
    app.panel = Panel::Decisions;
    app.key(KeyCode::Enter);
    let top = picture(&mut app, 60, 12, Instant::now());
    assert!(top.contains("more: page down") && !top.contains("the lowest sum wins"), "{top}");
    for _ in 0..9 {
        app.key(KeyCode::PageDown);
    }
    let end = picture(&mut app, 60, 12, Instant::now());
    assert!(end.contains("the lowest sum wins") && !end.contains("page down"), "{end}");
    app.key(KeyCode::PageUp);
    assert!(picture(&mut app, 60, 12, Instant::now()).contains("holds the longest"), "it was at the end");
}

#[test]
fn other_decisions_are_opened_by_the_keys_that_move_rows() {
    let mut app = app();
    app.panel = Panel::Decisions;
    let shown = |app: &App| app.opened.as_ref().and_then(|opened| opened.decision.seq);
    for (key, seq) in [
        (KeyCode::Enter, 3),
        (KeyCode::Down, 3),
        (KeyCode::Char('j'), 2),
        (KeyCode::End, 1),
        (KeyCode::Char('k'), 2),
        (KeyCode::Home, 3),
    ] {
        app.key(key);
        assert_eq!(shown(&app), Some(seq), "{key:?}");
    }
}

#[test]
fn no_window_cuts_off_what_its_columns_say() {
    let mut app = app();
    for width in 60..140 {
        let shown = picture(&mut app, width, 20, Instant::now());
        let row = shown.lines().find(|line| line.contains("10.0.0.1:8000")).unwrap();
        assert!(row.contains("25.0 %") && row.split_whitespace().any(|it| it == "1"), "{width}: {row}");
        assert!(shown.contains("q quit"), "{width}:\n{shown}");
    }
}

#[test]
fn paused_it_stands_still() {
    let mut app = app();
    app.key(KeyCode::Char('p'));
    let mut other = update();
    other.fleet.totals.inflight = 77;
    app.take(Ok(other), Instant::now());
    let shown = picture(&mut app, 130, 40, Instant::now());
    assert!(shown.contains("PAUSED") && !shown.contains("77 in flight"), "{shown}");
}

#[test]
fn without_colours_there_are_none() {
    let mut app = app();
    let mut terminal = Terminal::new(TestBackend::new(130, 40)).unwrap();
    terminal.draw(|frame| draw(frame, &mut app, Instant::now())).unwrap();
    assert!(terminal.backend().buffer().content.iter().all(|cell| cell.fg == Color::Reset));
}

#[test]
fn once_is_a_table_for_scripts() {
    let text = once::text(&fleet());
    assert!(text.contains("hit rate          90.0 %"), "{text}");
    let row = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(
        row("10.0.0.3:8000"),
        ["10.0.0.3:8000", "unreachable", "3", "0", "-", "0.250", "-", "-", "-", "-"]
    );
    assert_eq!(row("r3"), ["r3", "gone", "-", "-", "-", "-", "-", "-"]);
}

#[test]
fn its_arguments_are_sound() {
    use clap::{Args, Command};
    TopArgs::augment_args(Command::new("top")).debug_assert();
}
