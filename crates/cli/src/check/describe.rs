//! Findings in words: the same for text and page.

use freehold_check::{Finding, Frame, Location, Memory, Position};

use crate::output::text::count;

/// A place of the program: the memory of a finding was allocated and freed there, an access is there.
pub(super) struct Place<'a> {
    /// What happened there.
    pub(super) heading: String,
    /// Line, block, thread and stream, as far as they are known.
    pub(super) details: Option<String>,
    pub(super) stack: &'a [Frame],
    /// The innermost line of the program that is known.
    pub(super) source: Option<&'a str>,
}

/// Returns the accesses of a finding: the one that shows the error first.
pub(super) fn accesses(finding: &Finding) -> Vec<Place<'_>> {
    let accesses = [&finding.access, &finding.other].into_iter().flatten();
    let described = accesses.map(|access| Place {
        heading: format!("{} {}", access.location.function, access.action).trim().to_owned(),
        details: details(&access.location, access.position),
        stack: &access.location.stack,
        source: source(&access.location),
    });
    described.collect()
}

/// Returns where memory was allocated and freed.
pub(super) fn lifetime(memory: &Memory) -> Vec<Place<'_>> {
    let ends = [("allocated by", &memory.allocated), ("freed by", &memory.freed)];
    let known = ends.into_iter().filter_map(|(verb, location)| Some((verb, location.as_ref()?)));
    let described = known.map(|(verb, location)| Place {
        heading: format!("{verb} {}", location.function),
        details: details(location, None),
        stack: &location.stack,
        source: source(location),
    });
    described.collect()
}

/// Returns the block of memory, and where in it the error is.
pub(super) fn memory(memory: &Memory) -> String {
    let size = count(memory.bytes, "byte");
    let block = format!("a block of {size} at {:#x}", memory.address);
    let bytes = |distance| count(distance, "byte");
    match u64::try_from(memory.offset) {
        Err(_) => format!("{} before {block}", bytes(memory.offset.unsigned_abs())),
        Ok(0) if memory.bytes > 0 => block,
        Ok(offset) if offset < memory.bytes => format!("{} into {block}", bytes(offset)),
        Ok(offset) => format!("{} past the end of {block}", bytes(offset - memory.bytes)),
    }
}

/// Returns a frame as in a backtrace.
pub(super) fn frame(frame: &Frame) -> String {
    match (&frame.function, &frame.source, &frame.object) {
        (Some(function), Some(source), _) => format!("{function} at {source}"),
        (Some(function), None, Some(object)) => format!("{function} in {object}"),
        (Some(function), None, None) => function.clone(),
        (None, Some(source), _) => format!("at {source}"),
        (None, None, Some(object)) => format!("in {object}"),
        (None, None, None) => "unknown function".to_owned(),
    }
}

/// Returns how often a finding occurred, if more than once.
pub(super) fn occurrences(finding: &Finding) -> Option<String> {
    (finding.count > 1).then(|| format!("{} times", finding.count))
}

/// Returns three coordinates.
pub(super) fn triple([x, y, z]: [u32; 3]) -> String {
    format!("({x},{y},{z})")
}

/// Returns the numbers of kinds, such as `2 stream-race, 1 leak`, in the order of the kinds.
pub(super) fn kinds(findings: &[Finding]) -> String {
    per_kind(findings).into_iter().map(|(kind, number)| format!("{number} {kind}")).collect::<Vec<_>>().join(", ")
}

/// Returns the kinds that occur, each with its number of findings.
pub(super) fn per_kind(findings: &[Finding]) -> Vec<(&'static str, usize)> {
    let number = |kind| findings.iter().filter(|finding| finding.kind == kind).count();
    let all = freehold_check::Kind::ALL.iter().map(|kind| (kind.name(), number(*kind)));
    all.filter(|(_, number)| *number > 0).collect()
}

/// Returns the line of a kernel, else the innermost line of the program. Files that nvcc has written and removed are none of it.
pub(super) fn source(location: &Location) -> Option<&str> {
    let is_kept = |source: &&str| !source.contains("/tmpxft_");
    let frames = location.stack.iter().filter_map(|frame| frame.source.as_deref()).filter(is_kept);
    location.source.as_deref().into_iter().chain(frames).next()
}

fn details(location: &Location, position: Option<Position>) -> Option<String> {
    let parts = [
        location.source.as_ref().map(|source| format!("at {source}")),
        location.ptx_line.map(|line| format!("PTX line {line}")),
        location.block.map(|block| format!("block {}", triple(block))),
        location.thread.map(|thread| format!("thread {}", triple(thread))),
        position.map(|position| format!("stream {}, work {}", position.stream, position.work)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{leak, race};
    use super::*;

    #[test]
    fn an_error_is_before_in_or_past_its_block() {
        let at = |offset| memory(&Memory { offset, ..leak().memory.unwrap() });
        let block = "a block of 1024 bytes at 0x200000000200";
        assert_eq!(at(0), block);
        assert_eq!(at(1), format!("1 byte into {block}"));
        assert_eq!(at(1023), format!("1023 bytes into {block}"));
        assert_eq!(at(1024), format!("0 bytes past the end of {block}"));
        assert_eq!(at(1028), format!("4 bytes past the end of {block}"));
        assert_eq!(at(-4), format!("4 bytes before {block}"));
        assert_eq!(at(i64::MIN), format!("9223372036854775808 bytes before {block}"));
    }

    #[test]
    fn a_frame_shows_what_is_known_of_it() {
        let some = |text: &str| Some(text.to_owned());
        let shown = |function, source, object| frame(&Frame { function, source, object });
        assert_eq!(shown(some("f"), some("a.cu:1"), some("a+0x1")), "f at a.cu:1");
        assert_eq!(shown(some("f"), None, some("a+0x1")), "f in a+0x1");
        assert_eq!(shown(some("f"), None, None), "f");
        assert_eq!(shown(None, some("a.cu:1"), None), "at a.cu:1");
        assert_eq!(shown(None, None, some("a+0x1")), "in a+0x1");
        assert_eq!(shown(None, None, None), "unknown function");
    }

    #[test]
    fn kinds_are_counted_in_their_order() {
        assert_eq!(kinds(&[leak(), race(), leak()]), "1 stream-race, 2 leak");
        assert_eq!(kinds(&[]), "");
    }
}
