//! The command line: each test starts `freehold` as a user would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod broker;
mod broker_fixture;
mod c_programs;
mod calls;
mod check;
mod common;
mod demo;
mod devices;
mod lab;
mod leak_check;
mod limit;
mod mpi;
mod nvml;
mod opencl;
mod put;
mod record;
mod remote;
mod replay;
mod run;
mod schedules;
mod shutdown;
mod static_runtime;
mod symbol_versions;
mod trace;
