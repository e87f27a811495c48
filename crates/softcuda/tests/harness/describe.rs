//! The description of a kernel, parsed from the comments at the start of its source.
//!
//! ```text
//! // launch: saxpy grid 4 block 128            also `grid 4x2x1`, `shared 1024`, `cooperative`; several run in order
//! // arg: out u32 512                          a buffer of zeros, compared afterwards
//! // arg: in f32 512 random 7                  a buffer with a content (see `content`)
//! // arg: inout u32 64 iota                    both
//! // arg: value f32 2.5                        a number
//! // arg: struct u8 1, f64 2.5                 a struct, laid out as C does
//! // compare: any-nan                          or `ulp 2`, `sorted`; `compare: 1 sorted` is about argument 1 only
//! // printf:                                   what is printed counts; `printf: sorted` if in any order
//! ```

use super::content::Content;
use super::element::Element;
use freehold_driver::cuda::launch::LaunchConfig;

#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) launches: Vec<Launch>,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) printf: Printf,
}

#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) function: String,
    pub(crate) shape: LaunchConfig,
    pub(crate) is_cooperative: bool,
}

#[derive(Debug)]
pub(crate) enum Argument {
    Buffer { element: Element, count: usize, content: Content, output: Option<Compare> },
    Value(Vec<u8>),
}

/// What makes an output equal to its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Bits,
    /// All NaNs are equal.
    AnyNan,
    /// At most this many units in the last place apart; all NaNs are equal.
    Ulp(u64),
    /// The elements are the same, in any order.
    Sorted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printf {
    None,
    InOrder,
    Sorted,
}

impl Description {
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        let mut description = Self { launches: Vec::new(), arguments: Vec::new(), printf: Printf::None };
        let mut compares = Vec::new();
        for line in source.lines() {
            let Some(text) = comment(line) else { continue };
            let Some((key, text)) = text.split_once(':') else { continue };
            let text = text.trim();
            match key {
                "launch" => description.launches.push(launch(text)?),
                "arg" => description.arguments.push(argument(text)?),
                "compare" => compares.push(text),
                "printf" => description.printf = if text == "sorted" { Printf::Sorted } else { Printf::InOrder },
                _ => {}
            }
        }
        for text in compares {
            description.compare(text)?;
        }
        if description.launches.is_empty() {
            return Err("there is no launch line".to_owned());
        }
        Ok(description)
    }

    /// Applies a `compare:` line to its outputs.
    fn compare(&mut self, text: &str) -> Result<(), String> {
        let (only, how) = match text.split_once(' ') {
            Some((index, how)) if index.parse::<usize>().is_ok() => (index.parse::<usize>().ok(), how),
            _ => (None, text),
        };
        let how = match how.split_once(' ') {
            Some(("ulp", units)) => Compare::Ulp(units.parse().map_err(|_| format!("'{units}' is not a number"))?),
            None if how == "any-nan" => Compare::AnyNan,
            None if how == "sorted" => Compare::Sorted,
            None if how == "bits" => Compare::Bits,
            _ => return Err(format!("unknown comparison '{how}'")),
        };
        for (index, argument) in self.arguments.iter_mut().enumerate() {
            if let Argument::Buffer { output: Some(output), .. } = argument
                && only.is_none_or(|only| only == index)
            {
                *output = how;
            }
        }
        Ok(())
    }
}

/// Returns the text of a comment of C, LLVM or Python.
fn comment(line: &str) -> Option<&str> {
    let text = line.strip_prefix("//").or_else(|| line.strip_prefix(';')).or_else(|| line.strip_prefix('#'))?;
    Some(text.trim())
}

fn launch(text: &str) -> Result<Launch, String> {
    let mut words = text.split_whitespace();
    let function = words.next().ok_or("a launch needs a function")?.to_owned();
    let mut launch = Launch { function, shape: LaunchConfig::linear(1, 1), is_cooperative: false };
    while let Some(word) = words.next() {
        if word == "cooperative" {
            launch.is_cooperative = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("'{word}' needs a value"))?;
        match word {
            "grid" => launch.shape.grid = extent(value)?,
            "block" => launch.shape.block = extent(value)?,
            "shared" => launch.shape.shared_bytes = number(value)?,
            _ => return Err(format!("unknown launch option '{word}'")),
        }
    }
    Ok(launch)
}

fn extent(text: &str) -> Result<[u32; 3], String> {
    let mut extent = [1; 3];
    for (index, part) in text.split('x').enumerate() {
        *extent.get_mut(index).ok_or("there are more than three dimensions")? = number(part)?;
    }
    Ok(extent)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number"))
}

fn argument(text: &str) -> Result<Argument, String> {
    let (role, rest) = text.split_once(' ').ok_or("an argument needs a type")?;
    match role {
        "value" => structure(rest),
        "struct" => structure(rest),
        "in" | "out" | "inout" => {
            let mut words = rest.splitn(3, ' ');
            let element = Element::from_name(words.next().unwrap_or_default())?;
            let count = number(words.next().unwrap_or_default())?;
            let content = Content::parse(words.next().unwrap_or_default().trim(), element)?;
            let output = (role != "in").then_some(Compare::Bits);
            Ok(Argument::Buffer { element, count, content, output })
        }
        _ => Err(format!("unknown kind of argument '{role}'")),
    }
}

/// Lays out fields in order, each aligned, with padding at the end for the alignment of the whole.
fn structure(text: &str) -> Result<Argument, String> {
    let (mut bytes, mut align) = (Vec::new(), 1);
    for field in text.split(',') {
        let (kind, value) = field.trim().split_once(' ').ok_or("a field needs a type and a value")?;
        let element = Element::from_name(kind)?;
        align = align.max(element.bytes());
        bytes.resize(bytes.len().next_multiple_of(element.bytes()), 0);
        element.write(element.parse(value.trim())?, &mut bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    Ok(Argument::Value(bytes))
}
