//! Reports that are made when the process ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Checker, locked};
use crate::access::Spot;
use crate::blocks::Block;
use crate::finding::{Finding, Kind};
use crate::origin::Origin;
use crate::report::Place;

/// Blocks that were allocated in one place and not freed.
struct Leak {
    first: Block,
    origin: Arc<Origin>,
    count: u64,
    bytes: u64,
}

impl Checker {
    /// Writes a finding for each capture that was not ended.
    pub fn report_captures(&self) {
        let captures = std::mem::take(&mut *locked(&self.captures));
        for (_, origin) in captures {
            let message = || format!("the capture that {} begins was never ended: its work did not run", origin.name());
            self.report_origin(Kind::UnjoinedCapture, &origin, "begins a capture", message, None);
        }
    }

    /// Writes a finding for each block that is still allocated. Returns false, and writes none, after a fault: the program could
    /// not free anything.
    #[must_use]
    pub fn report_leaks(&self) -> bool {
        if self.is_failed.load(Ordering::Relaxed) {
            return false;
        }
        let owned: Vec<Block> = locked(&self.blocks).owned().copied().collect();
        let (mut leaks, mut places) = (Vec::<Leak>::new(), HashMap::new());
        for block in owned {
            let origin = self.tasks.get(block.allocated).origin;
            let index = *places.entry(Place::new(&origin, Spot::default())).or_insert(leaks.len());
            match leaks.get_mut(index) {
                Some(leak) => (leak.count, leak.bytes) = (leak.count + 1, leak.bytes.saturating_add(block.bytes)),
                None => leaks.push(Leak { first: block, origin, count: 1, bytes: block.bytes }),
            }
        }
        for Leak { first, origin, count, bytes } in leaks {
            let of_blocks =
                if count > 1 { format!("{bytes} bytes in {count} blocks") } else { format!("{bytes} bytes") };
            let message = format!("{of_blocks} of {} were never freed", origin.name());
            let action = format!("allocates {} bytes", first.bytes);
            let finding =
                || Finding { count, ..self.finding_at(Kind::Leak, &origin, &action, message, Some(first.address)) };
            self.reporter.report(Kind::Leak, Place::new(&origin, Spot::default()), finding);
        }
        true
    }

    /// Writes how often each finding occurred, for those that did more than once. Called when the process ends.
    pub fn report_repeats(&self) {
        self.reporter.report_repeats();
    }
}
