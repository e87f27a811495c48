//! The library on the device that `FREEHOLD_DEVICE` names; modules called `soft_` are about the software device alone.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arena;
mod children;
mod clocks;
mod contexts;
mod contract;
mod fault;
mod fork;
mod guest;
mod guest_capture;
mod guest_threads;
mod host_memory;
mod imported;
mod injection;
mod lacking;
mod ledger;
mod ledger_model;
mod lent;
mod mapping_fails_twice;
mod model;
mod modules;
mod never_waits;
mod order;
mod own;
mod pool_loom;
mod pool_lots_loom;
mod pool_model;
mod pool_refusals;
mod pool_review;
mod pool_threads;
mod program;
mod races;
mod recorded;
mod shared;
mod sharing;
mod soft_addresses;
mod soft_host_visible;
mod soft_pool_shortage;
mod soft_schedules;
mod threads;
mod timeline;
mod timeline_events;
mod unmapped;
mod uploads;
mod vector;
