//! `grapevine top`: a fleet in a terminal, as any of its routers sees it.
//!
//! The tables of replicas and routers are those of `grapevine up` too.
//!
//! ```text
//! source (asks every 2 s, in a task of its own) ──▶ app ──▶ draw
//! screen (keys, resizes) ─────────────────────────▶
//! ```

mod app;
mod decisions;
mod draw;
mod grid;
pub(crate) mod history;
mod legend;
mod once;
pub(crate) mod replicas;
pub(crate) mod routers;
mod source;
pub(crate) mod style;
#[cfg(test)]
mod tests;
mod words;

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use self::app::App;
use self::source::{Source, Update};
use self::style::Look;
use crate::Failure;
use crate::admin::{NoAnswer, base_url, local_base};
use crate::runtime::{self, Signals};
use crate::screen::{self, Input, Screen};

/// How often the picture is drawn without any news: it tells how old they are.
const REDRAW: Duration = Duration::from_secs(1);

/// A fleet live in the terminal: hit rates, replicas, routers, warnings, decisions
///
/// Any router tells of all of them. With a token set on its admin listener, the same
/// GRAPEVINE_ADMIN_TOKEN or GRAPEVINE_ADMIN_TOKEN_FILE must be set here.
#[derive(Args, Debug, Clone)]
#[command(after_help = legend::help())]
pub(crate) struct TopArgs {
    /// Admin addresses; the first that answers is asked, the others stand by. `grapevine up` prints those of its
    /// routers
    /// [default: GRAPEVINE_ADMIN_LISTEN, or 127.0.0.1:9090]
    #[arg(value_name = "ADDR", value_parser = base_url)]
    admin: Vec<String>,

    /// Print a table once and end; exit code 1 if no router answers
    #[arg(long)]
    once: bool,

    /// Seconds between two looks
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    every: u16,
}

/// What to do when nobody answers.
const WHERE: &str = "say where a router's admin listener is, `grapevine top HOST:PORT` or with GRAPEVINE_ADMIN_LISTEN; \
     `grapevine up` prints its own";

/// Why there is nothing to see.
#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error("stdout is no terminal that can be drawn on; `--once` prints a table")]
    NoTerminal,
}

/// Shows it until somebody has seen enough.
pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let runtime = runtime::build(1).map_err(Box::new)?;
    runtime.block_on(top(args)).map_err(Failure::Run)
}

async fn top(args: &TopArgs) -> Result<(), Box<dyn Error>> {
    let bases = if args.admin.is_empty() { vec![local_base()] } else { args.admin.clone() };
    let mut source = Source::new(bases)?;
    if args.once {
        let update = source.ask().await.map_err(|no_answer| no_answer.hinting(WHERE))?;
        print!("{}", once::text(&update.fleet));
        return Ok(());
    }
    if !screen::can_draw() {
        return Err(TopError::NoTerminal.into());
    }
    let (tell, news) = mpsc::channel(1);
    let asking = tokio::spawn(keep_asking(source, Duration::from_secs(args.every.into()), tell));
    let shown = show(news).await;
    asking.abort();
    shown
}

async fn keep_asking(mut source: Source, every: Duration, tell: mpsc::Sender<Result<Update, NoAnswer>>) {
    let mut due = interval(every);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        if tell.send(source.ask().await).await.is_err() {
            return;
        }
    }
}

async fn show(mut news: mpsc::Receiver<Result<Update, NoAnswer>>) -> Result<(), Box<dyn Error>> {
    let signals = Signals::catch()?;
    let mut stop = std::pin::pin!(signals.first());
    let mut screen = Screen::open()?;
    let mut app = App::new(Look::from_env());
    let mut redraw = interval(REDRAW);
    loop {
        screen.draw(|frame| draw::draw(frame, &mut app, Instant::now()))?;
        tokio::select! {
            Some(answer) = news.recv() => app.take(answer, Instant::now()),
            input = screen.input() => match input {
                Input::Interrupted => return Ok(()),
                Input::Key(key) if app.key(key) => return Ok(()),
                Input::Key(_) | Input::Resized => {}
            },
            _ = redraw.tick() => {}
            () = &mut stop => return Ok(()),
        }
    }
}
