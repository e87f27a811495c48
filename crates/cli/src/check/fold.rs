//! Folds findings that are about the same places of the program into one. A loop, or a kernel of many threads, repeats an error;
//! the first one's details are kept, and the numbers of occurrences are added.

use std::collections::HashMap;
use std::fmt::Write;

use freehold_check::{Finding, Frame, Location};

use super::source;

/// The innermost frames that distinguish two places: enough to tell the callers of a function that wraps the API.
const FRAMES: usize = 4;

/// Folds findings, in the order of their first occurrence.
pub(super) fn fold(findings: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
    let mut folded: Vec<Finding> = Vec::new();
    let mut places = HashMap::new();
    for finding in findings {
        let index = *places.entry(key(&finding)).or_insert(folded.len());
        match folded.get_mut(index) {
            Some(first) => first.count = first.count.saturating_add(finding.count),
            None => folded.push(finding),
        }
    }
    folded
}

/// Returns text that is the same for findings of one kind about the same places. Which of two accesses was executed last does
/// not matter, nor do blocks, threads, streams, addresses and processes.
pub(super) fn key(finding: &Finding) -> String {
    let accesses = [&finding.access, &finding.other];
    let mut places: Vec<String> = accesses.into_iter().flatten().map(|access| place(&access.location)).collect();
    places.sort_unstable();
    // A finding without an access is at the place of its allocation.
    if places.is_empty() {
        places.extend(finding.memory.iter().filter_map(|memory| memory.allocated.as_ref()).map(place));
    }
    // Nothing says where it is.
    if places.is_empty() {
        places.push(finding.message.clone());
    }
    format!("{}\n{}", finding.kind.name(), places.join("\n\n"))
}

fn place(location: &Location) -> String {
    let mut text = format!("{}\n{}\n", location.function, location.source.as_deref().unwrap_or_default());
    if let (None, Some(line)) = (&location.source, location.ptx_line) {
        write!(text, "PTX {line}").expect("a string can be written");
    }
    for frame in location.stack.iter().take(FRAMES) {
        text.push('\n');
        text.push_str(frame_name(frame));
        text.push('\n');
        text.push_str(frame.source.as_deref().map_or("", lasting));
    }
    text
}

/// Returns a place without what changes when the program is compiled again: nvcc writes the functions that launch kernels into files
/// such as `/tmp/tmpxft_0000130c_00000000-6_saxpy.cudafe1.stub.c`, with the number of its process.
fn lasting(source: &str) -> &str {
    let (path, _) = source::split(source);
    match path.rsplit('/').next().and_then(|name| name.strip_prefix("tmpxft_")) {
        Some(numbered) => numbered.splitn(3, '_').last().unwrap_or_default(),
        None => source,
    }
}

/// Returns the function, or the place in the object file if the function is not known.
fn frame_name(frame: &Frame) -> &str {
    frame.function.as_deref().or(frame.object.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{access, leak, race};
    use super::*;
    use freehold_check::{Kind, Position};

    /// Returns the number of findings that remain of the sample and a changed one.
    fn remaining(change: impl FnOnce(&mut Finding)) -> usize {
        let mut changed = race();
        change(&mut changed);
        fold([race(), changed]).len()
    }

    #[test]
    fn the_same_places_are_one_finding_with_the_first_ones_details_and_the_sum_of_counts() {
        let mut later = race();
        (later.count, later.process, later.message) = (5, 99, "another sentence".to_owned());
        let folded = fold([race(), leak(), later]);
        assert_eq!(folded.len(), 2);
        assert_eq!((folded[0].count, folded[0].message.as_str()), (race().count + 5, race().message.as_str()));
        assert_eq!(folded[1], leak());
    }

    #[test]
    fn blocks_threads_streams_and_addresses_do_not_distinguish() {
        let remaining = remaining(|finding| {
            let access = finding.access.as_mut().unwrap();
            access.location.block = Some([7, 0, 0]);
            access.location.thread = None;
            access.position = Some(Position { stream: 9, work: 9 });
            finding.memory.as_mut().unwrap().address += 512;
        });
        assert_eq!(remaining, 1);
    }

    #[test]
    fn the_order_of_execution_does_not_distinguish() {
        assert_eq!(remaining(|finding| std::mem::swap(&mut finding.access, &mut finding.other)), 1);
    }

    #[test]
    fn kind_function_line_and_inner_frames_distinguish() {
        fn location(finding: &mut Finding) -> &mut Location {
            &mut finding.access.as_mut().unwrap().location
        }
        assert_eq!(remaining(|finding| finding.kind = Kind::HostRace), 2);
        assert_eq!(remaining(|finding| location(finding).function = "other".to_owned()), 2);
        assert_eq!(remaining(|finding| location(finding).source = Some("saxpy.cu:32".to_owned())), 2);
        assert_eq!(remaining(|finding| location(finding).stack[0].source = Some("saxpy.cu:99".to_owned())), 2);
        assert_eq!(remaining(|finding| finding.other = None), 2);
        assert_eq!(remaining(|finding| finding.other = Some(access("cuMemsetD8Async"))), 2);
    }

    #[test]
    fn a_function_that_nvcc_generates_is_the_same_when_it_is_compiled_again() {
        let launched_in = |stub: &str| {
            let mut finding = race();
            finding.access.as_mut().unwrap().location.stack[0].source = Some(stub.to_owned());
            finding
        };
        let first = launched_in("/tmp/tmpxft_0000130c_00000000-6_my_saxpy.cudafe1.stub.c:13");
        let again = launched_in("/var/tmp/tmpxft_00b1730d_00000001-7_my_saxpy.cudafe1.stub.c:15");
        let other = launched_in("/tmp/tmpxft_0000130c_00000000-6_other.cudafe1.stub.c:13");
        assert_eq!(fold([first.clone(), again]).len(), 1);
        assert_eq!(fold([first, other]).len(), 2);
    }

    #[test]
    fn frames_far_out_do_not_distinguish() {
        let deep = |outer: &str| {
            let mut finding = leak();
            let stack = &mut finding.memory.as_mut().unwrap().allocated.as_mut().unwrap().stack;
            let names = ["a", "b", "c", "d", outer];
            *stack =
                names.map(|name| Frame { function: Some(name.to_owned()), ..Frame::default() }).into_iter().collect();
            finding
        };
        assert_eq!(fold([deep("main"), deep("start")]).len(), 1);
    }

    #[test]
    fn leaks_of_other_allocations_and_findings_without_a_place_differ() {
        let mut other = leak();
        other.memory.as_mut().unwrap().allocated.as_mut().unwrap().function = "cuMemAllocAsync".to_owned();
        assert_eq!(fold([leak(), other]).len(), 2);
        let nowhere = |message| Finding::new(Kind::UnjoinedCapture, message);
        assert_eq!(fold([nowhere("a"), nowhere("b"), nowhere("a")]).len(), 2);
    }

    #[test]
    fn a_line_of_ptx_distinguishes_where_there_is_no_source() {
        let at = |line| {
            let mut finding = race();
            let location = &mut finding.access.as_mut().unwrap().location;
            (location.source, location.ptx_line) = (None, Some(line));
            finding
        };
        assert_eq!(fold([at(1), at(2), at(1)]).len(), 2);
    }
}
