//! Colours, or none.

use ratatui::style::{Color, Modifier, Style};

use grapevine_node::admin::status::Level;

/// How things look. Everything is told by words or shape too, so that nothing is lost without colours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    colors: bool,
}

impl Look {
    /// As the environment wants it: <https://no-color.org>.
    pub(crate) fn from_env() -> Self {
        Self { colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { colors: false }
    }

    fn color(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn accent(self) -> Style {
        self.color(Color::Magenta)
    }

    pub(crate) fn predicted(self) -> Style {
        self.color(Color::Cyan)
    }

    pub(crate) fn bar(self) -> Style {
        self.color(Color::Blue)
    }

    pub(crate) fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub(crate) fn warn(self) -> Style {
        self.color(Color::Yellow)
    }

    pub(crate) fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(crate) fn level(self, level: Level) -> Style {
        match level {
            Level::Info => self.dim(),
            Level::Warn => self.warn(),
            Level::Error => self.bad(),
        }
    }

    /// Of a replica's health or a router's state.
    pub(crate) fn state(self, state: &str) -> Style {
        match state {
            "up" | "serving" => self.good(),
            "unreachable" | "not_ready" | "gone" => self.bad(),
            _ => self.warn(),
        }
    }
}
