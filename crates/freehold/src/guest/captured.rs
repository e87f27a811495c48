//! Streams of a checked guest that are captured. Which stream it is the driver does not say meanwhile, so that such a one is known
//! by its handle and its capture, and taken for no stream that had the handle before.
//!
//! That a capture is over is learned when its stream is named again, because no other call may use the handle. What was handed
//! out and released in the capture is anybody's then. What came from elsewhere waits for work that was put into the stream
//! before: for that a mark is made if the stream was known by its id before the capture, and is by the same one now. One that
//! was not may have been destroyed, and its handle be another's: what waits for it is kept for good.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::ThreadId;

use freehold_driver::cuda::CUstream;
use freehold_driver::handle;

use super::{Guest, thread_of};
use crate::error::Result;
use crate::track::{Track, Trust};

/// What a stream that is captured is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    handle: usize,
    thread: Option<ThreadId>,
    capture: u64,
}

impl Name {
    fn is_of(&self, stream: CUstream) -> bool {
        self.handle == stream.0 && self.thread == thread_of(stream)
    }
}

impl Guest {
    /// The id of the capture that a stream takes part in.
    pub(super) fn capture_of(&self, stream: CUstream) -> Result<Option<u64>> {
        self.foreign().capture_of(stream.into()).map_err(|error| self.core.failed(error))
    }

    /// Whether a stream of this handle was ever named.
    pub(super) fn knows(&self, stream: CUstream) -> bool {
        let raw = handle::Stream::from(stream);
        self.captured().keys().any(|name| name.is_of(stream)) || self.streams().values().any(|track| track.raw == raw)
    }

    /// The track of a stream in a capture.
    pub(super) fn captured_stream(&self, stream: CUstream, capture: u64) -> Result<Arc<Track>> {
        let name = Name { handle: stream.0, thread: thread_of(stream), capture };
        if let Some(track) = self.captured().get(&name) {
            return Ok(track.clone());
        }
        let track = self.core.add_foreign_stream(stream.into(), thread_of(stream), Trust::Captured)?;
        let mut captured = self.captured();
        // A stream takes part in one capture at a time.
        captured
            .iter()
            .filter(|(other, _)| other.is_of(stream) && **other != name)
            .for_each(|(_, over)| over.end_capture());
        let known = captured.entry(name).or_insert_with(|| track.clone()).clone();
        if known.id != track.id {
            // Another thread was faster.
            track.end_capture();
            track.lose();
        }
        Ok(known)
    }

    /// Ends what is known of captures of a stream that is captured no more. `known` is the stream that has its id.
    pub(super) fn end_captures(&self, stream: CUstream, known: Option<&Arc<Track>>) -> Result<()> {
        let over: Vec<_> = self.captured().extract_if(|name, _| name.is_of(stream)).collect();
        let mut refused = Ok(());
        for (name, track) in &over {
            track.end_capture();
            // A stream leaves a capture when that ends, for all that took part.
            self.captured()
                .iter()
                .filter(|(other, _)| other.capture == name.capture)
                .for_each(|(_, one)| one.end_capture());
            match known.filter(|known| known.id < track.id) {
                // It was there before the capture was seen, and is now: so nobody else had the handle meanwhile.
                Some(known) => {
                    self.replace_user(track, known);
                    if let Err(error) = track.retire() {
                        self.captured().insert(*name, track.clone());
                        refused = refused.and(Err(self.core.failed(error)));
                        continue;
                    }
                }
                None => track.lose(),
            }
            self.core.pools().for_each(|pool| pool.close_racks(track));
        }
        if over.is_empty() { Ok(()) } else { refused.and(self.core.tidy()) }
    }

    /// Lets all blocks that are used in one stream be used in another, which is the same.
    fn replace_user(&self, one: &Track, other: &Arc<Track>) {
        for user in self.uses().values_mut().flatten().filter(|user| user.id == one.id) {
            *user = other.clone();
        }
    }

    fn captured(&self) -> MutexGuard<'_, HashMap<Name, Arc<Track>>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
