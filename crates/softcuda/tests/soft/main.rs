//! Guarantees of the software driver alone: schedules, its own errors, and that no wild argument crashes it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod capability;
mod capture;
#[path = "../common/chunks.rs"]
mod chunks;
mod coherent;
#[path = "../common/mod.rs"]
mod common;
mod devices;
mod extension;
mod fault;
mod fork;
mod handles;
mod host_task;
mod image;
mod imports;
mod injection;
mod kernel;
mod kernel_schedule;
mod locks;
mod machine;
mod managed_variable;
mod memory;
#[path = "../peer/mod.rs"]
mod peer;
mod races;
#[path = "../random/mod.rs"]
mod random;
mod random_calls;
#[path = "../common/scenarios.rs"]
mod scenarios;
mod schedule;
mod texture;
mod threads;
mod tokens;
mod unchecked;
mod visible;
mod wild;
