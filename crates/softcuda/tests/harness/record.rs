//! The recorded output of a kernel: its buffers in hexadecimal and the printed text, as a file `name.out` and as a
//! value.

use std::fmt::Write;

use super::describe::{Argument, Compare, Description, Printf};
use super::element::Element;

const ELEMENTS_A_LINE: usize = 8;

/// Maximum number of mismatches of an output that are reported one by one.
const TOLD_MAX: usize = 4;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Each output by the index of its argument.
    pub(crate) outputs: Vec<Output>,
    pub(crate) printed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) argument: usize,
    pub(crate) element: Element,
    pub(crate) bits: Vec<u64>,
}

impl Record {
    /// Returns the text of the file. Runs of one value are written as the value and its count.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for output in &self.outputs {
            writeln!(text, "argument {} {}", output.argument, output.element.name())
                .expect("a string can be written to");
            let words: Vec<_> =
                output.bits.chunk_by(|left, right| left == right).map(|run| word(output.element, run)).collect();
            for line in words.chunks(ELEMENTS_A_LINE) {
                text += &line.join(" ");
                text.push('\n');
            }
        }
        if let Some(printed) = &self.printed {
            text += "printf\n";
            text += printed;
        }
        text
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut record = Self::default();
        let mut rest = text;
        while let Some((line, below)) = rest.split_once('\n') {
            rest = below;
            if line == "printf" {
                record.printed = Some(rest.to_owned());
                break;
            }
            if let Some(header) = line.strip_prefix("argument ") {
                let (argument, element) = header.split_once(' ').ok_or("an output needs a type")?;
                let argument = argument.parse().map_err(|_| format!("'{argument}' is not an argument"))?;
                record.outputs.push(Output { argument, element: Element::from_name(element)?, bits: Vec::new() });
                continue;
            }
            let output = record.outputs.last_mut().ok_or("the record starts with an argument")?;
            for word in line.split_whitespace() {
                let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
                let bits = u64::from_str_radix(digits, 16).map_err(|_| format!("'{word}' is not a word"))?;
                let times = times.parse().map_err(|_| format!("'{word}' is not a word"))?;
                output.bits.extend(std::iter::repeat_n(bits, times));
            }
        }
        Ok(record)
    }

    /// Returns a sentence for each difference from the expected record.
    pub(crate) fn differences(&self, expected: &Self, description: &Description) -> Vec<String> {
        let mut told = Vec::new();
        let shape = |record: &Self| {
            record.outputs.iter().map(|output| (output.argument, output.element, output.bits.len())).collect::<Vec<_>>()
        };
        if shape(self) != shape(expected) {
            return vec!["the record has other outputs: record the kernel again".to_owned()];
        }
        for (got, expected) in self.outputs.iter().zip(&expected.outputs) {
            let Argument::Buffer { output: Some(compare), .. } = description.arguments[got.argument] else { continue };
            differences_of(got, expected, compare, &mut told);
        }
        let arranged = |text: &Option<String>| match (text, description.printf) {
            (Some(text), Printf::Sorted) => {
                let mut lines: Vec<_> = text.lines().collect();
                lines.sort_unstable();
                Some(lines.join("\n"))
            }
            (text, _) => text.clone(),
        };
        let (got, expected) = (arranged(&self.printed), arranged(&expected.printed));
        if got != expected {
            told.push(format!("printed {got:?}, not {expected:?}"));
        }
        told
    }
}

fn word(element: Element, run: &[u64]) -> String {
    let hex = element.hex(run[0]);
    if run.len() == 1 { hex } else { format!("{hex}*{}", run.len()) }
}

fn differences_of(got: &Output, expected: &Output, compare: Compare, told: &mut Vec<String>) {
    let element = got.element;
    let (mut left, mut right) = (got.bits.clone(), expected.bits.clone());
    if compare == Compare::Sorted {
        left.sort_unstable();
        right.sort_unstable();
    }
    let same = |left: u64, right: u64| match compare {
        Compare::Bits | Compare::Sorted => left == right,
        Compare::AnyNan => element.is_near(left, right, 0),
        Compare::Ulp(units) => element.is_near(left, right, units),
    };
    let pairs = left.iter().zip(&right).enumerate();
    let wrong: Vec<_> = pairs.filter(|(_, (got, expected))| !same(**got, **expected)).collect();
    for (index, (left, right)) in wrong.iter().take(TOLD_MAX) {
        let (left, right) = (element.tell(**left), element.tell(**right));
        told.push(format!("argument {}, element {index}: {left}, not {right}", got.argument));
    }
    if wrong.len() > TOLD_MAX {
        told.push(format!("argument {}: {} of {} elements differ", got.argument, wrong.len(), left.len()));
    }
}
