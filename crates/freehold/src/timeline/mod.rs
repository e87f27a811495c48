//! What happened when, to be looked at.

pub mod perfetto;
