//! Other bytes for a block that somebody has, where it lies.

use std::sync::atomic::Ordering;

use super::Pool;
use super::class::Class;
use super::record::Record;
use crate::ledger::StreamId;

impl Pool {
    /// Lets a block have other bytes where it lies, in the order of a stream, if it can. For the block's owner.
    pub(crate) fn resize(&self, record: &Record, bytes: u64, stream: StreamId) -> bool {
        let (had_bytes, capacity_bytes) = (record.bytes(), record.capacity_bytes());
        let lot = self.book.lot(record.lot());
        let is_resized = match (Class::of(capacity_bytes), Class::of(bytes)) {
            // A block of a slab is as long as its class, whatever its owner has of it.
            (Some(_), _) if bytes <= capacity_bytes => {
                record.resize(bytes, capacity_bytes);
                true
            }
            // A place of the heap is never as short as those of the classes: it would be taken for one.
            (Some(_), _) | (None, Some(_)) => false,
            // What other streams use is not given up, nor does the block grow in an order that is not its own.
            (None, None) if record.state().is_used_elsewhere() || record.stream() != stream.0 => {
                let fits = bytes <= capacity_bytes;
                if fits {
                    record.resize(bytes, capacity_bytes);
                }
                fits
            }
            (None, None) => lot.resize(&self.book, record, bytes),
        };
        if is_resized {
            lot.counts.handed_bytes.fetch_add(bytes.wrapping_sub(had_bytes), Ordering::Relaxed);
        }
        is_resized
    }
}
