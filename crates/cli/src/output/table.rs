//! Tables of text: the style for this terminal, and columns as wide as their cells.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};

/// The narrowest table that still fits a word in each cell.
const COLUMNS_MIN: usize = 60;
/// Wider tables are not easier to read.
const COLUMNS_MAX: usize = 400;
/// For output to a file or a pipe.
const COLUMNS_DEFAULT: usize = 120;

/// The table's width, and whether it has colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableStyle {
    pub(crate) columns: usize,
    pub(crate) colour: bool,
}

impl TableStyle {
    /// Returns the style for this process's standard output. `COLUMNS` sets the width.
    pub(crate) fn for_stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let requested = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        let columns = requested.or_else(|| terminal_columns().filter(|_| terminal)).unwrap_or(COLUMNS_DEFAULT);
        Self { columns: columns.clamp(COLUMNS_MIN, COLUMNS_MAX), colour: terminal && !is_colour_refused() }
    }

    /// Returns the style for text without columns on this process's standard error.
    pub(crate) fn for_stderr() -> Self {
        let colour = std::io::stderr().is_terminal() && !is_colour_refused();
        Self { columns: COLUMNS_DEFAULT, colour }
    }

    /// Returns the style, or none without colour.
    pub(crate) fn style(self, style: Style) -> Style {
        if self.colour { style } else { Style::new() }
    }
}

fn is_colour_refused() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|text| !text.is_empty())
}

fn terminal_columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one `winsize` to `size`, which outlives the call; for a descriptor that is not a
    // terminal the call fails.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) };
    (answer == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
}

/// Formats rows below the names of their columns. Numbers are aligned right. A row with a target ends with whether it
/// is met.
pub(crate) fn columns<const N: usize>(
    names: &[&str; N],
    is_number: &[bool; N],
    rows: &[([String; N], Option<bool>)],
    style: TableStyle,
) -> String {
    let mut widths = names.map(|name| name.chars().count());
    for (cells, _) in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let (dimmed, names) = (style.style(Style::new().dimmed()), names.map(str::to_owned));
    let mut text = format!("{dimmed}{}{dimmed:#}\n", format_row(&names, &widths, is_number).trim_end());
    for (cells, met) in rows {
        text.push_str(&color_verdict(&format_row(cells, &widths, is_number), *met, style));
    }
    text
}

fn format_row<const N: usize>(cells: &[String; N], widths: &[usize; N], is_number: &[bool; N]) -> String {
    let mut line = String::new();
    for ((cell, &width), is_number) in cells.iter().zip(widths).zip(is_number) {
        line.push_str(&if *is_number { format!("{cell:>width$}  ") } else { format!("{cell:width$}  ") });
    }
    line
}

/// Appends to a row whether its target is met.
fn color_verdict(line: &str, met: Option<bool>, style: TableStyle) -> String {
    let (verdict, color) = match met {
        Some(true) => ("met", AnsiColor::Green.on_default()),
        Some(false) => ("missed", AnsiColor::Red.on_default().bold()),
        None => ("", Style::new()),
    };
    let style = style.style(color);
    format!("{line}{style}{verdict}{style:#}").trim_end().to_owned() + "\n"
}
