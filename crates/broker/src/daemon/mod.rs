//! The broker process: an event loop that passes messages to the state, writes the journal, and executes the effects.
//!
//! One thread does all of that, and nothing slow: `driver_thread` calls the driver, and the scrubber zeroes memory.

mod accept;
mod backoff;
mod connection;
mod driver_thread;
mod effects;
mod event_loop;
mod event_source;
mod fd_set;
pub(crate) mod journal;
mod listener;
mod requests;
mod scrub_queue;
mod server;
mod worker_checks;
mod workers;

pub(crate) use event_loop::run;
