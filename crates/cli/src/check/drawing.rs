//! Drawings of a finding as inline SVG: two accesses on the lines of their streams with the arrow that is missing between them, and
//! the place of an error in its block. The style sheet of the page has the colours.

use std::fmt::Display;

use freehold_check::{Access, Finding, Memory};

use super::describe::triple;
use super::kinds;
use super::markup::Markup;

const WIDTH: usize = 880;
const LABEL_WIDTH: usize = 150;
const ROW_HEIGHT: usize = 84;
const BOX_WIDTH: usize = 250;
const BOX_HEIGHT: usize = 60;
/// The left sides of the boxes: of the access that was executed first, and of the last.
const COLUMNS: [usize; 2] = [160, 610];
/// The characters that fit into a box, in its two sizes of text.
const NAME_LETTERS: usize = 27;
const DETAIL_LETTERS: usize = 32;
const ADVICE_LETTERS: usize = 96;

/// A horizontal line of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    Host,
    Stream(u64),
    Thread { block: Option<[u32; 3]>, thread: Option<[u32; 3]>, is_last: bool },
}

impl Row {
    /// Returns the lines of its label.
    fn label(self) -> [String; 2] {
        match self {
            Self::Host => ["host".to_owned(), String::new()],
            Self::Stream(number) => [format!("stream {number}"), String::new()],
            Self::Thread { block, thread, .. } => [
                thread.map_or_else(|| "a thread".to_owned(), |thread| format!("thread {}", triple(thread))),
                block.map_or_else(String::new, |block| format!("block {}", triple(block))),
            ],
        }
    }
}

/// Returns the drawing of two accesses, if there are two, or of one in a race.
pub(super) fn accesses(finding: &Finding) -> Option<Markup> {
    let last = finding.access.as_ref()?;
    let first = finding.other.as_ref();
    if first.is_none() && !kinds::is_race(finding.kind) {
        return None;
    }
    let boxes: Vec<(Row, usize, &Access)> = boxes(first, last);
    let rows = rows(&boxes);
    let advice = wrapped(finding.advice.as_deref().unwrap_or_default(), ADVICE_LETTERS);
    let rows_height = rows.len() * ROW_HEIGHT;
    let height = rows_height + 26 + advice.len() * 18;

    let mut svg = Markup::default();
    svg.within("<svg class=\"race\" role=\"img\" viewBox=\"0 0 ", WIDTH, " ").within("", height, "\" aria-label=\"");
    svg.within("", &finding.message, "\">");
    for (index, row) in rows.iter().enumerate() {
        draw_row(&mut svg, *row, index * ROW_HEIGHT + ROW_HEIGHT / 2);
    }
    let middle = |row: Row| {
        let index = rows.iter().position(|found| *found == row).expect("each box has a lane");
        index * ROW_HEIGHT + ROW_HEIGHT / 2
    };
    if let [(from, ..), (to, ..)] = boxes[..] {
        draw_missing_arrow(&mut svg, middle(from), middle(to));
    }
    for (row, column, access) in &boxes {
        draw_box(&mut svg, COLUMNS[*column], middle(*row), *column, access);
    }
    svg.within("<text class=\"axis\" text-anchor=\"end\" x=\"", WIDTH - 6, "\" ");
    svg.within("y=\"", rows_height + 6, "\">time \u{2192}</text>");
    for (index, line) in advice.iter().enumerate() {
        let y = rows_height + 28 + index * 18;
        if index == 0 {
            svg.within("<path class=\"missing\" d=\"M10 ", y - 4, "h32\"/>");
        }
        svg.within("<text class=\"advice\" x=\"52\" y=\"", y, "\">").text(line).raw("</text>");
    }
    svg.raw("</svg>");
    Some(svg)
}

/// Returns the accesses in the order of execution, each with its row and column. Accesses in the same work differ by their threads.
fn boxes<'a>(first: Option<&'a Access>, last: &'a Access) -> Vec<(Row, usize, &'a Access)> {
    let is_same_work = first.is_some_and(|first| first.position.is_some() && first.position == last.position);
    let row = |access: &Access, is_last| match access.position {
        Some(_) if is_same_work => {
            Row::Thread { block: access.location.block, thread: access.location.thread, is_last }
        }
        Some(position) => Row::Stream(position.stream),
        None => Row::Host,
    };
    let first = first.map(|first| (row(first, false), 0, first));
    first.into_iter().chain([(row(last, true), 1, last)]).collect()
}

/// Returns the host, and the rows of the boxes: streams in the order of creation, threads in the order of execution.
fn rows(boxes: &[(Row, usize, &Access)]) -> Vec<Row> {
    let mut rows: Vec<Row> = boxes.iter().map(|(row, ..)| *row).collect();
    if rows.iter().any(|row| matches!(row, Row::Thread { .. })) {
        return rows;
    }
    rows.push(Row::Host);
    rows.sort_unstable();
    rows.dedup();
    rows
}

fn draw_row(svg: &mut Markup, row: Row, y: usize) {
    let [name, detail] = row.label();
    svg.within("<path class=\"row\" d=\"M", LABEL_WIDTH, " ").within("", y, "H").within("", WIDTH - 6, "\"/>");
    let name_y = if detail.is_empty() { y + 5 } else { y - 3 };
    svg.within("<text class=\"row-name\" x=\"10\" y=\"", name_y, "\">").within("", name, "</text>");
    svg.within("<text class=\"detail\" x=\"10\" y=\"", y + 14, "\">").within("", detail, "</text>");
}

/// Draws the order that the program lacks, from the end of the first access to the start of the last.
fn draw_missing_arrow(svg: &mut Markup, from_y: usize, to_y: usize) {
    let (start, end) = (COLUMNS[0] + BOX_WIDTH, COLUMNS[1] - 4);
    let middle = usize::midpoint(start, end);
    svg.within("<path class=\"missing\" marker-end=\"url(#head)\" d=\"M", start, " ").within("", from_y, "C");
    svg.within("", middle, " ").within("", from_y, " ").within("", middle, " ").within("", to_y, " ");
    svg.within("", end, " ").within("", to_y, "\"/>");
    let y = usize::midpoint(from_y, to_y);
    svg.within("<rect class=\"pill\" rx=\"11\" width=\"150\" height=\"22\" x=\"", middle - 75, "\" ");
    svg.within("y=\"", y - 11, "\"/>");
    svg.within("<text class=\"pill-text\" text-anchor=\"middle\" x=\"", middle, "\" ");
    svg.within("y=\"", y + 4, "\">nothing orders these</text>");
}

fn draw_box(svg: &mut Markup, x: usize, middle: usize, column: usize, access: &Access) {
    let y = middle - BOX_HEIGHT / 2;
    svg.raw("<g class=\"").raw(if column == 0 { "first" } else { "last" }).raw("\">");
    svg.within("<title>", format_args!("{} {}", access.location.function, access.action), "</title>");
    svg.within("<rect rx=\"7\" width=\"", BOX_WIDTH, "\" ").within("height=\"", BOX_HEIGHT, "\" ");
    svg.within("x=\"", x, "\" ").within("y=\"", y, "\"/>");
    let place = access.location.source.clone().or_else(|| {
        let innermost = access.location.stack.first()?;
        innermost.source.clone().or_else(|| innermost.object.clone())
    });
    let work = access.position.map(|position| format!("work {}", position.work));
    let details: Vec<String> = place.map(|place| shortened_path(&place)).into_iter().chain(work).collect();
    let lines: [(&str, String); 3] = [
        ("name", shortened(&access.location.function, NAME_LETTERS)),
        ("action", shortened(&access.action, DETAIL_LETTERS)),
        ("detail", details.join(" \u{b7} ")),
    ];
    for (index, (class, line)) in lines.iter().enumerate() {
        svg.within("<text class=\"", class, "\" ").within("x=\"", x + 11, "\" ");
        svg.within("y=\"", y + 20 + index * 16, "\">").within("", line, "</text>");
    }
    svg.raw("</g>");
}

/// Returns a bar for the block, with the place of the error.
pub(super) fn block(memory: &Memory) -> Markup {
    // The block, with room before and after it.
    const START: f64 = 60.0;
    const END: f64 = 820.0;
    let within = memory.offset as f64 / memory.bytes.max(1) as f64;
    let (x, class) = match u64::try_from(memory.offset) {
        Err(_) => (START / 2.0, "outside"),
        Ok(offset) if offset >= memory.bytes => (END + 30.0, "outside"),
        Ok(_) => (START + within * (END - START), "inside"),
    };
    let mut svg = Markup::default();
    svg.within("<svg class=\"block\" role=\"img\" viewBox=\"0 0 ", WIDTH, " 56\" aria-label=\"");
    svg.within("", super::describe::memory(memory), "\">");
    svg.within("<rect class=\"bytes\" rx=\"3\" height=\"16\" y=\"20\" x=\"", START, "\" ");
    svg.within("width=\"", END - START, "\"/>");
    svg.within("<path class=\"", class, "\" ").within("d=\"M", format_args!("{x:.1}"), " 15v26\"/>");
    number(&mut svg, START, "start", 0);
    number(&mut svg, END, "end", memory.bytes);
    if memory.offset != 0 {
        let anchor = if x < 120.0 {
            "start"
        } else if x > 760.0 {
            "end"
        } else {
            "middle"
        };
        svg.within("<text class=\"error\" y=\"11\" text-anchor=\"", anchor, "\" ");
        svg.within("x=\"", format_args!("{x:.1}"), "\">byte ").within("", memory.offset, "</text>");
    }
    svg.raw("</svg>");
    svg
}

fn number(svg: &mut Markup, x: f64, anchor: &'static str, number: impl Display) {
    svg.within("<text class=\"detail\" y=\"52\" text-anchor=\"", anchor, "\" ").within("x=\"", x, "\">");
    svg.text(number).raw("</text>");
}

/// Returns the start of a text, with an ellipsis where it is cut.
fn shortened(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['\u{2026}']).collect()
}

/// Returns the last part of a path, and its end if that is long: the line is there.
fn shortened_path(path: &str) -> String {
    const LETTERS: usize = 22;
    let name = path.rsplit('/').next().unwrap_or(path);
    let length = name.chars().count();
    if length <= LETTERS {
        return name.to_owned();
    }
    ['\u{2026}'].into_iter().chain(name.chars().skip(length - LETTERS + 1)).collect()
}

/// Breaks a text into lines at spaces.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::samples::{access, leak, race};
    use super::*;
    use freehold_check::{Kind, Position};

    /// Returns the labels of the rows, from top to bottom.
    fn labels(finding: &Finding) -> Vec<String> {
        let boxes = boxes(finding.other.as_ref(), finding.access.as_ref().unwrap());
        rows(&boxes).into_iter().map(|row| row.label().join(" ").trim().to_owned()).collect()
    }

    #[test]
    fn the_host_is_above_the_streams_in_the_order_of_creation() {
        assert_eq!(labels(&race()), ["host", "stream 1", "stream 2"]);
        let mut swapped = race();
        std::mem::swap(&mut swapped.access, &mut swapped.other);
        assert_eq!(labels(&swapped), ["host", "stream 1", "stream 2"]);
        let mut with_host = race();
        with_host.other = Some(access("main"));
        assert_eq!(labels(&with_host), ["host", "stream 2"]);
    }

    #[test]
    fn threads_of_one_kernel_have_their_own_lines() {
        let mut shared = race();
        shared.kind = Kind::SharedRace;
        shared.other = shared.access.clone();
        shared.other.as_mut().unwrap().location.thread = Some([0, 2, 0]);
        assert_eq!(labels(&shared), ["thread (0,2,0) block (1,0,0)", "thread (5,0,0) block (1,0,0)"]);
    }

    #[test]
    fn two_works_of_one_stream_are_on_one_line() {
        let mut ordered = race();
        ordered.other.as_mut().unwrap().position = Some(Position { stream: 2, work: 1 });
        assert_eq!(labels(&ordered), ["host", "stream 2"]);
        assert!(accesses(&ordered).is_some());
    }

    #[test]
    fn a_race_shows_both_accesses_the_missing_arrow_and_the_advice() {
        let svg = accesses(&race()).unwrap().into_string();
        for part in [
            "<g class=\"first\"><title>cuMemcpyDtoHAsync reads 1024 bytes</title>",
            "<g class=\"last\"><title>scale(float*, int) writes 4 bytes</title>",
            "class=\"missing\" marker-end=\"url(#head)\" d=\"M410 126C",
            ">Record an event in stream 1 after the copy, and let stream 2 wait for it.</text>",
            ">saxpy.cu:31 \u{b7} work 7</text>",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn one_access_is_drawn_only_in_a_race_and_without_an_arrow() {
        let mut alone = race();
        alone.other = None;
        let svg = accesses(&alone).unwrap().into_string();
        assert!(!svg.contains("marker-end"), "{svg}");
        alone.kind = Kind::OutOfBounds;
        assert!(accesses(&alone).is_none());
        assert!(accesses(&leak()).is_none());
    }

    #[test]
    fn an_error_is_marked_inside_or_outside_of_its_block() {
        let at = |offset| block(&Memory { offset, ..leak().memory.unwrap() }).into_string();
        assert!(at(512).contains("class=\"inside\" d=\"M440.0 15v26\""), "{}", at(512));
        assert!(at(1024).contains("class=\"outside\" d=\"M850.0 "), "{}", at(1024));
        assert!(at(-8).contains("class=\"outside\" d=\"M30.0 "), "{}", at(-8));
    }

    #[test]
    fn long_names_are_cut_and_long_advice_is_wrapped() {
        assert_eq!(shortened("abcdef", 4), "abc\u{2026}");
        assert_eq!(shortened("\u{e9}\u{e9}\u{e9}\u{e9}", 4), "\u{e9}\u{e9}\u{e9}\u{e9}");
        assert_eq!(shortened_path("/a/b/saxpy.cu:31"), "saxpy.cu:31");
        assert_eq!(shortened_path("a_file_with_a_long_name_indeed.cu:31"), "\u{2026}ong_name_indeed.cu:31");
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrapped("", 9), [""; 0]);
    }
}
