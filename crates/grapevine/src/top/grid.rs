//! Tables that leave out columns where there is no room.

use ratatui::layout::{Alignment, Constraint};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

use super::style::Look;
use crate::figures::bar;

/// A column of rows `T`, which need `C` to be drawn.
pub(super) struct Column<T, C> {
    title: &'static str,
    width: Constraint,
    /// Where its title stands: above numbers to the right.
    alignment: Alignment,
    /// Width of the table from which on it is shown.
    from: u16,
    cell: Draw<T, C>,
}

impl<T, C> Column<T, C> {
    /// Its head.
    #[cfg(test)]
    pub(super) const fn title(&self) -> &'static str {
        self.title
    }
}

type Draw<T, C> = fn(&T, &C) -> Cell<'static>;

/// A column of words or bars, shown where the table has at least `from` cells.
pub(super) const fn left<T, C>(
    title: &'static str,
    width: Constraint,
    from: u16,
    cell: Draw<T, C>,
) -> Column<T, C> {
    Column { title, width, alignment: Alignment::Left, from, cell }
}

/// A column of numbers.
pub(super) const fn right<T, C>(
    title: &'static str,
    width: Constraint,
    from: u16,
    cell: Draw<T, C>,
) -> Column<T, C> {
    Column { title, width, alignment: Alignment::Right, from, cell }
}

/// The table of `rows`, with the columns that fit into `width`.
pub(super) fn table<'a, T, C>(
    columns: &[Column<T, C>],
    rows: impl IntoIterator<Item = &'a T>,
    context: &C,
    look: Look,
    width: u16,
) -> Table<'static>
where
    T: 'a,
{
    let shown: Vec<&Column<T, C>> = columns.iter().filter(|column| width >= column.from).collect();
    let row = |row: &T| Row::new(shown.iter().map(|column| (column.cell)(row, context)).collect::<Vec<_>>());
    let head = |column: &&Column<T, C>| Line::from(column.title).alignment(column.alignment);
    let heads = Row::new(shown.iter().map(head).collect::<Vec<_>>()).style(look.dim());
    Table::new(rows.into_iter().map(row).collect::<Vec<_>>(), shown.iter().map(|column| column.width))
        .header(heads)
        .row_highlight_style(look.selected())
}

/// A cell of text.
pub(super) fn text(text: impl Into<String>, style: Style) -> Cell<'static> {
    Cell::from(Span::styled(text.into(), style))
}

/// A number, to the right.
pub(super) fn number(number: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(number.into()).right_aligned())
}

/// Cells of a bar.
const BAR: usize = 6;

/// A bar and its number.
pub(super) fn meter(share: Option<f64>, number: &str, style: Style) -> Cell<'static> {
    let filled = Span::styled(bar(share.unwrap_or(0.0), BAR), style);
    Cell::from(Line::from(vec![filled, Span::raw(format!(" {number:>6}"))]))
}
