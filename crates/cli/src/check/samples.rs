//! Findings for the tests of this folder.

use std::path::Path;

use freehold_check::{Access, Finding, Frame, Kind, Location, Memory, Position};

use super::findings_file::Lines;
use super::program::{Exit, Outcome};
use super::report::Report;
use super::suppressions::Suppression;

pub(super) fn frame(function: &str, source: &str) -> Frame {
    Frame { function: Some(function.to_owned()), source: Some(source.to_owned()), object: None }
}

/// An access of the host by a function of the driver.
pub(super) fn access(function: &str) -> Access {
    let location = Location { function: function.to_owned(), ..Location::default() };
    Access { action: "writes 64 bytes".to_owned(), location, position: None }
}

/// A kernel in stream 2 that writes what a copy in stream 1 reads.
pub(super) fn race() -> Finding {
    let kernel = Location {
        function: "scale(float*, int)".to_owned(),
        source: Some("saxpy.cu:31".to_owned()),
        ptx_line: Some(58),
        block: Some([1, 0, 0]),
        thread: Some([5, 0, 0]),
        stack: vec![
            frame("step(int)", "saxpy.cu:80"),
            Frame { object: Some("saxpy+0x1234".to_owned()), ..Frame::default() },
        ],
    };
    let copy = Location { stack: vec![frame("main", "saxpy.cu:92")], ..access("cuMemcpyDtoHAsync").location };
    Finding {
        advice: Some("Record an event in stream 1 after the copy, and let stream 2 wait for it.".to_owned()),
        access: Some(Access {
            action: "writes 4 bytes".to_owned(),
            location: kernel,
            position: Some(Position { stream: 2, work: 7 }),
        }),
        other: Some(Access {
            action: "reads 1024 bytes".to_owned(),
            location: copy,
            position: Some(Position { stream: 1, work: 3 }),
        }),
        memory: Some(Memory { offset: 20, ..memory() }),
        process: 40,
        ..Finding::new(Kind::StreamRace, "scale writes bytes that cuMemcpyDtoHAsync reads")
    }
}

/// A block that was not freed.
pub(super) fn leak() -> Finding {
    Finding { memory: Some(memory()), process: 40, ..Finding::new(Kind::Leak, "1024 bytes were not freed") }
}

fn memory() -> Memory {
    let stack = vec![frame("main", "saxpy.cu:70")];
    let allocated = Location { function: "cuMemAlloc".to_owned(), stack, ..Location::default() };
    Memory { address: 0x2000_0000_0200, bytes: 1024, offset: 0, allocated: Some(allocated), freed: None }
}

/// The suppressions of a file with these lines.
pub(super) fn suppressions(lines: &str) -> Vec<Suppression> {
    super::suppressions::parse(lines, Path::new("my.supp")).unwrap()
}

/// A report of two findings and a suppressed one, of a program that was killed.
pub(super) fn report() -> Report {
    let mut hidden = leak();
    hidden.memory.as_mut().unwrap().allocated.as_mut().unwrap().function = "cuMemAllocHost".to_owned();
    let findings = vec![race(), leak(), race(), hidden];
    let outcome = Outcome { exit: Exit::Signal(libc::SIGSEGV), timed_out: false };
    let program = vec!["./saxpy".to_owned(), "two words".to_owned()];
    let suppressions = suppressions("leak:cuMemAllocHost\nleak:none");
    Report::new(program, outcome, Lines { findings, is_checked: true, ..Lines::default() }, suppressions, &[])
}
