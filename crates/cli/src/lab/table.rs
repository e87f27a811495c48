//! The lab's table, wrapped to the width of the terminal.

use std::fmt;

use anstyle::{AnsiColor, Style};

use crate::output::table::TableStyle;

/// Between two cells.
const GAP: usize = 2;

/// One row: id, what was done, the answer here, the recorded answer, the verdict.
pub(crate) type Row<'a> = [&'a str; 5];

/// Builds the text of a table.
#[derive(Debug)]
pub(crate) struct Table {
    look: TableStyle,
    widths: [usize; 5],
    text: String,
}

impl Table {
    /// Creates a table whose ids are at most `id_columns` wide.
    pub(crate) fn new(look: TableStyle, id_columns: usize) -> Self {
        let verdict = "differ".len();
        let rest = look.columns - id_columns - verdict - 4 * GAP;
        let here = rest * 3 / 10;
        let widths = [id_columns, rest - 2 * here, here, here, verdict];
        Self { look, widths, text: String::new() }
    }

    pub(crate) fn heading(&mut self, text: &str) {
        let style = self.look.style(Style::new().bold());
        self.text.push('\n');
        for line in wrap(text, self.look.columns) {
            self.line(format_args!("{style}{line}{style:#}"));
        }
    }

    pub(crate) fn names(&mut self, names: Row<'_>) {
        self.cells(names, Style::new().dimmed());
    }

    pub(crate) fn agreement(&mut self, row: Row<'_>) {
        self.cells(row, AnsiColor::Green.on_default());
    }

    pub(crate) fn difference(&mut self, row: Row<'_>) {
        self.cells(row, AnsiColor::Red.on_default().bold());
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        for line in wrap(text, self.look.columns) {
            self.line(format_args!("{line}"));
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }

    /// Only the last cell is styled, so that it stands out.
    fn cells(&mut self, row: Row<'_>, style: Style) {
        let style = self.look.style(style);
        let cells: Vec<Vec<String>> = row.iter().zip(self.widths).map(|(text, width)| wrap(text, width)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let mut line = String::new();
            for (cell, width) in cells[..4].iter().zip(self.widths) {
                let text = cell.get(at).map_or("", String::as_str);
                line.push_str(&format!("{text:width$}{:GAP$}", ""));
            }
            match cells[4].get(at).filter(|verdict| !verdict.is_empty()) {
                Some(verdict) => line.push_str(&format!("{style}{verdict}{style:#}")),
                None => line.truncate(line.trim_end().len()),
            }
            self.line(format_args!("{line}"));
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.text.push_str(&line.to_string());
        self.text.push('\n');
    }
}

/// Splits `text` into lines of at most `width` characters, between words, and within words longer than a line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut letters = word.chars().count();
        let mut word = word;
        if used > 0 && used + 1 + letters <= width {
            line.push(' ');
            used += 1;
        } else if used > 0 {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        while letters > width {
            let cut = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
            letters -= width;
        }
        line.push_str(word);
        used += letters;
    }
    if used > 0 || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TableStyle = TableStyle { columns: 80, colour: false };

    #[test]
    fn words_move_to_the_next_line_whole() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn a_word_longer_than_a_line_is_cut() {
        assert_eq!(wrap("a CUDA_ERROR_X b", 6), ["a", "CUDA_E", "RROR_X", "b"]);
        assert_eq!(wrap("abcdef", 6), ["abcdef"]);
    }

    #[test]
    fn no_text_is_one_empty_line() {
        assert_eq!(wrap("", 6), [""]);
    }

    #[test]
    fn no_row_is_wider_than_the_table() {
        let long = "free of an address inside an allocation, and once more of its start ".repeat(3);
        let mut table = Table::new(PLAIN, 6);
        table.difference(["0.14.2", &long, &long, &long, "differ"]);
        let text = table.into_text();
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn output_without_colour_has_no_escape_codes() {
        let mut table = Table::new(PLAIN, 5);
        table.heading("who owns it");
        table.agreement(["0.1.1", "did", "SUCCESS", "SUCCESS", "agree"]);
        assert!(!table.into_text().contains('\u{1b}'));
    }

    #[test]
    fn with_colour_the_verdict_has_it() {
        let mut table = Table::new(TableStyle { columns: 80, colour: true }, 5);
        table.agreement(["0.1.1", "did", "SUCCESS", "SUCCESS", "agree"]);
        assert!(table.into_text().contains("\u{1b}[32magree\u{1b}[0m"));
    }
}
