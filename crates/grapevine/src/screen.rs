//! The terminal in its own screen, and its keys.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

/// How often the keyboard is looked at. The thread that does so ends this long after the screen.
const KEY_POLL: Duration = Duration::from_millis(100);

/// Keys that wait; whoever types faster than is drawn loses the rest.
const MAX_KEYS: usize = 64;

/// Whether stdout is a terminal that can be drawn on: a dumb one knows no positions.
pub(crate) fn can_draw() -> bool {
    io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What happened at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A key was pressed.
    Key(KeyCode),
    /// Its size changed: draw again.
    Resized,
    /// Ctrl-C, which a raw terminal gives as a key.
    Interrupted,
}

/// A terminal that was taken over; given back when dropped.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    inputs: mpsc::Receiver<Input>,
}

impl Screen {
    /// Takes over the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (tell, inputs) = mpsc::channel(MAX_KEYS);
        std::thread::spawn(move || watch(&tell));
        Ok(Self { terminal, inputs })
    }

    /// Draws it anew.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(drop)
    }

    /// The next thing that happens at it.
    pub(crate) async fn input(&mut self) -> Input {
        match self.inputs.recv().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn watch(tell: &mpsc::Sender<Input>) {
    while !tell.is_closed() {
        match event::poll(KEY_POLL) {
            Ok(true) => {}
            Ok(false) => continue,
            // The terminal is gone; signals end the program.
            Err(_) => return,
        }
        let input = match event::read() {
            Ok(Event::Key(key)) => of_key(key),
            Ok(Event::Resize(..)) => Some(Input::Resized),
            Ok(_) => None,
            Err(_) => return,
        };
        if let Some(input) = input {
            // Full: the rest is lost, as said above.
            let _ = tell.try_send(input);
        }
    }
}

fn of_key(key: KeyEvent) -> Option<Input> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if control => Some(Input::Interrupted),
        code => Some(Input::Key(code)),
    }
}
